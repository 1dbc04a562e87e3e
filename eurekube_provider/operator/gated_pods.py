"""The pods that declare the readiness gate, watched where the operator serves it.

A pod's metadata do not say that it declares a gate, so whole pods are watched, in the namespaces of the
setting ``gate-namespace`` alone. Of a pod without the gate only its name is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from eurekube_provider.core.gate import (
    declares_gate,
    held_since_unix,
    is_held_by_gate,
    is_ready_or_becoming_ready,
)
from eurekube_provider.core.objects import conditions_of, key_of
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.kube.access import PODS, KubeAccess
from eurekube_provider.kube.reflector import Reflector, ReflectorGroup
from eurekube_provider.operator.index import Object

PodKey = tuple[str, str]
"""Namespace and name of a pod."""


def trim_gated_pod(pod: Object, _before: Object | None = None) -> Object:
    """Return the part of a pod that the copy keeps: the name, and for a pod with the readiness gate also the
    fields that decide when the gate opens.
    """
    namespace, name = key_of(pod)
    if not declares_gate(pod.get("spec") or {}):
        return {"metadata": {"namespace": namespace, "name": name}}
    metadata = pod["metadata"]
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": metadata.get("uid"),
            "resourceVersion": metadata.get("resourceVersion"),
            "labels": metadata.get("labels") or {},
        },
        "node": pod["spec"].get("nodeName") or "",
        "condition": conditions_of(pod).get(READINESS_GATE, {}),
        "is_held": is_held_by_gate(pod),
        "held_from": held_since_unix(pod) if is_held_by_gate(pod) else 0.0,
        "is_opening": is_ready_or_becoming_ready(pod),
        "is_ready": conditions_of(pod).get("Ready", {}).get("status") == "True",
    }


class GatedPods(ReflectorGroup):
    """A copy of the pods of some namespaces; any number of threads may share it.

    :param namespaces: namespaces whose pods are watched; None stands for all namespaces.
    :param changed: called with a pod that the gate begins or ceases to hold.
    :param on_denied: called with a namespace whose pods may not be read any more; None stands for all.
    """

    def __init__(
        self,
        access: KubeAccess,
        namespaces: Sequence[str | None],
        changed: Callable[[Object], None],
        is_node_ready: Callable[[str], bool],
        on_denied: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        super().__init__(
            Reflector(
                access,
                PODS,
                trim_gated_pod,
                self._update_pod,
                namespace,
                on_denied=partial(on_denied, namespace),
            )
            for namespace in namespaces
        )
        self._changed = changed
        self._is_node_ready = is_node_ready
        self._lock = threading.Lock()
        self._held: dict[PodKey, tuple[Object, float]] = {}
        self._opening: dict[PodKey, Object] = {}

    def waiting_pods(self) -> list[Object]:
        """Return the pods that only the readiness gate keeps from being ready, by their own conditions."""
        with self._lock:
            return [pod for pod, _ in self._held.values()]

    def pods_depending_on_nodes(self) -> list[Object]:
        """Return the pods whose status in Eureka depends on whether their node is ready."""
        with self._lock:
            opening = [pod for pod in self._opening.values() if not pod["is_ready"]]
        return [*self.waiting_pods(), *opening]

    def waiting_pods_on_ready_nodes(self) -> list[tuple[Object, float]]:
        """Return the pods of :meth:`waiting_pods` on ready nodes, each with the seconds that it has waited.

        A pod on a node that is not ready is left out: the kubelet's last report may be outdated.
        """
        now = time.monotonic()
        with self._lock:
            found = list(self._held.values())
        return [(pod, now - since) for pod, since in found if self._is_node_ready(pod["node"])]

    def pods_registered_as_ready(self) -> frozenset[PodKey]:
        """Return the pods that are registered as ready, whatever their endpoints say.

        After a gate opens, the kubelet reports the pod ready a moment later, unless the kubelet is gone. A
        copy that may not be read any more is left out: by it the pod would count as ready for ever.
        """
        with self._lock:
            if not (self._held or self._opening):
                return frozenset()
            opening = [
                (key, pod)
                for key, pod in self._opening.items()
                if self.find_denied_after_list(key[0]) is None
            ]
        seen = {key for key, pod in opening if pod["is_ready"] or self._is_node_ready(pod["node"])}
        return frozenset(seen.union(key_of(pod) for pod, _ in self.waiting_pods_on_ready_nodes()))

    def _update_pod(self, old: Object | None, new: Object | None) -> None:
        subject = new or old
        if subject is None:
            return
        key = key_of(subject)
        with self._lock:
            held, was_opening = self._held.pop(key, None), self._opening.pop(key, None) is not None
            if new is not None and new.get("is_held"):
                is_same = held is not None and held[0]["metadata"]["uid"] == new["metadata"]["uid"]
                self._held[key] = new, held[1] if held is not None and is_same else time.monotonic()
            elif new is not None and new.get("is_opening"):
                self._opening[key] = new
            is_news = (held is not None, was_opening) != (key in self._held, key in self._opening)
        if is_news:
            self._changed(subject)
