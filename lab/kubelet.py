"""The kubelets of the lab's nodes: they keep the nodes ready and run every pod that is bound to one.

They replace kwok where pods shall be real: see :mod:`lab.pod`. They run only inside a network of the lab's
own.
"""

import itertools
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import NODES, PODS, STRATEGIC_MERGE_PATCH_TYPE, KubeAccess
from eurekube_provider.kube.reflector import Object, Reflector
from lab.errors import LabError
from lab.netns import POD_ADDRESS_TEMPLATE, is_in_lab_network
from lab.pod import Pod, PodLife

_HEARTBEAT_INTERVAL_SECONDS = 10.0  # the controller-manager gives a node up after 50 s
_POD_END_TIMEOUT_SECONDS = 10.0


class Kubelet:
    """The kubelet of these nodes until :meth:`stop`, which kills all pods' processes without telling the API.

    :ivar lives: lives of all pods that it has seen, in the order of their starts.
    """

    def __init__(self, kubeconfig: Path, nodes: Sequence[str], log_directory: Path) -> None:
        if not is_in_lab_network():
            raise LabError(
                "pods can be real processes only inside a network of the lab's own:"
                " start the lab with lab.netns.wrap_command_in_network"
            )
        self.lives: list[PodLife] = []
        self._access = KubeAccess.load(kubeconfig)
        self._nodes = tuple(nodes)
        self._log_directory = log_directory
        self._pods: dict[str, Pod] = {}
        self._lock = threading.Lock()
        self._addresses = (
            POD_ADDRESS_TEMPLATE.format(*divmod(number, 250)) for number in itertools.count(251)
        )
        self._reflector = Reflector(self._access, PODS, lambda item, _: item, self._apply_pod_change)
        self._stopped = threading.Event()
        self._heart = threading.Thread(
            target=self._send_heartbeats_until_stopped, name="kubelet-nodes", daemon=True
        )

    @property
    def has_ending_pods(self) -> bool:
        """True if a deleted pod has not ended yet."""
        return any(life.deleted_at and not life.gone_at for life in list(self.lives))

    def start(self) -> None:
        """Start to run pods, and to send the nodes' heartbeats."""
        self._heart.start()
        self._reflector.start()

    def stop(self) -> None:
        """Kill all pods at once, as when the machine is switched off."""
        self._stopped.set()
        self._reflector.stop()
        with self._lock:
            pods = list(self._pods.values())
        for pod in pods:
            pod.end_at_once()
        for pod in pods:
            pod.join(_POD_END_TIMEOUT_SECONDS)

    def _apply_pod_change(self, old: Object | None, new: Object | None) -> None:
        item = new or old
        if item is None or item["spec"].get("nodeName") not in self._nodes:
            return
        uid = str(item["metadata"]["uid"])
        with self._lock:
            if self._stopped.is_set():
                return
            pod = self._pods.get(uid)
            if new is None:
                if pod is not None:
                    pod.end_at_once()
                    del self._pods[uid]
            elif pod is not None:
                pod.apply_change(new)
            elif new["status"].get("phase") not in ("Succeeded", "Failed"):
                pod = Pod(self._access, new, next(self._addresses), self._log_directory)
                self._pods[uid] = pod
                self.lives.append(pod.life)
                pod.start()

    def _send_heartbeats_until_stopped(self) -> None:
        while True:
            for node in self._nodes:
                with suppress(KubernetesError):  # the next time
                    self._access.request(
                        "PATCH",
                        NODES.path(None, node, "status"),
                        body={"status": {"conditions": [_ready_condition()]}},
                        content_type=STRATEGIC_MERGE_PATCH_TYPE,
                    )
            if self._stopped.wait(_HEARTBEAT_INTERVAL_SECONDS):
                return


def _ready_condition() -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
