"""The operator on real servers: pods, Services, conflicts and failures, and their effect in Eureka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.core.brake import BRAKE_HOLD_SECONDS, RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import EVENTS, MERGE_PATCH_TYPE, SERVICES, SYNCERS
from lab import EUREKA_PASSWORD, EUREKA_USER, Lab
from lab.listing import wait_until_listed
from lab.workloads import Cluster, wait_for
from tests.system.conftest import (
    StartOperator,
    addresses,
    instances,
    of_a_machine,
    ready,
    renewed_at,
    running,
)

pytestmark = pytest.mark.lab


def condition(cluster: Cluster, namespace: str, name: str, kind: str = "Ready") -> dict[str, str]:
    """Return a syncer's condition; empty if there is none."""
    found: list[dict[str, str]] = status(cluster, namespace, name).get("conditions") or []
    return next((item for item in found if item["type"] == kind), {})


def status(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """Return a syncer's status; empty if there is none."""
    return (cluster.get(SYNCERS, name, namespace) or {}).get("status") or {}


def test_follows_endpoints(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """A ready pod is registered UP, an unready one is DOWN, a removed one leaves, and a deleted syncer
    removes all.
    """
    app = f"{namespace}-app"
    start_operator()
    pods = running(cluster, namespace, app, 2)
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "two instances UP")

    cluster.scale(namespace, app, 4)
    pods = ready(cluster, namespace, app, 4)
    wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "four instances UP")

    victim = cluster.pods(namespace, app)[0]
    cluster.set_ready(victim, ready=False)
    expected = dict.fromkeys(pods, "UP") | {victim["status"]["podIP"]: "DOWN"}
    wait_for(lambda: addresses(eureka, app) == expected, "one instance DOWN")
    cluster.set_ready(victim, ready=True)
    wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "all UP again")

    cluster.scale(namespace, app, 1)
    (last,) = ready(cluster, namespace, app, 1)
    wait_for(lambda: addresses(eureka, app) == {last: "UP"}, "one instance left")

    wait_for(lambda: status(cluster, namespace, app).get("instances") == "1/1", "1/1 in the status")
    assert status(cluster, namespace, app)["application"] == app.upper()
    wait_for(lambda: condition(cluster, namespace, app).get("status") == "True", "Ready")
    reasons = {event["reason"] for event in cluster.items(EVENTS, namespace)}
    assert {"Registered", "Deregistered"} <= reasons

    cluster.delete(SYNCERS, app, namespace)
    wait_for(lambda: cluster.get(SYNCERS, app, namespace) is None, "the finalizer to be released")
    assert addresses(eureka, app) == {}


def test_service_removed(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """A deleted Service's instances leave after the brake, or at once if a person releases it."""
    app, other = f"{namespace}-app", f"{namespace}-other"
    start_operator()
    for name in (app, other):
        running(cluster, namespace, name, 2)
        cluster.apply_syncer(namespace, name)
        wait_for(lambda name=name: len(addresses(eureka, name)) == 2, "two instances")  # type: ignore[misc]
    for name in (app, other):
        cluster.delete(SERVICES, name, namespace)
        wait_for(
            lambda name=name: condition(cluster, namespace, name, "Braked").get("status") == "True",  # type: ignore[misc]
            "Braked",
        )
    deleted_at = time.monotonic()
    annotation = {"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: "now"}}}
    cluster.access.request(
        "PATCH", SYNCERS.path(namespace, other), body=annotation, content_type=MERGE_PATCH_TYPE
    )
    wait_for(lambda: addresses(eureka, other) == {}, "no instance of the released one")
    metadata = cluster.access.get(SYNCERS.path(namespace, other))["metadata"]
    assert RELEASE_BRAKE_ANNOTATION not in metadata.get("annotations", {})
    assert len(addresses(eureka, app)) == 2
    wait_for(lambda: addresses(eureka, app) == {}, "no instance", 90.0)
    assert time.monotonic() - deleted_at > BRAKE_HOLD_SECONDS - 10
    wait_for(
        lambda: condition(cluster, namespace, app).get("reason") == "NoMatchingService", "NoMatchingService"
    )


def test_service_mode(cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator) -> None:
    """Mode service registers the Service as one instance, at its load balancer's address or else its
    cluster IP.
    """
    app = f"{namespace}-app"
    start_operator()
    running(cluster, namespace, app, 2)
    cluster.apply_syncer(namespace, app, mode="service")
    cluster_ip = cluster.access.get(SERVICES.path(namespace, app))["spec"]["clusterIP"]
    wait_for(lambda: addresses(eureka, app) == {cluster_ip: "UP"}, "the cluster IP")
    cluster.apply_service(namespace, app, type="LoadBalancer")
    cluster.access.request(
        "PATCH",
        SERVICES.path(namespace, app, "status"),
        body={"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}},
        content_type="application/merge-patch+json",
    )
    wait_for(lambda: addresses(eureka, app) == {"192.0.2.7": "UP"}, "the load balancer's address")
    cluster.scale(namespace, app, 0)
    wait_for(lambda: addresses(eureka, app) == {"192.0.2.7": "DOWN"}, "DOWN without a ready endpoint")


def test_restart_changes_nothing(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """A restarted operator removes nothing, writes nothing, and goes on renewing."""
    app = f"{namespace}-app"
    first = start_operator()
    running(cluster, namespace, app, 3)
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: len(addresses(eureka, app)) == 3, "three instances")
    assert first.stop() == 0
    held = instances(eureka, app)
    before = {one.key: one.last_dirty_timestamp_ms for one in held}
    assert len(before) == 3
    since = time.time()
    start_operator()

    def renewed() -> set[tuple[str, str]]:
        return {one.key for one in held if renewed_at(eureka, one) > since}

    wait_for(lambda: renewed() == before.keys(), "the first renewals")
    after = {one.key: one.last_dirty_timestamp_ms for one in instances(eureka, app)}
    assert before == after  # whatever it may have thought first, while no list showed them yet
    for key in before:
        found = eureka.read(*key)
        assert found is not None
        assert found.status is Status.UP


def test_leaves_others_alone(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """The operator never changes an instance of another client in the same application."""
    app = f"{namespace}-app"
    foreign = Instance(
        application=app,
        instance_id=f"vm-7:{app}:9000",
        host_name="192.0.2.17",
        ip_address="192.0.2.17",
        port=Port(9000),
        metadata={"team": "legacy"},
    )
    Writer(eureka).register(foreign)
    before = eureka.read(*foreign.key)
    start_operator()
    pods = running(cluster, namespace, app, 2)
    cluster.apply_syncer(namespace, app)
    expected = dict.fromkeys([*pods, "192.0.2.17"], "UP")
    wait_for(lambda: addresses(eureka, app) == expected, "theirs beside ours")
    cluster.delete(SYNCERS, app, namespace)
    wait_for(lambda: addresses(eureka, app) == {"192.0.2.17": "UP"}, "only theirs")
    assert eureka.read(*foreign.key) == before


def test_conflict_is_shown(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """If another owner has the instance's id, the operator leaves it, and the syncer gets a condition."""
    app = f"{namespace}-app"
    start_operator("--cluster-name", "lab")
    running(cluster, namespace, app, 1)
    foreign = of_a_machine(cluster, namespace, app, "lab")
    Writer(eureka).register(foreign)
    before = eureka.read(*foreign.key)
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: condition(cluster, namespace, app).get("reason") == "Conflict", "Conflict")
    assert condition(cluster, namespace, app, "Conflict")["status"] == "True"
    assert eureka.read(*foreign.key) == before


def register_as_own_client(eureka: Peers, app: str, address: str) -> Instance:
    """Register an instance as a pod's own Eureka client does."""
    itself = Instance(
        application=app,
        instance_id=f"{address}:{app}:8080",
        host_name=address,
        ip_address=address,
        port=Port(8080),
    )
    Writer(eureka).register(itself)
    return itself


def test_self_registered_pods(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """The operator does not register a pod whose Spring client registered it before.

    If the client registers later, the pod has two instances: the syncer reports that as soon as a list shows
    them, and both stay.
    """
    known, new = f"{namespace}-known", f"{namespace}-new"
    (known_at,), (new_at,) = (running(cluster, namespace, app, 1) for app in (known, new))
    first = register_as_own_client(eureka, known, known_at)
    wait_until_listed(eureka.peers[0].url, [first])
    start_operator()
    for app in (known, new):
        cluster.apply_syncer(namespace, app)
    wait_for(lambda: instances(eureka, new), f"the operator's registration of {new}")
    second = register_as_own_client(eureka, new, new_at)
    for app in (known, new):
        wait_for(
            lambda app=app: condition(cluster, namespace, app, "SelfRegistered").get("status") == "True",  # type: ignore[misc]
            f"SelfRegistered of {app}",
            90.0,
        )
    assert condition(cluster, namespace, known)["status"] == "False"
    assert condition(cluster, namespace, new)["status"] == "True"
    assert [one.instance_id for one in instances(eureka, known)] == [first.instance_id]
    both = [one.instance_id for one in instances(eureka, new)]
    assert (len(both), second.instance_id in both) == (2, True)


def test_two_clusters_share_an_application(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """Operators of two clusters leave each other's instances alone, even for syncers of one name and one
    application.
    """
    app = f"{namespace}-app"
    running(cluster, namespace, app, 2)
    cluster.apply_syncer(namespace, app)
    east = start_operator("--cluster-name", "east")
    wait_for(lambda: len(instances(eureka, app)) == 2, "east's instances")
    east.stop()
    # Another cluster has another UID, and none of its pods has the same address.
    for one in instances(eureka, app):
        Writer(eureka).register(
            Instance(
                application=one.application,
                instance_id=one.instance_id,
                host_name=f"192.0.2.{len(one.instance_id)}",
                ip_address=f"192.0.2.{40 + int(one.ip_address.rpartition('.')[2]) % 200}",
                port=one.port,
                metadata={**one.metadata, "eurekube.cluster-uid": "of-the-east"},
            )
        )
    before = {one.key: one for one in instances(eureka, app)}
    west = start_operator("--cluster-name", "west")
    wait_for(lambda: len(instances(eureka, app)) == 4, "west's instances beside east's")
    cluster.delete(SYNCERS, app, namespace)
    wait_for(lambda: cluster.get(SYNCERS, app, namespace) is None, "west's finalizer")
    assert {one.key: one for one in instances(eureka, app)} == before
    assert west.stop() == 0


def test_same_cluster_name_is_refused(eureka: Peers, namespace: str, start_operator: StartOperator) -> None:
    """An operator ends at its start if another cluster uses its cluster name, unless a flag allows it."""
    app = f"{namespace}-app"
    twin = Instance(
        application=app,
        instance_id=f"pod.{namespace}.twin-{namespace[-4:]}:{app}:8080",
        host_name="192.0.2.19",
        ip_address="192.0.2.19",
        port=Port(8080),
        metadata={
            "eurekube.owner": f"cluster/twin-{namespace[-4:]}/elsewhere/{app}",
            "eurekube.cluster-uid": "another-uid",
        },
    )
    Writer(eureka).register(twin)
    wait_until_listed(eureka.peers[0].url, [twin])
    operator = start_operator("--cluster-name", f"twin-{namespace[-4:]}", ready=False)
    assert operator.process.wait(timeout=60) == 1
    assert "is in use by another cluster" in operator.text()
    start_operator("--cluster-name", f"twin-{namespace[-4:]}", "--take-over-cluster", "true")


def test_two_operators_of_one_name_do_not_lead(
    namespace: str, unique_name: str, start_operator: StartOperator
) -> None:
    """An operator outside of the cluster ends when one inside leads, whichever starts first.

    The operator outside has its Lease in its context's namespace, and looks for the other Lease; the one
    inside does not.
    """
    lease = f"{unique_name}-leader"
    laptop = start_operator(
        LEASE_NAME=lease, LEASE_DURATION_SECONDS="3", RENEW_DEADLINE_SECONDS="2", RETRY_PERIOD_SECONDS="0.5"
    )
    wait_for(lambda: "became the leader" in laptop.text(), "the laptop leads, since nobody else does")
    inside = start_operator(LEASE_NAME=lease, POD_NAMESPACE=namespace)
    wait_for(lambda: "became the leader" in inside.text(), "the one in the cluster leads")
    assert laptop.process.wait(timeout=60) == 1
    assert f"leads in this cluster by the Lease {namespace}/{lease}" in laptop.text()
    again = start_operator(LEASE_NAME=lease, ready=False)
    assert again.process.wait(timeout=60) == 1
    assert f"--lease-namespace {namespace}" in again.text()
    joins = start_operator(LEASE_NAME=lease, LEASE_NAMESPACE=namespace)
    assert inside.stop() == 0
    wait_for(lambda: "became the leader" in joins.text(), "the one that was given where the Lease is")


def test_other_namespace_is_refused(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """A syncer with a selector for another namespace registers nothing unless the configuration allows it."""
    app, other = f"{namespace}-app", f"{namespace}-other"
    cluster.create_namespace(other)
    running(cluster, other, app, 1)
    operator = start_operator(WATCH_NAMESPACE=f"{namespace},{other}")
    cluster.apply_syncer(namespace, app, selector={"namespace": other})
    wait_for(lambda: condition(cluster, namespace, app).get("reason") == "NotAllowed", "NotAllowed")
    assert "--cross-namespace" in condition(cluster, namespace, app)["message"]
    assert addresses(eureka, app) == {}
    operator.stop()
    start_operator(WATCH_NAMESPACE=f"{namespace},{other}", CROSS_NAMESPACE=f"{namespace}={other}")
    wait_for(lambda: len(addresses(eureka, app)) == 1, "one instance")


def test_another_name_is_refused(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """With STRICT_NAMES a syncer may not register under a name other than its Service's without
    permission.
    """
    app, other = f"{namespace}-app", f"{namespace}-other"
    running(cluster, namespace, app, 1)
    operator = start_operator(STRICT_NAMES="true")
    cluster.apply_syncer(namespace, app, application=other)
    wait_for(lambda: condition(cluster, namespace, app).get("reason") == "NotAllowed", "NotAllowed")
    assert f"--publish {namespace}={other}" in condition(cluster, namespace, app)["message"]
    assert addresses(eureka, other) == {}
    operator.stop()
    start_operator(PUBLISH=f"{namespace}={other}", STRICT_NAMES="true")
    wait_for(lambda: len(addresses(eureka, other)) == 1, "one instance")


def test_no_matching_service(cluster: Cluster, namespace: str, start_operator: StartOperator) -> None:
    """A selector without a matching Service sets a condition, which ends when the Service comes."""
    app = f"{namespace}-app"
    start_operator()
    cluster.apply_syncer(namespace, app)
    wait_for(
        lambda: condition(cluster, namespace, app).get("reason") == "NoMatchingService", "NoMatchingService"
    )
    running(cluster, namespace, app, 1)
    wait_for(lambda: condition(cluster, namespace, app).get("status") == "True", "Ready")


def test_renews_for_a_stack(eureka: Peers, namespace: str, start_operator: StartOperator) -> None:
    """The operator renews a stack's registration that names it as renewer, and stops once the stack
    removed it.
    """
    app = f"{namespace}-app"
    lent = Instance(
        application=app,
        instance_id=f"vm.dev.demo:{app}:8080",
        host_name="192.0.2.20",
        ip_address="192.0.2.20",
        port=Port(8080),
        metadata={"eurekube.owner": "stack/org/demo/dev/vm", "eurekube.renewer": f"op-{namespace}"},
    )
    Writer(eureka).register(lent)
    operator = start_operator("--operator-name", f"op-{namespace}")
    wait_for(lambda: "renewing a stack's registration" in operator.text(), "the operator to renew it")
    Writer(eureka).remove(lent)
    wait_for(
        lambda: "stopped renewing a stack's registration that somebody removed" in operator.text(),
        "the operator to drop it",
        40.0,
    )
    time.sleep(3.0)
    assert eureka.read(*lent.key) is None


def test_eureka_away(cluster: Cluster, namespace: str, start_operator: StartOperator) -> None:
    """While Eureka is unreachable, the syncer's condition says so with the URL."""
    app = f"{namespace}-app"
    running(cluster, namespace, app, 1)
    cluster.apply_syncer(namespace, app)
    start_operator(EUREKA_URL="http://127.0.0.1:9/eureka", ready=False)
    wait_for(
        lambda: condition(cluster, namespace, app).get("reason") == "EurekaUnreachable", "EurekaUnreachable"
    )
    assert "http://127.0.0.1:9/eureka" in condition(cluster, namespace, app)["message"]


@pytest.fixture(scope="module")
def secured() -> Iterator[Lab]:
    """Start a Eureka server that asks for a password and refuses every write, as with CSRF protection."""
    with Lab(eureka=1, kubernetes=False, security="csrf") as running:
        yield running


@pytest.mark.parametrize(
    ("password", "words"), [("wr0ng-pa55", "credentials"), (EUREKA_PASSWORD, "CSRF")], ids=["basic", "csrf"]
)
def test_eureka_denies(
    secured: Lab, cluster: Cluster, namespace: str, start_operator: StartOperator, password: str, words: str
) -> None:
    """Wrong credentials and CSRF protection set conditions that say what to change, without showing the
    password.
    """
    app = f"{namespace}-app"
    running(cluster, namespace, app, 1)
    cluster.apply_syncer(namespace, app)
    url = secured.eureka_urls[0].replace("http://", f"http://{EUREKA_USER}:{password}@")
    operator = start_operator(EUREKA_URL=url, ready=False)
    wait_for(lambda: condition(cluster, namespace, app).get("reason") == "EurekaDenied", "EurekaDenied")
    message = condition(cluster, namespace, app)["message"]
    assert words in message
    assert password not in message + operator.text()


def test_bad_syncers_are_refused_by_the_api(cluster: Cluster, namespace: str) -> None:
    """The CRD refuses an unknown mode, and an app that is not a label value, with a sentence each."""
    with pytest.raises(KubernetesError, match=r"pod.*service") as unknown_mode:
        cluster.apply_syncer(namespace, "bad", mode="node")
    assert unknown_mode.value.status_code == 422
    with pytest.raises(KubernetesError, match="must be a label value such as rating"):
        cluster.apply_syncer(namespace, "bad", selector={"app": "a/b"})
    with pytest.raises(KubernetesError, match="must be the name of a namespace"):
        cluster.apply_syncer(namespace, "bad", selector={"namespace": "Shop"})
