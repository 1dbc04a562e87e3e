"""Benchmarks: ours against a floor and against rivals, alternating in one run, with default settings.

Not part of the wheel.
"""
