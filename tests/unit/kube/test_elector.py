"""Candidates for one Lease, on a clock that the tests move and an API server that they break."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.kube.elector import Elector, Timing

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"
TIMING = Timing(lease_duration_seconds=15, renew_deadline_seconds=10, retry_period_seconds=2)

Object = dict[str, Any]


class Api:
    """Keeps one Lease as the API server does: guarded by its resourceVersion."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.error: KubernetesError | None = None
        self.writes: list[Object] = []
        self.seconds = 1000.0
        self.latency_seconds = 0.0
        self.overtake: Callable[[], None] | None = None
        """Does something just before the next write arrives."""
        self._versions = itertools.count(1)

    def clock(self) -> float:
        """Now."""
        return self.seconds

    def request(
        self, method: str, path: str, body: Object | None = None, timeout_seconds: float | None = None
    ) -> Object:
        """As KubeAccess does."""
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
        """Write the Lease, no matter who wants it."""
        self.lease = copy.deepcopy(lease) or {}
        self.lease["metadata"]["resourceVersion"] = str(next(self._versions))
        self.writes.append(self.lease.get("spec") or {})
        return copy.deepcopy(self.lease)

    @property
    def spec(self) -> Object:
        """Return the Lease's spec."""
        assert self.lease is not None
        found: Object = self.lease["spec"]
        return found


@pytest.fixture
def api() -> Api:
    """An API server without a Lease."""
    return Api()


def candidate(api: Api, identity: str, timing: Timing = TIMING) -> Elector:
    """A candidate that looks when it is asked to."""
    return Elector(api, "ops", "leader", identity, timing, api.clock)  # type: ignore[arg-type]


def away(code: int | None = None) -> KubernetesError:
    """Return the answer to every request."""
    return KubernetesError("no answer", status_code=code)


def test_a_lease_that_nobody_can_take_is_out_of_reach(api: Api) -> None:
    """Its holder may have ended, and the API server gives no answer; a right that is missing is an answer."""
    holder, other = candidate(api, "one"), candidate(api, "two")

    def looks(one: Elector) -> bool:
        one.failure = None
        try:
            one.try_acquire_or_renew()
        except KubernetesError as error:
            one.failure = error
        return one.is_out_of_reach

    assert (looks(holder), looks(other)) == (False, False)
    api.error = away()
    assert not looks(other)
    api.seconds += TIMING.lease_duration_seconds
    assert (looks(holder), looks(other)) == (False, True)
    api.error = away(403)
    assert not looks(other)
    api.error = away(503)
    assert (looks(other), looks(candidate(api, "three"))) == (True, True)  # the third has seen no Lease
    api.error = None
    assert (looks(holder), looks(other)) == (False, False)
    assert other.holder == "one"


def test_the_first_one_takes_it(api: Api) -> None:
    """The Lease is made; one leads and the other does not."""
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
    """From the first write on, given what the holder before has noted."""

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
    """It writes the Lease again; one that was paused does not, nor does one that releases it."""
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
    """Holder, time of acquisition and unknown fields stay."""
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
    """Times that stand in the Lease count for nothing: clocks differ."""
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
    """However long it lasts."""
    one, two = candidate(api, "one"), candidate(api, "two")
    for _ in range(20):
        one.try_acquire_or_renew()
        two.try_acquire_or_renew()
        api.seconds += 4
    assert (one.may_write(), two.may_write()) == (True, False)
    assert (one.term, one.losses) == (1, 0)


def test_permission_ends_at_the_renew_deadline(api: Api) -> None:
    """By the clock alone: a process that was stopped has noticed nothing else when it wakes up."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.seconds += 9.9
    assert one.may_write()
    api.seconds += 0.1
    assert not one.may_write()


def test_permission_counts_from_when_the_renewal_was_sent(api: Api) -> None:
    """The answer may have been under way for long."""
    one = candidate(api, "one")
    api.latency_seconds = 4.0
    one.try_acquire_or_renew()
    one.try_acquire_or_renew()
    api.seconds += 6.0
    assert not one.may_write()


def test_who_wakes_up_in_time_begins_a_new_term(api: Api) -> None:
    """Nobody took the Lease; but what was begun before must not go on as if nothing had been."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.seconds += 3600
    assert not one.may_write()
    one.try_acquire_or_renew()
    assert one.may_write()
    assert (one.term, one.losses) == (2, 0)
    assert api.spec["leaseTransitions"] == 0


def test_who_wakes_up_too_late_reads_the_other_holder(api: Api) -> None:
    """The old holder never writes again, and knows that another one leads."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    api.seconds += 15
    two.try_acquire_or_renew()
    assert (one.may_write(), two.may_write()) == (False, True)
    assert one.losses == 0  # it has not read it yet
    one.try_acquire_or_renew()
    assert (one.may_write(), one.losses, one.holder) == (False, 1, "two")
    assert len(api.writes) == 2
    one.try_acquire_or_renew()
    assert one.losses == 1


def test_a_holder_in_between_is_noticed(api: Api) -> None:
    """It took the Lease and released it while this one slept: a loss all the same."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    api.seconds += 15
    two.try_acquire_or_renew()
    two.stop()
    one.try_acquire_or_renew()
    assert (one.may_write(), one.losses, one.term) == (True, 1, 2)
    assert api.spec["leaseTransitions"] == 2


def test_an_api_that_is_away_is_no_other_holder(api: Api) -> None:
    """No more changes after the deadline; but nobody was read, so that renewals in Eureka go on."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.error = away()
    for _ in range(10):
        api.seconds += 2
        with pytest.raises(KubernetesError):
            one.try_acquire_or_renew()
    assert (one.may_write(), one.losses) == (False, 0)
    api.error = None
    one.try_acquire_or_renew()
    assert (one.may_write(), one.losses, one.term) == (True, 0, 2)


def test_a_released_lease_is_taken_at_once(api: Api) -> None:
    """The holder's name is emptied, for one second, as client-go does it."""
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
    """A standby that stops changes nothing."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    two.stop()
    assert one.may_write()
    assert api.spec["holderIdentity"] == "one"


def test_a_release_that_fails_is_no_error(api: Api) -> None:
    """The Lease ends by itself."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    api.error = away(500)
    one.stop()
    assert not one.may_write()


def test_two_that_reach_for_it_at_once(api: Api) -> None:
    """The second one's write is refused by the version that it read."""
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
    """The others wait until it would have expired: the holder may not know yet."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    api.lease = None
    two.try_acquire_or_renew()
    assert api.lease is None
    one.try_acquire_or_renew()
    assert one.may_write()
    assert (one.term, one.losses) == (1, 0)
    api.lease = None
    api.seconds += 15
    two.try_acquire_or_renew()
    assert two.may_write()
    one.try_acquire_or_renew()
    assert (one.may_write(), one.losses) == (False, 1)


def test_only_who_makes_the_first_lease_follows_nobody(api: Api) -> None:
    """A Lease that was released, or seen and deleted since, was somebody's a moment ago."""
    one, two, three = (candidate(api, name) for name in ("one", "two", "three"))
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    assert not one.follows_another
    one.stop()
    three.try_acquire_or_renew()
    assert three.follows_another
    api.lease = None
    api.seconds += 15
    two.try_acquire_or_renew()
    assert two.may_write()
    assert two.follows_another


def test_a_person_may_take_it_away(api: Api) -> None:
    """Another name in the Lease is another holder, no matter who wrote it."""
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    assert api.lease is not None
    api.store({**api.lease, "spec": {**api.spec, "holderIdentity": "somebody"}})
    one.try_acquire_or_renew()
    assert (one.may_write(), one.losses) == (False, 1)
    api.seconds += 15
    one.try_acquire_or_renew()
    assert one.may_write()


def test_a_lease_that_says_nothing_is_free(api: Api) -> None:
    """As kubectl create makes it."""
    api.store({"metadata": {"name": "leader"}})
    one = candidate(api, "one")
    one.try_acquire_or_renew()
    assert one.may_write()
    assert api.spec["leaseTransitions"] == 1


@pytest.mark.parametrize(
    ("before", "verb"), [("nothing", "get"), ("held", "update")], ids=["to read", "to renew"]
)
def test_a_missing_permission_is_named(api: Api, before: str, verb: str) -> None:
    """The sentence has the right of the ServiceAccount, and its place."""
    one = candidate(api, "one")
    if before == "held":
        one.try_acquire_or_renew()
    api.error = away(403)
    with pytest.raises(KubernetesError, match=f"verb {verb} for leases .* namespace ops") as caught:
        one.try_acquire_or_renew()
    assert caught.value.status_code == 403


def test_it_looks_when_the_other_ones_lease_expires(api: Api) -> None:
    """Not a whole period later; and not before there is anything to see."""
    one, two = candidate(api, "one"), candidate(api, "two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    assert 1.6 <= two.wait_seconds() <= 2.4
    api.seconds += 14.5
    assert 0.5 <= two.wait_seconds() <= 0.9
    assert 1.6 <= one.wait_seconds() <= 2.4


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((0.5, 0.4, 0.1), "at least 1"),
        ((10, 10, 2), "less than --lease-duration-seconds"),
        ((15, 10, 9), "less than 0.83 times --renew-deadline-seconds"),
    ],
)
def test_times_that_do_not_fit_are_refused(seconds: tuple[float, float, float], words: str) -> None:
    """A holder must have stopped writing before another one begins, and have tried more than once."""
    with pytest.raises(ConfigurationError, match=words):
        Timing(*seconds)


def test_a_watch_that_fails_in_whatever_way_is_taken_up_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is not the API that fails, as where too many files are open."""
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
