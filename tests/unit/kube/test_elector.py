"""Candidates for one Lease, with a clock that tests move and an API server that tests make fail."""

from __future__ import annotations

import copy
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.kube.elector import ElectionTiming, Elector
from lab.waiting import wait_until

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"
TIMING = ElectionTiming(lease_duration_seconds=15, renew_deadline_seconds=10, retry_period_seconds=2)

Object = dict[str, Any]


class Api:
    """A fake API server with one Lease, guarded by its resourceVersion."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.error: KubernetesError | None = None
        self.writes: list[Object] = []
        self.seconds = 1000.0
        self.latency_seconds = 0.0
        self.loses_next_answer = False
        self.overtake: Callable[[], None] | None = None
        """Function called just before the next write is handled."""
        self._versions = itertools.count(1)

    def clock(self) -> float:
        """Return the current time in seconds."""
        return self.seconds

    def request(
        self, method: str, path: str, body: Object | None = None, timeout_seconds: float | None = None
    ) -> Object:
        """Stand in for ``KubeAccess.request``."""
        assert timeout_seconds is not None
        assert timeout_seconds <= TIMING.renew_deadline_seconds
        assert path == (PATH if method == "POST" else f"{PATH}/leader")
        self.seconds += self.latency_seconds
        if self.error:
            raise self.error
        if method == "POST":
            if self.lease:
                raise KubernetesError("exists", status_code=409, reason="AlreadyExists")
            return self.store(body)
        if self.lease is None:
            raise KubernetesError("gone", status_code=404)
        if method == "PUT":
            overtake, self.overtake = self.overtake, None
            if overtake:
                overtake()
            assert body is not None
            if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                raise KubernetesError("changed", status_code=409, reason="Conflict")
            return self.store(body)
        return copy.deepcopy(self.lease)

    def store(self, lease: Object | None) -> Object:
        """Write the Lease without checks."""
        self.lease = copy.deepcopy(lease) or {}
        self.lease["metadata"]["resourceVersion"] = str(next(self._versions))
        self.writes.append(self.lease.get("spec") or {})
        if self.loses_next_answer:
            self.loses_next_answer = False
            raise KubernetesError("no answer in time")
        return copy.deepcopy(self.lease)

    @property
    def spec(self) -> Object:
        """The Lease's spec."""
        assert self.lease is not None
        found: Object = self.lease["spec"]
        return found


@pytest.fixture
def api() -> Api:
    """Return an API server without a Lease."""
    return Api()


def candidate(api: Api, identity: str, timing: ElectionTiming = TIMING) -> Elector:
    """Return a candidate that acts only when the test calls it."""
    return Elector(api, "ops", "leader", identity, timing, api.clock)  # type: ignore[arg-type]


def away(code: int | None = None) -> KubernetesError:
    """Return the error of a failing API server."""
    return KubernetesError("no answer", status_code=code)


def test_a_lease_that_nobody_can_take_is_out_of_reach(api: Api) -> None:
    """A Lease is out of reach when it may have expired and the API server gives no answer, or refuses it: a
    Role that is lost is lost to all replicas.
    """
    holder, other = candidate(api, "one"), candidate(api, "two")

    def looks(one: Elector) -> bool:
        one.failure = None
        try:
            one.try_acquire_or_renew()
        except KubernetesError as error:
            one.failure = error
        return one.no_replica_can_lead

    assert (looks(holder), looks(other)) == (False, False)
    api.error = away()
    assert not looks(other)
    api.seconds += TIMING.lease_duration_seconds
    assert (looks(holder), looks(other)) == (False, True)
    api.error = away(429)
    assert not looks(other)
    for code in (401, 403, 404, 503):
        api.error = away(code)
        assert (looks(other), looks(candidate(api, "three"))) == (True, True)  # the third has seen no Lease
    api.error = None
    assert (looks(holder), looks(other)) == (False, False)
    assert other.holder == "one"


def test_the_first_one_takes_it(api: Api) -> None:
    """The first candidate creates the Lease and leads; the second one does not."""
    one, two = candidate(api, "one"), candidate(api, "two")
    assert not one.may_write()
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    assert (one.may_write(), two.may_write()) == (True, False)
    assert (one.term, two.term) == (1, 0)
    assert (one.holder, two.holder) == ("one", "one")
    assert api.spec["leaseDurationSeconds"] == 15
    assert api.spec["leaseTransitions"] == 0


def test_what_its_holder_notes_stands_at_the_lease(api: Api) -> None:
    """The holder's notes are written to the Lease's annotations with its first write, based on the former
    holder's.
    """

    def noting(identity: str) -> Elector:
        def noted(metadata: Object) -> Object:
            known = metadata.get("annotations") or {}
            return {
                **metadata,
                "annotations": {**known, "last": identity, "first": known.get("first", identity)},
            }

        return Elector(api, "ops", "leader", identity, TIMING, api.clock, noted)  # type: ignore[arg-type]

    one, two = noting("one"), noting("two")
    one.try_acquire_or_renew()
    assert (api.lease or {})["metadata"]["annotations"] == {"last": "one", "first": "one"}
    two.try_acquire_or_renew()
    api.seconds += 15
    two.try_acquire_or_renew()
    assert (api.lease or {})["metadata"]["annotations"] == {"last": "two", "first": "one"}


def test_who_waits_knows_whether_the_holder_lives(api: Api) -> None:
    """A waiting candidate sees the holder alive only when the Lease is renewed, not while the holder is
    paused or releases it.
    """
    one, two, three = (candidate(api, name) for name in ("one", "two", "three"))
    one.try_acquire_or_renew()
    seen = []
    for renews in (False, False, True):
        if renews:
            api.seconds += 2
            one.try_acquire_or_renew()
        two.try_acquire_or_renew()
        seen.append(two.is_renewed_by_another)
    assert seen == [False, False, True]
    three.try_acquire_or_renew()
    one.stop()
    three.try_acquire_or_renew()
    assert (three.may_write(), three.is_renewed_by_another) == (True, False)
    assert three.lease_name == "ops/leader"


def test_a_renewal_changes_the_time_alone(api: Api) -> None:
    """A renewal changes renewTime only; holder, time of acquisition and unknown fields stay."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    assert api.lease is not None
    api.lease["metadata"]["labels"] = {"team": "ops"}
    before = dict(api.spec)
    one.try_acquire_or_renew()
    after = dict(api.spec)
    assert before.pop("renewTime") < after.pop("renewTime")
    assert before == after
    assert one.term == 1


def test_expiry_is_judged_by_the_time_since_a_change_was_seen(api: Api) -> None:
    """A Lease expires by the time since its last change was observed, not by the times in it, as clocks
    differ.
    """
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    api.spec["renewTime"] = "1999-01-01T00:00:00.000000Z"
    two.try_acquire_or_renew()
    api.seconds += 14.9
    two.try_acquire_or_renew()
    assert not two.may_write()
    api.seconds += 0.1
    two.try_acquire_or_renew()
    assert two.may_write()
    assert (api.spec["holderIdentity"], api.spec["leaseTransitions"]) == ("two", 1)


def test_a_holder_that_renews_is_left_alone(api: Api) -> None:
    """A holder that renews keeps the Lease for as long as it renews."""
    one, two = candidate(api, "one"), candidate(api, "two")
    for _ in range(20):
        one.try_acquire_or_renew()
        two.try_acquire_or_renew()
        api.seconds += 4
    assert (one.may_write(), two.may_write()) == (True, False)
    assert (one.term, one.lease_loss_count) == (1, 0)


def test_permission_ends_at_the_renew_deadline(api: Api) -> None:
    """A holder may not write after the renew deadline, even if its process was paused and noticed nothing."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.seconds += 9.9
    assert one.may_write()
    api.seconds += 0.1
    assert not one.may_write()


def test_permission_counts_from_when_the_renewal_was_sent(api: Api) -> None:
    """The renew deadline counts from the time at which the renewal was sent, not from its answer."""
    one = candidate(api, "one")
    api.latency_seconds = 4.0
    one.try_acquire_or_renew()
    one.try_acquire_or_renew()
    api.seconds += 6.0
    assert not one.may_write()


def test_who_wakes_up_in_time_begins_a_new_term(api: Api) -> None:
    """A holder that was paused and still holds the Lease begins a new term, so that earlier work does not
    continue.
    """
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.seconds += 3600
    assert not one.may_write()
    one.try_acquire_or_renew()
    assert one.may_write()
    assert (one.term, one.lease_loss_count) == (2, 0)
    assert api.spec["leaseTransitions"] == 0


def test_who_wakes_up_too_late_reads_the_other_holder(api: Api) -> None:
    """A former holder that was paused never writes again, and counts the loss once it reads the new
    holder.
    """
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    api.seconds += 15
    two.try_acquire_or_renew()
    assert (one.may_write(), two.may_write()) == (False, True)
    assert one.lease_loss_count == 0  # it has not read it yet
    one.try_acquire_or_renew()
    assert (one.may_write(), one.lease_loss_count, one.holder) == (False, 1, "two")
    assert len(api.writes) == 2
    one.try_acquire_or_renew()
    assert one.lease_loss_count == 1


def test_a_holder_in_between_is_noticed(api: Api) -> None:
    """A candidate counts a loss even if another one held and released the Lease while it was paused."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    api.seconds += 15
    two.try_acquire_or_renew()
    two.stop()
    one.try_acquire_or_renew()
    assert (one.may_write(), one.lease_loss_count, one.term) == (True, 1, 2)
    assert api.spec["leaseTransitions"] == 2


def test_an_api_that_is_away_is_no_other_holder(api: Api) -> None:
    """While the API server is away, the holder may not write after the deadline, but counts no loss."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.error = away()
    for _ in range(10):
        api.seconds += 2
        with pytest.raises(KubernetesError):
            one.try_acquire_or_renew()
    assert (one.may_write(), one.lease_loss_count) == (False, 0)
    api.error = None
    one.try_acquire_or_renew()
    assert (one.may_write(), one.lease_loss_count, one.term) == (True, 0, 2)


def test_a_released_lease_is_taken_at_once(api: Api) -> None:
    """A release empties the holder's name and sets a duration of one second, as client-go does; another
    candidate takes the Lease at once.
    """
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    one.stop()
    assert not one.may_write()
    assert (api.spec["holderIdentity"], api.spec["leaseDurationSeconds"]) == ("", 1)
    two.try_acquire_or_renew()
    assert two.may_write()
    assert api.spec["leaseTransitions"] == 1


def test_only_the_holder_releases(api: Api) -> None:
    """A waiting candidate that stops does not change the Lease."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    two.stop()
    assert one.may_write()
    assert api.spec["holderIdentity"] == "one"


def test_a_release_that_fails_is_no_error(api: Api) -> None:
    """A failed release raises nothing, because the Lease expires anyway."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.error = away(500)
    one.stop()
    assert not one.may_write()


@pytest.mark.parametrize("expired", [False, True], ids=["first", "next"])
def test_who_took_it_without_an_answer_need_not_wait_for_its_end(api: Api, *, expired: bool) -> None:
    """A slow API server may carry out a write whose answer comes too late; nobody would lead meanwhile."""
    former, taker, other = candidate(api, "former"), candidate(api, "taker"), candidate(api, "other")
    if expired:
        former.try_acquire_or_renew()
        taker.try_acquire_or_renew()
        api.seconds += TIMING.lease_duration_seconds
    api.loses_next_answer = True
    with pytest.raises(KubernetesError):
        taker.try_acquire_or_renew()
    assert (api.spec["holderIdentity"], taker.may_write()) == ("taker", False)
    other.try_acquire_or_renew()
    taker.try_acquire_or_renew()
    assert (taker.may_write(), taker.term, other.may_write()) == (True, 1, False)
    former.try_acquire_or_renew()
    assert not former.may_write()


def test_two_that_reach_for_it_at_once(api: Api) -> None:
    """Of two candidates that take the Lease at once, the API server refuses the second by its
    resourceVersion.
    """
    one, two, three = (candidate(api, name) for name in ("one", "two", "three"))
    for each in (one, two, three):
        each.try_acquire_or_renew()
    api.seconds += 15
    api.overtake = three.try_acquire_or_renew
    two.try_acquire_or_renew()
    assert (two.may_write(), three.may_write()) == (False, True)
    two.try_acquire_or_renew()
    assert two.holder == "three"


def test_a_deleted_lease_is_made_again_by_its_holder(api: Api) -> None:
    """The holder creates a deleted Lease again; other candidates wait until it would have expired."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    api.lease = None
    two.try_acquire_or_renew()
    assert api.lease is None
    one.try_acquire_or_renew()
    assert one.may_write()
    assert (one.term, one.lease_loss_count) == (1, 0)
    api.lease = None
    api.seconds += 15
    two.try_acquire_or_renew()
    assert two.may_write()
    one.try_acquire_or_renew()
    assert (one.may_write(), one.lease_loss_count) == (False, 1)


def test_only_who_makes_the_first_lease_follows_nobody(api: Api) -> None:
    """Only the creator of the first Lease follows no other holder; a released or a deleted Lease had one."""
    one, two, three = (candidate(api, name) for name in ("one", "two", "three"))
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    assert not one.had_earlier_leader
    one.stop()
    three.try_acquire_or_renew()
    assert three.had_earlier_leader
    api.lease = None
    api.seconds += 15
    two.try_acquire_or_renew()
    assert two.may_write()
    assert two.had_earlier_leader


def test_a_person_may_take_it_away(api: Api) -> None:
    """Another name in the Lease counts as another holder, whoever wrote it."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    assert api.lease is not None
    api.store({**api.lease, "spec": {**api.spec, "holderIdentity": "somebody"}})
    one.try_acquire_or_renew()
    assert (one.may_write(), one.lease_loss_count) == (False, 1)
    api.seconds += 15
    one.try_acquire_or_renew()
    assert one.may_write()


def test_a_lease_that_says_nothing_is_free(api: Api) -> None:
    """A Lease without a spec, as kubectl create makes it, is taken."""
    api.store({"metadata": {"name": "leader"}})
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    assert one.may_write()
    assert api.spec["leaseTransitions"] == 1


@pytest.mark.parametrize(
    ("before", "verb"), [("nothing", "get"), ("held", "update")], ids=["to read", "to renew"]
)
def test_a_missing_permission_is_named(api: Api, before: str, verb: str) -> None:
    """The error for a 403 names the missing verb and the namespace."""
    one = candidate(api, "one")
    if before == "held":
        one.try_acquire_or_renew()
    api.error = away(403)
    with pytest.raises(KubernetesError, match=f"verb {verb} for leases .* namespace ops") as caught:
        one.try_acquire_or_renew()
    assert caught.value.status_code == 403


def test_it_looks_when_the_other_ones_lease_expires(api: Api) -> None:
    """A waiting candidate checks again when the other holder's Lease expires, not a whole period later."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    assert 1.6 <= two.seconds_until_next_try() <= 2.4
    api.seconds += 14.5
    assert 0.5 <= two.seconds_until_next_try() <= 0.9
    assert 1.6 <= one.seconds_until_next_try() <= 2.4


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((0.5, 0.4, 0.1), "at least 1"),
        ((10, 10, 2), "less than --lease-duration-seconds"),
        ((15, 10, 9), "less than 0.83 times --renew-deadline-seconds"),
    ],
)
def test_times_that_do_not_fit_are_refused(seconds: tuple[float, float, float], words: str) -> None:
    """Lease timings are refused unless a holder stops writing before another one begins, and can retry
    before that.
    """
    with pytest.raises(ConfigurationError, match=words):
        ElectionTiming(*seconds)


def test_a_watch_that_fails_in_whatever_way_is_taken_up_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch is restarted after any error, also one that is not the API server's, such as too many open
    files.
    """
    one = candidate(api, "one", replace(TIMING, renew_deadline_seconds=0.05, retry_period_seconds=0.01))
    errors: list[Exception] = [OSError("too many open files"), away(), away(500), ValueError("what?")]
    taken_up, over = threading.Event(), threading.Event()

    def watch(*_: Any) -> Iterator[Object]:
        if errors:
            raise errors.pop(0)
        taken_up.set()
        over.wait(60)
        yield from ()

    monkeypatch.setattr(api, "watch", watch, raising=False)
    one.start()
    assert taken_up.wait(60)
    assert errors == []
    one.stop()
    over.set()


def test_who_is_given_the_lease_takes_it_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lease that is handed over names its next holder, which its watch wakes: nobody leads before."""
    one, two = candidate(api, "one"), candidate(api, "two", replace(TIMING, retry_period_seconds=8))
    events: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
    monkeypatch.setattr(api, "watch", lambda *_: iter(events.get, None), raising=False)
    one.try_acquire_or_renew()
    two.start()
    wait_until(lambda: two.holder == "one", "its first look", 5.0)
    one.hand_over_to("two")
    one.try_acquire_or_renew()
    assert (one.may_write(), one.hand_over_count, api.spec["holderIdentity"]) == (False, 1, "two")
    events.put({"type": "MODIFIED", "object": api.lease})
    wait_until(two.may_write, "it to take the Lease", 5.0)
    assert api.spec["leaseTransitions"] == 1
    events.put(None)
    two.stop()


def test_only_a_holder_hands_over(api: Api) -> None:
    """A replica that does not hold the Lease any more gives nothing away, then or later."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    two.hand_over_to("three")
    one.stop()
    two.try_acquire_or_renew()
    assert (api.spec["holderIdentity"], two.may_write()) == ("two", True)
