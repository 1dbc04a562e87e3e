"""The demo's servers in this process: a Eureka and a Kubernetes API, which need Python only.

The operator and ``eurekube apply`` run as processes of their own, as anywhere. The API has no controllers, so
that this module writes the Service's pods and EndpointSlice.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import Instance
from eurekube_provider.demo.interruption import InterruptionHandler
from eurekube_provider.demo.stage import APP, NAMESPACE, PORT, Object, StoryFailed
from eurekube_provider.demo.story import environment_without_foreign_servers
from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    APPLY_PATCH_TYPE,
    ENDPOINT_SLICES,
    MERGE_PATCH_TYPE,
    PODS,
    SERVICES,
    KubeAccess,
)
from eurekube_provider.runtime.child_process import ChildProcess

STACK_NAME = "dev"
REGISTRATION_LEASE = {"renewalIntervalSeconds": 1, "durationSeconds": 5}
"""The lease of the stack's registration; a server evicts what is not renewed after twice the duration."""

RENEWAL_PROOF_SECONDS = 12.0
"""Seconds for which a registration with this lease must stand to prove that it is renewed."""

COMMAND_TIMEOUT_SECONDS = 120.0
_POD_TERMINATION_SECONDS = 0.1


def program_directory() -> Path:
    """Return the directory of Pulumi.yaml and the program: beside the package in a clone, else in the wheel.

    :raises ConfigurationError: neither has them.
    """
    package = Path(__file__).parents[1]
    for directory in (package / "program", package.parent):
        if (directory / "Pulumi.yaml").is_file() and (directory / "__main__.py").is_file():
            return directory
    raise ConfigurationError("this installation of eurekube-provider lacks its program: install it again")


class EmbeddedStage:
    """A Stage in this process: a Eureka and a Kubernetes API, which run within the context."""

    deploy_tool = "eurekube apply"
    renewal_proof_seconds = RENEWAL_PROOF_SECONDS
    intro_lines = (
        "In this process: a Eureka server for development, and a Kubernetes API in memory.",
        "The API has no controllers: where a Deployment would make pods, the demo writes",
        "pods and EndpointSlices itself. The operator and eurekube apply are real processes.",
        "Nothing of yours is read or changed: no kubeconfig, no login, no file.",
    )

    def __init__(self, directory: Path, interruption: InterruptionHandler) -> None:
        self._directory = directory
        self._interruption = interruption
        self._eureka = EurekaServers(quick=True)
        self._kubernetes = KubernetesApi()
        self.eureka_urls = self._eureka.urls
        self.kubeconfig = directory / "kubeconfig"

    def __enter__(self) -> EmbeddedStage:
        self._eureka.start()
        self._kubernetes.start()
        self._kubernetes.write_kubeconfig(self.kubeconfig)
        self._peers = Peers(Connection.parse(self.eureka_urls))
        self.workload = SimulatedWorkload(KubeAccess.load(self.kubeconfig), self._interruption)
        return self

    def __exit__(self, *_: object) -> None:
        self._peers.close()
        self._kubernetes.stop()
        self._eureka.stop()

    def deploy(self) -> None:
        self._run_eurekube("apply")

    def take_down(self) -> None:
        self._run_eurekube("remove")

    def start_operator(self, environment: Mapping[str, str]) -> ChildProcess:
        command = [sys.executable, "-m", "eurekube_provider.operator"]
        return ChildProcess(
            command,
            self._directory / "operator.log",
            {**environment_without_foreign_servers(), **environment},
        )

    def instances(self, application: str) -> list[Instance]:
        """Return an application's instances, from the list, which a quick server always renders anew."""
        return [one for one in self._peers.list_instances() if one.application == application]

    def pause(self, seconds: float) -> None:
        self._interruption.pause(seconds)

    def _run_eurekube(self, subcommand: str) -> None:
        directory = program_directory()
        configuration = {
            "eurekube:url": ",".join(self.eureka_urls),
            "eurekube:kubeconfig": str(self.kubeconfig),
            "eurekube:registrations": json.dumps(_registrations_with_short_lease(directory)),
        }
        command = [sys.executable, "-m", "eurekube_provider.cli.main", subcommand]
        command += ["--project", str(directory), "--stack", STACK_NAME]
        for key, value in configuration.items():
            command += ["--config", f"{key}={value}"]
        running = ChildProcess(
            command, self._directory / f"{subcommand}.log", environment_without_foreign_servers()
        )
        try:
            waited = 0.0
            while running.exit_code is None and waited < COMMAND_TIMEOUT_SECONDS:
                self.pause(0.05)
                waited += 0.05
            if running.exit_code != 0:
                raise StoryFailed(f"eurekube {subcommand} failed:\n{running.read_output()}")
        finally:
            running.kill()


def _registrations_with_short_lease(directory: Path) -> list[Object]:
    """Return the registrations of the stack's settings, with the short lease of the demo."""
    settings = yaml.safe_load(
        (directory / "stacks" / f"Pulumi.{STACK_NAME}.yaml").read_text(encoding="utf-8")
    )
    return [{**one, **REGISTRATION_LEASE} for one in settings["config"]["eurekube:registrations"]]


@dataclass(slots=True)
class _SimulatedPod:
    """A pod that the demo itself writes to the Kubernetes API."""

    name: str
    address: str
    is_ready: bool = True
    is_terminating: bool = False

    def endpoint(self) -> Object:
        return {
            "addresses": [self.address],
            "conditions": {
                "ready": self.is_ready and not self.is_terminating,
                "serving": self.is_ready,
                "terminating": self.is_terminating,
            },
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": self.name},
        }


class SimulatedWorkload:
    """The Service of the story, its pods and EndpointSlice, written in place of Kubernetes' controllers."""

    def __init__(self, access: KubeAccess, interruption: InterruptionHandler) -> None:
        self._access = access
        self._interruption = interruption
        self._pods: list[_SimulatedPod] = []
        self._made_pod_count = 0

    def start(self, replicas: int) -> None:
        port = {"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}
        metadata = {"namespace": NAMESPACE, "name": APP, "labels": {"app": APP}}
        service = {"metadata": metadata, "spec": {"selector": {"app": APP}, "ports": [port]}}
        self._access.request("POST", SERVICES.path(NAMESPACE), body=service)
        self.scale(replicas)

    def scale(self, replicas: int) -> None:
        while len(self._pods) < replicas:
            self._create_pod()
        self._write_endpoint_slice()

    def set_ready(self, pod: Object, *, ready: bool) -> None:
        (meant,) = (one for one in self._pods if one.name == pod["metadata"]["name"])
        meant.is_ready = ready
        self._write_status(meant)
        self._write_endpoint_slice()

    def roll(self) -> None:
        """Replace all pods in turn; each new pod is ready before an old one begins to terminate."""
        for old in [*self._pods]:
            self._create_pod()
            old.is_terminating = True
            self._write_endpoint_slice()
            self._interruption.pause(_POD_TERMINATION_SECONDS)
            self._pods.remove(old)
            self._access.request("DELETE", PODS.path(NAMESPACE, old.name))
            self._write_endpoint_slice()

    def _create_pod(self) -> None:
        self._made_pod_count += 1
        suffix = "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))  # noqa: S311 - no secret
        pod = _SimulatedPod(f"{APP}-7c9d8f6b5-{suffix}", f"10.0.0.{self._made_pod_count}")
        container = {"name": "main", "image": f"example.invalid/{APP}:1"}
        metadata = {"name": pod.name, "labels": {"app": APP}}
        body = {"metadata": metadata, "spec": {"containers": [container]}}
        self._access.request("POST", PODS.path(NAMESPACE), body=body)
        self._write_status(pod)
        self._pods.append(pod)

    def _write_status(self, pod: _SimulatedPod) -> None:
        """Write a pod's status as a kubelet does."""
        condition = {"type": "Ready", "status": str(pod.is_ready)}
        status = {"phase": "Running", "podIP": pod.address, "conditions": [condition]}
        path = PODS.path(NAMESPACE, pod.name, "status")
        self._access.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH_TYPE)

    def _write_endpoint_slice(self) -> None:
        """Write the EndpointSlice as its controller does."""
        body = {
            "metadata": {"name": f"{APP}-1", "labels": {"kubernetes.io/service-name": APP}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
            "endpoints": [pod.endpoint() for pod in self._pods],
        }
        query = {"fieldManager": "eurekube-demo", "force": "true"}
        path = ENDPOINT_SLICES.path(NAMESPACE, f"{APP}-1")
        self._access.request("PATCH", path, query, body, APPLY_PATCH_TYPE)
