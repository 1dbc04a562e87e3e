"""The stage of the proof of the readiness gate: real pods, three Eurekas, operators and callers."""

from pathlib import Path
from typing import Any

from eurekube_provider.core.prestop import drained_workload
from eurekube_provider.kube.access import LEASES
from lab.eureka import EurekaServer
from lab.lab import Lab
from lab.listing import LISTED_WITHIN_SECONDS
from lab.operators import operator_process
from lab.pod import Life
from lab.processes import Process
from lab.proof.form import FORMS, Form
from lab.proof.subjects import PORT, Scenario, Strategy, Subject
from lab.spring import SpringClient
from lab.staging import Staged
from lab.workloads import DEPLOYMENTS, Cluster, wait_for

NAMESPACE = "proof"
NAME = "rating"
SURGE = 5
CALLS_PER_SECOND = 20
PATIENCE_SECONDS = 400.0
READY_SECONDS = 120.0

_ESTABLISHED = "01"
"""The state of a connection in /proc/net/tcp."""


class Stage(Staged):
    """A lab with real pods, three Eurekas, two operators that serve gates, and two kinds of callers."""

    def __init__(self, form: Form, replicas: int) -> None:
        super().__init__()
        self.form, self.replicas = form, replicas
        self.operators: dict[str, Process] = {}
        self.clients: list[SpringClient] = []
        self._starts = 0

    def prepare(self) -> None:
        """Start servers, operators, the application and callers."""
        settings: dict[str, Any] = {
            "eureka_settings": self.form.eureka_settings,
            "register_with_eureka": True,
        }
        self.lab = Lab(eureka=3, nodes=2, pods="real", **settings)
        self.ends.enter_context(self.lab)
        self.cluster = Cluster(self.lab.kubeconfig)
        self.install_crds()
        self.cluster.namespace(NAMESPACE)
        for name in ("operator-a", "operator-b"):
            self.start_operator(name)
        self.cluster.apply(DEPLOYMENTS, self._deployment())
        self.cluster.service(NAMESPACE, NAME, PORT)
        self.cluster.syncer(NAMESPACE, NAME, **self._gate)
        wait_for(lambda: self.is_rolled, "the pods", PATIENCE_SECONDS)
        client = self.caller(self.lab, "caller", **self.form.client_settings)
        self.clients.append(client)
        client.wait_until_ready()

        def knows_all() -> bool:
            return len(client.get(f"/instances/{NAME}").json()) == self.replicas

        wait_for(knows_all, "the pods in the caller", LISTED_WITHIN_SECONDS)
        file = self.lab.directory / "calls.csv"
        client.begin_calls([NAME], [NAME], CALLS_PER_SECOND, file)
        self.call_files.append(file)

    def start_operator(self, name: str) -> None:
        """A replica, once it works or stands by."""
        self._starts += 1
        told = {
            "EUREKA_URL": ",".join(self.lab.eureka_urls),
            "KUBECONFIG": str(self.lab.kubeconfig),
            "WATCH_NAMESPACE": NAMESPACE,
            "GATE_NAMESPACE": "*",
            "LEASE_NAME": NAMESPACE,
            "POD_NAME": name,
            **self.form.operator_settings,
        }
        log = self.lab.directory / "logs" / f"{name}-{self._starts}.log"
        operator = self.operators[name] = operator_process(name, log, **told)
        self.ends.callback(operator.kill)
        operator.start()

    def kill_leader(self) -> str:
        """SIGKILL the operator that leads; which one it was."""
        lease = self.cluster.get(LEASES, NAMESPACE, "default") or {}
        holder = str(lease["spec"]["holderIdentity"]).rpartition("_")[0]
        self.operators[holder].kill()
        return holder

    def eurekas_by_use(self) -> list[EurekaServer]:
        """Return the Eureka servers, first those that the caller has connections to."""
        folder = Path(f"/proc/{self.clients[0].pid}")
        sockets = {str(one.readlink()) for one in (folder / "fd").iterdir()}
        used = set()
        for table in ("tcp", "tcp6"):
            for line in (folder / "net" / table).read_text().splitlines()[1:]:
                _, _, remote, state, *_, inode = line.split()[:10]
                if state == _ESTABLISHED and f"socket:[{inode}]" in sockets:
                    used.add(int(remote.rpartition(":")[2], 16))
        return sorted(self.lab.eurekas, key=lambda one: one.port not in used)

    @property
    def lives(self) -> list[Life]:
        """Of every pod that was there, in the order of their starts."""
        return list(self.lab.kubernetes.kubelet.lives)

    @property
    def is_rolled(self) -> bool:
        """Return whether the Deployment has come to where it was sent."""
        item = self.cluster.get(DEPLOYMENTS, NAME, NAMESPACE) or {}
        status = item.get("status") or {}
        reached = {status.get(key) for key in ("replicas", "updatedReplicas", "availableReplicas")}
        return reached == {self.replicas} and status["observedGeneration"] == item["metadata"]["generation"]

    @property
    def _gate(self) -> dict[str, Any]:
        if self.form is FORMS["full"]:
            return {}
        return {"readinessGate": {"callersSeconds": self.form.drain.known_after_seconds}}

    def _deployment(self) -> dict[str, Any]:
        """The Deployment of the proof, with the gate and the drain, and no minReadySeconds."""
        item = Subject(Scenario.ROLLED, Strategy.NONE).deployment(self.replicas, self.form.drain)
        spec = drained_workload("Deployment", item["spec"], self.form.drain, declares_gate=True)
        labels = {"app": NAME}
        template = {"metadata": {"labels": labels}, "spec": dict(spec["template"]["spec"])}
        del template["spec"]["nodeSelector"]
        strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": SURGE}}
        selector = {"matchLabels": labels}
        return {
            **item,
            "metadata": {"namespace": NAMESPACE, "name": NAME},
            "spec": {**spec, "selector": selector, "template": template, "strategy": strategy},
        }
