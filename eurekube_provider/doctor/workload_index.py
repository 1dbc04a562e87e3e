"""An index of workloads by labels: a lookup takes as long as its result is large. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from eurekube_provider.core.objects import Object
from eurekube_provider.doctor.workload_checks import Workload

_NamespacedLabel = tuple[str, str, str]
"""Namespace, key and value of a label."""


class WorkloadIndex:
    """An index that finds workloads by the pods that they run, and by the Services that select these pods."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self._by_label: dict[_NamespacedLabel, list[Workload]] = defaultdict(list)
        self._by_selector: dict[_NamespacedLabel, list[tuple[int, Workload]]] = defaultdict(list)
        uses = Counter(
            label for one in workloads for label in _namespaced_labels(one.namespace, one.match_labels)
        )
        for position, one in enumerate(workloads):
            for label in _namespaced_labels(one.namespace, one.labels):
                self._by_label[label].append(one)
            wanted = _namespaced_labels(one.namespace, one.match_labels)
            if wanted:  # under its rarest label: all workloads of a namespace may share another one
                self._by_selector[min(wanted, key=uses.__getitem__)].append((position, one))

    def find_by_service(self, service: Object) -> list[Workload]:
        """Return the workloads whose pods a Service selects; none for one with hand-written endpoints."""
        selector = (service.get("spec") or {}).get("selector") or {}
        wanted = _namespaced_labels(service["metadata"]["namespace"], selector)
        if not wanted:
            return []
        fewest = min((self._by_label.get(label, []) for label in wanted), key=len)
        return [one for one in fewest if selector.items() <= one.labels.items()]

    def find_by_pod(self, pod: Object) -> Workload | None:
        """Return the first workload whose selector matches a pod's labels; None without one."""
        labels = pod["metadata"].get("labels") or {}
        found = (
            each
            for label in _namespaced_labels(pod["metadata"]["namespace"], labels)
            for each in self._by_selector.get(label, ())
            if each[1].match_labels.items() <= labels.items()
        )
        _, workload = min(found, key=lambda each: each[0], default=(0, None))
        return workload


def _namespaced_labels(namespace: str, labels: Object) -> list[_NamespacedLabel]:
    return [(namespace, key, value) for key, value in labels.items()]
