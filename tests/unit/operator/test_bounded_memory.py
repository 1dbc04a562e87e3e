"""What an operator remembers of endpoints that are gone: those of some minutes, however many went before."""

from __future__ import annotations

from collections import Counter

import pytest

from eurekube_provider.core.sliding_window import MOST_COUNTED, SlidingWindow
from eurekube_provider.eureka import renewals, sweeper
from eurekube_provider.eureka.view import View
from eurekube_provider.operator import reconciler, watches
from eurekube_provider.operator.watches import MOST_REMEMBERED, TerminatingEndpoints
from tests.unit import held
from tests.unit.operator.scene import READY, TERMINATING, WEB, Scene

HELD = 10


class Clock:
    """A monotonic clock, in place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def time(self) -> float:
        """Seconds, which here begin at the same moment."""
        return self.now


def remembered(gone: set[str], *roots: object) -> Counter[str]:
    """The texts that begin with the name of a pod that is gone, by what holds them."""
    return Counter(holder for text, holder in held.texts(*roots) if text.partition(".")[0] in gone)


def test_what_is_remembered_of_the_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """After twice as many replaced endpoints, seen terminating or not, it is no more."""
    clock = Clock()
    for module in (sweeper, watches, reconciler):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(renewals, "elapsed_seconds", clock.monotonic)
    scene = Scene()
    told = scene.told
    told.registry.view.clock = clock.monotonic
    (peer,) = told.registry.peers.peers
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
        told.registry.sweeper.sweep(peer)
        told.registry.renewals.take_due()
        if number % 15 == 0:
            told.registry.resync.learn(told.registry.known(), is_complete=True)

    counts = []
    for number in range(1, 1501):
        replace_one(number)
        if number % 750 == 0:
            scene.sent.clear()
            counts.append(
                remembered(gone, told.controller, told.reconciler, told.registry, told.sources, told.parts)
            )
    assert scene.renewed() == set(pods)
    assert counts[0].total() > 100  # those that were seen terminating are
    assert counts[1].total() <= 1.05 * counts[0].total(), counts


def test_however_many_go_at_once_there_is_a_bound() -> None:
    """The oldest are forgotten first."""
    seen = TerminatingEndpoints()
    window: SlidingWindow[str, int] = SlidingWindow(60.0)
    names = [f"pod-{number}" for number in range(MOST_REMEMBERED + 5)]
    gone = [{"targetRef": {"name": name}, "conditions": {"terminating": True}} for name in names]
    seen.note_slice({"metadata": {"namespace": "shop"}, "endpoints": gone})
    assert (len(seen), ("shop", "pod-4") in seen, ("shop", "pod-5") in seen) == (MOST_REMEMBERED, False, True)
    window.note(0.0, "one", range(MOST_COUNTED + 5), range(MOST_COUNTED + 5))
    assert len(window) == 2 * MOST_COUNTED
    assert window.recent(0.0, "one", (), ()).left == MOST_COUNTED


def test_removals_that_no_list_follows_are_forgotten() -> None:
    """An Eureka may take what is written and give no list."""
    now = 0.0
    view = View(lambda: now)
    for number in range(20_000):
        now += 1.0
        view.gone(("RATING", f"pod-{number}"))
    assert sum(text.startswith("pod-") for text, _ in held.texts(view)) < 3000
