"""The lab's one error, by which a caller tells a server that could not be provided from a bug of its own.

Every message says what was tried, where, and what a person can do about it.
"""


class LabError(Exception):
    """Raised where a server could not be provided, started or reached; the message says what to do."""
