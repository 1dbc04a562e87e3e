"""A Kubernetes API in memory, for development and tests (docs/reference/dev-kubernetes.md)."""
