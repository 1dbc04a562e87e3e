"""Coalescing of waiting plans into batches: which plans go alone, which together, and the outcome of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest

from eurekube_provider.core.errors import LeadershipLost, RegistryRejected
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, ChangeError, Plan, PlanOutcome
from eurekube_provider.eureka.notes import ChangeOrder
from eurekube_provider.eureka.registry.coalescing import PlanCoalescer
from eurekube_provider.eureka.writer import FEWEST_CHANGES_FOR_BATCHES, Writer
from lab.waiting import wait_until

SECONDS = 30.0


def registers(application: str, instance_id: str = "", count: int = 1) -> Plan:
    """Return a plan that registers instances in one application."""
    return Plan(
        tuple(
            Change(
                Action.REGISTER,
                Instance(application, f"{instance_id or application}-{n}", "h", "h", Port(80)),
            )
            for n in range(count)
        )
    )


def removes_of_others(application: str) -> Plan:
    """Return a plan that removes an instance without an owner."""
    dead = Instance(application, f"{application}-own", "h", "h", Port(80))
    return Plan((Change(Action.DEREGISTER, dead, dead, adopts=True),))


class RecordingWriter:
    """A writer behind a coalescer: it records plans that went alone and together; single plans wait at the
    gate.

    :ivar batches: True if batches are used.
    :ivar known: True if each owner has instances.
    :ivar has_single_server: True if there is one server.
    :ivar ids: the ids of the instances that went in batches, in their order.
    :ivar hold_up: True if batches wait at the gate, too.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.alone: list[str] = []
        self.together: list[set[str]] = []
        self.ids: list[str] = []
        self.hold_up = False
        self.fail: Callable[[ChangeOrder], ChangeError | None] = lambda _: None
        self.batches = self.known = True
        self.peers = SimpleNamespace(uses_batches=lambda _: self.batches)
        self.has_single_server = False
        self.notes = SimpleNamespace(has_instances=lambda _: self.known)
        self.coalescer = PlanCoalescer(cast("Writer", self))
        self._pool = ThreadPoolExecutor(32)

    def send(self, plan: Plan, owner: str = "owner") -> Future[PlanOutcome]:
        """Apply a plan on a thread of its own."""
        return self._pool.submit(self.coalescer.apply, plan, owner, lease_count=1000)

    def fill(self) -> list[Future[PlanOutcome]]:
        """Send a first plan, which waits at the gate, and return its future."""
        sent = [self.send(registers("first"))]
        wait_until(lambda: len(self.alone) == 1, "it under way", SECONDS)
        return sent

    def gather(self, *plans: Plan) -> list[Future[PlanOutcome]]:
        """Send plans in this order, and return once all of them wait in the coalescer."""
        sent = []
        for number, plan in enumerate(plans, 1):
            sent.append(self.send(plan))
            wait_until(lambda: self.coalescer.waiting_count == number, "one more that waits", SECONDS)  # noqa: B023
        return sent

    def apply(self, plan: Plan, *_: object, **__: object) -> PlanOutcome:
        """Stand in for :meth:`.Writer.apply`."""
        self.alone.append(plan.changes[0].instance.application)
        self.gate.wait(SECONDS)
        return PlanOutcome(plan.changes, ())

    def apply_in_batches(self, orders: Sequence[ChangeOrder]) -> list[ChangeError | None]:
        """Stand in for :meth:`.Writer.apply_in_batches`."""
        self.together.append({order.change.instance.application for order in orders})
        self.ids += [order.change.instance.instance_id for order in orders]
        if self.hold_up:
            self.gate.wait(SECONDS)
        return [self.fail(order) for order in orders]


@pytest.fixture
def road() -> RecordingWriter:
    """Return a writer with no plan under way."""
    return RecordingWriter()


def test_who_finds_the_way_free_goes_alone_and_at_once(road: RecordingWriter) -> None:
    """A plan that finds no other one under way is sent at once, and not as a batch."""
    road.gate.set()
    for number in range(5):
        assert road.send(registers(f"app-{number}")).result(SECONDS).failures == ()
    assert (len(road.alone), road.together) == (5, [])


def test_a_server_that_is_alone_gets_a_single_plan_in_a_batch_as_well(road: RecordingWriter) -> None:
    """With a single server even one plan is sent as a batch: the server has no peers to replicate to, and its
    answer tells what it holds.
    """
    road.has_single_server = True
    for number in range(3):
        assert road.send(registers(f"app-{number}")).result(SECONDS).failures == ()
    assert (road.alone, len(road.together)) == ([], 3)


def test_at_a_server_that_is_alone_only_the_same_application_waits(road: RecordingWriter) -> None:
    """With a single server plans of different applications go at once; plans of one application go in
    their order.
    """
    road.has_single_server = True
    road.hold_up = True
    sent = [road.send(registers(name)) for name in ("a", "b")]
    wait_until(lambda: len(road.together) == 2, "both under way", SECONDS)
    sent += road.gather(registers("a", "second"), registers("a", "third"))
    sent.append(road.send(registers("c")))
    wait_until(lambda: len(road.together) == 3, "another one under way", SECONDS)
    road.gate.set()
    assert all(one.result(SECONDS).failures == () for one in sent)
    assert road.ids[-2:] == ["second-0", "third-0"]


def test_what_is_removed_of_others_waits_for_nobody(road: RecordingWriter) -> None:
    """A plan that removes an instance which no owner of ours registered goes alone and at once, because a
    batch would renew the instance.
    """
    sent = [*road.fill(), road.send(removes_of_others("a"))]
    wait_until(lambda: "A" in road.alone, "it under way", SECONDS)
    road.gate.set()
    assert all(one.result(SECONDS).failures == () for one in sent)
    assert road.together == []


def test_who_waits_goes_together(road: RecordingWriter) -> None:
    """All plans that wait for the one under way go in one batch, and each gets the outcome of its own
    changes.
    """
    sent = road.fill()
    plans = [registers(f"app-{number}") for number in range(6)]
    sent += road.gather(*plans)
    road.gate.set()
    outcomes = [one.result(SECONDS) for one in sent]
    assert [outcome.done for outcome in outcomes[1:]] == [plan.changes for plan in plans]
    assert road.together == [{f"APP-{number}" for number in range(6)}]
    assert len(road.alone) == 1


def test_an_application_is_in_a_batch_once(road: RecordingWriter) -> None:
    """Of two waiting plans for one application only the first goes in the batch: both owners may want the
    same id.
    """
    sent = road.fill()
    sent += road.gather(registers("a"), registers("b"), registers("a", "other"))
    road.gate.set()
    assert all(one.result(SECONDS).failures == () for one in sent)
    assert {"A", "B"} in road.together
    assert road.alone[1:] == ["A"]


def test_one_that_fails_fails_alone(road: RecordingWriter) -> None:
    """A failed change fails its own plan; the other plans of the batch succeed."""
    error = RegistryRejected("no")
    sent = road.fill()
    sent += road.gather(registers("a"), registers("b"))
    road.fail = lambda order: error if order.change.instance.application == "A" else None
    road.gate.set()
    first, second = (one.result(SECONDS) for one in sent[1:])
    assert [failure.error for failure in first.failures] == [error]
    assert (second.failures, len(second.done)) == ((), 1)


def test_the_end_of_a_batch_is_reported_to_all_of_it(road: RecordingWriter) -> None:
    """When a batch loses leadership, each of its plans gets the error, and the next plan is sent."""
    error = LeadershipLost("not sent")

    def fail(_: ChangeOrder) -> None:
        raise error

    sent = road.fill()
    sent += road.gather(registers("a"), registers("b"))
    road.fail = fail
    road.gate.set()
    for one in sent[1:]:
        assert one.exception(SECONDS) is error
    assert road.send(registers("c")).result(SECONDS).failures == ()


def test_who_never_travels_with_others(road: RecordingWriter) -> None:
    """A large plan, a status change, an owner's first instance, and every plan without batches go alone."""
    road.fill()
    status = Change(Action.SET_STATUS, Instance("s", "s", "h", "h", Port(80), status=Status.OUT_OF_SERVICE))
    for plan in (registers("large", count=FEWEST_CHANGES_FOR_BATCHES), Plan((status,))):
        road.send(plan)
    wait_until(lambda: {"LARGE", "S"} <= set(road.alone), "both on their way", SECONDS)
    road.known = False
    road.send(registers("another"))
    wait_until(lambda: "ANOTHER" in road.alone, "the first instance", SECONDS)
    road.known, road.batches = True, False
    road.send(registers("plain"))
    wait_until(lambda: "PLAIN" in road.alone, "one without batches", SECONDS)
    road.gate.set()
    assert road.together == []
