"""The doctor: pure checks that find in cluster and Eureka what would cost callers an answer, before it does.

It reads, and changes nothing. Each finding comes with the exact change that fixes it, as a patch where there
is one.
"""
