"""Servers for development and tests, which need Python only. Neither operator nor provider imports them."""
