"""Pulumi: the dynamic resources, the components, the lookups, and what a stack's program needs beside them.

Each module is imported by name; :mod:`eurekube_provider` has the public names.
"""
