"""The in-cluster operator: registers endpoints in Eureka, renews them, and deregisters them again.

The package knows nothing of Pulumi.
"""
