"""What a replacement's old half must not remove."""

from __future__ import annotations

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.resources.bridge import Replaced

PLACE = ("BILLING", "one")
EU, US = (Peers(Connection((f"http://{name}/eureka", f"http://{name}-2/eureka"))) for name in ("eu", "us"))
EU_TOO = Peers(Connection(("http://eu-2/eureka",)))


def test_an_older_state_removes_nothing_and_its_own_does() -> None:
    """Asked once for each registration; where the state before says the same, it is taken for the older."""
    replaced = Replaced()
    for made, asked, spared in (("2", "1", True), ("2", None, True), ("2", "2", False), (None, "2", True)):
        replaced.add(EU, PLACE, made)
        assert replaced.take(EU, PLACE, asked) is spared
        assert not replaced.take(EU, PLACE, asked)


def test_each_eureka_has_its_own() -> None:
    """One id may stand at several; lists of servers that share one are the same."""
    replaced = Replaced()
    replaced.add(EU, PLACE, "2")
    assert not replaced.take(US, PLACE, "1")
    replaced.add(US, PLACE, "2")
    assert replaced.take(EU_TOO, PLACE, "1")
    assert replaced.take(US, PLACE, "1")


def test_what_goes_on_is_removed_by_whatever_state() -> None:
    """After an update or a refresh there is no older half any more."""
    replaced = Replaced()
    replaced.add(EU, PLACE, "2")
    replaced.forget(US, PLACE)
    replaced.forget(EU, PLACE)
    assert not replaced.take(EU, PLACE, "1")


def test_what_was_registered_twice_is_one() -> None:
    """The second registration counts."""
    replaced = Replaced()
    for made in ("1", "2"):
        replaced.add(EU, PLACE, made)
    assert replaced.take(EU, PLACE, "1")
    assert not replaced.take(EU, PLACE, "1")
