"""Behaviour of every kind of registry, and a kind made for tests only, which shows how little a new kind
needs.
"""
