"""Behaviour of every kind of registry, and a throw-away kind that shows how little a new one needs."""
