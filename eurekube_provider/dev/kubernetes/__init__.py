"""A Kubernetes API in memory, for development and tests; docs/reference/dev-servers.md lists its answers."""
