"""Access to Eureka: connections, operations on all servers, and the registry that reads and renews.

Facts about the protocol are proven against real servers in tests/contract.
"""
