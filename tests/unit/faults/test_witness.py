"""The fault suite's witness: it reports violations, and nothing else."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.kube.access import ENDPOINT_SLICES, NODES, SERVICES, SYNCERS, KubeAccess
from eurekube_provider.kube.access import PODS as POD_RESOURCE
from lab.waiting import wait_until
from tests.faults import gates as gates_module
from tests.faults import witness as witness_module
from tests.faults.excuse import Excuse, Excuses, Explains
from tests.faults.expected import Key
from tests.faults.witness import WatchedCluster, WatchedServer, Witness

SERVERS = 3
PODS = ("one", "two", "three")
READY = {"type": "Ready", "status": "True"}
OTHER = Instance("rating", "vm-7:rating:9000", "192.0.2.7", "192.0.2.7", Port(9000))


@dataclass
class Cluster:
    """A fake Kubernetes API with one syncer, its Service, slice and pods."""

    ready: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(PODS, True))
    turned: dict[str, str] = field(default_factory=lambda: dict.fromkeys(PODS, "12:00:00"))
    gates: dict[str, str] = field(default_factory=dict)
    is_away: bool = False

    def get(self, path: str) -> dict[str, Any]:
        """Return the list of one kind."""
        if self.is_away:
            raise KubernetesError("away")
        if path == NODES.path():
            return {"items": [{"metadata": {"name": "node"}, "status": {"conditions": [READY]}}]}
        metadata: dict[str, Any] = {"namespace": "shop", "name": "rating"}
        endpoints = [
            {"addresses": [f"10.0.0.{number}"], "conditions": {"ready": ready}, "targetRef": {"name": pod}}
            for number, (pod, ready) in enumerate(self.ready.items())
        ]
        items: dict[str, dict[str, Any]] = {
            SYNCERS.path(): {"metadata": metadata, "spec": {"mode": "pod", "selector": {"app": "rating"}}},
            SERVICES.path(): {"metadata": metadata, "spec": {}},
            ENDPOINT_SLICES.path(): {
                "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "rating"}},
                "ports": [{"port": 8080}],
                "endpoints": endpoints,
            },
        }
        pods = [self._pod(pod, at) for pod, at in self.turned.items()]
        return {"items": pods if path == POD_RESOURCE.path() else [items[path]]}

    def _pod(self, pod: str, turned: str) -> dict[str, Any]:
        is_ready = str(self.ready.get(pod, False))
        conditions = [
            {"type": "Ready", "status": is_ready, "lastTransitionTime": turned},
            {"type": "ContainersReady", "status": "True"},
            {"type": READINESS_GATE, "status": self.gates.get(pod, "Unknown")},
        ]
        gates = [{"conditionType": READINESS_GATE}] if pod in self.gates else []
        return {
            "metadata": {"namespace": "shop", "name": pod, "uid": pod},
            "spec": {"nodeName": "node", "readinessGates": gates},
            "status": {"conditions": conditions},
        }


@dataclass
class Server:
    """A Eureka server's log and instances."""

    log: Path
    held: dict[Key, Instance]
    answered: Callable[[], None] = lambda: None

    def read(self) -> dict[Key, Instance]:
        """Return the present instances, and call ``answered`` after they are read."""
        found = dict(self.held)
        self.answered()
        return found


@dataclass
class Scene:
    """A cluster, its servers, and the witness that watches them."""

    cluster: Cluster
    servers: list[Server]
    witness: Witness
    excuses: Excuses
    operator_log: Path

    def look(self) -> None:
        """Wait until the witness has read every server again, and then the cluster."""
        self._await(lambda: [one.readings for one in self.witness.servers])
        if not self.cluster.is_away:
            self._await(lambda: [one.readings for one in self.witness.clusters])

    @staticmethod
    def _await(counts: Callable[[], list[int]]) -> None:
        enough = [count + 2 for count in counts()]  # the next reading may have begun already
        wait_until(lambda: all(map(operator.ge, counts(), enough)), "the witness", 20)

    def said(self) -> list[str]:
        """Return the witness's complaints after another look."""
        self.look()
        return [one.what for one in self.witness.complaints]

    def take_out_of_service(self, pod: str) -> Instance:
        """Take a pod's instance out of service on every server as a person, tell the witness, and return
        the instance.
        """
        server, *_ = self.servers
        status = Status.OUT_OF_SERVICE
        out = replace(server.held[key(pod)], status=status, overridden_status=status)
        self.witness.may_go_out_of_service(key(pod))
        for server in self.servers:
            server.held[key(pod)] = out
        self.look()
        self.witness.expect_out_of_service(key(pod))
        return out


def key(pod: str) -> Key:
    """Return the key of a pod's instance."""
    return ("RATING", f"{pod}.shop.east:rating:8080")


def instance(number: int, pod: str) -> Instance:
    """Return a pod's instance."""
    address = f"10.0.0.{number}"
    owner = {"eurekube.owner": "cluster/east/shop/rating"}
    return Instance(*key(pod), address, address, Port(8080), metadata=owner)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Yield three ready pods whose instances, and another owner's, every server holds."""
    monkeypatch.setattr(witness_module, "READ_SECONDS", 0.01)
    monkeypatch.setattr(witness_module, "KNOWLEDGE_SECONDS", 0.0)
    monkeypatch.setattr(witness_module, "PROMPT_SECONDS", 600.0)
    held = {one.key: one for one in (OTHER, *(instance(*pair) for pair in enumerate(PODS)))}
    servers = [Server(tmp_path / f"{number}.log", dict(held)) for number in range(SERVERS)]
    for server in servers:
        server.log.touch()
    cluster, excuses, log = Cluster(), Excuses(), tmp_path / "operator.log"
    witness = Witness(
        [WatchedServer(f"eureka-{number}", one.log, one.read) for number, one in enumerate(servers, start=1)],
        [WatchedCluster(cast("KubeAccess", cluster), "east", [log])],
        [OTHER],
        lambda: ("a fault",),
        excuses,
    )
    result = Scene(cluster, servers, witness, excuses, log)
    witness.start()
    result.look()
    yield result
    witness.stop()


def test_a_calm_world_is_level(scene: Scene) -> None:
    """In a world without faults the witness has no complaint and no difference."""
    assert scene.said() == []
    assert scene.witness.differences() == []


def test_a_ready_endpoint_is_removed(scene: Scene) -> None:
    """The removal of a ready endpoint's instance is a complaint with the server and the current fault."""
    del scene.servers[1].held[key("two")]
    assert scene.said() == ["two.shop.east:rating:8080 is ready and was gone from eureka-2"]
    assert "a fault" in str(scene.witness.complaints[0])
    assert scene.witness.differences() == ["eureka-2 lacks two.shop.east:rating:8080"]


def test_a_ready_endpoint_is_down(scene: Scene) -> None:
    """A ready endpoint's instance that is DOWN is a complaint."""
    server = scene.servers[0]
    server.held[key("one")] = replace(server.held[key("one")], status=Status.DOWN)
    assert scene.said() == ["one.shop.east:rating:8080 is ready and was DOWN on eureka-1"]


def test_an_endpoint_that_was_not_ready_between_two_readings(scene: Scene) -> None:
    """A DOWN is no complaint if the pod's condition shows that it was unready between two readings of the
    cluster.
    """
    server = scene.servers[0]
    scene.cluster.is_away = True
    server.held[key("one")] = replace(server.held[key("one")], status=Status.DOWN)
    scene.look()
    scene.cluster.turned["one"] = "12:00:07"
    scene.cluster.is_away = False
    assert scene.said() == []


def test_a_removal_between_two_readings(scene: Scene) -> None:
    """A removal or a lapsed lease between two readings is a complaint by the server's log."""
    with scene.servers[2].log.open("a") as log:
        log.write("INFO : Cancelled instance RATING/one.shop.east:rating:8080 (replication=true)\n")
        log.write("WARN : DS: Registry: expired lease for RATING/two.shop.east:rating:8080\n")
        log.write("INFO : Cancelled instance RATING/gone.shop.east:rating:8080 (replication=false)\n")
    assert sorted(scene.said()) == [
        "eureka-3 let the Eureka lease lapse of two.shop.east:rating:8080, which is ready",
        "eureka-3 removed one.shop.east:rating:8080, which is ready",
    ]


def test_an_endpoint_that_is_not_ready_may_go(scene: Scene) -> None:
    """The removal of an unready endpoint's instance is no complaint."""
    scene.cluster.ready["two"] = False
    scene.look()
    del scene.servers[1].held[key("two")]
    assert scene.said() == []


def test_a_cluster_that_is_away_decides_later(scene: Scene) -> None:
    """An instance lost while the cluster cannot be read is a complaint only if it is still wanted
    afterwards.
    """
    scene.cluster.is_away = True
    for pod in ("one", "two"):
        del scene.servers[0].held[key(pod)]
    assert scene.said() == []
    del scene.cluster.ready["one"]
    scene.cluster.is_away = False
    assert scene.said() == ["two.shop.east:rating:8080 is ready and was gone from eureka-1"]


def test_a_server_that_begins_again_has_lost_nothing(scene: Scene) -> None:
    """Instances missing after a server's announced restart are differences, but no complaints."""
    scene.witness.begins_again(0)
    scene.servers[0].held.clear()
    scene.witness.begins_again(0)
    assert scene.said() == []
    assert len(scene.witness.differences()) == len(PODS) + 1


def test_somebody_else_is_touched(scene: Scene) -> None:
    """A change or removal of another owner's instance is a complaint."""
    scene.servers[0].held[OTHER.key] = replace(OTHER, metadata={"eurekube.owner": "us"})
    del scene.servers[1].held[OTHER.key]
    said = " ".join(scene.said())
    assert "vm-7:rating:9000 of somebody else was changed on eureka-1" in said
    assert "vm-7:rating:9000 of somebody else was gone from eureka-2" in said


def test_a_persons_wish_is_undone(scene: Scene) -> None:
    """An instance that a person took out of service and that is UP again is a complaint."""
    out = scene.take_out_of_service("one")
    assert scene.said() == []
    assert scene.witness.differences() == []
    scene.servers[1].held[key("one")] = replace(out, status=Status.UP)
    assert set(scene.said()) == {
        "one.shop.east:rating:8080, out of service by a person's wish, was UP on eureka-2"
    }


def test_a_reading_that_began_before_a_persons_wish_was_everywhere(scene: Scene) -> None:
    """A reading that began before a person's status reached every server may show the earlier status."""
    first, *others = scene.servers
    status = Status.OUT_OF_SERVICE
    out = replace(first.held[key("one")], status=status, overridden_status=status)

    def arrive() -> None:
        first.answered = lambda: None
        first.held[key("one")] = out
        scene.witness.expect_out_of_service(key("one"))

    scene.witness.may_go_out_of_service(key("one"))
    for server in others:
        server.held[key("one")] = out
    scene.look()
    first.answered = arrive
    assert scene.said() == []
    assert scene.witness.out_of_service == {key("one")}


def test_a_persons_wish_lasts_while_a_server_holds_the_instance(scene: Scene) -> None:
    """A person's wish lasts while any server holds the instance, even unwanted, and ends when none does."""
    scene.take_out_of_service("one")
    del scene.cluster.ready["one"]
    scene.look()
    assert scene.witness.out_of_service == {key("one")}
    scene.cluster.ready = dict.fromkeys(PODS, True)
    scene.look()
    assert scene.witness.differences() == []
    del scene.cluster.ready["one"]
    for server in scene.servers:
        del server.held[key("one")]
    scene.look()
    assert scene.witness.out_of_service == set()


def test_an_override_that_nobody_wished_for(scene: Scene) -> None:
    """An OUT_OF_SERVICE of a ready instance without a person's known wish is a complaint."""
    server = scene.servers[0]
    status = Status.OUT_OF_SERVICE
    server.held[key("one")] = replace(server.held[key("one")], status=status, overridden_status=status)
    assert scene.said() == ["one.shop.east:rating:8080 is ready and was OUT_OF_SERVICE on eureka-1"]


def test_what_was_asked_for_again_may_go_once_more_by_a_fault(scene: Scene) -> None:
    """An instance wanted again may be lost once more at the server with an excused fault, and at no other
    one.
    """
    scene.excuses.give("a frozen server", [Excuse(Explains.LOSS, server=0)], time.monotonic())
    scene.cluster.ready["two"] = False
    scene.look()
    scene.cluster.ready["two"] = True
    scene.look()
    for server in scene.servers[:2]:
        del server.held[key("two")]
    assert scene.said() == ["two.shop.east:rating:8080 is ready and was gone from eureka-2"]
    assert scene.excuses.used == {"a frozen server": 1}


def test_a_fault_that_is_over_excuses_nothing(scene: Scene) -> None:
    """A doubt ends with the fault that caused it; a later fault does not revive the doubt."""
    given = scene.excuses.give("a frozen server", [Excuse(Explains.LOSS)], time.monotonic())
    scene.cluster.ready["two"] = False
    scene.look()
    scene.cluster.ready["two"] = True
    scene.look()
    (watched,) = scene.witness.clusters
    assert watched.wishes.doubted.keys() == {key("two")}
    scene.excuses.end(given, time.monotonic())
    scene.look()
    assert not watched.wishes.doubted
    scene.excuses.give("another fault", [Excuse(Explains.LOSS)], time.monotonic())
    del scene.servers[0].held[key("two")]
    assert scene.said() == ["two.shop.east:rating:8080 is ready and was gone from eureka-1"]


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_dead_pod_that_stays_up(scene: Scene, monkeypatch: pytest.MonkeyPatch, is_gone: bool) -> None:
    """A gone or unready pod that stays UP too long is one complaint for each server."""
    if is_gone:
        del scene.cluster.ready["two"]
    else:
        scene.cluster.ready["two"] = False
    del scene.servers[2].held[key("two")]
    scene.look()
    assert scene.said() == []
    monkeypatch.setattr(witness_module, "PROMPT_SECONDS", 0.0)
    scene.look()
    how = "gone" if is_gone else "not ready"
    words = [f"two.shop.east:rating:8080 is {how} and was UP on eureka-{at}" for at in (1, 2)]
    assert sorted(one.rpartition(" for ")[0] for one in scene.said()) == words


def test_a_dead_pod_may_stay_while_the_brake_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's instance may stay while the operator's log says that the brake holds its syncer's removals."""
    monkeypatch.setattr(witness_module, "PROMPT_SECONDS", 0.0)
    words = (
        "12:00:00.000 WARNING held back removals, keeping the instances registered syncer=shop/{} "
        "reason=all 3 instances would go\n"
    )
    scene.operator_log.write_text(words.format("rating"))
    scene.look()
    del scene.cluster.ready["two"]
    assert scene.said() == []
    assert set(scene.excuses.used) == {"the brake holds shop/rating"}


def test_the_brakes_word_on_another_syncer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A brake on another syncer excuses no staying instance."""
    monkeypatch.setattr(witness_module, "PROMPT_SECONDS", 0.0)
    scene.operator_log.write_text(
        "12:00:00.000 WARNING held back removals, keeping the instances registered syncer=shop/catalog "
        "reason=x\n"
    )
    scene.look()
    del scene.cluster.ready["two"]
    scene.look()
    assert len(scene.said()) == SERVERS


def test_what_a_cluster_that_is_away_asks_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that appears while the cluster cannot be read is judged only once the cluster is read
    again.
    """
    two = {server.log: server.held.pop(key("two")) for server in scene.servers}
    scene.witness.complaints.clear()
    del scene.cluster.ready["two"]
    scene.look()
    scene.witness.complaints.clear()
    monkeypatch.setattr(witness_module, "PROMPT_SECONDS", 0.0)
    scene.cluster.is_away = True
    for server in scene.servers:
        server.held[key("two")] = two[server.log]
    assert scene.said() == []
    scene.cluster.ready["two"] = True
    scene.cluster.is_away = False
    assert scene.said() == []


@pytest.fixture
def gated(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a scene of pods with the readiness gate, of which one waits and no server shows it."""
    monkeypatch.setattr(gates_module, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(witness_module, "LEARN_SECONDS", 600.0)
    scene.cluster.ready["three"] = False
    scene.look()
    for server in scene.servers:
        server.held[key("three")] = replace(server.held[key("three")], status=Status.DOWN)
    scene.look()
    scene.cluster.gates = {"one": "True", "two": "True", "three": "False"}
    scene.look()
    return scene


def test_a_pod_that_waits_for_its_gate_may_be_up(gated: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that only its gate keeps from being ready must be UP, and may not be lost."""
    monkeypatch.setattr(witness_module, "PROMPT_SECONDS", 0.0)
    assert len(gated.witness.differences()) == SERVERS
    for server in gated.servers:
        server.held[key("three")] = replace(server.held[key("three")], status=Status.UP)
    assert gated.said() == []
    assert gated.witness.differences() == []
    del gated.servers[0].held[key("three")]
    assert gated.said() == ["three.shop.east:rating:8080 is ready and was gone from eureka-1"]


def test_a_gate_opens_before_a_server_has_shown_the_pod(gated: Scene) -> None:
    """A gate that opens too soon after a server lacked the pod is a complaint for each such server."""
    gated.excuses.give("a frozen server", [Excuse(Explains.GATE, server=2)], time.monotonic())
    gated.witness.waited_gates = 0
    gated.cluster.gates["three"] = "True"
    words = [one.partition(" opened ")[0] + one.partition(" after ")[2] for one in gated.said()]
    assert words == [f"the gate of shop/threeeureka-{number} lacked its instance" for number in (1, 2)]
    assert gated.excuses.used == {"a frozen server": 1}
    assert gated.witness.waited_gates == 1


def test_a_gate_opens_as_soon_as_the_servers_show_the_pod(gated: Scene) -> None:
    """A gate that opens in the moment in which its pod comes and is registered is a complaint, too."""
    del gated.cluster.gates["three"], gated.cluster.ready["three"]
    for server in gated.servers:
        del server.held[key("three")]
    gated.look()
    for server in gated.servers:
        server.held[key("three")] = instance(2, "three")
    gated.cluster.ready["three"], gated.cluster.gates["three"] = True, "True"
    assert len([one for one in gated.said() if "lacked its instance" in one]) == SERVERS


@pytest.mark.parametrize("lacks", [True, False])
def test_a_gate_that_need_not_wait(gated: Scene, monkeypatch: pytest.MonkeyPatch, *, lacks: bool) -> None:
    """A gate may open once each server has shown the pod for long enough, or if no other pod is ready."""
    if lacks:
        gated.cluster.gates = {"three": "False"}
        gated.look()
    else:
        for server in gated.servers:
            server.held[key("three")] = replace(server.held[key("three")], status=Status.UP)
        gated.look()
        monkeypatch.setattr(witness_module, "LEARN_SECONDS", 0.0)
    gated.cluster.gates["three"] = "True"
    assert gated.said() == []


def test_a_gate_that_is_closed_again(gated: Scene) -> None:
    """A gate that was open and is closed again is a complaint."""
    gated.cluster.gates["one"] = "False"
    assert gated.said() == ["the gate of shop/one was closed again"]


def test_a_gate_that_does_not_open(gated: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that stays closed is one complaint once the faults are over, and none before."""
    monkeypatch.setattr(gates_module, "LATE_SECONDS", -gates_module.CALLERS_SECONDS)
    assert gated.said() == []
    gated.witness.faults_are_over()
    words = [one.rpartition(" closed ")[0] for one in gated.said()]
    assert words == ["the gate of shop/three is"]
    gated.witness.round_begins()
    assert len(gated.said()) == 1


def test_a_service_that_left_is_kept_for_a_minute(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance may stay while the operator's log says that it keeps the syncer of a Service that left."""
    monkeypatch.setattr(witness_module, "PROMPT_SECONDS", 0.0)
    words = (
        "12:00:00.000 WARNING keeping a derived syncer for now: its Service does not join any more, "
        "deleting the syncer later"
    )
    scene.operator_log.write_text(f"{words} syncer=shop/rating seconds=60.0\n")
    scene.look()
    del scene.cluster.ready["two"]
    assert scene.said() == []
    assert set(scene.excuses.used) == {"a Service that left keeps shop/rating"}
