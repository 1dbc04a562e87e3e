"""The continuous work of a registry: read lists, renew, and repair."""
