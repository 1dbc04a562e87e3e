"""An operator with a connection to a real ZooKeeper: its registrations, and other writers' nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import requests
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from eurekube_provider.cli import keepalive_command
from eurekube_provider.cli.main import main
from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.objects import conditions_of
from eurekube_provider.kube.access import EVENTS, MERGE_PATCH_TYPE, PODS, SERVICES, SYNCERS
from eurekube_provider.zookeeper.codec import SPRING_STATUS_KEY
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from eurekube_provider.zookeeper.writer import marker_path
from lab import Lab
from lab.ports import HOST, free_ports
from lab.waiting import wait_until
from lab.workloads import Cluster
from lab.zookeeper import ZooKeeperEnsemble
from lab.zookeeper_proxy import KillAtWrite, WriteMoment, WriteReportingProxy
from tests.system.conftest import StartOperator, operator_environment, ready, running

pytestmark = pytest.mark.lab

MOST_WRITES = 20


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Start one ZooKeeper server."""
    with ZooKeeperEnsemble() as made:
        yield made


@pytest.fixture
def url(ensemble: ZooKeeperEnsemble, unique_name: str) -> str:
    """Return the server's URL, with a root node for one test."""
    return f"{ensemble.url}/{unique_name}"


@pytest.fixture
def servers(url: str) -> Iterator[ZooKeeperServers]:
    """Return a client of the server that any program could be."""
    made = ZooKeeperServers(ZooKeeperConnection.from_settings({"url": url}.get))
    made.connect()
    yield made
    made.close()


def there(servers: ZooKeeperServers) -> dict[str, str]:
    """Return the status of each registered address."""
    return {one.ip_address: one.status.value for one in servers.list_everywhere()[0]}


def up(*addresses: str) -> dict[str, str]:
    """Return the status UP for each of these addresses."""
    return dict.fromkeys(addresses, "UP")


def condition(cluster: Cluster, namespace: str, name: str, kind: str) -> Mapping[str, Any]:
    """Return a condition of a syncer."""
    return conditions_of(cluster.get(SYNCERS, name, namespace) or {}).get(kind, {})


def register_two_pods(cluster: Cluster, namespace: str, servers: ZooKeeperServers) -> list[str]:
    """Run two pods with a syncer until both are registered; return their addresses."""
    addresses = running(cluster, namespace, "rating", 2)
    cluster.apply_syncer(namespace, "rating")
    wait_until(lambda: there(servers) == up(*addresses), "both pods", 30.0)
    return addresses


def inventory_options(lab: Lab, url: str) -> tuple[str, ...]:
    """Return a command's options for the lab's cluster and this ZooKeeper."""
    return ("--eureka-url", url, "--kubeconfig", str(lab.kubeconfig), "--cluster-name", "zk")


def test_pods_come_and_go(
    cluster: Cluster, namespace: str, url: str, servers: ZooKeeperServers, start_operator: StartOperator
) -> None:
    """An application keeps the case of its name; an unready pod is not registered, unless the syncer asks
    for it.
    """
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    addresses = running(cluster, namespace, "rating", 2)
    cluster.apply_syncer(namespace, "rating", application="Rating-Service")
    wait_until(lambda: there(servers) == up(*addresses), "both pods", 30.0)
    assert {one.path.split("/")[2] for one in servers.read_nodes()} == {"Rating-Service"}
    pod = cluster.pods(namespace, "rating")[0]
    address = pod["status"]["podIP"]
    cluster.set_ready(pod, ready=False)
    rest = [one for one in addresses if one != address]
    wait_until(lambda: there(servers) == up(*rest), "the pod that is not ready to leave", 30.0)
    body = {"metadata": {"annotations": {"eurekube.io/register-before-ready": "true"}}}
    cluster.access.request(
        "PATCH", SYNCERS.path(namespace, "rating"), body=body, content_type=MERGE_PATCH_TYPE
    )
    wait_until(lambda: there(servers) == {**up(*rest), address: "DOWN"}, "it to be DOWN", 30.0)
    wait_until(
        lambda: condition(cluster, namespace, "rating", SyncerCondition.SYNCED).get("status") == "True",
        "the condition Synced",
        30.0,
    )
    wait_until(
        lambda: condition(cluster, namespace, "rating", SyncerCondition.READY)["message"].endswith(
            "in ZooKeeper, 1 not ready"
        ),
        "the pod to be counted as not ready",
        30.0,
    )
    cluster.delete(SYNCERS, "rating", namespace)
    wait_until(lambda: there(servers) == {}, "all to leave", 30.0)
    wait_until(lambda: cluster.get(SYNCERS, "rating", namespace) is None, "the syncer to go", 30.0)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command; return its exit code and output."""
    try:
        code = main(list(words)) or 0
    except SystemExit as end:
        code = int(end.code or 0)
    written = capsys.readouterr()
    return code, written.out + written.err


def test_the_commands_tell_of_it(
    cluster: Cluster,
    namespace: str,
    url: str,
    servers: ZooKeeperServers,
    start_operator: StartOperator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lab: Lab,
) -> None:
    """Status, explain and doctor describe the registrations; drain refuses, and keepalive removes what a
    dead operator left.
    """
    operator = start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    addresses = register_two_pods(cluster, namespace, servers)
    code, text = command(capsys, "status", "-n", namespace, *inventory_options(lab, url))
    assert (code, "1 synced" in text, "2/2         2/2" in text) == (0, True, True), text
    code, text = command(capsys, "plan", "-n", namespace, *inventory_options(lab, url))
    assert code == 0, text
    code, text = command(capsys, "explain", "rating", "-n", namespace, *inventory_options(lab, url))
    assert code == 0, text
    said = " ".join(text.split())
    assert "stays until somebody removes it: ZooKeeper forgets nothing" in said
    assert "2/2 in Kubernetes, 2/2 in ZooKeeper" in said
    assert "Eureka" not in said.replace("EurekaSyncer", ""), said
    code, text = command(capsys, "explain", "nobody", "-n", namespace, *inventory_options(lab, url))
    assert "ZooKeeper has neither an application nor an instance nobody; it holds RATING\n" in text
    code, text = command(capsys, "doctor", "-n", namespace, *inventory_options(lab, url))
    assert code in (0, 1), text
    assert "keepalive --zookeeper" not in text
    code, text = command(capsys, "drain", "rating", "--eureka-url", url)
    assert code != 0
    assert "where only syncers register" in text
    code, text = command(capsys, "keepalive", "--zookeeper", "--eureka-url", url)
    assert "nothing is left behind" in text
    operator.stop(signal.SIGKILL)
    assert there(servers) == up(*addresses)
    servers.client.delete(marker_path(servers.connection.root, "zk"))
    code, text = command(capsys, "doctor", "-n", namespace, *inventory_options(lab, url))
    assert "keepalive --zookeeper" not in text  # pods have all of it
    cluster.scale(namespace, "rating", 0)
    wait_until(lambda: cluster.ready_addresses(namespace, "rating") == [], "the pods to go", 60.0)
    wait_until(
        lambda: (
            "keepalive --zookeeper"
            in command(capsys, "doctor", "-n", namespace, *inventory_options(lab, url))[1]
        ),
        "it",
        60.0,
    )
    code, text = command(capsys, "keepalive", "--zookeeper", "--eureka-url", url, "--cluster-name", "zk")
    assert all(one in text for one in addresses), text
    assert there(servers) == up(*addresses)
    cleared = ("keepalive", "--zookeeper", "--eureka-url", url, "--cluster-name", "zk", "--remove")
    monkeypatch.setattr(keepalive_command, "accepts_connection", lambda one: one.ip_address == addresses[0])
    code, text = command(capsys, *cleared)
    assert (there(servers), text.count("kept")) == (up(addresses[0]), 1), text
    monkeypatch.setattr(keepalive_command, "accepts_connection", lambda _: False)
    code, text = command(capsys, *cleared)
    assert (there(servers), text.count("removed")) == ({}, 1), text


def test_another_replica_goes_on_and_changes_nothing(
    cluster: Cluster, namespace: str, url: str, servers: ZooKeeperServers, start_operator: StartOperator
) -> None:
    """When the leader is killed, the next one rewrites none of its nodes, and deregisters pods that end."""
    first = start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    register_two_pods(cluster, namespace, servers)
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk", POD_NAME="second")
    before = {one.path: one.mzxid for one in servers.read_nodes()}
    first.stop(signal.SIGKILL)
    cluster.scale(namespace, "rating", 1)
    wait_until(lambda: len(there(servers)) == 1, "the other one to leave", 60.0)
    (left,) = servers.read_nodes()
    assert before[left.path] == left.mzxid


@pytest.mark.parametrize("moment", WriteMoment)
def test_an_operator_that_is_killed_at_any_write_costs_nothing(
    cluster: Cluster,
    namespace: str,
    url: str,
    servers: ZooKeeperServers,
    start_operator: StartOperator,
    moment: WriteMoment,
) -> None:
    """If the operator gets SIGKILL before or after any write, serving instances stay, and the next
    operator completes the work.
    """
    port = int(url.removeprefix("zookeeper://").partition("/")[0].rpartition(":")[2])

    def life(at: int, wanted: dict[str, str]) -> str:
        """Run an operator until it is killed at that write, or everything is as wanted; return the write."""
        killer = KillAtWrite(at, moment)
        with WriteReportingProxy(port, killer.kill_at_chosen_write) as proxy:
            through = f"zookeeper://{HOST}:{proxy.port}{servers.connection.root}"
            told = {"EUREKA_URL": through, "CLUSTER_NAME": "zk", "LEADER_ELECT": "false"}
            operator = start_operator(ready=False, **told)
            killer.process_id = operator.process.pid
            wait_until(lambda: bool(killer.killed) or there(servers) == wanted, "its end, or its work", 60.0)
            operator.stop(signal.SIGKILL)
        return killer.killed

    cluster.apply_deployment(namespace, "rating", 0)
    cluster.apply_service(namespace, "rating")
    cluster.apply_syncer(namespace, "rating")
    killed: list[str] = []
    before: list[str] = []
    for replicas in (2, 1, 3):
        cluster.scale(namespace, "rating", replicas)
        addresses = ready(cluster, namespace, "rating", replicas)
        for at in range(1, MOST_WRITES):
            died_at = life(at, up(*addresses))
            assert set(there(servers)) >= set(before) & set(addresses), died_at
            if not died_at:
                break
            killed.append(died_at)
        assert there(servers) == up(*addresses)
        before = addresses
    assert {one.split()[0] for one in killed} >= {"create", "multi", "setData", "delete"}, killed


@pytest.mark.parametrize("spec", [{"policy": "UpsertOnly"}, {"onTermination": "OutOfService"}])
def test_a_syncer_that_asks_for_harm_is_refused(
    cluster: Cluster,
    namespace: str,
    url: str,
    servers: ZooKeeperServers,
    start_operator: StartOperator,
    spec: dict[str, str],
) -> None:
    """A harmful syncer is refused by a condition; its serving instances stay, and those that ended leave."""
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    addresses = register_two_pods(cluster, namespace, servers)
    cluster.access.request(
        "PATCH", SYNCERS.path(namespace, "rating"), body={"spec": spec}, content_type=MERGE_PATCH_TYPE
    )

    def is_refused() -> bool:
        said = condition(cluster, namespace, "rating", SyncerCondition.SYNCED)
        return said.get("status") == "False" and "ZooKeeper" in said["message"]

    wait_until(is_refused, "the condition", 30.0)
    assert there(servers) == up(*addresses)
    cluster.scale(namespace, "rating", 1)
    wait_until(lambda: len(there(servers)) == 1, "what ended to leave", 60.0)


def test_a_deletion_that_cannot_wait_is_finished_once_it_answers(
    cluster: Cluster, namespace: str, unique_name: str, start_operator: StartOperator
) -> None:
    """A syncer's deletion ends while ZooKeeper is away, an Event says what is left, and that is removed
    later.
    """
    with ZooKeeperEnsemble() as own:
        url = f"{own.url}/{unique_name}"
        servers = ZooKeeperServers(ZooKeeperConnection.from_settings({"url": url}.get))
        servers.connect()
        operator = start_operator(EUREKA_URL=url, CLUSTER_NAME="zk", RELEASE_AFTER_SECONDS="3")
        register_two_pods(cluster, namespace, servers)
        own.servers[0].pause()
        cluster.delete(SYNCERS, "rating", namespace)
        wait_until(lambda: cluster.get(SYNCERS, "rating", namespace) is None, "the syncer to go", 60.0)
        assert "gave up deregistering a deleted syncer's instances" in operator.text()
        note = "they are removed as soon as the registry answers"
        wait_until(
            lambda: any(note in one.get("note", "") for one in cluster.items(EVENTS, namespace)),
            "an Event that says so",
            60.0,
        )
        own.servers[0].resume()
        wait_until(lambda: servers.client.connected and there(servers) == {}, "all to leave", 60.0)
        servers.close()


def test_metrics_the_page_and_a_dry_run(
    cluster: Cluster,
    namespace: str,
    url: str,
    servers: ZooKeeperServers,
    start_operator: StartOperator,
    lab: Lab,
) -> None:
    """Metrics and web page show the registrations; a dry run prints its plan, and changes nothing."""
    addresses = running(cluster, namespace, "rating", 2)
    cluster.apply_syncer(namespace, "rating")
    variables = operator_environment(lab, namespace, EUREKA_URL=url, CLUSTER_NAME="zk")
    words = [sys.executable, "-m", "eurekube_provider.operator", "--once", "--dry-run"]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "2 to register" in done.stdout) == (0, True), done.stdout + done.stderr
    assert there(servers) == {}
    (port,) = free_ports(1)
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk", WEB_ADDRESS=f"127.0.0.1:{port}")
    wait_until(lambda: there(servers) == up(*addresses), "both pods", 30.0)
    session = requests.Session()
    session.trust_env = False
    metrics = session.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    assert f'url="{url}"' in metrics
    assert session.get(f"http://127.0.0.1:{port}/healthz", timeout=10).status_code == 200
    page = session.get(f"http://127.0.0.1:{port}/", timeout=10)
    assert (page.status_code, "rating" in page.text) == (200, True)


def test_the_brake_holds_there_as_well(
    cluster: Cluster, namespace: str, url: str, servers: ZooKeeperServers, start_operator: StartOperator
) -> None:
    """The brake keeps an endpoint registered that goes without terminating, as when its Service is
    deleted.
    """
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    addresses = register_two_pods(cluster, namespace, servers)
    cluster.delete(SERVICES, "rating", namespace)
    wait_until(
        lambda: condition(cluster, namespace, "rating", SyncerCondition.BRAKED).get("status") == "True",
        "the brake",
        30.0,
    )
    assert there(servers) == up(*addresses)


def holds(cluster: Cluster, namespace: str, kind: str) -> bool:
    """Return whether the syncer has a condition."""
    return condition(cluster, namespace, "rating", kind).get("status") == "True"


def test_nodes_of_others_cost_only_themselves(
    cluster: Cluster,
    namespace: str,
    url: str,
    servers: ZooKeeperServers,
    start_operator: StartOperator,
    capsys: pytest.CaptureFixture[str],
    lab: Lab,
) -> None:
    """Conditions and commands name foreign nodes, beside ours and written over ours; both stay."""
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    addresses = register_two_pods(cluster, namespace, servers)
    service = f"{servers.connection.root}/rating"
    foreign = json.dumps(
        {"name": "rating", "id": "theirs", "payload": {"@class": "org.apache.dubbo.Instance"}}
    )
    servers.client.create(f"{service}/theirs", foreign.encode())
    wait_until(lambda: holds(cluster, namespace, SyncerCondition.UNREADABLE_INSTANCE), "the condition", 30.0)
    said = condition(cluster, namespace, "rating", SyncerCondition.UNREADABLE_INSTANCE)["message"]
    assert f"RATING theirs (node {service}/theirs: its payload's class is org.apache.dubbo.Instance" in said
    assert "to fix it: have the entry's author remove it" in said
    assert holds(cluster, namespace, SyncerCondition.SYNCED)
    cluster.scale(namespace, "rating", 3)
    addresses = ready(cluster, namespace, "rating", 3)
    wait_until(lambda: there(servers) == {**up(*addresses), "": "UNKNOWN"}, "the third pod", 30.0)

    ours = next(one for one in servers.read_nodes() if one.instance.owner)
    other = json.dumps({**json.loads(ours.data), "payload": {"@class": "com.example.Other"}}).encode()
    servers.client.set(ours.path, other)
    wait_until(lambda: holds(cluster, namespace, SyncerCondition.CONFLICT), "the condition", 30.0)
    said = condition(cluster, namespace, "rating", SyncerCondition.SYNCED)["message"]
    assert f"cannot be read (node {ours.path}: its payload's class is com.example.Other" in said
    assert "removed by its author" in said
    for words, name in (
        (("status",), "UnreadableInstance"),
        (("explain", "rating"), "not safe: node "),
        (("doctor",), "UnreadableInstance"),
    ):
        _, text = command(capsys, *words, "-n", namespace, *inventory_options(lab, url))
        assert name in text, text
        assert "org.apache.dubbo.Instance" in text, text
        assert "com.example.Other" in text, text
    cluster.delete(SYNCERS, "rating", namespace)
    wait_until(lambda: cluster.get(SYNCERS, "rating", namespace) is None, "the syncer to go", 60.0)
    left = {one.path: (one.version, one.data) for one in servers.read_nodes()}
    assert left == {
        f"{service}/theirs": (0, foreign.encode()),
        ours.path: (ours.version + 1, other),
    }


def test_a_status_that_a_person_set_stays_until_the_pod_ends(
    cluster: Cluster,
    namespace: str,
    url: str,
    servers: ZooKeeperServers,
    start_operator: StartOperator,
    capsys: pytest.CaptureFixture[str],
    lab: Lab,
) -> None:
    """A status that a person wrote into a node survives updates of the metadata, and ends with the pod."""
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    addresses = register_two_pods(cluster, namespace, servers)
    out = next(one for one in servers.read_nodes())
    document = json.loads(out.data)
    document["payload"]["metadata"][SPRING_STATUS_KEY] = "OUT_OF_SERVICE"
    servers.client.set(out.path, json.dumps(document).encode())
    cluster.apply_syncer(namespace, "rating", metadata={"color": "blue"})

    def colors() -> list[str | None]:
        return [one.instance.metadata.get("color") for one in servers.read_nodes()]

    wait_until(lambda: colors() == ["blue", "blue"], "what the syncer asks for now", 30.0)
    stays = {**up(*addresses), out.instance.ip_address: "OUT_OF_SERVICE"}
    assert there(servers) == stays
    code, text = command(capsys, "explain", "rating", "-n", namespace, *inventory_options(lab, url))
    said = " ".join(text.split())  # the command breaks lines
    assert (code, "somebody set OUT_OF_SERVICE over what it says" in said) == (0, True), text
    assert "write into the metadata of its node, as instance_status" in said, text
    assert "undrain" not in said
    wait_until(lambda: holds(cluster, namespace, SyncerCondition.SYNCED), "the condition Synced", 30.0)
    assert there(servers) == stays
    cluster.delete(PODS, out.instance.instance_id.partition(".")[0], namespace)

    def is_replaced() -> bool:
        left = {one.path: one.instance.status.value for one in servers.read_nodes()}
        return out.path not in left and list(left.values()) == ["UP", "UP"]

    wait_until(is_replaced, "it to leave, and another to come", 60.0)


def test_a_removal_that_an_acl_forbids_is_said_and_done_once_it_may_be(
    cluster: Cluster, namespace: str, url: str, servers: ZooKeeperServers, start_operator: StartOperator
) -> None:
    """The condition names a denied removal and its node; new pods are registered, and the removal follows."""
    start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
    addresses = register_two_pods(cluster, namespace, servers)
    service = f"{servers.connection.root}/rating"
    all_but_delete = make_acl("world", "anyone", read=True, write=True, create=True, admin=True)
    servers.client.set_acls(service, [all_but_delete])
    cluster.scale(namespace, "rating", 1)
    (stays,) = ready(cluster, namespace, "rating", 1)

    def reason() -> str:
        return str(condition(cluster, namespace, "rating", SyncerCondition.SYNCED).get("reason"))

    wait_until(lambda: reason() == Reason.EUREKA_DENIED, "the condition", 30.0)
    said = condition(cluster, namespace, "rating", SyncerCondition.SYNCED)["message"]
    assert f"ZooKeeper did not allow to remove {service}/" in said
    assert "its ACL must let our user do so" in said
    assert "or have it allow what the message names" in said
    cluster.scale(namespace, "rating", 2)
    addresses = [*addresses, *ready(cluster, namespace, "rating", 2)]
    wait_until(lambda: there(servers) == up(*addresses), "the new pod", 30.0)
    servers.client.set_acls(service, OPEN_ACL_UNSAFE)
    wait_until(lambda: len(there(servers)) == 2, "the removal", 120.0)
    assert stays in there(servers)
    wait_until(lambda: reason() == SyncerCondition.SYNCED, "the condition to end", 30.0)
