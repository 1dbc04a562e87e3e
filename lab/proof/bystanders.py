"""Pods without callers, which check that the lab's kubelet ends pods as a real kubelet does."""

from typing import Any

from eurekube_provider.kube.access import PODS
from lab.pod import PodLife
from lab.proof.subjects import POOL_LABEL
from lab.workloads import Cluster, Object, wait_for

_NAMESPACE = "default"
_START_TIMEOUT_SECONDS = 60.0
_END_TIMEOUT_SECONDS = 60.0

GRACE_SECONDS = 8
PRESTOP_SECONDS = 1

_SCRIPT_ENDING_ON_SIGTERM = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
_SCRIPT_IGNORING_SIGTERM = "trap '' TERM; while :; do sleep 0.1; done"
_SCRIPT_AND_HOOK_BY_POD: dict[str, tuple[str, Object]] = {
    # Its preStop wants more than the grace period (a `sleep` that does is refused by the API): SIGTERM comes
    # at its end all the same.
    "cut-short": (_SCRIPT_ENDING_ON_SIGTERM, {"exec": {"command": ["/bin/sh", "-c", "sleep 60"]}}),
    # Its preStop is a program, and SIGTERM waits for the program's end.
    "hooked": (
        _SCRIPT_ENDING_ON_SIGTERM,
        {"exec": {"command": ["/bin/sh", "-c", f"sleep {PRESTOP_SECONDS}"]}},
    ),
    # It does not hear SIGTERM: SIGKILL at the end of the grace period.
    "stubborn": (_SCRIPT_IGNORING_SIGTERM, {}),
}


class UncalledPods:
    """Pods that nobody calls, created with this object; the proof measures how they end."""

    def __init__(self, cluster: Cluster, lives: list[PodLife]) -> None:
        self._cluster = cluster
        self._lives = lives
        for name, (script, hook) in _SCRIPT_AND_HOOK_BY_POD.items():
            cluster.access.request("POST", PODS.path(_NAMESPACE), body=_pod_object(name, script, hook))

    def delete(self) -> None:
        """Delete the pods once they run."""
        wait_for(self._are_ready, "bystanders to run", _START_TIMEOUT_SECONDS)
        for name in _SCRIPT_AND_HOOK_BY_POD:
            self._cluster.delete(PODS, name, _NAMESPACE)

    def wait_for_ends(self) -> dict[str, dict[str, Any]]:
        """Wait until the pods are gone, and return the figures of each by name: see :func:`_measure_end`."""
        wait_for(
            lambda: all(life.gone_at for life in self._bystander_lives()),
            "bystanders to go",
            _END_TIMEOUT_SECONDS,
        )
        return {life.name: _measure_end(life) for life in self._bystander_lives()}

    def _are_ready(self) -> bool:
        mine = self._bystander_lives()
        return len(mine) == len(_SCRIPT_AND_HOOK_BY_POD) and all(life.ready_at for life in mine)

    def _bystander_lives(self) -> list[PodLife]:
        return [
            life
            for life in list(self._lives)
            if life.namespace == _NAMESPACE and life.name in _SCRIPT_AND_HOOK_BY_POD
        ]


def _measure_end(life: PodLife) -> dict[str, Any]:
    """Return the seconds from a pod's deletion to SIGTERM and to its end, and whether SIGKILL was needed."""
    assert life.deleted_at is not None  # noqa: S101 - they have ended
    assert life.reported_at is not None  # noqa: S101
    assert life.gone_at is not None  # noqa: S101
    return {
        "reported_after_seconds": round(life.reported_at - life.deleted_at, 1),
        "gone_after_seconds": round(life.gone_at - life.deleted_at, 1),
        "was_killed": life.was_killed,
    }


def _pod_object(name: str, script: str, hook: Object) -> Object:
    container: Object = {
        "name": "main",
        "image": "example.invalid/none",
        "command": ["/bin/sh", "-c", script],
    }
    if hook:
        container["lifecycle"] = {"preStop": hook}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": _NAMESPACE, "name": name},
        "spec": {
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "nodeSelector": {POOL_LABEL: "common"},
            "containers": [container],
        },
    }
