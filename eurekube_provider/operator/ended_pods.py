"""Pods that ended while nobody watched: of a syncer that is refused or in doubt they would stay UP for ever.

No goodbye of them was seen, and a plan that may remove them there is none. Their addresses may be other
applications' by then. What the cluster says is asked as certainly as it can be: such a pod stands in no
EndpointSlice of its namespace, and the API server has no pod of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address

from eurekube_provider.core.identity import endpoint_of
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object

MOST_ASKED = 20
"""Pods that one look asks the API server for; the next look asks for the rest."""


def vanished(held: Collection[Instance], slices: Iterable[Object], cluster: str) -> list[Instance]:
    """Pods that stand in no slice by name or address, while fellow pods of their application still do.

    Where none does, the source may be broken. Whole Services, and endpoints that are no pods, are left aside.

    :param slices: all of the namespaces in question.
    :param cluster: the name that stands in the ids.
    """
    pods: set[tuple[str, str]] = set()
    names: set[tuple[str, str]] = set()
    for item in slices:
        namespace = item["metadata"]["namespace"]
        for endpoint in item.get("endpoints") or ():
            target = endpoint.get("targetRef") or {}
            if target.get("kind") == "Pod" and target.get("name"):
                pods.add((namespace, target["name"]))
            else:
                names |= {(namespace, one) for one in (target.get("name"), *endpoint["addresses"]) if one}
    found: list[Instance] = []
    fellows: set[tuple[str, str]] = set()
    for one in held:
        name, namespace = endpoint_of(one.instance_id, cluster)
        if (namespace, name) in pods:
            fellows.add((namespace, one.application))
        elif _is_pod(name) and not {(namespace, name), (namespace, one.ip_address)} & names:
            found.append(one)
    return [one for one in found if (endpoint_of(one.instance_id, cluster)[1], one.application) in fellows]


def ended(
    held: Collection[Instance], slices: Iterable[Object], cluster: str, is_there: Callable[[str, str], bool]
) -> frozenset[str]:
    """The ids of those of which there is no pod any more.

    :param is_there: asks the API server whether a namespace has a pod of a name.
    """
    asked = vanished(held, slices, cluster)[:MOST_ASKED]
    return frozenset(
        one.instance_id for one in asked if not is_there(*reversed(endpoint_of(one.instance_id, cluster)))
    )


def _is_pod(name: str) -> bool:
    """Whether this is no address, and no Service's mark in an id."""
    if ".svc" in name or not name:
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False
