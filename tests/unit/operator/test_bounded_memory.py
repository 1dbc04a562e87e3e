"""The operator's memory of endpoints that are gone does not grow with their number."""

from __future__ import annotations

from collections import Counter

import pytest

from eurekube_provider.eureka.registry import renewals
from eurekube_provider.operator import situations, watches
from tests.unit import held
from tests.unit.operator.scene import READY, TERMINATING, WEB, Scene

HELD = 10


class Clock:
    """A monotonic clock that replaces the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self.now

    def time(self) -> float:
        """Return the time in seconds, which here equals the monotonic time."""
        return self.now


def remembered(gone: set[str], *roots: object) -> Counter[str]:
    """Count the texts in memory that begin with the name of a pod that is gone, by the object that holds
    them.
    """
    return Counter(holder for text, holder in held.texts(*roots) if text.partition(".")[0] in gone)


def test_what_is_remembered_of_the_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many replaced endpoints, seen terminating or not, leave no more texts in memory."""
    clock = Clock()
    for module in (watches, situations):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(renewals, "boot_clock_seconds", clock.monotonic)
    scene = Scene()
    played = scene.played
    played.registry.table.clock = clock.monotonic
    (peer,) = played.registry.peers.peers
    monkeypatch.setattr(peer, "read", lambda *_: None)
    pods = [f"pod{number}" for number in range(HELD)]
    gone: set[str] = set()

    def replace_one(number: int) -> None:
        clock.now += 1.0
        leaves = pods.pop(0)
        if number % 2:
            scene.endpoints(WEB, **{leaves: TERMINATING}, **dict.fromkeys(pods, READY))
            scene.reconcile()
        gone.add(leaves)
        pods.append(f"pod{HELD + number}")
        scene.endpoints(WEB, **dict.fromkeys(pods, READY))
        scene.reconcile()
        played.registry.repair.check_and_clean_server(peer)
        played.registry.renewals.take_due_keys()
        if number % 15 == 0:
            played.registry.reader.process_list(played.registry.known_instances(), is_complete=True)

    counts = []
    for number in range(1, 1501):
        replace_one(number)
        if number % 750 == 0:
            scene.sent.clear()
            counts.append(
                remembered(
                    gone, played.controller, played.reconciler, played.registry, played.sources, played.parts
                )
            )
    assert scene.renewed() == set(pods)
    assert counts[0].total() > 100  # those that were seen terminating are
    assert counts[1].total() <= 1.05 * counts[0].total(), counts
