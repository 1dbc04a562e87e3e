"""Contract of one real neighbour, on which everything else relies.

A package, so that its servers end with its tests: one that idles through the rest of a run costs a hundredth
of a processor all the time.
"""
