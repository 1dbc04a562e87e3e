"""Pulumi: the dynamic resources, the components, the lookups, and helpers for a stack's program.

Each module is imported by name; :mod:`eurekube_provider` has the public names.
"""
