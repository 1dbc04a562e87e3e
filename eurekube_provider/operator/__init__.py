"""The in-cluster watcher: makes endpoints appear in Eureka, keeps them there, and takes them out again.

Knows nothing of Pulumi.
"""
