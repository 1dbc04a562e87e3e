"""Eureka: how to reach it, one operation on all its servers, and the registry that reads and renews.

Facts about the protocol are proven against real servers in tests/contract.
"""
