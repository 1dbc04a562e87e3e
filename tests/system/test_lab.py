"""The lab itself: its servers are real, run beside each other, and end with it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from eurekube_provider.kube.access import MERGE_PATCH_TYPE, PODS, STRATEGIC_MERGE_PATCH_TYPE
from lab import EUREKA_PASSWORD, EUREKA_USER, EurekaServer, Lab, LabError, Ports
from lab.listing import list_keys_uncached, list_uncached, wait_until_listed
from lab.waiting import wait_until
from lab.workloads import Cluster

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
CREDENTIALS = (EUREKA_USER, EUREKA_PASSWORD)
WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def http() -> Iterator[requests.Session]:
    """Return a session that ignores proxies and netrc of the environment."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


NEVER_COPIED = {
    "eureka.server.use-read-only-response-cache": "true",
    "eureka.server.response-cache-update-interval-ms": "3600000",
}
"""Eureka settings with which a cached list stays as it was first read."""


@pytest.fixture(scope="module")
def three_eurekas() -> Iterator[Lab]:
    """Start three Eureka servers that are peers, with settings of the test's own."""
    with Lab(eureka=3, kubernetes=False, uncached_lists=True, eureka_settings=NEVER_COPIED) as running:
        yield running


@pytest.fixture
def namespace(lab: Lab, unique_name: str) -> Iterator[str]:
    """Create a namespace for one test, in which pods are admitted."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique_name}}
    lab.kubernetes.request("POST", "/api/v1/namespaces", body)
    accounts = f"/api/v1/namespaces/{unique_name}/serviceaccounts"
    wait_until(lambda: lab.kubernetes.request("GET", accounts)["items"], "the default account", WAIT_SECONDS)
    yield unique_name
    lab.kubernetes.request("DELETE", f"/api/v1/namespaces/{unique_name}")


def registration(application: str, instance_id: str) -> dict[str, Any]:
    """Return a registration as a Eureka client sends it."""
    data_center = {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"}
    return {
        "instance": {
            "instanceId": instance_id,
            "app": application,
            "hostName": "10.0.0.1",
            "ipAddr": "10.0.0.1",
            "vipAddress": application.lower(),
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "dataCenterInfo": data_center,
        }
    }


def register(http: requests.Session, url: str, application: str, instance_id: str) -> None:
    answer = http.post(f"{url}/apps/{application}", json=registration(application, instance_id), timeout=10)
    assert answer.status_code == 204


def is_registered(http: requests.Session, url: str, application: str, instance_id: str) -> bool:
    return http.get(f"{url}/apps/{application}/{instance_id}", timeout=10).status_code == 200


def peers_of(http: requests.Session, url: str) -> set[str]:
    """Return the peer URLs in a server's status page, without a slash at the end."""
    status = http.get(f"{url}/status", timeout=10).text
    found = re.search("<registered-replicas>(.*?)</registered-replicas>", status)
    assert found is not None
    return {peer.strip().rstrip("/") for peer in found.group(1).split(",") if peer.strip()}


def create_deployment(lab: Lab, namespace: str, name: str, replicas: int, *gates: str) -> None:
    labels = {"app": name}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}]}
    if gates:
        spec["readinessGates"] = [{"conditionType": gate} for gate in gates]
    lab.kubernetes.request(
        "POST",
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": spec,
                },
            },
        },
    )
    lab.kubernetes.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/services",
        {
            "metadata": {"name": name},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    )


def pods_of(lab: Lab, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = lab.kubernetes.request("GET", f"/api/v1/namespaces/{namespace}/pods")[
        "items"
    ]
    return items


def endpoints_of(lab: Lab, namespace: str) -> dict[str, bool]:
    """Return the readiness of each address in the namespace's EndpointSlices."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = lab.kubernetes.request("GET", path)["items"]
    return {
        address: endpoint["conditions"]["ready"]
        for item in slices
        for endpoint in item.get("endpoints") or []
        for address in endpoint["addresses"]
    }


def await_endpoints(lab: Lab, namespace: str, expected: list[bool]) -> None:
    """Wait until the endpoints have this readiness; if they do not, fail with pods, endpoints and events."""
    try:
        wait_until(
            lambda: sorted(endpoints_of(lab, namespace).values()) == expected, "the endpoints", WAIT_SECONDS
        )
    except LabError:
        events = lab.kubernetes.request("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        seen = {
            "endpoints": endpoints_of(lab, namespace),
            "pods": {pod["metadata"]["name"]: pod["status"] for pod in pods_of(lab, namespace)},
            "events": [f"{event['reason']}: {event['message']}" for event in events],
        }
        pytest.fail(f"expected endpoints {expected}, seen {json.dumps(seen, indent=2)}")


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


def test_a_registration_by_hand_is_read_back(lab: Lab, http: requests.Session) -> None:
    """A registration over REST is read past the caches at once, and a list that was not cached shows it."""
    url = lab.eureka_urls[0]
    register(http, url, "LAB-BY-HAND", "by-hand:8080")
    assert ("LAB-BY-HAND", "by-hand:8080") in list_keys_uncached(url)
    (found,) = list_uncached(url, "lab-by-hand")
    assert found.instance_id == "by-hand:8080"
    wait_until_listed(url, [found])


def test_a_lone_server_has_no_peer(lab: Lab, http: requests.Session) -> None:
    """A single server does not replicate to itself."""
    assert peers_of(http, lab.eureka_urls[0]) == set()


def test_each_of_three_servers_has_the_other_two_as_peers(three_eurekas: Lab, http: requests.Session) -> None:
    """Peers on one host are distinguished by their ports, and none takes itself for a peer."""
    urls = set(three_eurekas.eureka_urls)
    assert [peers_of(http, url) for url in three_eurekas.eureka_urls] == [
        urls - {url} for url in three_eurekas.eureka_urls
    ]


def test_a_registration_reaches_all_peers(three_eurekas: Lab, http: requests.Session) -> None:
    """The server that gets a registration forwards it to its peers."""
    register(http, three_eurekas.eureka_urls[0], "LAB-REPLICATED", "replicated:8080")
    for url in three_eurekas.eureka_urls:
        wait_until(
            lambda url=url: is_registered(http, url, "LAB-REPLICATED", "replicated:8080"),  # type: ignore[misc]
            f"the registration at {url}",
            WAIT_SECONDS,
        )


def test_settings_of_the_caller_win(three_eurekas: Lab, http: requests.Session) -> None:
    """A Spring property of the caller overrides the lab's own; here one that `uncached_lists` sets
    otherwise.
    """
    for url in three_eurekas.eureka_urls:
        assert http.get(f"{url}/apps/LAB-SETTINGS", timeout=10).status_code == 404
    url = three_eurekas.eureka_urls[0]
    register(http, url, "LAB-SETTINGS", "settings:8080")
    assert http.get(f"{url}/apps/LAB-SETTINGS", timeout=10).status_code == 404
    assert is_registered(http, url, "LAB-SETTINGS", "settings:8080")


def test_a_paused_server_keeps_its_port_and_its_silence(three_eurekas: Lab, http: requests.Session) -> None:
    """After SIGSTOP a server accepts connections and never answers; after SIGCONT it still holds its
    instances.
    """
    server = three_eurekas.eurekas[2]
    register(http, server.url, "LAB-PAUSED", "paused:8080")
    server.pause()
    try:
        with pytest.raises(requests.ReadTimeout):
            http.get(f"{server.url}/apps", timeout=0.5)
        assert server.state == "paused"
    finally:
        server.resume()
    assert is_registered(http, server.url, "LAB-PAUSED", "paused:8080")


def test_a_killed_server_comes_back_empty_on_its_port(three_eurekas: Lab, http: requests.Session) -> None:
    """A killed server that does not register with its peers copies nothing from them at its start."""
    server = three_eurekas.eurekas[1]
    register(http, server.url, "LAB-KILLED", "killed:8080")
    server.kill()
    assert server.pid is None
    with pytest.raises(requests.ConnectionError):
        http.get(f"{server.url}/apps", timeout=5)
    server.start()
    assert not is_registered(http, server.url, "LAB-KILLED", "killed:8080")


@pytest.fixture(scope="module")
def clients() -> Iterator[Lab]:
    """Start two servers that are clients of each other, and ask for a password.

    A starting server copies its neighbour's list, which here shows each write at once.
    """
    with Lab(
        eureka=2, kubernetes=False, security="basic", register_with_eureka=True, uncached_lists=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def authenticated() -> Iterator[requests.Session]:
    """Return a session with the servers' password."""
    with requests.Session() as session:
        session.trust_env = False
        session.auth = CREDENTIALS
        yield session


def test_basic_security_asks_for_the_password(
    clients: Lab, http: requests.Session, authenticated: requests.Session
) -> None:
    """The servers answer 401 without credentials; with them reads and writes work, and peers reach each
    other.
    """
    first, second = clients.eureka_urls
    body = registration("LAB-BASIC", "basic:8080")
    assert http.get(f"{first}/apps", timeout=10).status_code == 401
    assert http.post(f"{first}/apps/LAB-BASIC", json=body, timeout=10).status_code == 401
    register(authenticated, first, "LAB-BASIC", "basic:8080")
    wait_until(
        lambda: is_registered(authenticated, second, "LAB-BASIC", "basic:8080"), "the replica", WAIT_SECONDS
    )


def test_servers_that_register_with_each_other_copy_the_registry(
    clients: Lab, authenticated: requests.Session
) -> None:
    """With register_with_eureka a restarted server holds at once what its peer holds."""
    first, second = clients.eurekas
    register(authenticated, first.url, "LAB-COPIED", "copied:8080")
    second.restart()
    wait_until(
        lambda: is_registered(authenticated, second.url, "LAB-COPIED", "copied:8080"),
        "the copy",
        WAIT_SECONDS,
    )


def test_a_deployment_becomes_running_pods_and_ready_endpoints(lab: Lab, namespace: str) -> None:
    """Controllers, scheduler and kwok work as in a real cluster."""
    create_deployment(lab, namespace, "rating", 2)
    await_endpoints(lab, namespace, [True, True])
    pods = pods_of(lab, namespace)
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"node-1", "node-2"}
    assert {pod["status"]["podIP"] for pod in pods} == set(endpoints_of(lab, namespace))


def test_nodes_stand_in_zones(lab: Lab) -> None:
    """node-1 and node-2 carry the topology label from which EndpointSlices get their zone."""
    nodes = lab.kubernetes.request("GET", "/api/v1/nodes")["items"]
    zones = {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes
    }
    assert zones == {"node-1": "zone-a", "node-2": "zone-b"}


def test_scaling_down_removes_pods_promptly(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """kwok removes a deleted pod at once, unless a finalizer holds it."""
    create_deployment(lab, namespace, "rating", 2)
    await_endpoints(lab, namespace, [True, True])
    cluster.scale(namespace, "rating", 1)
    wait_until(lambda: len(pods_of(lab, namespace)) == 1, "one pod less", 25)  # of 30 s of grace
    await_endpoints(lab, namespace, [True])


def test_a_pod_made_unready_stays_unready(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """kwok does not change a running pod's conditions, even if the pod changes otherwise."""
    create_deployment(lab, namespace, "rating", 1)
    await_endpoints(lab, namespace, [True])
    pod = pods_of(lab, namespace)[0]
    cluster.set_ready(pod, ready=False)
    await_endpoints(lab, namespace, [False])

    touched = {"metadata": {"annotations": {"touched": "true"}}}
    cluster.access.request(
        "PATCH", PODS.path(namespace, pod["metadata"]["name"]), body=touched, content_type=MERGE_PATCH_TYPE
    )
    # A second pod is taken through all of kwok's stages; had kwok wanted to change the first, it would have.
    create_deployment(lab, namespace, "other", 1)
    await_endpoints(lab, namespace, [False, True])
    assert endpoints_of(lab, namespace)[pod["status"]["podIP"]] is False


def test_a_pod_with_readiness_gates_is_ready_when_all_are_open(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """A pod is ready only while its containers and each gate's condition are, as with a kubelet."""
    gates = ["example.org/first", "example.org/second"]
    create_deployment(lab, namespace, "rating", 1, *gates)
    await_endpoints(lab, namespace, [False])
    (pod,) = pods_of(lab, namespace)

    def say(*conditions: tuple[str, str]) -> None:
        body = {"status": {"conditions": [{"type": kind, "status": state} for kind, state in conditions]}}
        path = PODS.path(namespace, pod["metadata"]["name"], "status")
        cluster.access.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH_TYPE)

    def conditions() -> dict[str, str]:
        path = PODS.path(namespace, pod["metadata"]["name"])
        return {one["type"]: one["status"] for one in cluster.access.get(path)["status"]["conditions"]}

    assert conditions()["Ready"] == "False"
    say((gates[0], "True"))
    say((gates[1], "False"))
    # A pod without gates is taken through all of kwok's stages; had one been enough, it would be ready.
    create_deployment(lab, namespace, "other", 1)
    await_endpoints(lab, namespace, [False, True])
    say((gates[1], "True"))
    await_endpoints(lab, namespace, [True, True])
    assert conditions().keys() >= set(gates)
    say((gates[0], "False"))
    await_endpoints(lab, namespace, [False, True])
    say((gates[0], "True"))
    await_endpoints(lab, namespace, [True, True])
    say(("ContainersReady", "False"))
    await_endpoints(lab, namespace, [False, True])


def test_rbac_denies_a_fresh_service_account(
    lab: Lab, namespace: str, http: requests.Session, tmp_path: Path
) -> None:
    """The API server knows a new ServiceAccount's token, and allows nothing until a role grants it."""
    account = {"metadata": {"name": "operator"}}
    lab.kubernetes.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    path = lab.service_account_kubeconfig(namespace, "operator", tmp_path / "kubeconfig")
    token = yaml.safe_load(path.read_text())["users"][0]["user"]["token"]
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{lab.api_server_url}/api/v1/namespaces/{namespace}/pods"
    answer = http.get(url, headers=headers, verify=str(lab.ca_file), timeout=10)
    assert answer.status_code == 403
    assert f"system:serviceaccount:{namespace}:operator" in answer.json()["message"]

    role = {
        "metadata": {"name": "read"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    }
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    lab.kubernetes.request("POST", f"{roles}/roles", role)
    binding = {
        "metadata": {"name": "read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }
    lab.kubernetes.request("POST", f"{roles}/rolebindings", binding)
    wait_until(
        lambda: http.get(url, headers=headers, verify=str(lab.ca_file), timeout=10).status_code == 200,
        "the role to count",
        WAIT_SECONDS,
    )


def test_the_api_server_keeps_its_data_over_a_restart(namespace: str, lab: Lab) -> None:
    """After a kill the API server comes back on its port, with its certificate and its objects."""
    lab.api_server.kill()
    with pytest.raises(LabError, match="failed"):
        lab.kubernetes.request("GET", "/api/v1/namespaces")
    lab.api_server.start()
    assert lab.kubernetes.request("GET", f"/api/v1/namespaces/{namespace}")["metadata"]["name"] == namespace


def addresses_of_first_pods(lab: Lab, count: int) -> list[str]:
    """Create the first pods of a fresh lab; return their addresses in the order of creation."""
    for number in range(count):
        spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]}
        pod = {"metadata": {"name": f"pod-{number}"}, "spec": spec}
        lab.kubernetes.request("POST", "/api/v1/namespaces/default/pods", pod)
        wait_until(
            lambda number=number: pods_of(lab, "default")[number]["status"].get("podIP"),  # type: ignore[misc]
            "the pod's address",
            WAIT_SECONDS,
        )
    return [pod["status"]["podIP"] for pod in pods_of(lab, "default")]


def test_two_labs_run_side_by_side_and_an_error_leaves_the_logs(
    lab: Lab,
    http: requests.Session,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Two labs share neither ports nor data, and one can end alone.

    When the block raises, all servers end, and a line says where their logs are; nothing else is left. A
    fresh lab gives pods addresses in the order of creation, from 10.0.0.1 on.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[tuple[list[int], Path]] = []

    def fail_in_a_lab() -> None:
        with Lab(eureka=1) as second:
            seen.append(([process.pid for process in second.processes if process.pid], second.directory))
            assert not set(second.eureka_urls) & set(lab.eureka_urls)
            assert second.api_server_url != lab.api_server_url
            register(http, second.eureka_urls[0], "LAB-SECOND", "second:8080")
            assert not is_registered(http, lab.eureka_urls[0], "LAB-SECOND", "second:8080")
            assert addresses_of_first_pods(second, 3) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_a_lab()
    ((pids, directory),) = seen
    assert len(pids) == 6
    assert all_gone(pids)
    assert {process.state for process in lab.processes} == {"running"}
    assert f"the logs are kept in {directory / 'logs'}" in capsys.readouterr().err
    assert (directory / "logs" / "eureka-1.log").exists()
    assert [path.name for path in directory.iterdir() if path.is_dir()] == ["logs"]


def test_a_lab_that_is_left_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A lab that ends without an error deletes its folder, logs included."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Lab(eureka=0, kubernetes=False) as empty:
        (empty.directory / "logs").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_reported_with_its_holder() -> None:
    """The error names the port, its purpose, and the process that holds it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LabError) as caught, Lab(eureka=1, kubernetes=False, ports=Ports(eureka=(port,))):
            pass
    assert f"port {port}, wanted for Eureka server 1, is taken by process {os.getpid()} (" in str(
        caught.value
    )


def test_a_missing_java_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the missing Java, the version needed, and a package that has it."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with (
        pytest.raises(LabError, match=r"Java is missing.*install a JDK 17 or newer.*openjdk-17"),
        Lab(eureka=1),
    ):
        pass


def test_a_server_that_dies_at_the_start_shows_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If Spring refuses a setting, the lab raises with Spring's message instead of a time-out."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = {"lab.security": "unheard-of"}
    with (
        pytest.raises(LabError, match=r"(?s)eureka-1 exited with 1 before it was ready.*unheard-of"),
        Lab(eureka=1, kubernetes=False, eureka_settings=settings),
    ):
        pass


HOLDER = """
    import json, sys, threading
    from lab import Lab
    labs = []
    def start():
        labs.append(Lab(eureka=1).__enter__())
    starter = threading.Thread(target=start)  # the lab outlives the thread that started it
    starter.start()
    starter.join()
    print(json.dumps([process.pid for process in labs[0].processes]), flush=True)
    sys.stdin.read()
"""


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start Python in a process of its own, which is killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_killed_python_takes_its_lab_along() -> None:
    """If the process that holds a lab gets SIGKILL, all servers of the lab end."""
    with python("-c", textwrap.dedent(HOLDER)) as process:
        assert process.stdout is not None
        pids = json.loads(process.stdout.readline())
        assert [is_alive(pid) for pid in pids] == [True] * 6
        process.kill()
        process.wait()
        wait_until(lambda: all_gone(pids), "the servers to be gone", WAIT_SECONDS)


def test_ctrl_c_takes_the_lab_down(tmp_path: Path) -> None:
    """Ctrl-C ends `up --foreground` at once, with its servers and files, as does the SIGTERM that `down`
    sends.
    """
    folder = tmp_path / "lab"
    arguments = (f"--directory={folder}", "up", "--free-ports", "--foreground", "--eureka=0")
    with python("-m", "lab", *arguments) as process:
        state = wait_for_state(folder)
        pids = [server["pid"] for server in state["servers"]]
        assert [is_alive(pid) for pid in pids] == [True] * 5
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert all_gone(pids)
    assert not folder.exists()


def test_a_signal_during_the_start_takes_the_lab_down(tmp_path: Path) -> None:
    """Ctrl-C while a detached lab is starting ends the lab, and a message says so."""
    folder = tmp_path / "lab"
    with python("-m", "lab", f"--directory={folder}", "up", "--free-ports") as process:
        wait_until((folder / "logs" / "etcd.log").exists, "the first server", WAIT_SECONDS)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "nothing is left running" in errors
    assert not folder.exists()


def wait_for_state(folder: Path) -> dict[str, Any]:
    wait_until((folder / "lab.json").exists, "the lab to be up", 60)
    state: dict[str, Any] = json.loads((folder / "lab.json").read_text())
    return state


def test_up_status_and_down(tmp_path: Path) -> None:
    """The lab stays up after `up` returned, `status` shows a crash, and `down` leaves nothing."""
    folder = tmp_path / "lab"

    def command(*words: str) -> tuple[int, str, str]:
        arguments = [sys.executable, "-m", "lab", f"--directory={folder}", *words]
        result = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=120)
        return result.returncode, result.stdout, result.stderr

    assert command("status") == (1, "no lab is up; `python -m lab up` starts one\n", "")
    try:
        code, output, errors = command("up", "--free-ports", "--eureka=2")
        assert (code, f"export KUBECONFIG={folder}/kubeconfig" in output) == (0, True), errors
        assert output.count("/eureka\n") == 2
        code, output, errors = command("up", "--free-ports")
        assert (code, "already up" in errors) == (0, True)
        code, output, _ = command("status")
        assert (code, output.count(" running ")) == (0, 7)

        servers = wait_for_state(folder)["servers"]
        pids = [server["pid"] for server in servers]
        os.kill(next(server["pid"] for server in servers if server["name"] == "kwok"), signal.SIGKILL)
        wait_until(lambda: "killed by SIGKILL" in command("status")[1], "the crash to be seen", WAIT_SECONDS)
        assert command("status")[0] == 1
    finally:
        code, output, _ = command("down")
    assert (code, output) == (0, "the lab is down\n")
    assert all_gone(pids)
    assert not folder.exists()
    assert command("down") == (0, "no lab was up\n", "")


def test_every_eureka_server_is_a_process_with_a_log(lab: Lab) -> None:
    """Each Eureka server has a pid and a log file, which other tests use."""
    (server,) = lab.eurekas
    assert isinstance(server, EurekaServer)
    assert server.pid is not None
    assert "eureka-server.jar" in Path(f"/proc/{server.pid}/cmdline").read_text()
    assert server.log == lab.directory / "logs" / "eureka-1.log"
    assert "Started EurekaServerApplication" in server.log.read_text()


def test_a_server_takes_its_classes_from_the_archive(lab: Lab, http: requests.Session) -> None:
    """The server loads nearly all classes from the archive, those of its first requests included."""
    (server,) = lab.eurekas
    register(http, server.url, "LAB-CLASSES", "classes:8080")
    assert http.get(f"{server.url}/apps", headers={"Accept": "application/json"}, timeout=10).ok
    assert http.post(f"{server.url}/peerreplication/batch/", json={"replicationList": []}, timeout=10).ok
    archived, others = server.count_loaded_classes()
    assert others < 0.09 * archived
