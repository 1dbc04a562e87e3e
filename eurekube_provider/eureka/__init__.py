"""All that knows Eureka's wire: JSON, HTTP, its servers, and how to make a plan true there.

Facts about the protocol are proven against real servers in tests/contract.
"""
