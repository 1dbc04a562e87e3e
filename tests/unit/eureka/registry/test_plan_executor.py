"""Plans of one registry: which of them share requests, which wait for others, and the outcome of each."""

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
from eurekube_provider.eureka.registry.plan_executor import PlanExecutor
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
    """A writer behind an executor of plans: it records plans by the way they went; all wait at the gate.

    :ivar uses_batches: True if batches are used.
    :ivar known: True if each owner has instances.
    :ivar alone: the applications of plans without shared requests.
    :ivar ids: the ids of the instances of each plan that went in batches, in their order.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.alone: list[str] = []
        self.ids: list[list[str]] = []
        self.fail: Callable[[ChangeOrder], ChangeError | None] = lambda _: None
        self.uses_batches = self.known = True
        self.peers = SimpleNamespace(
            uses_batches=lambda _: self.uses_batches, peers=("one", "two"), peers_not_avoided=("one", "two")
        )
        self.notes = SimpleNamespace(has_instances=lambda _: self.known)
        self.executor = PlanExecutor(cast("Writer", self))
        self._pool = ThreadPoolExecutor(32)

    def send(self, plan: Plan, owner: str = "owner") -> Future[PlanOutcome]:
        """Apply a plan on a thread of its own."""
        return self._pool.submit(self.executor.apply, plan, owner, lease_count=1000)

    def send_waiting(self, *plans: Plan) -> list[Future[PlanOutcome]]:
        """Send plans in this order, and return once all of them wait for another one."""
        sent = []
        for number, plan in enumerate(plans, 1):
            sent.append(self.send(plan))
            wait_until(lambda: len(self.executor.waiting) == number, "one more that waits", SECONDS)  # noqa: B023
        return sent

    def apply(self, plan: Plan, *_: object, **__: object) -> PlanOutcome:
        """Stand in for :meth:`.Writer.apply`."""
        self.alone.append(plan.changes[0].instance.application)
        self.gate.wait(SECONDS)
        return PlanOutcome(plan.changes, ())

    def apply_in_batches(self, orders: Sequence[ChangeOrder]) -> list[ChangeError | None]:
        """Stand in for :meth:`.Writer.apply_in_batches`."""
        self.ids.append([order.change.instance.instance_id for order in orders])
        self.gate.wait(SECONDS)
        return [self.fail(order) for order in orders]


@pytest.fixture
def writer() -> RecordingWriter:
    """Return a writer with no plan under way."""
    return RecordingWriter()


def test_only_plans_of_the_same_application_wait(writer: RecordingWriter) -> None:
    """Plans of different applications go at once; plans of one application go in their order."""
    sent = [writer.send(registers(name)) for name in ("a", "b")]
    wait_until(lambda: len(writer.ids) == 2, "both under way", SECONDS)
    sent += writer.send_waiting(registers("a", "second"), registers("a", "third"))
    sent.append(writer.send(registers("c")))
    wait_until(lambda: len(writer.ids) == 3, "another one under way", SECONDS)
    writer.gate.set()
    assert all(one.result(SECONDS).failures == () for one in sent)
    assert writer.ids[-2:] == [["second-0"], ["third-0"]]


def test_each_plan_has_its_own_outcome(writer: RecordingWriter) -> None:
    """A failed change fails its own plan only."""
    error = RegistryRejected("no")
    writer.fail = lambda order: error if order.change.instance.application == "A" else None
    writer.gate.set()
    first, second = (writer.send(registers(name)).result(SECONDS) for name in ("a", "b"))
    assert [failure.error for failure in first.failures] == [error]
    assert (second.failures, len(second.done)) == ((), 1)


def test_a_plan_that_raises_holds_up_no_other(writer: RecordingWriter) -> None:
    """A plan that loses leadership raises the error; the next plan of its application is sent."""
    error = LeadershipLost("not sent")

    def fail(_: ChangeOrder) -> None:
        raise error

    first = writer.send(registers("a"))
    wait_until(lambda: len(writer.ids) == 1, "it under way", SECONDS)
    writer.fail = fail
    (second,) = writer.send_waiting(registers("a"))
    writer.gate.set()
    assert (first.exception(SECONDS), second.exception(SECONDS)) == (error, error)
    writer.fail = lambda _: None
    assert writer.send(registers("a")).result(SECONDS).failures == ()


def test_removals_of_others_instances_share_no_request(writer: RecordingWriter) -> None:
    """A plan that removes an instance which no owner of ours registered goes by single requests, because a
    batch would renew the instance.
    """
    sent = [writer.send(registers("a")), writer.send(removes_of_others("a"))]
    wait_until(lambda: writer.alone == ["A"], "it under way", SECONDS)
    writer.gate.set()
    assert all(one.result(SECONDS).failures == () for one in sent)
    assert writer.ids == [["a-0"]]


def test_while_a_server_is_away_no_request_is_shared(writer: RecordingWriter) -> None:
    """While one server does not answer, a plan goes by single requests, which the others forward to it."""
    writer.gate.set()
    writer.peers.peers_not_avoided = ("one",)
    assert writer.send(registers("a")).result(SECONDS).failures == ()
    writer.peers.peers_not_avoided = ("one", "two")
    assert writer.send(registers("b")).result(SECONDS).failures == ()
    assert (writer.alone, writer.ids) == (["A"], [["b-0"]])


def test_plans_that_share_no_request(writer: RecordingWriter) -> None:
    """A large plan, a status change, an owner's first instance, and every plan without batches share none."""
    status = Change(Action.SET_STATUS, Instance("s", "s", "h", "h", Port(80), status=Status.OUT_OF_SERVICE))
    for plan in (registers("large", count=FEWEST_CHANGES_FOR_BATCHES), Plan((status,))):
        writer.send(plan)
    wait_until(lambda: {"LARGE", "S"} <= set(writer.alone), "both on their way", SECONDS)
    writer.known = False
    writer.send(registers("another"))
    wait_until(lambda: "ANOTHER" in writer.alone, "the first instance", SECONDS)
    writer.known, writer.uses_batches = True, False
    writer.send(registers("plain"))
    wait_until(lambda: "PLAIN" in writer.alone, "one without batches", SECONDS)
    writer.gate.set()
    assert writer.ids == []
