"""Duration of a server's silence, by which it is judged whether callers have left the server."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from eurekube_provider.core.drain_time import (
    CALLERS_LEAVE_HUNG_SERVER_SECONDS,
    CALLERS_RETURN_TO_SERVER_SECONDS,
)
from eurekube_provider.core.errors import RegistrySilent, RegistryUnreachable
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.avoided_peers import AvoidedPeers

A, B = (mock.Mock(url=f"http://{name}/eureka") for name in "ab")
SILENT = RegistrySilent("no answer")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the monotonic clock by one that a test sets."""
    found = mock.Mock(monotonic=mock.Mock(return_value=1000.0))
    monkeypatch.setattr("eurekube_provider.eureka.avoided_peers.time", found)
    return found.monotonic


def test_a_silence_lasts_while_the_server_is_asked(clock: Any) -> None:
    """A silence lasts from the first request without an answer, as long as requests go on."""
    avoided = AvoidedPeers([A, B])
    for at in range(1000, 1400, 100):
        clock.return_value = float(at)
        avoided.avoid(A, "does not answer", SILENT)
    assert avoided.silent_since(A.url) == 1000.0
    assert avoided.silent_since(B.url) == 1300.0


def test_a_moment_long_ago_is_not_the_same_silence(clock: Any) -> None:
    """After a long time without requests a new silence begins: callers of a server that hangs only now have
    not left it.
    """
    avoided = AvoidedPeers([A, B])
    avoided.avoid(A, "is slow", SILENT)
    clock.return_value += CALLERS_LEAVE_HUNG_SERVER_SECONDS + 1.0
    assert avoided.silent_since(A.url) == clock.return_value
    avoided.avoid(A, "does not answer", SILENT)
    assert avoided.silent_since(A.url) == clock.return_value
    assert windows.SAME_SILENCE_SECONDS < CALLERS_LEAVE_HUNG_SERVER_SECONDS


def test_callers_come_back_as_late_as_the_server_was_away(clock: Any) -> None:
    """Callers are expected back after as long as the server hung, five minutes at most; a server that refused
    connections is not late.
    """
    avoided = AvoidedPeers([A, B])
    avoided.avoid(A, "does not answer", SILENT)
    avoided.avoid(B, "does not answer", RegistryUnreachable("refused"))
    clock.return_value += 40.0
    avoided.stop_avoiding(A)
    avoided.stop_avoiding(B)
    assert avoided.callers_may_be_away_until_by_url() == {A.url: clock.return_value + 40.0}
    clock.return_value += 41.0
    assert avoided.callers_may_be_away_until_by_url() == {}
    avoided.avoid(A, "does not answer", SILENT)
    clock.return_value += 4000.0
    avoided.stop_avoiding(A)
    assert avoided.callers_may_be_away_until_by_url() == {
        A.url: clock.return_value + CALLERS_RETURN_TO_SERVER_SECONDS
    }
