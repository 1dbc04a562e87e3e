"""Judgements on two readings, as pure functions without clocks, threads and servers.

A reading of a server is the instances that it holds; a reading of a cluster is the instances that its syncers
want.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.identity import ClusterOwner, parse_owner
from eurekube_provider.core.model import Instance, Status
from tests.faults.excuse import Allowance, Explains, Span, allowance
from tests.faults.expected import Expected, Key
from tests.server_fields import without_server_fields

Held = Mapping[Key, Instance]


@dataclass(frozen=True, slots=True)
class Wishes:
    """The instances that one cluster wants, and since when, in ``time.monotonic()``.

    :param now: the last reading.
    :param since: when each instance began to be wanted UP without a break.
    :param doubted: instances that were wanted UP before, and when a reading last did not want them, or wanted
        another one under the same id.
    """

    now: Mapping[Key, Expected] = field(default_factory=dict)
    since: Mapping[Key, float] = field(default_factory=dict)
    doubted: Mapping[Key, float] = field(default_factory=dict)

    def read(self, now: Mapping[Key, Expected], began: float) -> Wishes:
        """Return the wishes after one more reading, which began at a given time."""
        up = {key for key, one in now.items() if one.status == "UP"}
        # A pod may have been unready between two readings, as when a cluster misses its nodes for a moment.
        # One that waited for its gate was wanted UP before it became ready.
        steady = {key for key in up if key not in self.now or self.now[key].turned in ("", now[key].turned)}
        broken = dict.fromkeys(self.since.keys() - steady, began)
        since = {key: self.since.get(key, began) if key in steady else began for key in up}
        return Wishes(now, since, {**self.doubted, **broken})

    def unsettled(self, syncer: tuple[str, str], at: float) -> Wishes:
        """Return the wishes after an edit of a syncer, all of whose instances become doubted."""
        again = dict.fromkeys((key for key, one in self.now.items() if one.syncer == syncer), at)
        return Wishes(self.now, {**self.since, **again}, {**self.doubted, **again})

    def without(self, settled: Collection[Key]) -> Wishes:
        """Return the wishes without doubt about these instances."""
        return Wishes(
            self.now, self.since, {key: at for key, at in self.doubted.items() if key not in settled}
        )

    def may_be_lost_until(self, key: Key, patience_seconds: float, spans: Iterable[Span]) -> Allowance:
        """Return until when a wanted instance may be removed once more by old knowledge.

        If the instance is not doubted there is no such time.

        :param spans: the excuses for a loss at the place where it went.
        """
        since = self.since[key]
        return allowance(since, patience_seconds, spans) if key in self.doubted else Allowance(since)


def losses(before: Held, held: Held, wanted: Collection[Key], wished: Collection[Key]) -> dict[Key, str]:
    """Return wanted instances that a server showed UP and does not show UP any more, each with what happened.

    :param wished: instances that a person may have taken out of service, for which that one status is right.
    """
    found: dict[Key, str] = {}
    for key in wanted:
        if key not in before or before[key].status is not Status.UP:
            continue
        if key not in held:
            found[key] = "gone from"
        elif held[key].status is not Status.UP and not (
            key in wished and held[key].status is Status.OUT_OF_SERVICE and held[key].is_overridden
        ):
            found[key] = f"{held[key].status} on"
    return found


@dataclass(frozen=True, slots=True)
class Stay:
    """An unwanted instance that has been UP at a server without a break since a given time."""

    what: Explains
    since: float


def stays(
    held: Held,
    wanted: Collection[Key],
    unready: Collection[Key],
    clusters: Collection[str],
    others: Collection[Key],
) -> dict[Key, Explains]:
    """Return instances that are UP at a server and that no syncer wants UP: pods that are gone, or not ready.

    :param wanted: the instances that are wanted UP at this server.
    :param unready: the instances that are wanted there, but DOWN.
    :param clusters: the names of the clusters whose instances are looked at.
    :param others: instances of somebody else, whatever their metadata say of the owner.
    """
    return {
        key: Explains.UNREADY if key in unready else Explains.STAY
        for key, one in held.items()
        if one.status is Status.UP
        and key not in wanted
        and key not in others
        and isinstance(owner := parse_owner(one.owner), ClusterOwner)
        and owner.cluster in clusters
    }


def still_staying(before: Mapping[Key, Stay], staying: Mapping[Key, Explains], now: float) -> dict[Key, Stay]:
    """Return since when each unwanted instance has been UP without a break, after one more reading of the
    server.

    When an unready pod's instance becomes that of a removed pod, its time begins anew.
    """
    return {
        key: before[key] if key in before and before[key].what is what else Stay(what, now)
        for key, what in staying.items()
    }


def changed_others(held: Held, planted: Held) -> set[Key]:
    """Return instances of others that a server holds with other contents than they were registered with."""
    return {
        key
        for key, one in planted.items()
        if key in held and without_server_fields(held[key]) != without_server_fields(one)
    }
