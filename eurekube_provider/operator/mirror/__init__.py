"""Mirrors: applications registered in Eureka, shown in the cluster as Services and EndpointSlices.

The package is loaded only with ``--mirrors``: without mirrors it takes no memory.
"""
