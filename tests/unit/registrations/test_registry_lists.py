"""Eureka's full list, which all resources of a run share."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.identity import RENEWER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.registry_lists import (
    RENEWED_BY_SOMEBODY_AFTER_SECONDS,
    RegistryListCache,
    RenewerCheck,
    is_renewer_at_work,
)

OWNER = "stack/organization/shop/dev/billing"
ONE = Instance("BILLING", "a", "h", "192.0.2.1", Port(8080), metadata={"eurekube.owner": OWNER})


class Listing:
    """A Eureka that answers lists only, with the answers of a test."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def list_instances(self) -> list[Instance]:
        """Return the next answer, or raise it."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("list[Instance]", answer)


def test_one_list_serves_all_for_a_while() -> None:
    """One request serves lookups by application, by owner and by address."""
    peers = cast("Peers", Listing([ONE]))
    lists = RegistryListCache()
    for _ in range(3):
        assert lists.instances_of_application("BILLING", peers) == [ONE]
        assert lists.instances_of_application("RATING", peers) == []
        assert lists.instances_of_owner(OWNER, "BILLING", peers) == [ONE]
        assert lists.foreign_instances_at_addresses([ONE], OWNER, peers) == []


def test_a_list_that_fails_is_asked_for_again_by_who_needs_it() -> None:
    """A single registration does without the list; an application needs it to find superfluous instances,
    and raises.
    """
    peers = cast("Peers", Listing(RegistryUnreachable("away"), RegistryUnreachable("away"), [ONE]))
    lists = RegistryListCache()
    assert lists.instances_of_owner(OWNER, "BILLING", peers) == []
    with pytest.raises(RegistryUnreachable):
        lists.instances_of_application("BILLING", peers)
    assert lists.instances_of_application("BILLING", peers) == [ONE]


NOW = 10_000_000.0


def of(renewer: str, seconds_ago: float, now_ms: float = NOW) -> Instance:
    """Return an instance with this renewer, registered this number of seconds ago."""
    written = int(now_ms - seconds_ago * 1000)
    metadata = {RENEWER_KEY: renewer}
    return Instance("A", "a", "h", "i", Port(1), metadata=metadata, last_dirty_timestamp_ms=written)


class Listed(Peers):
    """A Eureka that lists these instances, or does not answer."""

    def __init__(self, *instances: Instance, fails: bool = False) -> None:
        super().__init__(Connection(("http://a/e",)))
        self.instances, self.fails, self.lists = list(instances), fails, 0

    def list_instances(self) -> list[Instance]:
        """Return the list, or raise."""
        self.lists += 1
        if self.fails:
            raise RegistryUnreachable("no answer")
        return self.instances


def test_what_stands_for_long_is_renewed() -> None:
    """An old instance proves that its renewer works; new instances prove nothing, and other renewers' do
    not count.
    """
    long = RENEWED_BY_SOMEBODY_AFTER_SECONDS + 1
    assert is_renewer_at_work([of("eurekube", long), of("eurekube", 1)], "eurekube", NOW) is True
    assert is_renewer_at_work([of("eurekube", 1)], "eurekube", NOW) is None
    assert is_renewer_at_work([of("other", long)], "eurekube", NOW) is False
    assert is_renewer_at_work([], "eurekube", NOW) is False


def test_an_update_says_once_that_no_renewer_was_seen() -> None:
    """The warning names the Eureka, the renewer and the connection, and needs one list for all resources
    of a run.
    """
    renewers, peers = RenewerCheck(), Listed()
    reported = [renewers.missing_renewer_warning(peers, "eu-1", "eurekube") for _ in range(3)]
    assert reported[1:] == ["", ""]
    assert all(word in reported[0] for word in ("http://a/e", "'eurekube'", "'eu-1'", "eurekube keepalive"))
    assert renewers.missing_renewer_warning(peers, "eu-1", "another")
    assert peers.lists == 1


def test_it_is_quiet_where_nothing_can_be_known() -> None:
    """There is no warning if a renewer works, the application renews itself, all instances are new, or
    Eureka is silent.
    """
    now = time.time() * 1000
    assert (
        RenewerCheck().missing_renewer_warning(Listed(of("eurekube", 3600, now)), "default", "eurekube") == ""
    )
    assert RenewerCheck().missing_renewer_warning(Listed(of("eurekube", 5, now)), "default", "eurekube") == ""
    assert RenewerCheck().missing_renewer_warning(Listed(fails=True), "default", "eurekube") == ""
    quiet = Listed()
    assert RenewerCheck().missing_renewer_warning(quiet, "default", "self") == ""
    assert quiet.lists == 0
