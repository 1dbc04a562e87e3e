"""What one real neighbour does, as everything else here takes for granted.

A package, so that its servers end with its tests: one that idles through the rest of a run costs a hundredth
of a processor all the time.
"""
