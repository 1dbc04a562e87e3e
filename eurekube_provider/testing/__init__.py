"""A pytest plugin for tests of those who use this package."""
