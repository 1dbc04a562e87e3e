"""Pods with the readiness gate, with a whole operator and three Eureka servers in the model's time.

`tests/unit/core/test_gate.py` tests when a gate opens; here parts die, freeze or are forgotten meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest

from eurekube_provider.core.drain_time import CALLERS_LEAVE_HUNG_SERVER_SECONDS
from eurekube_provider.core.objects import conditions_of
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.operator.settings import Settings
from tests.explore.operator.kube import Change, Refused
from tests.explore.operator.workloads import APP, NAMESPACES, SHOP, Workloads
from tests.explore.operator.world import URLS, World, owned

NEEDED_SECONDS = 102.0
LATE_SECONDS = 10.0
"""Seconds by which a gate may open late: a registration, a reading every five seconds, and a check each
second.
"""

KUBELET_MS = 1500
"""Milliseconds until a kubelet sees that a gate is open."""

CONNECTION = Connection(service_urls=URLS)


class Scene:
    """Two old pods that serve, and an operator that serves readiness gates.

    :param begin: creates the syncer.
    """

    def __init__(self, begin: Callable[[Workloads], None] = Workloads.syncer) -> None:
        self.world = World.of(3)
        self.workloads = Workloads(self.world.kube)
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": []}
        self.world.kube.put("nodes", {"metadata": {"name": "node-1"}, "status": ready})
        self.world.kube.changed = self._changed
        self.workloads.service()
        for name in ("a", "b"):
            self.workloads.pod(name)
        begin(self.workloads)
        self.settings = Settings(
            {"default": CONNECTION},
            web_address="",
            pod_name="operator",
            gate_namespaces=("*",),
        )
        self.process, _ = self.world.start(self.settings)
        self.after(60.0)

    def _changed(self, change: Change) -> None:
        self.world.scheduler.clock.run_after(KUBELET_MS, partial(self.workloads.kubelet, change))

    def after(self, seconds: float) -> None:
        """Let so many seconds of the model's time pass."""
        self.world.scheduler.run(self.world.now_ms + round(seconds * 1000))

    def condition(self, name: str) -> dict[str, Any]:
        """Return the gate's condition of a pod."""
        pod = self.world.kube.get("pods", SHOP, name)
        assert pod is not None
        return dict(conditions_of(pod).get(READINESS_GATE, {}))

    def syncer_condition(self, kind: str) -> dict[str, Any]:
        """Return a condition of the syncer."""
        item = self.world.kube.get("eurekasyncers", SHOP, APP)
        assert item is not None
        return dict(conditions_of(item).get(kind, {}))

    def waited(self, name: str, longest: float = 400.0) -> float:
        """Wait until a pod's gate opens; return the seconds that it took."""
        began = self.world.now_ms
        while self.condition(name).get("status") != "True":
            self.after(1.0)
            assert self.world.now_ms - began < longest * 1000, self.condition(name)
        return (self.world.now_ms - began) / 1000

    def stays_closed(self, name: str, seconds: float) -> str:
        """Wait, check that the pod's gate is still closed, and return the condition's reason."""
        self.after(seconds)
        assert self.condition(name)["status"] == "False"
        return str(self.condition(name)["reason"])

    def status(self, name: str, url: str = URLS[0]) -> str:
        """Return a pod's status at a server; empty if it is not registered there."""
        leases = self.world.cluster.servers[url].registry.leases.get(APP.upper(), {})
        found = [one.holder.status for key, one in leases.items() if key.startswith(f"{name}.")]
        return str(found[0]) if found else ""

    def containers(self, name: str, state: str, at: str) -> None:
        """Set a pod's condition ContainersReady, as a kubelet does."""
        pod = self.world.kube.get("pods", SHOP, name)
        assert pod is not None
        said = {"type": "ContainersReady", "status": state, "lastTransitionTime": at}
        others = [one for one in pod["status"]["conditions"] if one["type"] != "ContainersReady"]
        status = {**pod["status"], "conditions": [*others, said]}
        self.workloads.pods[name].is_ready = state == "True"
        self.world.kube.put("pods", {"metadata": pod["metadata"], "status": status})
        self.workloads.pod(name, ready=state == "True")

    def open(self, name: str) -> dict[str, Any]:
        """Open a pod's gate as a person would."""
        pod = self.world.kube.get("pods", SHOP, name)
        assert pod is not None
        opened = {"type": READINESS_GATE, "status": "True", "reason": "OpenedByHand"}
        others = [one for one in pod["status"]["conditions"] if one["type"] != READINESS_GATE]
        status = {**pod["status"], "conditions": [*others, opened]}
        self.world.kube.put("pods", {"metadata": pod["metadata"], "status": status})
        return opened

    def end(self) -> None:
        """Kill all replicas."""
        for process in self.world.processes:
            self.world.scheduler.kill(process)

    def kill_leader(self) -> None:
        """Kill the operator, and start another one, which waits for the Lease."""
        self.world.scheduler.kill(self.process)
        self.process, _ = self.world.start(self.settings)


@contextmanager
def played(begin: Callable[[Workloads], None] = Workloads.syncer) -> Iterator[Scene]:
    """Play a scene to its end, without an unexpected error."""
    with owned():
        one = Scene(begin)
        yield one
        one.end()
    assert one.world.logged == []


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Return a scene with default settings."""
    with played() as one:
        yield one


@pytest.fixture
def joining() -> Iterator[Scene]:
    """Return a scene in which annotated Services join the syncer of their namespace."""
    with played(Workloads.namespace_syncer) as one:
        yield one


def test_a_gate_opens_when_callers_know_the_pod(scene: Scene) -> None:
    """The gate opens once every cache has had its time since every server shows the pod, and not much
    later.
    """
    scene.workloads.gated_pod("new")
    assert NEEDED_SECONDS <= scene.waited("new") <= NEEDED_SECONDS + LATE_SECONDS
    assert scene.condition("new")["reason"] == "CallersKnow"
    scene.after(2.0)
    assert scene.workloads.pods["new"].is_open


def test_a_pod_that_waits_is_registered_and_stays_so(scene: Scene) -> None:
    """A waiting pod is UP at every server before it is ready, and stays so when it becomes ready."""
    scene.workloads.gated_pod("new")
    scene.after(3.0)
    assert {scene.status("new", url) for url in URLS} == {"UP"}
    seen = set()
    for _ in range(120):
        scene.after(1.0)
        seen.add(scene.status("new"))
    assert (seen, scene.condition("new")["status"]) == ({"UP"}, "True")


def test_the_next_leader_goes_on_where_the_last_one_died(scene: Scene) -> None:
    """The gate's condition records since when servers show the pod: after a change of leader the wait is
    not shorter, and hardly longer.
    """
    scene.workloads.gated_pod("new")
    scene.after(80.0)
    scene.kill_leader()
    assert NEEDED_SECONDS <= 80.0 + scene.waited("new") <= NEEDED_SECONDS + LATE_SECONDS + 20.0


def test_a_hanging_server_is_waited_for_until_its_callers_left(scene: Scene) -> None:
    """Spring's client waits for a hanging server before it asks another one: the gate waits until such
    callers have left it.
    """
    scene.world.cluster.down.add(URLS[2])
    scene.after(60.0)
    scene.workloads.gated_pod("new")
    assert scene.stays_closed("new", 150.0) == "EurekaHangs"
    waited = 210.0 + scene.waited("new", CALLERS_LEAVE_HUNG_SERVER_SECONDS)
    assert (
        CALLERS_LEAVE_HUNG_SERVER_SECONDS <= waited <= CALLERS_LEAVE_HUNG_SERVER_SECONDS + 60.0 + LATE_SECONDS
    )


def test_a_server_that_has_hung_for_long_holds_nothing_up(scene: Scene) -> None:
    """A gate does not wait for a server that has hung so long that its callers have left it."""
    scene.world.cluster.down.add(URLS[2])
    scene.after(CALLERS_LEAVE_HUNG_SERVER_SECONDS + 60.0)
    scene.workloads.gated_pod("new")
    assert NEEDED_SECONDS <= scene.waited("new") <= NEEDED_SECONDS + LATE_SECONDS


def test_callers_of_a_hung_server_come_back_as_late_as_it_was_away(scene: Scene) -> None:
    """Callers of a server that hung come back late, since Spring's client doubles its interval: the gate
    waits for them.
    """
    scene.world.cluster.down.add(URLS[2])
    scene.workloads.gated_pod("new")
    scene.after(150.0)
    scene.world.cluster.down.discard(URLS[2])
    assert scene.waited("new") >= 140.0 + NEEDED_SECONDS


def test_a_server_that_comes_back_must_show_the_pod_for_as_long(scene: Scene) -> None:
    """A server that comes back must show the pod for the full time, since its clients learn of the pod
    only there.
    """
    scene.world.cluster.down.add(URLS[2])
    scene.workloads.gated_pod("new")
    scene.after(60.0)
    scene.world.cluster.restart(URLS[2], copy_from=URLS[0])
    assert 60.0 + scene.waited("new") >= 60.0 + NEEDED_SECONDS


def test_a_server_that_lost_the_pod_must_show_it_again(scene: Scene) -> None:
    """If a server restarts empty the wait begins anew, since its callers do not know the pod for a while."""
    scene.workloads.gated_pod("new")
    scene.after(60.0)
    scene.world.cluster.restart(URLS[1])
    assert scene.waited("new") >= NEEDED_SECONDS


def test_the_wait_lasts_while_no_server_answers(scene: Scene) -> None:
    """The gate stays closed while no server answers, and afterwards for as long as callers need."""
    scene.workloads.gated_pod("new")
    scene.after(30.0)
    scene.world.cluster.down.update(URLS)
    assert scene.stays_closed("new", 400.0) == "EurekaAway"
    events = [one for one in scene.world.kube.events if one["reason"] == "GateWaits"]
    assert [one["regarding"]["name"] for one in events] == ["new"]
    assert scene.syncer_condition("WaitingForCallers")["status"] == "True"
    scene.world.cluster.down.clear()
    assert scene.waited("new") >= NEEDED_SECONDS


def test_a_gate_opens_without_eureka_where_the_syncer_says_so(scene: Scene) -> None:
    """If the syncer's ``whenEurekaIsAway`` is Open, the gate opens once Eureka has been away for more than
    a moment.
    """
    scene.workloads.syncer(readinessGate={"whenEurekaIsAway": "Open"})
    scene.world.cluster.down.update(URLS)
    scene.after(1.0)
    scene.workloads.gated_pod("new")
    assert scene.waited("new") <= 60.0
    assert scene.condition("new")["reason"] == "OpenWithoutEureka"


def test_a_paused_syncer_holds_the_rollout(scene: Scene) -> None:
    """While the syncer is paused the pod is not registered, and its gate stays closed."""
    scene.workloads.syncer(paused=True)
    scene.workloads.gated_pod("new")
    assert scene.stays_closed("new", 300.0) == "Paused"
    scene.workloads.syncer(paused=False)
    assert scene.waited("new") >= NEEDED_SECONDS


def test_where_nothing_serves_nothing_is_waited_for(scene: Scene) -> None:
    """If no pod serves the gate opens at once, as in a first roll-out or after scaling to zero."""
    scene.workloads.pod("a", ready=False, terminating=True)
    scene.workloads.pod("b", ready=False, terminating=True)
    scene.after(5.0)
    scene.workloads.gated_pod("new")
    assert scene.waited("new") <= LATE_SECONDS
    assert scene.condition("new")["reason"] == "NoOtherPodReady"


@pytest.mark.parametrize("how", ["service", "deleted", "none"])
def test_a_pod_that_nobody_registers_waits_for_nobody(scene: Scene, how: str) -> None:
    """The gate of a pod that no syncer registers opens at once: the syncer is deleted, or registers the
    whole Service.
    """
    if how == "service":
        scene.workloads.syncer(mode="service")
    else:
        scene.workloads.no_syncer()
        scene.after(0.0 if how == "deleted" else 30.0)
    scene.workloads.gated_pod("new")
    assert scene.waited("new") <= LATE_SECONDS
    assert scene.condition("new")["reason"] == "NotWanted"


def test_a_clock_that_is_behind_takes_no_pod_out_of_service(scene: Scene) -> None:
    """While its kubelet has not seen the open gate, a pod is UP, even if the operator's clock is far behind
    that of the pod's node.
    """
    scene.workloads.gated_pod("new")
    pod = scene.world.kube.get("pods", SHOP, "new")
    assert pod is not None
    later = [{**one, "lastTransitionTime": "2027-01-15T20:00:00Z"} for one in pod["status"]["conditions"]]
    scene.world.kube.put("pods", {"metadata": pod["metadata"], "status": {"conditions": later}})
    scene.after(5.0)
    seen = set()
    while not scene.workloads.pods["new"].is_open:
        seen.add(scene.status("new"))
        scene.after(0.2)
    assert (seen, scene.condition("new")["reason"]) == ({"UP"}, "CallersKnow")


def test_what_a_person_opened_stays_open(scene: Scene) -> None:
    """A gate that a person opened stays open, even if Eureka fails."""
    scene.workloads.gated_pod("new")
    scene.after(10.0)
    opened = scene.open("new")
    scene.world.cluster.down.update(URLS)
    scene.after(200.0)
    assert scene.condition("new") == opened


def test_what_was_opened_unseen_is_not_set_back(scene: Scene) -> None:
    """The operator does not close a gate that a person opened, even if its watch has not reported that
    yet.
    """
    scene.workloads.gated_pod("new")
    scene.after(30.0)
    scene.world.kube.lag_ms = 90_000
    scene.open("new")
    scene.world.cluster.down.update(URLS)
    for _ in range(80):
        scene.after(1.0)
        assert scene.condition("new")["status"] == "True"


def test_a_pod_on_a_dead_node_is_out_of_service(scene: Scene) -> None:
    """A pod on a dead node is OUT_OF_SERVICE, although its last reported status is ready."""
    scene.workloads.gated_pod("new")
    scene.after(10.0)
    dead = {"conditions": [{"type": "Ready", "status": "Unknown"}], "addresses": []}
    scene.world.kube.put("nodes", {"metadata": {"name": "node-1"}, "status": dead})
    scene.after(5.0)
    assert scene.status("new") == "DOWN"
    assert scene.stays_closed("new", 200.0) == "NodeNotReady"
    alive = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": []}
    scene.world.kube.put("nodes", {"metadata": {"name": "node-1"}, "status": alive})
    assert scene.waited("new") >= NEEDED_SECONDS


@pytest.mark.parametrize("is_led_by_another", [False, True])
def test_a_pod_that_was_not_ready_meanwhile_begins_again(scene: Scene, *, is_led_by_another: bool) -> None:
    """A pod that was DOWN for a moment waits for the full time again, under any leader, since callers
    learned that it was DOWN.
    """
    scene.workloads.gated_pod("new")
    scene.after(60.0)
    scene.containers("new", "False", "2027-01-15T08:02:10Z")
    scene.after(5.0)
    assert scene.status("new") == "DOWN"
    if is_led_by_another:
        scene.kill_leader()
        scene.after(120.3)
    scene.containers("new", "True", "2027-01-15T08:04:00Z" if is_led_by_another else "2027-01-15T08:02:20Z")
    assert scene.waited("new") >= NEEDED_SECONDS - 1.0


def test_a_pod_that_was_ready_again_before_its_leader_died_begins_again(scene: Scene) -> None:
    """The next leader does not count the time before a pod was DOWN, although the last one has made it UP
    again: the pod's condition may still be the one of before.
    """
    scene.workloads.gated_pod("new")
    scene.after(60.0)
    before = scene.condition("new")
    scene.containers("new", "False", "2027-01-15T08:02:00Z")
    scene.after(5.0)
    assert scene.status("new") == "DOWN"
    scene.containers("new", "True", "2027-01-15T08:02:05Z")
    scene.after(0.9)  # less than until the next reading
    assert {scene.status("new", url) for url in URLS} == {"UP"}
    assert (before["reason"], scene.condition("new")) == ("CallersLearn", before)
    scene.kill_leader()
    assert scene.waited("new") >= NEEDED_SECONDS - 1.0


def test_a_pod_that_a_person_took_out_of_service_waits(scene: Scene) -> None:
    """The gate of a pod that a person took out of service stays closed, since nobody calls that pod."""
    scene.workloads.gated_pod("new")
    scene.after(30.0)
    leases = scene.world.cluster.servers[URLS[0]].registry.leases[APP.upper()]
    (key,) = (one for one in leases if one.startswith("new."))
    for url in URLS:
        where = ("apps", APP.upper(), key, "status")
        answer = scene.world.cluster.request(url, ServerRequest("PUT", where, {"value": "OUT_OF_SERVICE"}))
        assert answer.status_code == 200
    assert scene.stays_closed("new", 200.0) == "Registering"


def test_the_next_pod_of_a_name_waits_for_itself(scene: Scene) -> None:
    """The next pod of a name, as a StatefulSet makes it, waits for the full time: its predecessor's
    readings do not count.
    """
    scene.workloads.gated_pod("new")
    scene.after(90.0)
    scene.workloads.no_pod("new")
    scene.workloads.gated_pod("new")
    assert scene.waited("new") >= NEEDED_SECONDS


@pytest.mark.parametrize("spec", [{}, {"notReady": "Remove"}])
def test_a_pod_that_comes_while_no_server_answers_waits(scene: Scene, spec: dict[str, Any]) -> None:
    """A pod that comes while no server answers waits, since its syncer cannot be decided."""
    scene.workloads.syncer(**spec)
    scene.after(30.0)
    scene.world.cluster.down.update(URLS)
    scene.workloads.pod("a", ready=False, terminating=True)
    scene.after(0.5)
    scene.workloads.gated_pod("new")
    assert scene.stays_closed("new", 120.0) == "EurekaAway"
    scene.world.cluster.down.clear()
    assert scene.waited("new") >= NEEDED_SECONDS


def test_without_a_server_a_pod_waits_for_none_if_the_syncer_says_so(
    scene: Scene,
) -> None:
    """If no server answers and the syncer's ``whenEurekaIsAway`` is Open, the gate of a new pod opens."""
    scene.workloads.syncer(readinessGate={"whenEurekaIsAway": "Open"})
    scene.after(30.0)
    scene.world.cluster.down.update(URLS)
    scene.workloads.pod("a", ready=False, terminating=True)
    scene.after(0.5)
    scene.workloads.gated_pod("new")
    assert scene.waited("new") <= 60.0
    assert scene.condition("new")["reason"] == "OpenWithoutEureka"


def test_a_pod_that_eureka_lost_while_nobody_looked_begins_again(scene: Scene) -> None:
    """If Eureka lost the pod while no operator ran, the wait begins anew: callers have forgotten it as
    well.
    """
    scene.workloads.gated_pod("new")
    scene.after(30.0)
    scene.world.scheduler.kill(scene.process)
    for url in URLS:
        scene.world.cluster.restart(url)
    scene.after(300.0)
    assert {scene.status("new", url) for url in URLS} == {""}
    one = Connection(service_urls=URLS[:1])  # which shows the pod before anybody asks
    scene.process, _ = scene.world.start(replace(scene.settings, connections={"default": one}))
    assert scene.waited("new") >= NEEDED_SECONDS


def test_the_next_leader_trusts_writes_for_the_same_syncer_alone(scene: Scene) -> None:
    """A new leader trusts the record in a pod's condition only for the same syncer: a second syncer's
    callers know the pod since another time.
    """
    scene.settings = replace(scene.settings, publish=frozenset({(SHOP, "second")}))
    scene.kill_leader()
    scene.after(60.0)
    scene.workloads.gated_pod("new")
    scene.after(60.0)
    scene.workloads.syncer("second", application="second")
    scene.after(20.0)
    assert scene.condition("new")["message"].startswith(f"EurekaSyncer {SHOP}/{APP}: callers know")
    scene.kill_leader()
    assert 20.0 + scene.waited("new") >= NEEDED_SECONDS


def _with_reads_after(seconds: float) -> Any:
    """Delay each read of the new pod's instance before it reaches the server."""
    exchange = World.exchange

    def slow(world: World, process: Any, url: str, request: ServerRequest, *more: Any) -> ServerResponse:
        if request.method == "GET" and len(request.path) == 3 and request.path[2].startswith("new."):
            world.scheduler.sleep(seconds)
        return exchange(world, process, url, request, *more)

    return slow


def test_a_slow_api_server_holds_no_gate_up(scene: Scene) -> None:
    """Slow writes to the API server do not delay the readings, so that the wait does not begin anew each
    time.
    """
    ask_kube = World.ask_kube

    def slow(world: World, process: Any, method: str, path: str, *more: Any) -> Any:
        if method == "PATCH" and "/pods/" in path:
            world.scheduler.sleep(9.0)
        return ask_kube(world, process, method, path, *more)

    with mock.patch.object(World, "ask_kube", slow):
        scene.workloads.gated_pod("new")
        assert NEEDED_SECONDS <= scene.waited("new") <= NEEDED_SECONDS + LATE_SECONDS + 20.0


def test_readings_that_take_long_hold_no_gate_up(scene: Scene) -> None:
    """Slow readings, as with a thousand waiting pods, do not count as a server's silence."""
    scene.workloads.gated_pod("new")
    scene.after(10.0)
    with mock.patch.object(World, "exchange", _with_reads_after(8.0)):
        assert NEEDED_SECONDS <= 10.0 + scene.waited("new") <= NEEDED_SECONDS + LATE_SECONDS + 20.0


def test_a_pod_that_eureka_refuses_to_show_keeps_no_other_waiting(scene: Scene) -> None:
    """A pod whose reads are refused, as by a proxy that rejects its name, does not keep other pods
    waiting.
    """
    exchange = World.exchange

    def refusing(world: World, process: Any, url: str, request: ServerRequest, *more: Any) -> ServerResponse:
        if request.method == "GET" and len(request.path) == 3 and request.path[2].startswith("odd."):
            return ServerResponse(400, "no")
        return exchange(world, process, url, request, *more)

    with mock.patch.object(World, "exchange", refusing):
        scene.workloads.gated_pod("odd")
        scene.workloads.gated_pod("new")
        assert scene.waited("new") <= NEEDED_SECONDS + LATE_SECONDS
        assert scene.stays_closed("odd", 5.0) == "Registering"


def test_a_pod_of_a_service_that_is_a_name_alone_waits_for_nobody(scene: Scene) -> None:
    """The gate of an ExternalName Service's pod opens at once, since Kubernetes gives such a Service no
    endpoints.
    """
    scene.workloads.no_service()
    spec = {"type": "ExternalName", "externalName": "example.com", "selector": {"app": APP}}
    scene.world.kube.put("services", {"metadata": {"namespace": SHOP, "name": APP}, "spec": spec})
    scene.after(5.0)
    scene.workloads.gated_pod("new")
    assert scene.waited("new") <= LATE_SECONDS
    assert scene.condition("new")["reason"] == "NotWanted"


def test_a_server_that_takes_its_time_must_show_the_pod_as_well(scene: Scene) -> None:
    """A slow server must also show the pod, since its clients wait for its answers."""
    exchange = World.exchange

    def slow(world: World, process: Any, url: str, request: ServerRequest, *more: Any) -> ServerResponse:
        if url == URLS[2] and request.method == "GET" and request.path[2:3] and "new." in request.path[2]:
            world.scheduler.sleep(0.8)
            return ServerResponse(404)
        return exchange(world, process, url, request, *more)

    with mock.patch.object(World, "exchange", slow):
        scene.workloads.gated_pod("new")
        assert scene.stays_closed("new", 150.0) == "Registering"


def test_a_syncer_that_is_refused_says_which_pods_wait(scene: Scene) -> None:
    """A refused syncer's condition names the pods that wait: callers know its registrations, which a
    roll-out would replace.
    """
    scene.workloads.syncer(eureka="nowhere")
    scene.workloads.gated_pod("new")
    assert scene.stays_closed("new", 150.0) == "Refused"
    syncer = scene.world.kube.get("eurekasyncers", SHOP, APP)
    assert syncer is not None
    assert conditions_of(syncer)["WaitingForCallers"]["status"] == "True"


def test_a_pod_that_was_not_ready_begins_again_by_any_clock(scene: Scene) -> None:
    """A pod that was unready waits for the full time again, even if its node's clock is behind the
    operator's.
    """
    scene.workloads.gated_pod("new")
    scene.after(60.0)
    scene.containers("new", "False", "2027-01-15T08:00:00Z")
    scene.after(5.0)
    scene.containers("new", "True", "2027-01-15T08:00:05Z")
    assert scene.waited("new") >= NEEDED_SECONDS - 1.0


def test_a_right_that_is_missing_costs_the_api_server_little(scene: Scene) -> None:
    """A condition that the operator may not write is tried again after a while, and written once it is
    allowed. An Event about the pod says what the API server refuses, be it by a right or by a webhook.
    """
    ask_kube = World.ask_kube
    asked = []

    def refusing(world: World, process: Any, method: str, path: str, *more: Any) -> Any:
        if method == "PATCH" and "/pods/" in path:
            asked.append(path)
            raise Refused(403, "pods/status is forbidden")
        return ask_kube(world, process, method, path, *more)

    with mock.patch.object(World, "ask_kube", refusing):
        scene.workloads.gated_pod("new")
        scene.after(60.0)
    assert 5 <= len(asked) <= 15
    (event,) = [one for one in scene.world.kube.events if one["reason"] == "GateWaits"]
    assert (event["regarding"]["name"], event["type"]) == ("new", "Warning")
    assert "pods/status is forbidden" in event["note"]
    assert scene.waited("new") <= NEEDED_SECONDS + LATE_SECONDS - 60.0


@pytest.mark.parametrize(("may_select", "status"), [(False, "True"), (True, "")])
def test_a_namespace_that_cannot_be_read_keeps_no_other_pods_waiting(
    scene: Scene, *, may_select: bool, status: str
) -> None:
    """A namespace that cannot be read, as a deleted one, keeps no other pods waiting, unless a syncer
    there may select their Service.
    """
    ask_kube = World.ask_kube

    def refusing(world: World, process: Any, method: str, path: str, *more: Any) -> Any:
        if "/namespaces/gone/" in path:
            raise Refused(403, "forbidden")
        return ask_kube(world, process, method, path, *more)

    pairs = frozenset({("gone", SHOP)} if may_select else ())
    namespaces = (SHOP, "gone")
    scene.settings = replace(scene.settings, watch_namespaces=namespaces, cross_namespace=pairs)
    scene.workloads.no_syncer()
    scene.after(10.0)
    with mock.patch.object(World, "ask_kube", refusing):
        scene.kill_leader()
        scene.after(60.0)
        scene.workloads.gated_pod("new")
        scene.after(LATE_SECONDS)
        assert scene.condition("new").get("status", "") == status


def test_a_refused_syncer_with_unknown_instances_holds_the_rollout(scene: Scene) -> None:
    """An operator that started without Eureka keeps a refused syncer's gate closed, since instances may
    exist that it has not read.
    """
    scene.world.scheduler.kill(scene.process)
    scene.world.cluster.down.update(URLS)
    scene.workloads.syncer(eureka="nowhere")
    scene.process, _ = scene.world.start(scene.settings)
    scene.after(30.0)
    scene.workloads.gated_pod("new")
    assert scene.stays_closed("new", 60.0) == "Refused"
    scene.world.cluster.down.clear()
    assert scene.stays_closed("new", 60.0) == "Refused"


def test_a_pod_without_the_port_waits_where_callers_know_another(scene: Scene) -> None:
    """The gate of a pod without the port stays closed if callers know other pods, which the roll-out would
    replace.
    """
    scene.workloads.syncer(port="nope")
    scene.workloads.gated_pod("new")
    assert scene.stays_closed("new", 150.0) == "Registering"


def test_a_pod_without_the_port_does_not_wait_if_none_is_registered(scene: Scene) -> None:
    """The gate of a pod without the port opens if no pod is registered, since waiting would not help."""
    scene.workloads.no_syncer()
    scene.after(30.0)
    scene.workloads.syncer(port="nope")
    scene.after(5.0)
    scene.workloads.gated_pod("new")
    assert scene.waited("new") <= LATE_SECONDS
    assert scene.condition("new")["reason"] == "NotWanted"


def test_a_gate_of_a_joined_service_opens_when_callers_know_the_pod(joining: Scene) -> None:
    """A derived syncer keeps the gate of a new pod closed for as long as a syncer of a person."""
    joining.workloads.annotate_service(sync="true")
    joining.after(30.0)
    joining.workloads.gated_pod("new")
    assert NEEDED_SECONDS <= joining.waited("new") <= NEEDED_SECONDS + LATE_SECONDS
    assert joining.condition("new")["message"].startswith(f"EurekaSyncer {SHOP}/{NAMESPACES}.{APP}: ")


@pytest.mark.parametrize("fault", ["refused", "slow"])
def test_a_pod_of_a_service_that_joins_waits_for_the_derived_syncer(joining: Scene, fault: str) -> None:
    """A pod that comes with the annotation of its Service waits while the API server delays the derived
    syncer.
    """
    ask_kube = World.ask_kube
    is_over = False

    def delaying(world: World, process: Any, method: str, path: str, *more: Any) -> Any:
        if method == "POST" and path.endswith("/eurekasyncers") and not is_over:
            if fault == "refused":
                raise Refused(403, "eurekasyncers is forbidden")
            world.scheduler.sleep(60.0)
        return ask_kube(world, process, method, path, *more)

    with mock.patch.object(World, "ask_kube", delaying):
        joining.workloads.annotate_service(sync="true")
        joining.workloads.gated_pod("new")
        assert joining.stays_closed("new", 50.0) == "Registering"
        is_over = True
        assert joining.status("new") == ""
        assert joining.waited("new") >= NEEDED_SECONDS
    assert joining.status("new") == "UP"


def test_a_pod_of_a_service_that_joins_again_waits(joining: Scene) -> None:
    """A pod does not take the end of its Service's former derived syncer for a reason to go on."""
    joining.workloads.annotate_service(sync="true")
    joining.after(30.0)
    joining.world.cluster.down.update(URLS)  # the former syncer cannot leave
    joining.workloads.annotate_service(sync="false")
    joining.after(10.0)
    joining.workloads.annotate_service(sync="true")
    joining.workloads.gated_pod("new")
    joining.stays_closed("new", 20.0)
    joining.world.cluster.down.clear()
    assert joining.waited("new") >= NEEDED_SECONDS


@pytest.mark.parametrize("cause", ["annotation", "name"])
def test_a_pod_of_a_service_that_is_refused_waits_for_nobody(joining: Scene, cause: str) -> None:
    """No syncer is derived for a refused Service, so that callers know none of its pods."""
    if cause == "name":
        joining.workloads.syncer(f"{NAMESPACES}.{APP}", selector={"app": "other"})
        joining.after(1.0)
    joining.workloads.annotate_service(sync="true", **({"port": ""} if cause == "annotation" else {}))
    joining.workloads.gated_pod("new")
    assert joining.waited("new") <= LATE_SECONDS
    assert joining.condition("new")["reason"] == "NotWanted"


@pytest.mark.parametrize(
    ("spec", "reason"), [({"mode": "service"}, "NotWanted"), ({"paused": True}, "Paused")]
)
def test_a_pod_of_a_service_that_joins_heeds_the_namespaces_syncer(
    joining: Scene, spec: dict[str, Any], reason: str
) -> None:
    """Mode and pause of the namespace's syncer decide before the derived syncer exists."""
    joining.world.kube.refused = f"{NAMESPACES}."
    joining.workloads.syncer(NAMESPACES, selector={"services": "Annotated"}, **spec)
    joining.workloads.annotate_service(sync="true")
    joining.workloads.gated_pod("new")
    joining.after(LATE_SECONDS)
    assert joining.condition("new")["reason"] == reason


def test_where_nothing_serves_a_derived_syncer_is_not_waited_for(joining: Scene) -> None:
    """If no pod serves, the gate opens although the derived syncer cannot be created."""
    joining.world.kube.refused = f"{NAMESPACES}."
    joining.workloads.pod("a", ready=False, terminating=True)
    joining.workloads.pod("b", ready=False, terminating=True)
    joining.after(5.0)
    joining.workloads.annotate_service(sync="true")
    joining.workloads.gated_pod("new")
    assert joining.waited("new") <= LATE_SECONDS
    assert joining.condition("new")["reason"] == "NoOtherPodReady"
