"""Drains of a stack's registrations, and the statuses that an interrupted drain leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import DrainInterrupted, RegistryUnreachable
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.registrations.cancellation import Cancellation
from eurekube_provider.registrations.draining import (
    drain_and_find_registered_again,
    find_leftover_marks_of_earlier_run,
    undo_drain,
    undo_drains,
)
from eurekube_provider.registrations.properties import LEAVING_MARK

OWNER = "stack/o/p/s/n"
ONE, TWO = (
    Instance("A", name, "h", "h", Port(number), metadata={OWNER_KEY: OWNER})
    for number, name in enumerate(("one", "two"), 1)
)


class Killed(BaseException):
    """The end of the process, raised instead of a request."""


class Server:
    """A server for drains that kills its client after a number of writes."""

    def __init__(self, *held: Instance) -> None:
        self.held = {each.key: each for each in held}
        self.dies_after: int | None = None
        self.requests: list[str] = []
        self.peers = (self,)
        self.connection = Connection(("http://a/eureka",))
        self.table = InstanceTable()

    @property
    def peer(self) -> Peers:
        """This server as a cluster of one."""
        return cast("Peers", self)

    def _write(self, what: str) -> None:
        if self.dies_after is not None and len(self.requests) >= self.dies_after:
            raise Killed
        self.requests.append(what)

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return an instance, or None."""
        return self.held.get((application, instance_id))

    def read_everywhere(
        self, application: str, instance_id: str
    ) -> tuple[dict[str, Instance | None], dict[str, Any]]:
        """Return an instance by server URL, without failures."""
        return {"http://a/eureka": self.read(application, instance_id)}, {}

    def ask_in_turn(self, ask: Any, **_: Any) -> Any:
        """Ask this server."""
        return ask(self)

    def ask_all_or_raise(self, ask: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask this server; return its answer by URL, without failures."""
        return {"http://a/eureka": ask(self)}, {}

    def register(self, instance: Instance) -> None:
        """Register an instance; an existing OUT_OF_SERVICE stays."""
        self._write(f"register {instance.instance_id}")
        have = self.held.get(instance.key)
        stays = have is not None and have.status is Status.OUT_OF_SERVICE
        self.held[instance.key] = replace(
            instance,
            status=Status.OUT_OF_SERVICE if stays else instance.status,
            overridden_status=have.overridden_status if have else Status.UNKNOWN,
        )

    def set_status(self, instance: Instance, status: Status) -> bool:
        """Set a status override."""
        self._write(f"set {instance.instance_id} {status}")
        self.held[instance.key] = replace(self.held[instance.key], status=status, overridden_status=status)
        return True

    def clear_status(self, instance: Instance, status: Status) -> bool:
        """Clear the override, as a server does."""
        self._write(f"clear {instance.instance_id}")
        have = self.held[instance.key]
        if have.is_overridden:
            self.held[instance.key] = replace(have, status=status, overridden_status=Status.UNKNOWN)
        return True

    def standing(self) -> dict[str, tuple[Status, bool]]:
        """Return by id each instance's status, and whether it has the drain's mark."""
        return {key[1]: (each.status, LEAVING_KEY in each.metadata) for key, each in self.held.items()}


def no_wait(_seconds: float) -> None:
    """Return at once, as if the time had passed."""


def interrupt(_seconds: float) -> None:
    """Raise, as a wait that is interrupted."""
    raise DrainInterrupted("interrupted")


def test_the_mark_stands_before_the_status_and_all_wait_once() -> None:
    """If the process dies at any point, an OUT_OF_SERVICE without a mark was set by a person."""
    server, waits = Server(ONE, TWO), list[float]()
    drain_and_find_registered_again([(server.peer, ONE), (server.peer, TWO)], 100, waits.append)
    for name in ("one", "two"):
        marked, out = (
            server.requests.index(f"{what}") for what in (f"register {name}", f"set {name} OUT_OF_SERVICE")
        )
        assert marked < out
    assert waits == [100]
    assert set(server.standing().values()) == {(Status.OUT_OF_SERVICE, True)}


def leftover_marks(server: Server) -> frozenset[str]:
    """Return the marks that the next run finds, with a state that knows nothing of it."""
    return find_leftover_marks_of_earlier_run(server.peer, [ONE], {}, pytest.fail, lambda _: False)


@pytest.mark.parametrize("requests", range(4))
def test_whatever_dies_the_next_run_undoes_it(requests: int) -> None:
    """The process may die after any request of a drain or of its undoing."""
    server = Server(ONE)
    server.dies_after = requests
    with pytest.raises(Killed):
        drain_and_find_registered_again([(server.peer, ONE)], 100, interrupt)
    assert len(server.requests) == requests
    is_marked = LEAVING_KEY in server.held[ONE.key].metadata
    assert is_marked or server.held[ONE.key].status is Status.UP
    assert leftover_marks(server) == ({LEAVING_MARK} if is_marked else set())
    server.dies_after = None
    undo_drain(server.peer, ONE)
    assert server.standing() == {"one": (Status.UP, False)}
    assert not leftover_marks(server)


def test_an_interrupted_drain_is_put_back_at_once() -> None:
    """The interrupted process itself puts the instances in service again."""
    server = Server(ONE, TWO)
    with pytest.raises(DrainInterrupted, match=r"A one and 1 more: interrupted, .* in service again"):
        drain_and_find_registered_again([(server.peer, ONE), (server.peer, TWO)], 100, interrupt)
    assert set(server.standing().values()) == {(Status.UP, False)}


def test_what_cannot_be_put_back_keeps_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which instance stays out of service and why."""
    server = Server(ONE)

    def refuse(*_: Any) -> bool:
        raise RegistryUnreachable("no connection")

    monkeypatch.setattr(server, "clear_status", refuse)
    with pytest.raises(DrainInterrupted, match=r"1 could not be put back .* \(no connection\)"):
        drain_and_find_registered_again([(server.peer, ONE)], 100, interrupt)
    assert server.standing() == {"one": (Status.OUT_OF_SERVICE, True)}
    with pytest.raises(RegistryUnreachable):
        undo_drains(server.peer, [ONE])


def test_one_that_an_interrupted_drain_left_waits_once_more() -> None:
    """An instance with an earlier drain's mark is drained for the full time; one that a person took out is
    not waited for.
    """
    server, waits = Server(ONE, TWO), list[float]()
    drain_and_find_registered_again([(server.peer, ONE)], 100, no_wait)
    server.set_status(TWO, Status.OUT_OF_SERVICE)
    drain_and_find_registered_again([(server.peer, server.held[TWO.key])], 100, waits.append)
    assert waits == []
    drain_and_find_registered_again([(server.peer, each) for each in server.held.values()], 100, waits.append)
    assert waits == [100]
    assert server.standing() == {"one": (Status.OUT_OF_SERVICE, True), "two": (Status.OUT_OF_SERVICE, False)}


def test_a_persons_status_is_left_alone() -> None:
    """An OUT_OF_SERVICE without the drain's mark, or of another owner, is not undone."""
    server = Server(ONE, TWO)
    server.set_status(ONE, Status.OUT_OF_SERVICE)
    undo_drains(server.peer, [ONE])
    assert server.standing()["one"] == (Status.OUT_OF_SERVICE, False)
    theirs = {OWNER_KEY: "stack/o/p/s/other", LEAVING_KEY: "true"}
    server.held[TWO.key] = replace(TWO, status=Status.OUT_OF_SERVICE, metadata=theirs)
    undo_drain(server.peer, TWO)
    assert server.standing()["two"] == (Status.OUT_OF_SERVICE, True)


def test_a_cancelled_wait_ends_at_once_and_later_ones_do_not() -> None:
    """A cancellation covers calls that have begun, since Pulumi also sends Cancel at the end of each run."""
    waits = Cancellation()
    begun = waits.make_interruptible_sleep()
    waits.cancel()
    with pytest.raises(DrainInterrupted):
        begun(600)
    waits.make_interruptible_sleep()(0.01)


def test_a_run_that_was_cancelled_begins_no_drain() -> None:
    """The engine still sends calls after Cancel; the next run of the same process can drain again."""
    waits = Cancellation()
    waits.cancel()
    waits.begin_call(600)
    waits.begin_run()
    waits.begin_call(600)
    waits.make_interruptible_sleep()(0.01)
    waits.cancel()
    with pytest.raises(DrainInterrupted, match="before it began"):
        waits.begin_call(600)
    with pytest.raises(DrainInterrupted):
        waits.make_interruptible_sleep()(600)
    waits.begin_call(0)
    waits.begin_run()
    waits.make_interruptible_sleep()(0.01)


def test_a_wait_ends_when_the_engine_is_gone() -> None:
    """The wait ends when the engine's connection closes, as after a second interrupt or a kill."""

    class Context:
        def is_active(self) -> bool:
            return False

    def serve(context: Context) -> None:  # noqa: ARG001 - found among the caller's locals
        Cancellation().make_interruptible_sleep()(600)

    with pytest.raises(DrainInterrupted):
        serve(Context())
