"""Whether the operator may be uninstalled: not while there are EurekaSyncers or EurekaMirrors of it.

Without an operator nobody renews the syncers' instances, which leave Eureka within minutes, mirrors' Services
grow old, and whatever is deleted waits for its finalizer. It only looks.
"""

from __future__ import annotations

from collections.abc import Collection

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import MIRRORS, SYNCERS, ApiResource, KubeAccess

_KINDS = {"EurekaSyncer": SYNCERS, "EurekaMirror": MIRRORS}
_SHOWN = 5
_SECONDS = 10.0
_NOT_FOUND, _FORBIDDEN = 404, 403
_FORCE = "`helm uninstall --no-hooks` goes on all the same"


def uninstall_check(access: KubeAccess, namespaces: Collection[str]) -> str | None:
    """Why the operator must stay; None where it may go. Each request has a time-out of 10 s.

    :param namespaces: those that it watches; empty for all.
    :returns: one sentence that says which syncers there are, or that nobody can tell, and what to do.
    """
    try:
        found = {
            kind: sorted(name for place in namespaces or (None,) for name in _names(access, resource, place))
            for kind, resource in _KINDS.items()
        }
    except KubernetesError as error:
        return f"nobody can tell whether the operator is still needed: {error}. {_FORCE}"
    needing = [f"{kind} {_listed(names)}" for kind, names in found.items() if names]
    if not needing:
        return None
    return (
        f"the operator is still needed by {' and '.join(needing)}. Nobody would renew the instances, which"
        " would leave Eureka within minutes, and what is deleted would wait for ever. Delete them first,"
        f" while the operator runs; {_FORCE}"
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _names(access: KubeAccess, resource: ApiResource, namespace: str | None) -> list[str]:
    try:
        return [
            f"{item['metadata']['namespace']}/{item['metadata']['name']}"
            for page in access.pages(resource.path(namespace), timeout_seconds=_SECONDS)
            for item in page["items"]
        ]
    except KubernetesError as error:
        # There is no such kind, or mirrors are not served: these have no finalizers of this operator.
        if error.status_code == _NOT_FOUND or (resource is MIRRORS and error.status_code == _FORBIDDEN):
            return []
        raise
