"""What would cost callers an answer, found before it does: pure checks of what cluster and Eureka say.

It reads, and changes nothing. Each finding comes with the exact change that mends it, as a patch where there
is one.
"""
