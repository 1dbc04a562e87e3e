"""A real Kubernetes control plane without containers: etcd, the API server with RBAC, the controllers and the
scheduler.

kwok plays the kubelets of nodes that do not exist, or a kubelet of the lab's own runs pods as real processes.

The API server signs its own certificate, and its TLS key also signs the tokens of ServiceAccounts. Nothing
listens beyond 127.0.0.1, and no address of the machine is looked up, so that it also runs in an empty network
namespace.
"""

from __future__ import annotations

import re
import secrets
import shutil
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import requests
import yaml

from lab.errors import LabError
from lab.ports import HOST, free_ports
from lab.processes import Process, kill_all
from lab.programs import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER
from lab.waiting import is_answered_ok, wait_until

if TYPE_CHECKING:
    from lab.kubelet import Kubelet

PodKind = Literal["played", "real"]
"""The kind of a lab's pods: `played` by kwok, which only writes their status, or `real` processes of a
kubelet.
"""

_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"
_SERVICE_CIDR = "10.96.0.0/16"  # apart from the pods' addresses, which kwok counts up from 10.0.0.1
_POD_CIDR = "10.0.0.0/16"
_ADVERTISED_ADDRESS = "192.0.2.1"  # an address kept for documentation: it only stands in the certificate
_KWOK_STAGES_FILE = Path(__file__).parent / "kwok" / "stages.yaml"
_TOKEN_LIFETIME_SECONDS = 24 * 3600
_ZONE_LETTERS = "abc"
_READY_TIMEOUT_SECONDS = 120.0
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


class Kubernetes:
    """The servers of one control plane, and the files that a client needs to reach it."""

    def __init__(
        self,
        programs: Mapping[str, Path],
        *,
        directory: Path,
        api_server_port: int,
        nodes: int,
        pods: PodKind = "played",
    ) -> None:
        self._directory = directory
        self._certificates = directory / "certificates"
        self._admin_token = secrets.token_hex(16)
        self._nodes = nodes
        self._pods = pods
        self._kubelet: Kubelet | None = None
        self._port = api_server_port
        self.url = f"https://{HOST}:{api_server_port}"
        self.ca_file = self._certificates / "ca.crt"
        self.kubeconfig = directory / "kubeconfig"
        self.audit_log = directory / "logs" / "audit.log"
        """File with the requests of ServiceAccounts to the API server, one JSON object a line."""

        etcd_port, etcd_peer_port, manager_port, scheduler_port, kwok_port = free_ports(5)
        logs = directory / "logs"
        etcd_url = f"http://{HOST}:{etcd_port}"
        self.etcd = Process(
            ETCD,
            [programs[ETCD], *self._etcd_arguments(etcd_url, f"http://{HOST}:{etcd_peer_port}")],
            log=logs / "etcd.log",
            is_ready=_make_readiness_check(f"{etcd_url}/health"),
        )
        self.api_server = Process(
            API_SERVER,
            [programs[API_SERVER], *self._api_server_arguments(etcd_url)],
            log=logs / "kube-apiserver.log",
            is_ready=_make_readiness_check(f"{self.url}/readyz"),
        )
        self.controller_manager = Process(
            CONTROLLER_MANAGER,
            [programs[CONTROLLER_MANAGER], *self._controller_manager_arguments(manager_port)],
            log=logs / "kube-controller-manager.log",
            is_ready=_make_readiness_check(f"https://{HOST}:{manager_port}/healthz"),
        )
        self.scheduler = Process(
            SCHEDULER,
            [programs[SCHEDULER], *self._client_arguments(scheduler_port)],
            log=logs / "kube-scheduler.log",
            is_ready=_make_readiness_check(f"https://{HOST}:{scheduler_port}/readyz"),
        )
        self.kwok = Process(
            KWOK,
            [programs[KWOK], *self._kwok_arguments(kwok_port)],
            log=logs / "kwok.log",
            is_ready=_make_readiness_check(f"http://{HOST}:{kwok_port}/healthz"),
        )

    @property
    def processes(self) -> list[Process]:
        """All processes in their starting order: etcd, the API server, then those that need it."""
        kwok = [self.kwok] if self._pods == "played" else []
        return [self.etcd, self.api_server, self.controller_manager, self.scheduler, *kwok]

    @property
    def kubelet(self) -> Kubelet:
        """Kubelet that runs the pods where they are real."""
        if self._kubelet is None:
            raise LabError('this lab has no kubelet, or is not running: use Lab(pods="real")')
        return self._kubelet

    def start(self) -> None:
        """Start all processes, each as soon as those that it needs are ready, and wait for them."""
        self.start_etcd_and_api_server()
        clients = self.processes[2:]
        for process in clients:
            process.launch()
        for number in range(1, self._nodes + 1):
            self.add_node(number)
        if self._pods == "real":
            from lab.kubelet import Kubelet  # needs the Kubernetes client, as few labs do

            names = [f"node-{number}" for number in range(1, self._nodes + 1)]
            self._kubelet = Kubelet(self.kubeconfig, names, self._directory / "logs")
            self._kubelet.start()
        for process in clients:
            process.wait_until_ready()

    def stop_kubelet(self) -> None:
        """Stop the kubelet of real pods, which kills every pod."""
        if self._kubelet is not None:
            self._kubelet.stop()
            self._kubelet = None

    def start_etcd_and_api_server(self) -> None:
        """Start etcd and the API server only: a test that writes endpoints by hand needs no more."""
        self._write_client_files()
        self.etcd.start()
        self.api_server.start()
        # The certificate file holds the server's own certificate and then that of the authority which signed
        # it.
        chain = re.findall(
            "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?",
            (self._certificates / "apiserver.crt").read_text(),
            re.DOTALL,
        )
        self.ca_file.write_text(chain[-1])

    def delete_all_data(self) -> None:
        """Kill the API server and etcd and delete their data; :meth:`start_etcd_and_api_server` makes a new
        cluster.
        """
        kill_all([self.api_server, self.etcd])
        shutil.rmtree(self._directory / "etcd")

    def add_node(self, number: int) -> None:
        """Create the node `node-<number>`, which kwok then plays (a real kubelet knows only its first
        nodes).
        """
        self.request("POST", "/api/v1/nodes", _node_object(number))

    def wait_until_pods_can_run(self) -> None:
        """Wait for the nodes, then create and delete one pod.

        kwok makes its pool of pod addresses when it first needs one, and two first pods at once would make
        two pools and get the same address.
        """
        wait_until(
            self._is_ready_for_pods, "the nodes and the default ServiceAccount", _READY_TIMEOUT_SECONDS
        )
        if self._pods == "real":
            return
        pods = "/api/v1/namespaces/default/pods"
        spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]}
        self.request("POST", pods, {"metadata": {"name": "first"}, "spec": spec})
        wait_until(
            lambda: self.request("GET", f"{pods}/first")["status"].get("podIP"),
            "the first pod",
            _READY_TIMEOUT_SECONDS,
        )
        self.request("DELETE", f"{pods}/first")
        wait_until(
            lambda: not self.request("GET", pods)["items"], "the first pod to go", _READY_TIMEOUT_SECONDS
        )

    def _is_ready_for_pods(self) -> bool:
        """Return whether the nodes are ready and the default ServiceAccount, which every pod needs,
        exists.
        """
        accounts = self.request("GET", "/api/v1/namespaces/default/serviceaccounts")["items"]
        if not any(account["metadata"]["name"] == "default" for account in accounts):
            return False
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        return len(nodes) == self._nodes and all(_is_node_ready(node) for node in nodes)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request as the administrator; return the decoded answer, or raise LabError with the API
        server's answer.
        """
        with requests.Session() as session:
            session.trust_env = False
            try:
                response = session.request(
                    method,
                    f"{self.url}{path}",
                    json=body,
                    headers={"Authorization": f"Bearer {self._admin_token}"},
                    verify=str(self.ca_file),
                    timeout=30,
                )
            except requests.RequestException as error:
                raise LabError(f"{method} {self.url}{path} failed: {error}") from error
        if not response.ok:
            raise LabError(
                f"{method} {self.url}{path} answered {response.status_code}: {response.text.strip()}"
            )
        return response.json()

    def service_account_kubeconfig(self, namespace: str, name: str, path: Path) -> Path:
        """Write a kubeconfig with a token of that ServiceAccount for a day, from the TokenRequest API."""
        answer = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_LIFETIME_SECONDS},
            },
        )
        return self._write_kubeconfig(path, f"{namespace}-{name}", answer["status"]["token"], namespace)

    def _write_client_files(self) -> None:
        self._certificates.mkdir(parents=True, exist_ok=True)
        tokens = self._directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self._admin_token},lab-admin,lab-admin,"system:masters"\n')
        self._write_kubeconfig(self.kubeconfig, "lab-admin", self._admin_token, "default")

        self.audit_log.parent.mkdir(parents=True, exist_ok=True)
        self._audit_policy_file.write_text(yaml.safe_dump(_AUDIT_POLICY))

    @property
    def _audit_policy_file(self) -> Path:
        return self._directory / "audit-policy.yaml"

    def _write_kubeconfig(self, path: Path, user: str, token: str, namespace: str) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [
                {"name": "lab", "context": {"cluster": "lab", "user": user, "namespace": namespace}}
            ],
            "current-context": "lab",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def _etcd_arguments(self, client_url: str, peer_url: str) -> list[str]:
        return [
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",  # the data is thrown away with the lab
            "--log-level=warn",
        ]

    def _api_server_arguments(self, etcd_url: str) -> list[str]:
        key = self._certificates / "apiserver.key"
        return [
            f"--etcd-servers={etcd_url}",
            f"--secure-port={self._port}",
            f"--bind-address={HOST}",
            f"--advertise-address={_ADVERTISED_ADDRESS}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self._certificates}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--service-account-issuer={_ACCOUNT_ISSUER}",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--audit-policy-file={self._audit_policy_file}",
            f"--audit-log-path={self.audit_log}",
            f"--service-cluster-ip-range={_SERVICE_CIDR}",
        ]

    def _controller_manager_arguments(self, port: int) -> list[str]:
        return [
            *self._client_arguments(port),
            f"--service-account-private-key-file={self._certificates / 'apiserver.key'}",
            f"--root-ca-file={self.ca_file}",
        ]

    def _client_arguments(self, port: int) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--secure-port={port}",
            f"--bind-address={HOST}",
            "--leader-elect=false",
            # Benchmarks make thousands of pods; the default 20 and 50 requests a second would slow them.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _kwok_arguments(self, port: int) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--manage-all-nodes=true",
            f"--config={_KWOK_STAGES_FILE}",
            f"--cidr={_POD_CIDR}",
            f"--server-address={HOST}:{port}",
            # Heartbeats go into the node's status, so that a restarted kwok need not wait for its old leases.
            "--node-lease-duration-seconds=0",
        ]


def _node_object(number: int) -> dict[str, object]:
    name = f"node-{number}"
    capacity = {"cpu": "1000", "memory": "1Ti", "pods": "100000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": f"zone-{_ZONE_LETTERS[(number - 1) % len(_ZONE_LETTERS)]}",
            },
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": f"10.64.{number // 256}.{number % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "capacity": capacity,
            "allocatable": capacity,
            "nodeInfo": {"kubeletVersion": "kwok", "operatingSystem": "linux"},
        },
    }


def _is_node_ready(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    is_ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return is_ready and not node["spec"].get(
        "taints"
    )  # a fresh node is tainted until the node controller saw it


def _make_readiness_check(url: str) -> Callable[[], bool]:
    """Return a function that returns whether the URL answers 200, whatever its certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )

    return lambda: is_answered_ok(opener, url)
