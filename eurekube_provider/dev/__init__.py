"""Servers for development and tests, which need Python only. Nothing of the product imports them."""
