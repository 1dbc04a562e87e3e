"""Servers for development and tests: a Eureka and a Kubernetes API, in Python alone. Never for production."""
