"""Helpers of long-running processes: clock, back-off, histogram, liveness of threads, signals."""
