"""Which pods have ended or are about to: endpoints that were seen terminating, and pods that ended unseen.

An endpoint that terminates may be gone before anybody reconciles its syncer. A pod that ended while nobody
watched was never seen terminating; of a syncer that is refused or in doubt it would stay UP for ever, and its
address may be another application's by then. So the cluster is asked as certainly as it can be: such a pod
stands in no EndpointSlice of its namespace, and the API server has no pod of that name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address

from eurekube_provider.core.identity import endpoint_of
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, is_terminating

REMEMBERED_SECONDS = 600.0
"""For as long it is remembered that an endpoint was seen terminating."""

MOST_REMEMBERED = 20_000
"""Beyond, the oldest are forgotten: the brake doubts then what it need not, for a minute."""

Name = tuple[str, str]
"""Namespace and pod, or address."""


class TerminatingEndpoints:
    """What was seen terminating lately, and is not back since; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[Name, float] = {}

    def look(self, endpoint_slice: Object) -> None:
        """Take note of a slice as it is now; the next pod of a StatefulSet has the name of the one before."""
        now = time.monotonic()
        namespace = endpoint_slice["metadata"]["namespace"]
        with self._lock:
            for endpoint in endpoint_slice["endpoints"]:
                name = (namespace, endpoint.get("targetRef", {}).get("name") or endpoint["addresses"][0])
                self._at.pop(name, None)
                if is_terminating(endpoint):
                    self._note(name, now)

    def note(self, name: Name, now: float) -> None:
        """One was seen; the oldest ones are forgotten."""
        with self._lock:
            self._at.pop(name, None)
            self._note(name, now)

    def __contains__(self, name: Name) -> bool:
        with self._lock:
            return name in self._at

    def _note(self, name: Name, now: float) -> None:
        """The newest is the last, so that the oldest is the first."""
        self._at[name] = now
        while (
            now - self._at[oldest := next(iter(self._at))] > REMEMBERED_SECONDS
            or len(self._at) > MOST_REMEMBERED
        ):
            del self._at[oldest]

    def __len__(self) -> int:
        with self._lock:
            return len(self._at)


MOST_ASKED = 20
"""Pods that one look asks the API server for; the next look asks for the rest."""


def vanished(held: Collection[Instance], slices: Iterable[Object], cluster: str) -> list[Instance]:
    """Pods that stand in no slice by name or address, while fellow pods of their application still do.

    Where none does, the source may be broken. Whole Services, and endpoints that are no pods, are left aside.

    :param slices: all of the namespaces in question.
    :param cluster: the name that stands in the ids.
    """
    items = list(slices)
    pods = pods_of(items)
    names: set[tuple[str, str]] = set()
    for item in items:
        namespace = item["metadata"]["namespace"]
        for endpoint in item.get("endpoints") or ():
            target = endpoint.get("targetRef") or {}
            if target.get("kind") != "Pod" or not target.get("name"):
                names |= {(namespace, one) for one in (target.get("name"), *endpoint["addresses"]) if one}
    found: list[Instance] = []
    fellows: set[tuple[str, str]] = set()
    for one in held:
        name, namespace = endpoint_of(one.instance_id, cluster)
        if (namespace, name) in pods:
            fellows.add((namespace, one.application))
        elif is_pod(name) and not {(namespace, name), (namespace, one.ip_address)} & names:
            found.append(one)
    return [one for one in found if (endpoint_of(one.instance_id, cluster)[1], one.application) in fellows]


def pods_of(slices: Iterable[Object]) -> set[Name]:
    """Namespace and name of the pods that stand in these slices."""
    return {
        (item["metadata"]["namespace"], target["name"])
        for item in slices
        for endpoint in item.get("endpoints") or ()
        if (target := endpoint.get("targetRef") or {}).get("kind") == "Pod" and target.get("name")
    }


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


def is_pod(name: str) -> bool:
    """Whether this is no address, and no Service's mark in an id."""
    if ".svc" in name or not name:
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False
