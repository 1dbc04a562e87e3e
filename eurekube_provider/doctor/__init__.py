"""The doctor: checks of a cluster and its Eureka for faults that would make callers' requests fail.

The doctor reads, and changes nothing. Each finding comes with the exact change that fixes it, as a patch
where one exists.
"""
