"""The version, apart from the public names, so that the operator may know it without them."""

__version__ = "0.1.0"
