"""A Kubernetes API in memory, for development and tests: the part that Eurekube and its demo use.

It has no controllers, no admission and no CEL; docs/reference/dev-servers.md lists what it answers.
"""

from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi

__all__ = ["KubernetesApi"]
