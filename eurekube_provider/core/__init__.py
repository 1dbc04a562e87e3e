"""Pure functions and values: the model of an instance, the mapping, the plan and the brake.

Nothing in this package does I/O, reads a clock or knows a client library.
"""
