"""What a replica begins and ends as the Lease comes and goes."""

from __future__ import annotations

import threading

import pytest

from eurekube_provider.operator.leadership import Leadership
from lab.waiting import wait_until


class Candidate:
    """An elector whose state the tests set."""

    def __init__(self) -> None:
        self.term = 0
        self.losses = 0
        self.holds = self.is_out_of_reach = False
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def may_write(self) -> bool:
        return self.holds


class Duties:
    """Takes note; is idle when the tests say so."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_idle = True
        self.knows_all = True

    def pause(self) -> bool:
        if not self.done or self.done[-1] != "pause":
            self.done.append("pause")
        return self.is_idle

    def take_over(self) -> None:
        self.done.append("renew")

    def is_current(self) -> bool:
        return self.knows_all

    def lead(self) -> None:
        self.done.append("lead")

    def stand_by(self) -> None:
        self.done.append("stand by")


@pytest.fixture
def elector() -> Candidate:
    return Candidate()


@pytest.fixture
def leadership(elector: Candidate) -> Leadership:
    return Leadership(elector)  # type: ignore[arg-type]


def step(leadership: Leadership, elector: Candidate, duties: Duties) -> list[str]:
    """What one look at the Lease leads to."""
    duties.done.clear()
    leadership.step(elector, duties)  # type: ignore[arg-type]
    return list(duties.done)


def test_a_term_begins_when_all_of_the_one_before_has_ended(
    leadership: Leadership, elector: Candidate
) -> None:
    """Until then nothing may be written, although the Lease is held."""
    duties = Duties()
    duties.is_idle = False
    assert step(leadership, elector, duties) == ["pause"]
    elector.holds, elector.term = True, 1
    assert step(leadership, elector, duties) == ["pause"]
    assert not leadership.may_write()
    duties.is_idle = True
    assert step(leadership, elector, duties) == ["pause", "renew", "lead"]
    assert leadership.may_write()
    assert step(leadership, elector, duties) == []


def test_who_knows_only_what_was_renews_and_waits(leadership: Leadership, elector: Candidate) -> None:
    """Its watches broke: acting on an old copy would take out what came meanwhile."""
    duties = Duties()
    duties.knows_all = False
    elector.holds, elector.term = True, 1
    assert step(leadership, elector, duties) == ["pause", "renew"]
    assert step(leadership, elector, duties) == ["pause"]
    assert not leadership.may_write()
    duties.knows_all = True
    assert step(leadership, elector, duties) == ["pause", "lead"]
    assert leadership.may_write()


def test_a_lease_that_is_late_pauses_and_keeps_renewing(leadership: Leadership, elector: Candidate) -> None:
    """Nobody else was read; when the Lease is renewed, everything is looked at again."""
    duties = Duties()
    elector.holds, elector.term = True, 1
    step(leadership, elector, duties)
    elector.holds = False
    assert not leadership.may_write()
    assert step(leadership, elector, duties) == ["pause"]
    elector.holds, elector.term = True, 2
    assert not leadership.may_write()
    assert step(leadership, elector, duties) == ["pause", "renew", "lead"]
    assert leadership.may_write()


def test_another_holder_ends_the_renewals(leadership: Leadership, elector: Candidate) -> None:
    """Once, and also where the Lease is ours again by then."""
    duties = Duties()
    elector.holds, elector.term = True, 1
    step(leadership, elector, duties)
    elector.term, elector.losses = 2, 1
    assert step(leadership, elector, duties) == ["pause", "stand by"]
    assert not leadership.may_write()
    assert step(leadership, elector, duties) == ["pause", "renew", "lead"]
    assert leadership.may_write()


def test_who_stands_by_renews_while_nobody_can_lead(leadership: Leadership, elector: Candidate) -> None:
    """The leader ended while the API server was away: until it is back, or another one leads."""
    duties = Duties()
    assert step(leadership, elector, duties) == ["pause"]
    elector.is_out_of_reach = True
    assert step(leadership, elector, duties) == ["pause", "renew"]
    assert step(leadership, elector, duties) == ["pause"]
    assert not leadership.may_write()
    elector.is_out_of_reach = False
    assert step(leadership, elector, duties) == ["pause", "stand by"]
    assert step(leadership, elector, duties) == ["pause"]
    elector.is_out_of_reach = True
    assert step(leadership, elector, duties) == ["pause", "renew"]
    elector.is_out_of_reach, elector.holds, elector.term = False, True, 1
    assert step(leadership, elector, duties) == ["pause", "renew", "lead"]
    assert leadership.may_write()
    elector.losses, elector.holds = 1, False
    assert step(leadership, elector, duties) == ["pause", "stand by"]
    assert step(leadership, elector, duties) == ["pause"]


def test_nothing_is_written_on_the_way_out(leadership: Leadership, elector: Candidate) -> None:
    """Before the Lease is released."""
    elector.holds, elector.term = True, 1
    step(leadership, elector, Duties())
    leadership.close()
    assert not leadership.may_write()
    assert elector.calls == []
    leadership.release()
    assert elector.calls == ["stop"]


def test_the_only_replica_leads_until_it_stops() -> None:
    """No Lease is asked for."""
    leadership, duties, stop = Leadership(None), Duties(), threading.Event()
    thread = threading.Thread(target=leadership.follow, args=(duties, stop))
    thread.start()
    wait_until(lambda: duties.done == ["renew", "lead"], "it to lead", 10.0)
    assert leadership.may_write()
    stop.set()
    thread.join(timeout=10.0)
    assert not thread.is_alive()
    leadership.close()
    leadership.release()
    assert not leadership.may_write()
