"""Mirrors: applications registered in Eureka, shown in the cluster as Services and EndpointSlices.

Loaded only where the operator is asked to (``--mirrors``): without it none of this takes memory.
"""
