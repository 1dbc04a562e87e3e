"""Detection of a living renewer of a stack's registrations."""

from __future__ import annotations

import time

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.identity import RENEWER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.renewer_check import SETTLED_SECONDS, RenewerCheck, is_renewed

NOW = 10_000_000.0


def of(renewer: str, seconds_ago: float, now_ms: float = NOW) -> Instance:
    """A registration of so long ago."""
    written = int(now_ms - seconds_ago * 1000)
    metadata = {RENEWER_KEY: renewer}
    return Instance("A", "a", "h", "i", Port(1), metadata=metadata, last_dirty_timestamp_ms=written)


class Listed(Peers):
    """A Eureka that lists this, or does not answer."""

    def __init__(self, *instances: Instance, fails: bool = False) -> None:
        super().__init__(Connection(("http://a/e",)))
        self.instances, self.fails, self.lists = list(instances), fails, 0

    def list_instances(self) -> list[Instance]:
        """The list."""
        self.lists += 1
        if self.fails:
            raise RegistryUnreachable("no answer")
        return self.instances


def test_what_stands_for_long_is_renewed() -> None:
    """By whomever it names; what is new says nothing, and what names others neither."""
    long = SETTLED_SECONDS + 1
    assert is_renewed([of("eurekube", long), of("eurekube", 1)], "eurekube", NOW) is True
    assert is_renewed([of("eurekube", 1)], "eurekube", NOW) is None
    assert is_renewed([of("other", long)], "eurekube", NOW) is False
    assert is_renewed([], "eurekube", NOW) is False


def test_an_update_says_once_that_no_renewer_was_seen() -> None:
    """It names the Eureka, the renewer and the connection; the list is that of all resources of the run."""
    renewers, peers = RenewerCheck(), Listed()
    reported = [renewers.check(peers, "eu-1", "eurekube") for _ in range(3)]
    assert reported[1:] == ["", ""]
    assert all(word in reported[0] for word in ("http://a/e", "'eurekube'", "'eu-1'", "eurekube keepalive"))
    assert renewers.check(peers, "eu-1", "another")
    assert peers.lists == 1


def test_it_is_quiet_where_nothing_can_be_known() -> None:
    """Where one is at work, an application renews itself, all is new, or Eureka lists nothing."""
    now = time.time() * 1000
    assert RenewerCheck().check(Listed(of("eurekube", 3600, now)), "default", "eurekube") == ""
    assert RenewerCheck().check(Listed(of("eurekube", 5, now)), "default", "eurekube") == ""
    assert RenewerCheck().check(Listed(fails=True), "default", "eurekube") == ""
    quiet = Listed()
    assert RenewerCheck().check(quiet, "default", "self") == ""
    assert quiet.lists == 0
