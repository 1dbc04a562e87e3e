"""The Kubernetes API as raw JSON, over the official client: access, reflector, elector, Events."""
