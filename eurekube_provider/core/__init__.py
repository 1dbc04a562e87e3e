"""The pure middle of Eurekube: what an instance is, what is wanted, and what must change.

Nothing in this package does I/O, reads a clock or knows a client library.
"""
