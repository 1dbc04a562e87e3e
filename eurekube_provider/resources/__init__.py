"""Pulumi: the dynamic resource, the components, and the program without an engine.

Each module is imported by name; :mod:`eurekube_provider` has the public names.
"""
