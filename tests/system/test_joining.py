"""Services that join the syncer of their namespace, on real servers.

The slices are written by hand: so pods vanish without having been seen terminating.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from typing import Any

import pytest

from eurekube_provider.core.model import Instance
from eurekube_provider.core.syncer import FINALIZER
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import ENDPOINT_SLICES, EVENTS, MERGE_PATCH_TYPE, SERVICES, SYNCERS
from lab.workloads import Cluster, wait_for
from tests.system.conftest import StartOperator, instances

pytestmark = pytest.mark.lab

Object = dict[str, Any]
_numbers = itertools.count(1)


class Namespace:
    """A namespace with Services, whose applications are called after it, and a syncer for all of them."""

    def __init__(self, cluster: Cluster, eureka: Peers, name: str) -> None:
        self.cluster, self.eureka, self.name = cluster, eureka, name
        self._network = f"10.91.{next(_numbers)}"
        self._addresses = itertools.count(1)

    def called(self, service: str) -> str:
        """The application of a Service."""
        return f"{self.name}-{service}"

    def service(self, name: str, pods: int = 1, **annotations: str) -> None:
        """A Service with so many ready pods."""
        written = {f"eurekube.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        metadata = {"namespace": self.name, "name": name, "annotations": written}
        spec = {"ports": [{"name": "http", "port": 8080}]}
        self.cluster.apply(
            SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        )
        self.pods(name, *(f"{name}-{number}" for number in range(pods)))

    def pods(self, service: str, *names: str) -> None:
        """The endpoints of a Service."""
        self.cluster.apply(
            ENDPOINT_SLICES,
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "namespace": self.name,
                    "name": f"{service}-x",
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080}],
                "endpoints": [
                    {
                        "addresses": [f"{self._network}.{next(self._addresses) % 250 + 1}"],
                        "conditions": {"ready": True},
                        "targetRef": {"kind": "Pod", "name": name, "namespace": self.name},
                    }
                    for name in names
                ],
            },
        )

    def annotate(self, service: str, **annotations: str | None) -> None:
        """A person annotates a Service; None takes an annotation off."""
        written = {f"eurekube.io/{key}": value for key, value in annotations.items()}
        body = {"metadata": {"annotations": written}}
        path = SERVICES.path(self.name, service)
        self.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)

    def syncer(self, name: str = "all", selector: Object | None = None, **spec: Any) -> None:
        """The namespace's syncer, or another one."""
        wanted = {"mode": "pod", "selector": selector or {"services": "Annotated"}, **spec}
        if selector is None:
            wanted["application"] = "{namespace}-{service}"
        self.cluster.apply(
            SYNCERS,
            {
                "apiVersion": "eurekube.io/v1alpha1",
                "kind": "EurekaSyncer",
                "metadata": {"namespace": self.name, "name": name},
                "spec": wanted,
            },
        )

    def item(self, name: str = "all") -> Object:
        """A syncer; empty where there is none."""
        return self.cluster.get(SYNCERS, name, self.name) or {}

    def derived(self) -> set[str]:
        """The Services that have a syncer of their own."""
        found = self.cluster.access.get(SYNCERS.path(self.name))["items"]
        return {name.removeprefix("all.") for one in found if (name := one["metadata"]["name"]) != "all"}

    def condition(self, kind: str, name: str = "all") -> tuple[str, str]:
        """State and reason of a condition; empty while there is none."""
        conditions = (self.item(name).get("status") or {}).get("conditions") or ()
        found = next((one for one in conditions if one["type"] == kind), None)
        return (found["status"], found["reason"]) if found else ("", "")

    def held(self, service: str) -> list[Instance]:
        """The instances of a Service."""
        return instances(self.eureka, self.called(service))

    def wait_held(self, service: str, count: int) -> list[Instance]:
        """Wait until Eureka holds so many."""
        wait_for(lambda: len(self.held(service)) == count, f"{count} of {service}", 90.0)
        return self.held(service)

    def wait_counts(self, **counts: int) -> None:
        """Wait until the status of the namespace's syncer counts so many Services."""

        def found() -> bool:
            written = (self.item().get("status") or {}).get("applications") or {}
            return counts.items() <= written.items()

        wait_for(found, f"{counts}", 60.0)


@pytest.fixture
def place(cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator) -> Namespace:
    """A namespace with an operator, and a syncer for all of its Services."""
    start_operator(PUBLISH="*=*")
    made = Namespace(cluster, eureka, namespace)
    made.syncer(annotations=["port", "metadata"])
    return made


def test_services_join_and_leave_by_an_annotation(place: Namespace) -> None:
    """And set what the syncer lists; what it does not list does nothing."""
    place.service("rating", pods=2)
    team: dict[str, Any] = {"metadata.team": "stars"}
    place.service("review", sync="pod", **team, application="taken")
    (instance,) = place.wait_held("review", 1)
    assert (instance.metadata["team"], instance.owner.split("/")[-1]) == ("stars", "all.review")  # type: ignore[union-attr]
    assert instances(place.eureka, "taken") == place.held("rating") == []
    place.annotate("rating", sync="true")
    place.wait_held("rating", 2)
    place.wait_counts(total=2, ready=2, synced=2, refused=0, braked=0)
    wait_for(lambda: place.condition("Ready") == ("True", "Synced"), "Ready", 30.0)
    assert place.item()["status"]["instances"] == "3/3"
    place.annotate("rating", sync="false")
    place.wait_held("rating", 0)
    assert len(place.held("review")) == 1
    wait_for(lambda: place.derived() == {"review"}, "the syncer to go", 30.0)


def test_a_bad_value_refuses_that_service_alone(place: Namespace) -> None:
    """With an Event on it; what it had stays, and the others are served."""
    place.service("rating", sync="pod")
    place.wait_held("rating", 1)
    place.annotate("rating", port="80 80")
    place.service("review", sync="pods")
    place.service("cart", sync="pod")
    place.wait_held("cart", 1)
    place.wait_counts(total=3, refused=2)
    assert place.condition("Synced") == ("False", "ServiceRefused")
    assert len(place.held("rating")) == 1
    assert place.held("review") == []

    def told() -> set[str]:
        return {
            one["regarding"]["name"]
            for one in place.cluster.items(EVENTS, place.name)
            if (one["reason"], one["regarding"]["kind"]) == ("SyncRefused", "Service")
            and one["regarding"].get("uid")
        }

    wait_for(lambda: told() == {"rating", "review"}, "Events", 30.0)
    place.pods("rating", "rating-0", "rating-1")  # refused, and served as before
    place.wait_held("rating", 2)
    place.annotate("rating", port="http")
    place.annotate("review", sync="pod")
    place.wait_held("review", 1)
    place.wait_counts(total=3, refused=0, ready=3)


class Watched:
    """Reads an application again and again, past the servers' caches, while something else happens."""

    def __init__(self, eureka: Peers, those: list[Instance]) -> None:
        self._eureka, self._keys = eureka, [one.key for one in those]
        self._stopped = threading.Event()
        self.missing = 0
        self.looks = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        assert self.looks > 10
        assert self.missing == 0

    def _run(self) -> None:
        while not self._stopped.wait(0.01):
            for key in self._keys:
                found = self._eureka.read(*key)
                self.missing += found is None or found.status != "UP"
                self.looks += 1


def test_handed_over_from_a_syncer_of_its_own_and_back(place: Namespace) -> None:
    """No instance is missing for a moment, and the second one says Conflict before."""
    place.service("rating", pods=3)
    own: Object = {"application": place.called("rating")}
    place.syncer("rating", {"app": "rating"}, **own)
    those = place.wait_held("rating", 3)
    with Watched(place.eureka, those):
        place.annotate("rating", sync="pod")
        wait_for(lambda: place.condition("Conflict", "all.rating")[0] == "True", "Conflict", 60.0)
        wait_for(lambda: place.condition("Synced") == ("False", "Conflict"), "Conflict of all", 30.0)
        place.cluster.delete(SYNCERS, "rating", place.name)
        wait_for(
            lambda: {str(one.owner).rpartition("/")[2] for one in place.held("rating")} == {"all.rating"},
            "the namespace's",
            90.0,
        )
        wait_for(lambda: place.condition("Ready") == ("True", "Synced"), "Ready", 60.0)
        place.syncer("rating", {"app": "rating"}, **own)
        wait_for(lambda: place.condition("Conflict", "rating")[0] == "True", "Conflict", 60.0)
        place.annotate("rating", sync="false")
        wait_for(
            lambda: {str(one.owner).rpartition("/")[2] for one in place.held("rating")} == {"rating"},
            "its own",
            90.0,
        )
    assert len(place.held("rating")) == 3


def test_a_deleted_syncer_takes_all_out(place: Namespace) -> None:
    """It is gone after the last of those that it made."""
    for name in ("rating", "review", "cart"):
        place.service(name, sync="pod")
    for name in ("rating", "review", "cart"):
        place.wait_held(name, 1)
    assert FINALIZER in place.item()["metadata"]["finalizers"]
    path = SYNCERS.path(place.name, "all")
    place.cluster.access.request("DELETE", path)
    seen = []
    while place.item():
        seen.append(len(place.derived()))
        time.sleep(0.01)
    assert place.derived() == set()
    assert [place.held(name) for name in ("rating", "review", "cart")] == [[], [], []]


def test_orphans_are_a_persons_own(place: Namespace) -> None:
    """As ``kubectl delete --cascade=orphan`` leaves them."""
    place.service("rating", sync="pod")
    those = place.wait_held("rating", 1)
    with Watched(place.eureka, those):
        place.cluster.access.request(
            "DELETE", SYNCERS.path(place.name, "all"), body={"propagationPolicy": "Orphan"}
        )
        wait_for(lambda: not place.item(), "the namespace's syncer to go", 60.0)
        time.sleep(1.0)
        assert place.derived() == {"rating"}
        assert "ownerReferences" not in place.item("all.rating")["metadata"]


def test_killed_in_the_midst(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """The next operator goes on where the first one stopped, and no instance is lost meanwhile."""
    place = Namespace(cluster, eureka, namespace)
    first = start_operator(PUBLISH="*=*")
    names = [f"s-{number}" for number in range(40)]
    for name in names:
        place.service(name)
    place.syncer(selector={"services": "All"}, application="{namespace}-{service}")
    those: list[Instance] = wait_for(
        lambda: next((there for name in place.derived() if (there := place.held(name))), None),
        "the first instance",
        30.0,
    )
    first.stop(signal.SIGKILL)
    with Watched(eureka, those):
        start_operator(PUBLISH="*=*")
        wait_for(lambda: place.derived() == set(names), "all syncers", 90.0)
        for name in names:
            place.wait_held(name, 1)
        place.wait_counts(total=40, ready=40, synced=40)


def test_one_of_many_that_loses_all_pods_is_braked(place: Namespace) -> None:
    """As if it had a syncer of its own."""
    for name in ("rating", "review", "cart"):
        place.service(name, pods=3, sync="pod")
    for name in ("rating", "review", "cart"):
        place.wait_held(name, 3)
    place.pods("rating")
    wait_for(lambda: place.condition("Braked", "all.rating")[0] == "True", "Braked", 30.0)
    place.wait_counts(total=3, braked=1)
    assert len(place.held("rating")) == 3
    assert place.condition("Braked", "all.review") == ("", "")
    body = {"metadata": {"annotations": {"eurekube.io/release-brake": "now"}}}
    path = SYNCERS.path(place.name, "all")
    place.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
    place.wait_held("rating", 0)
    assert len(place.held("review")) == 3


def test_all_together_are_braked(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """Each has one pod, which goes without a word; more than half of them stay."""
    start_operator(PUBLISH="*=*")
    place = Namespace(cluster, eureka, namespace)
    # Beside them others, of which the operator's own share would be too small to count.
    place.service("beside", pods=200)
    place.syncer("beside", {"app": "beside"}, application=place.called("beside"))
    names = [f"s-{number}" for number in range(30)]
    for name in names:
        place.service(name, sync="pod")
    place.syncer()
    place.wait_counts(total=30, ready=30)
    # They came within the brake's window, and count as lost all the same.
    for name in names:
        place.pods(name)
    wait_for(lambda: place.condition("Braked", "all.s-29")[0] == "True", "Braked", 30.0)
    assert sum(len(place.held(name)) for name in names) >= 12
    place.service("s-40", sync="pod")  # one that comes is served meanwhile
    place.wait_held("s-40", 1)
