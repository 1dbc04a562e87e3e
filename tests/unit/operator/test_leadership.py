"""What a replica begins and ends as its Lease comes and goes; and another operator that has our name."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.leadership import CLOCKS_DIFFER_SECONDS, DuplicateOperatorCheck, Leadership
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


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Leases(KubeAccess):
    """An API that knows some Leases of our name."""

    def __init__(self, **leases: dict[str, Any]) -> None:
        super().__init__(client.ApiClient(client.Configuration(host="http://127.0.0.1:1")))
        self.leases = leases
        self.error: KubernetesError | None = None
        self.asked: list[Mapping[str, str] | None] = []

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """A list of them, or our own."""
        if path == "/apis/coordination.k8s.io/v1/namespaces/default/leases/eurekube-leader":
            if "default" not in self.leases:
                raise KubernetesError("not found", status_code=404)
            return self.leases["default"]
        assert path == "/apis/coordination.k8s.io/v1/leases"
        self.asked.append(query)
        if self.error:
            raise self.error
        return {
            "items": [
                {"metadata": {"namespace": namespace, "name": "eurekube-leader"}, "spec": spec}
                for namespace, spec in self.leases.items()
            ]
        }


def held(seconds_ago: float = 1.0, holder: str = "eurekube-0_1") -> dict[str, Any]:
    """A Lease's spec."""
    renewed = (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}


def check_of(
    access: KubeAccess, period_seconds: float = 60.0, stop: threading.Event | None = None
) -> DuplicateOperatorCheck:
    """Those of an operator whose Lease is in the namespace ``default``."""
    found = (stop or threading.Event()).set
    return DuplicateOperatorCheck(access, "default", "eurekube-leader", period_seconds, found, lambda: NOW)


def test_an_operator_that_leads_elsewhere_is_found() -> None:
    """The sentence says who leads, where, and what to do."""
    access = Leases(eurekube=held())
    with pytest.raises(ConfigurationError) as refused:
        check_of(access).check()
    said = str(refused.value)
    assert "eurekube-0_1 leads in this cluster by the Lease eurekube/eurekube-leader" in said
    assert "--lease-namespace eurekube" in said
    assert "--operator-name" in said
    assert access.asked == [{"fieldSelector": "metadata.name=eurekube-leader"}]


@pytest.mark.parametrize(
    "leases",
    [
        {},
        {"default": held()},
        {"eurekube": held(holder="")},
        {"eurekube": held(15 + CLOCKS_DIFFER_SECONDS)},
        {"eurekube": {}},
        {"eurekube": {"holderIdentity": "a", "renewTime": "yesterday"}},
    ],
)
def test_nobody_leads_elsewhere(leases: dict[str, Any]) -> None:
    """Our own Lease, one that was released, and one that ended long ago stop nobody."""
    check_of(Leases(**leases)).check()


def test_a_lease_that_is_renewed_is_held_whatever_its_clock_says() -> None:
    """A holder's clock may be wrong by hours: that the Lease changes is enough."""
    access = Leases(eurekube=held(7200))
    check = check_of(access)
    check.check()
    check.check()
    access.leases["eurekube"] = held(7190)
    with pytest.raises(ConfigurationError, match="leads in this cluster"):
        check.check()


def test_who_may_not_list_leases_must_say_where_its_own_is() -> None:
    """In doubt there would be two."""
    access = Leases()
    access.error = KubernetesError("GET leases: forbidden", status_code=403)
    with pytest.raises(ConfigurationError, match="--lease-namespace default"):
        check_of(access).check()
    access.leases["default"] = held()
    check_of(access).check()  # it has served so far, and goes on


def test_one_that_comes_later_ends_this_operator() -> None:
    """The one in the cluster cannot look for others. An API that is away for a moment ends nobody."""
    access, stop = Leases(), threading.Event()
    access.error = KubernetesError("GET leases: no answer")
    check = check_of(access, 0.01, stop)
    check.start()
    wait_until(lambda: len(access.asked) > 1, "two looks", 10.0)
    assert not stop.is_set()
    access.leases["eurekube"] = held()
    access.error = None
    wait_until(stop.is_set, "the end", 10.0)
    assert "eurekube/eurekube-leader" in str(check.refusal)
