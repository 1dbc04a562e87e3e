"""Several replicas on real servers: only the leader writes, and no end of a replica costs a registration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
import yaml

from eurekube_provider.core.hand_over import CUT_OFF_AFTER_SECONDS
from eurekube_provider.core.model import Instance
from eurekube_provider.core.syncer import FINALIZER, FORCE_DELETE_ANNOTATION
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.windows import RENEWAL_INTERVAL_SECONDS
from eurekube_provider.kube.access import EVENTS, LEASES, MERGE_PATCH_TYPE, NAMESPACES, SYNCERS, ApiResource
from lab import Lab
from lab.proxy import Proxy
from lab.workloads import Cluster, Object, wait_for
from tests.system.conftest import (
    ROOT,
    Operator,
    StartOperator,
    addresses,
    instances,
    ready,
    renewed_at,
    running,
)

pytestmark = pytest.mark.lab

HOME = "ha-system"
LEASE = "eurekube-leader"
LEASE_SECONDS, DEADLINE_SECONDS, RETRY_SECONDS = 10, 7, 1
LOAD_SECONDS = 45.0
"""Seconds that a busy machine may take in addition."""

_RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "Namespace": NAMESPACES,
    "ServiceAccount": ApiResource("", "v1", "serviceaccounts"),
    "ClusterRole": ApiResource(_RBAC, "v1", "clusterroles"),
    "ClusterRoleBinding": ApiResource(_RBAC, "v1", "clusterrolebindings"),
    "Role": ApiResource(_RBAC, "v1", "roles"),
    "RoleBinding": ApiResource(_RBAC, "v1", "rolebindings"),
}


@pytest.fixture(scope="module")
def account(lab: Lab, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a kubeconfig with exactly the rights that the program gives to the operator."""
    config = {
        "url": lab.eureka_urls[0],
        "operator": {"replicas": 0, "namespace": HOME},
        "syncers": [],
        "registrations": [],
        "namespaces": [],
    }
    settings = [
        f"--config=eurekube:{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in config.items()
    ]
    rendered = subprocess.run(
        [sys.executable, "-m", "eurekube_provider.cli.main", "render", "--kubernetes", *settings],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("EUREKA_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    made = [item for item in yaml.safe_load_all(rendered.stdout) if item["kind"] in RESOURCES]
    for item in made:
        cluster.apply(RESOURCES[item["kind"]], item)
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    yield lab.service_account_kubeconfig(HOME, "eurekube-operator", path)
    for item in reversed(made):
        cluster.delete(RESOURCES[item["kind"]], item["metadata"]["name"], item["metadata"].get("namespace"))


class Replicas:
    """Replicas of one operator, by the names of their pods."""

    def __init__(self, start: StartOperator, account: Path, cluster: Cluster) -> None:
        self.by_name: dict[str, Operator] = {}
        self._start = start
        self._account = account
        self._cluster = cluster

    def start(self, number: int, **environment: str) -> None:
        """Start so many further replicas."""
        for _ in range(number):
            name = f"replica-{len(self.by_name)}"
            settings = {
                "KUBECONFIG": str(self._account),
                "LEASE_NAME": LEASE,
                "POD_NAMESPACE": HOME,
                "POD_NAME": name,
                "LEASE_DURATION_SECONDS": str(LEASE_SECONDS),
                "RENEW_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
                "RETRY_PERIOD_SECONDS": str(RETRY_SECONDS),
            }
            self.by_name[name] = self._start(ready=False, **(settings | environment))
        for operator in self.by_name.values():
            if operator.process.poll() is None:
                operator.wait_ready()

    def leader(self) -> str | None:
        """Return the pod name of the Lease's holder; None if it is no replica of these."""
        lease = self._cluster.get(LEASES, LEASE, HOME) or {}
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "").rpartition("_")[0]
        return holder if holder in self.by_name else None

    def led_by(self, *names: str) -> str:
        """Wait until one of these replicas leads; return its name."""

        def found() -> str | None:
            leader = self.leader()
            return leader if leader in names else None

        return wait_for(found, "a leader", LEASE_SECONDS + LOAD_SECONDS)

    def writers(self) -> set[str]:
        """Return the replicas that have changed something in Eureka."""
        return {name for name, one in self.by_name.items() if "updated Eureka for a syncer" in one.text()}

    def others(self, *names: str) -> tuple[str, ...]:
        """Return all replicas except these."""
        return tuple(name for name in self.by_name if name not in names)


@pytest.fixture
def replicas(start_operator: StartOperator, account: Path, cluster: Cluster) -> Iterator[Replicas]:
    """Return replicas with the operator's own rights; their Lease is deleted at the end."""
    yield Replicas(start_operator, account, cluster)
    cluster.delete(LEASES, LEASE, HOME)


def all_renewed_since(eureka: Peers, held: list[Instance], since: float) -> Callable[[], bool]:
    """Return a check that each instance was renewed after a time."""
    return lambda: all(renewed_at(eureka, one) > since for one in held)


def deployed(cluster: Cluster, eureka: Peers, namespace: str, app: str, number: int = 3) -> list[Instance]:
    """Create a Deployment with a syncer, and wait until its pods are registered."""
    pods = running(cluster, namespace, app, number)
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "the instances", 40.0)
    return instances(eureka, app)


def set_first_pod_ready(cluster: Cluster, namespace: str, app: str, *, is_ready: bool) -> str:
    """Change the first pod's readiness; return its address."""
    pod = cluster.pods(namespace, app)[0]
    cluster.set_ready(pod, ready=is_ready)
    return str(pod["status"]["podIP"])


def awaited(eureka: Peers, app: str, address: str, status: str, seconds: float) -> None:
    """Wait until an address has a status in Eureka."""
    wait_for(lambda: addresses(eureka, app).get(address) == status, f"{address} {status}", seconds)


def test_one_of_three_writes_and_the_others_take_over(
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    replicas: Replicas,
    record_property: Callable[[str, object], None],
) -> None:
    """Another replica leads at once when the leader stops, and within the Lease's duration and two periods
    when it is killed.
    """
    app = f"{namespace}-app"
    replicas.start(3)
    held = deployed(cluster, eureka, namespace, app)
    first = replicas.led_by(*replicas.by_name)
    wait_for(replicas.writers, "word of what was written")
    assert replicas.writers() == {first}

    def reporters() -> set[str]:
        """Return the replicas that have written Events."""
        events = cluster.items(EVENTS, namespace)
        return {str(event.get("reportingInstance")) for event in events} & replicas.by_name.keys()

    assert wait_for(reporters, "an Event") == {first}

    address = cluster.pods(namespace, app)[0]["status"]["podIP"]
    since = time.time()
    replicas.by_name[first].process.send_signal(signal.SIGTERM)
    assert set_first_pod_ready(cluster, namespace, app, is_ready=False) == address
    awaited(eureka, app, address, "DOWN", LEASE_SECONDS - 1)
    record_property("seconds after SIGTERM", round(time.time() - since, 2))
    assert replicas.by_name[first].process.wait(timeout=60) == 0
    second = replicas.led_by(*replicas.others(first))
    wait_for(all_renewed_since(eureka, held, since), "what is ours to be renewed soon", LOAD_SECONDS)

    since = time.time()
    replicas.by_name[second].process.kill()
    set_first_pod_ready(cluster, namespace, app, is_ready=True)
    awaited(eureka, app, address, "UP", LEASE_SECONDS + 2 * RETRY_SECONDS + LOAD_SECONDS)
    record_property("seconds after SIGKILL", round(time.time() - since, 2))
    assert replicas.led_by(*replicas.others(first, second))
    wait_for(all_renewed_since(eureka, held, since), "what is ours to be renewed soon", LOAD_SECONDS)
    assert {one.key for one in instances(eureka, app)} == {one.key for one in held}


def test_a_leader_that_slept_writes_nothing_when_it_wakes(
    cluster: Cluster, eureka: Peers, namespace: str, replicas: Replicas
) -> None:
    """A paused leader finds on waking that another replica holds the Lease, and stands by."""
    app = f"{namespace}-app"
    replicas.start(2)
    deployed(cluster, eureka, namespace, app)
    old = replicas.led_by(*replicas.by_name)
    sleeper = replicas.by_name[old]
    sleeper.process.send_signal(signal.SIGSTOP)
    try:
        address = set_first_pod_ready(cluster, namespace, app, is_ready=False)
        new = replicas.led_by(*replicas.others(old))
        awaited(eureka, app, address, "DOWN", LOAD_SECONDS)
        before = sleeper.text()
    finally:
        # The changes that it missed are waiting on its watches.
        sleeper.process.send_signal(signal.SIGCONT)
    for is_ready, status in ((True, "UP"), (False, "DOWN"), (True, "UP")):
        set_first_pod_ready(cluster, namespace, app, is_ready=is_ready)
        awaited(eureka, app, address, status, LOAD_SECONDS)
    wait_for(lambda: "standing by" in sleeper.text().removeprefix(before), "it to stand by")
    assert replicas.leader() == new
    assert "updated Eureka for a syncer" not in sleeper.text().removeprefix(before)


DEFAULT_TIMES = {
    "LEASE_DURATION_SECONDS": "15",
    "RENEW_DEADLINE_SECONDS": "10",
    "RETRY_PERIOD_SECONDS": "2",
    "RESYNC_SECONDS": "15",
}
"""The operator's own times, as users have them."""


def registered_at(eureka: Peers, held: list[Instance]) -> dict[str, int]:
    """Return when each instance was registered, in milliseconds; one that lapsed was registered again."""
    url = eureka.peers[0].url
    return {
        one.instance_id: int(
            requests.get(
                f"{url}/apps/{one.application}/{quote(one.instance_id, safe='')}",
                headers={"Accept": "application/json"},
                timeout=10,
            ).json()["instance"]["leaseInfo"]["registrationTimestamp"]
        )
        for one in held
    }


def test_a_leader_that_alone_does_not_reach_eureka_hands_the_lease_over(
    lab: Lab,
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    replicas: Replicas,
    record_property: Callable[[str, object], None],
) -> None:
    """The other replica renews before anything lapses and registers what came meanwhile; the former leader
    ends the change that hangs, and stands by.
    """
    app = f"{namespace}-app"
    port = int(lab.eureka_urls[0].split(":")[2].split("/")[0])
    with Proxy(port) as one, Proxy(port) as two:
        for front in (one, two):
            replicas.start(1, EUREKA_URL=f"http://127.0.0.1:{front.port}/eureka", **DEFAULT_TIMES)
        leader = replicas.led_by(*replicas.by_name)
        (other,) = replicas.others(leader)
        front = dict(zip(replicas.by_name, (one, two), strict=True))[leader]
        time.sleep(CUT_OFF_AFTER_SECONDS)  # the other one has been well for as long
        held = deployed(cluster, eureka, namespace, app)
        since = registered_at(eureka, held)
        cut_at = time.time()
        front.vanish()
        before = replicas.by_name[leader].text()
        cluster.scale(namespace, app, 4)
        wait_for(lambda: replicas.leader() == other, "the hand-over", CUT_OFF_AFTER_SECONDS + LOAD_SECONDS)
        record_property("seconds until the hand-over", round(time.time() - cut_at, 2))
        wait_for(all_renewed_since(eureka, held, cut_at), "the renewals", LOAD_SECONDS)
        record_property("seconds until all are renewed", round(time.time() - cut_at, 2))
        assert time.time() - cut_at < 90.0 - RENEWAL_INTERVAL_SECONDS, "one could have lapsed"
        pods = ready(cluster, namespace, app, 4)
        wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "the fourth", LOAD_SECONDS)
        assert len(instances(eureka, app)) == 4
        assert registered_at(eureka, held) == since, "one has lapsed meanwhile"
        front.heal()
        wait_for(
            lambda: "Eureka answers again" in replicas.by_name[leader].text(),
            "the former leader to read Eureka",
            LOAD_SECONDS,
        )
        cluster.scale(namespace, app, 3)
        pods = ready(cluster, namespace, app, 3)
        wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "three", LOAD_SECONDS)
        assert replicas.leader() == other
        former = replicas.by_name[leader].text().removeprefix(before)
        assert "handed the Lease over to another replica" in former
        assert "updated Eureka for a syncer" not in former
        assert "acquired the Lease" not in former


def test_a_namespace_never_waits_for_eureka(
    lab: Lab, cluster: Cluster, eureka: Peers, namespace: str, replicas: Replicas
) -> None:
    """A deleted namespace goes after a while without Eureka, or at once if a person asks; its instances
    are removed later.
    """
    kept, forced = f"{namespace}-kept", f"{namespace}-forced"
    url = lab.eureka_urls[0]
    with Proxy(int(url.split(":")[2].split("/")[0])) as front:
        replicas.start(1, EUREKA_URL=f"http://127.0.0.1:{front.port}/eureka", RELEASE_AFTER_SECONDS="4")
        for app in (kept, forced):
            deployed(cluster, eureka, namespace, app, 1)
        (operator,) = replicas.by_name.values()
        front.refuse()
        annotation = {"metadata": {"annotations": {FORCE_DELETE_ANNOTATION: "yes"}}}
        path = SYNCERS.path(namespace, forced)
        cluster.access.request("PATCH", path, body=annotation, content_type=MERGE_PATCH_TYPE)
        cluster.delete(SYNCERS, forced, namespace)
        wait_for(lambda: cluster.get(SYNCERS, forced, namespace) is None, "the forced one to go")
        wait_for(
            lambda: any(item["reason"] == "LeftBehind" for item in cluster.items(EVENTS, namespace)),
            "its Event",
        )
        cluster.delete(NAMESPACES, namespace)
        wait_for(lambda: cluster.get(NAMESPACES, namespace) is None, "the namespace to go", 60.0)
        assert "Eureka could not be asked for" in operator.text()
        assert (len(instances(eureka, kept)), len(instances(eureka, forced))) == (1, 1)
        front.heal()
        wait_for(
            lambda: not instances(eureka, kept) and not instances(eureka, forced), "what was left to go", 80.0
        )


def test_the_next_operator_cleans_up_after_a_deleted_namespace(
    cluster: Cluster, eureka: Peers, namespace: str, replicas: Replicas
) -> None:
    """A deleted namespace waits for the next operator, which removes the instances first."""
    app = f"{namespace}-app"
    replicas.start(1)
    deployed(cluster, eureka, namespace, app, 2)
    (operator,) = replicas.by_name.values()
    operator.stop()
    cluster.delete(NAMESPACES, namespace)

    def waits() -> Object | None:
        syncer = cluster.get(SYNCERS, app, namespace)
        return syncer if syncer and syncer["metadata"].get("deletionTimestamp") else None

    assert wait_for(waits, "the syncer to be deleted")["metadata"]["finalizers"] == [FINALIZER]
    replicas.start(1)
    wait_for(lambda: cluster.get(NAMESPACES, namespace) is None, "the namespace to go", 60.0)
    assert instances(eureka, app) == []


def test_an_operator_that_never_reached_eureka_lets_go_too(
    cluster: Cluster, namespace: str, replicas: Replicas
) -> None:
    """An operator that started while Eureka was away releases a deleted syncer without waiting for Eureka."""
    app = f"{namespace}-app"
    cluster.apply_syncer(namespace, app)
    finalizers = {"metadata": {"finalizers": [FINALIZER]}}
    path = SYNCERS.path(namespace, app)
    cluster.access.request("PATCH", path, body=finalizers, content_type=MERGE_PATCH_TYPE)
    cluster.delete(SYNCERS, app, namespace)
    assert cluster.get(SYNCERS, app, namespace) is not None
    replicas.start(1, EUREKA_URL="http://127.0.0.1:9/eureka", RELEASE_AFTER_SECONDS="2")
    wait_for(lambda: cluster.get(SYNCERS, app, namespace) is None, "the syncer to go", 10.0 + LOAD_SECONDS)


def test_an_api_that_is_away_costs_no_registration(
    lab: Lab, cluster: Cluster, eureka: Peers, namespace: str, replicas: Replicas
) -> None:
    """While the API server is away, the leader stops writing and goes on renewing. If the leader ends,
    another replica renews.

    Afterwards there is one leader, and changes are written again.
    """
    app = f"{namespace}-app"
    replicas.start(2)
    held = deployed(cluster, eureka, namespace, app)
    leader = replicas.led_by(*replicas.by_name)
    (other,) = replicas.others(leader)
    replicas.by_name[other].process.send_signal(signal.SIGSTOP)  # or the renewals might be its own
    lab.api_server.kill()
    away_since = time.time()
    try:
        wait_for(
            lambda: "failed to renew the Lease in time" in replicas.by_name[leader].text(),
            "the leader to stop writing",
            DEADLINE_SECONDS + LOAD_SECONDS,
        )
        late = time.time()
        wait_for(all_renewed_since(eureka, held, late), "renewals after that", 27.0 + LOAD_SECONDS)
        assert time.time() - away_since > LEASE_SECONDS
        replicas.by_name[leader].process.kill()
        replicas.by_name[other].process.send_signal(signal.SIGCONT)
        late = time.time()
        wait_for(all_renewed_since(eureka, held, late), "renewals by the other one", 27.0 + LOAD_SECONDS)
        assert "updated Eureka for a syncer" not in replicas.by_name[other].text()
    finally:
        lab.api_server.start()
        for process in (lab.controller_manager, lab.scheduler, lab.kwok):
            process.restart()  # they would come back with a back-off, too
    replicas.led_by(*replicas.by_name)
    address = set_first_pod_ready(cluster, namespace, app, is_ready=False)
    awaited(eureka, app, address, "DOWN", LOAD_SECONDS)  # sooner than a reflector's back-off of up to 30 s
    unchanged = {one.key: one.last_dirty_timestamp_ms for one in held if one.ip_address != address}
    found = {one.key: one.last_dirty_timestamp_ms for one in instances(eureka, app)}
    assert unchanged.items() <= found.items()
