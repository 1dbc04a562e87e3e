"""The version in a module of its own, so that the operator can read it without loading the public names."""

__version__ = "0.1.0"
