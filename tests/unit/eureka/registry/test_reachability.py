"""Reachability of Eureka's servers: the conditions reported for failed readings and silent servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.registry import Failing, Healthy, NeverRead
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import request_stats
from eurekube_provider.eureka.protocol.request_stats import NO_ANSWER_CODE
from eurekube_provider.eureka.registry import reachability
from eurekube_provider.eureka.registry.reachability import Reachability

AWAY = RegistryUnreachable("away")


class Clock:
    """A clock that stands in for wall and monotonic time, and that a test moves."""

    def __init__(self) -> None:
        self.now = 10_000.0

    def __call__(self) -> float:
        return self.now


class Eureka:
    """The traffic of two servers whose answers a test plays, and the reachability derived from it."""

    def __init__(self, clock: Clock) -> None:
        self.peers = Peers(Connection(("http://one/eureka", "http://two/eureka")))
        self.one, self.two = (peer.traffic for peer in self.peers.peers)
        self.reachability = Reachability(self.peers)
        self._clock = clock

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.now += seconds

    def was_read(self) -> None:
        """Play a reading that succeeds."""
        self.reachability.clear_failure_and_check_recovery()
        self.reachability.note_read_and_check_first()


@pytest.fixture
def eureka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Eureka]:
    """Yield two servers that no request was sent to yet, with a clock that tests move."""
    clock = Clock()
    stub = SimpleNamespace(monotonic=clock, time=clock, strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr(reachability, "time", stub)
    monkeypatch.setattr(request_stats, "time", stub)
    made = Eureka(clock)
    yield made
    made.peers.close()


def test_a_single_reading_that_fails_is_reported_and_judged_by_nobody(eureka: Eureka) -> None:
    """One failed reading is visible in the condition, which stays healthy; it fails only when the next
    reading fails, too.
    """
    assert eureka.reachability.condition() == NeverRead()
    assert not eureka.reachability.note_failure_and_check_lasting(AWAY)
    assert eureka.reachability.condition() == NeverRead(AWAY)
    eureka.was_read()
    assert eureka.reachability.condition() == Healthy()
    since = 10_000.0
    assert not eureka.reachability.note_failure_and_check_lasting(AWAY)
    assert eureka.reachability.condition() == Healthy(AWAY)
    eureka.pass_seconds(2.0)
    assert eureka.reachability.note_failure_and_check_lasting(AWAY)
    assert eureka.reachability.condition() == Failing(AWAY, since)
    assert not eureka.reachability.note_failure_and_check_lasting(AWAY)
    eureka.was_read()
    assert eureka.reachability.condition() == Healthy()


def test_hanging_servers_are_reported_before_the_time_out(eureka: Eureka) -> None:
    """Eureka counts as failing after a second in which all servers hang, and as lastingly failing after
    three; not while one server answers.
    """
    for server in (eureka.one, eureka.two):
        server.note_usability()
    eureka.was_read()
    eureka.one.note_request_begins()
    eureka.pass_seconds(10.0)
    assert eureka.reachability.condition() == Healthy()
    eureka.two.note_request_begins()
    reported = []
    for _ in range(5):
        eureka.pass_seconds(0.9)
        condition = eureka.reachability.condition()
        reported.append(condition.lasts if isinstance(condition, Failing) else None)
    assert reported == [None, False, False, True, True]
    eureka.one.note_request_ended("GET", "200", 14.5)
    assert eureka.reachability.condition() == Healthy()


@pytest.mark.parametrize("seconds", [50.0, 0.0])
def test_a_missing_instance_may_be_forgotten_if_all_were_silent(eureka: Eureka, seconds: float) -> None:
    """A silence of all servers at once counts as a failure for 120 s, as nobody could renew; later silence of
    one server changes nothing.
    """
    eureka.was_read()
    eureka.one.note_request_begins()
    eureka.pass_seconds(5.0)
    eureka.two.note_request_begins()
    eureka.pass_seconds(2.9)
    assert not eureka.reachability.failed_within(120.0)
    eureka.pass_seconds(0.2)
    assert eureka.reachability.failed_within(120.0)
    eureka.one.note_request_ended("GET", "200", 8.1)
    eureka.two.note_request_ended("GET", NO_ANSWER_CODE, 3.1)
    eureka.two.note_request_begins()
    eureka.two.note_request_ended("GET", "200", 0.1)
    eureka.pass_seconds(seconds)
    eureka.one.note_request_begins()
    eureka.pass_seconds(seconds)
    eureka.one.note_request_ended("GET", "200", seconds)
    eureka.pass_seconds(119.9 - 2 * seconds)
    assert eureka.reachability.failed_within(120.0)
    eureka.pass_seconds(0.2)
    assert not eureka.reachability.failed_within(120.0)


def test_an_instance_missing_after_silence_in_turn_was_removed(eureka: Eureka) -> None:
    """Servers that are silent in turn cause no failure: one of them always takes renewals and knows the
    instances.
    """
    eureka.was_read()
    for server in (eureka.one, eureka.two, eureka.one):
        server.note_request_begins()
        eureka.pass_seconds(20.0)
        server.note_request_ended("PUT", "200", 20.0)
        assert not eureka.reachability.failed_within(120.0)
    eureka.two.note_request_begins()
    eureka.pass_seconds(2.0)
    eureka.one.note_request_begins()
    eureka.pass_seconds(2.0)
    assert not eureka.reachability.failed_within(120.0)


def test_what_is_missing_after_a_reading_failed_may_be_forgotten(eureka: Eureka) -> None:
    """A failed reading counts as a failure for 120 s, because a renewal may have failed with it."""
    eureka.was_read()
    eureka.reachability.note_failure_and_check_lasting(AWAY)
    eureka.was_read()
    eureka.pass_seconds(119.9)
    assert eureka.reachability.failed_within(120.0)
    eureka.pass_seconds(0.2)
    assert not eureka.reachability.failed_within(120.0)
