"""Benchmarks of Eurekube against a floor and against rivals, alternating in one run, with default settings.

The package is not part of the wheel.
"""
