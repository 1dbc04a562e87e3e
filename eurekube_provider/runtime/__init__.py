"""Helpers of long-running processes: clock, back-off, histograms, logs, signals, optional parts."""
