"""The whole registry, read again and again: what is as it was costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.listing import Listing

RATING = Instance("rating", "a", "10.0.0.1", "10.0.0.1", Port(8080))
ORDER = Instance("order", "b", "10.0.0.2", "10.0.0.2", Port(8080))


class Server:
    """Peers with one server, whose list changes when it is told so."""

    def __init__(self) -> None:
        self.listed: list[Instance] = []
        self.version = 0
        self.made = 0

    def list_by(self, read: Callable[[Server], list[Instance]]) -> list[Instance]:
        """Ask the only one."""
        return read(self)

    def list_unless(self, fingerprint: bytes) -> tuple[bytes, list[Instance] | None]:
        """A list of new objects, unless it is the one that was given last."""
        found = str(self.version).encode()
        if found == fingerprint:
            return found, None
        self.made += 1
        return found, [replace(instance) for instance in self.listed]


def test_an_answer_that_did_not_change_is_read_once() -> None:
    """The same answer is the same list, instance by instance."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = Listing(server)  # type: ignore[arg-type]
    first, second = listing.read(), listing.read()
    assert first == [RATING, ORDER]
    assert [id(one) for one in first] == [id(one) for one in second]
    assert server.made == 1


def test_what_changed_is_new_and_the_rest_the_same() -> None:
    """Of another answer, an instance that is as it was stays the object that it was."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = Listing(server)  # type: ignore[arg-type]
    rating, _ = listing.read()
    moved = replace(ORDER, ip_address="10.0.0.3")
    server.listed, server.version = [moved, RATING], 1
    found = listing.read()
    assert found == [moved, RATING]
    assert found[1] is rating


def test_what_is_gone_is_not_remembered() -> None:
    """A list has what its answer has, and nothing of the one before."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = Listing(server)  # type: ignore[arg-type]
    listing.read()
    server.listed, server.version = [ORDER], 1
    assert listing.read() == [ORDER]
