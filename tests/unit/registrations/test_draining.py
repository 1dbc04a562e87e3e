"""Drains of a stack's registrations, and what stands when they end before their time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import DrainInterrupted, RegistryUnreachable
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.table import Table
from eurekube_provider.registrations.cancellation import Cancellation
from eurekube_provider.registrations.draining import clear_override, drain, put_all_back, was_left
from eurekube_provider.registrations.properties import LEAVING

OWNER = "stack/o/p/s/n"
ONE, TWO = (
    Instance("A", name, "h", "h", Port(number), metadata={OWNER_KEY: OWNER})
    for number, name in enumerate(("one", "two"), 1)
)


class Killed(BaseException):
    """The process ended."""


class Server:
    """One server as a drain sees it, which lets the client die after so many requests."""

    def __init__(self, *held: Instance) -> None:
        self.held = {each.key: each for each in held}
        self.dies_after: int | None = None
        self.requests: list[str] = []
        self.peers = (self,)
        self.connection = Connection(("http://a/eureka",))
        self.table = Table()

    @property
    def peer(self) -> Peers:
        """Itself, as a cluster of one."""
        return cast("Peers", self)

    def _write(self, what: str) -> None:
        if self.dies_after is not None and len(self.requests) >= self.dies_after:
            raise Killed
        self.requests.append(what)

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance."""
        return self.held.get((application, instance_id))

    def read_everywhere(
        self, application: str, instance_id: str
    ) -> tuple[dict[str, Instance | None], dict[str, Any]]:
        """Return the instance of every server."""
        return {"http://a/eureka": self.read(application, instance_id)}, {}

    def first(self, ask: Any, **_: Any) -> Any:
        """It answers."""
        return ask(self)

    def everywhere(self, ask: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """It answers."""
        return {"http://a/eureka": ask(self)}, {}

    def register(self, instance: Instance) -> None:
        """An OUT_OF_SERVICE stays, whatever the registration says."""
        self._write(f"register {instance.instance_id}")
        have = self.held.get(instance.key)
        stays = have is not None and have.status is Status.OUT_OF_SERVICE
        self.held[instance.key] = replace(
            instance,
            status=Status.OUT_OF_SERVICE if stays else instance.status,
            overridden_status=have.overridden_status if have else Status.UNKNOWN,
        )

    def set_status(self, instance: Instance, status: Status) -> bool:
        """An override."""
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
        """Status and mark by id."""
        return {key[1]: (each.status, LEAVING_KEY in each.metadata) for key, each in self.held.items()}


def no_wait(_seconds: float) -> None:
    """It passed."""


def interrupt(_seconds: float) -> None:
    """It was ended."""
    raise DrainInterrupted("interrupted")


def test_the_mark_stands_before_the_status_and_all_wait_once() -> None:
    """After any death, an OUT_OF_SERVICE without a mark is a person's."""
    server, waits = Server(ONE, TWO), list[float]()
    drain([(server.peer, ONE), (server.peer, TWO)], 100, waits.append)
    for name in ("one", "two"):
        marked, out = (
            server.requests.index(f"{what}") for what in (f"register {name}", f"set {name} OUT_OF_SERVICE")
        )
        assert marked < out
    assert waits == [100]
    assert set(server.standing().values()) == {(Status.OUT_OF_SERVICE, True)}


@pytest.mark.parametrize("requests", range(4))
def test_whatever_dies_the_next_run_undoes_it(requests: int) -> None:
    """After each request of a drain, and of undoing it."""
    server = Server(ONE)
    server.dies_after = requests
    with pytest.raises(Killed):
        drain([(server.peer, ONE)], 100, interrupt)
    assert len(server.requests) == requests
    is_marked = LEAVING_KEY in server.held[ONE.key].metadata
    assert is_marked or server.held[ONE.key].status is Status.UP
    assert was_left(server.peer, [ONE]) == ({LEAVING} if is_marked else set())
    server.dies_after = None
    clear_override(server.peer, ONE)
    assert server.standing() == {"one": (Status.UP, False)}
    assert not was_left(server.peer, [ONE])


def test_an_interrupted_drain_is_put_back_at_once() -> None:
    """By the process that is asked to end."""
    server = Server(ONE, TWO)
    with pytest.raises(DrainInterrupted, match=r"A one and 1 more: interrupted, .* in service again"):
        drain([(server.peer, ONE), (server.peer, TWO)], 100, interrupt)
    assert set(server.standing().values()) == {(Status.UP, False)}


def test_what_cannot_be_put_back_keeps_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that is said."""
    server = Server(ONE)

    def refuse(*_: Any) -> bool:
        raise RegistryUnreachable("no connection")

    monkeypatch.setattr(server, "clear_status", refuse)
    with pytest.raises(DrainInterrupted, match=r"1 could not be put back .* \(no connection\)"):
        drain([(server.peer, ONE)], 100, interrupt)
    assert server.standing() == {"one": (Status.OUT_OF_SERVICE, True)}
    with pytest.raises(RegistryUnreachable):
        put_all_back(server.peer, [ONE])


def test_one_that_an_interrupted_drain_left_waits_once_more() -> None:
    """Nobody knows for how long it was out; what a person took out waits for nobody."""
    server, waits = Server(ONE, TWO), list[float]()
    drain([(server.peer, ONE)], 100, no_wait)
    server.set_status(TWO, Status.OUT_OF_SERVICE)
    drain([(server.peer, server.held[TWO.key])], 100, waits.append)
    assert waits == []
    drain([(server.peer, each) for each in server.held.values()], 100, waits.append)
    assert waits == [100]
    assert server.standing() == {"one": (Status.OUT_OF_SERVICE, True), "two": (Status.OUT_OF_SERVICE, False)}


def test_a_persons_status_is_left_alone() -> None:
    """Without our mark nothing is put back; nor is what belongs to somebody else by now."""
    server = Server(ONE, TWO)
    server.set_status(ONE, Status.OUT_OF_SERVICE)
    put_all_back(server.peer, [ONE])
    assert server.standing()["one"] == (Status.OUT_OF_SERVICE, False)
    theirs = {OWNER_KEY: "stack/o/p/s/other", LEAVING_KEY: "true"}
    server.held[TWO.key] = replace(TWO, status=Status.OUT_OF_SERVICE, metadata=theirs)
    clear_override(server.peer, TWO)
    assert server.standing()["two"] == (Status.OUT_OF_SERVICE, True)


def test_a_cancelled_wait_ends_at_once_and_later_ones_do_not() -> None:
    """Only calls that have begun are meant: Pulumi says Cancel at the end of each run as well."""
    waits = Cancellation()
    begun = waits.wait_of_this_call()
    waits.cancel()
    with pytest.raises(DrainInterrupted):
        begun(600)
    waits.wait_of_this_call()(0.01)


def test_a_run_that_was_cancelled_begins_no_drain() -> None:
    """The engine sends what it had begun to write down; the next run of the same process is another one."""
    waits = Cancellation()
    waits.cancel()
    waits.begin(600)
    waits.begin_run()
    waits.begin(600)
    waits.wait_of_this_call()(0.01)
    waits.cancel()
    with pytest.raises(DrainInterrupted, match="before it began"):
        waits.begin(600)
    with pytest.raises(DrainInterrupted):
        waits.wait_of_this_call()(600)
    waits.begin(0)
    waits.begin_run()
    waits.wait_of_this_call()(0.01)


def test_a_wait_ends_when_the_engine_is_gone() -> None:
    """It hangs up when it is asked to end twice, or is killed."""

    class Context:
        def is_active(self) -> bool:
            return False

    def serve(context: Context) -> None:  # noqa: ARG001 - found among the caller's locals
        Cancellation().wait_of_this_call()(600)

    with pytest.raises(DrainInterrupted):
        serve(Context())
