"""The memory of endpoints that were seen terminating, which is bounded in time and number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from eurekube_provider.core.sliding_window import MAX_COUNTED_CHANGES, SlidingChangeWindow
from eurekube_provider.operator import watches
from eurekube_provider.operator.watches import (
    MOST_TERMINATING_REMEMBERED,
    TERMINATING_MEMORY_SECONDS,
    OnDemandWatches,
    TerminatingEndpoints,
)


def terminating(name: str) -> dict[str, Any]:
    """Return the endpoint of a terminating pod."""
    return {"addresses": ["10.0.0.1"], "targetRef": {"name": name}, "conditions": {"terminating": True}}


def test_terminating_endpoints_are_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten first; an endpoint that is seen again counts as new."""
    remembered = TerminatingEndpoints()
    for name, at in (("a", 0.0), ("b", 1.0), ("a", 2.0), ("c", TERMINATING_MEMORY_SECONDS + 1.5)):
        monkeypatch.setattr(watches, "time", SimpleNamespace(monotonic=lambda at=at: at))
        remembered.update_from_slice({"metadata": {"namespace": "shop"}, "endpoints": [terminating(name)]})
    assert [("shop", name) in remembered for name in ("a", "b", "c")] == [True, False, True]


def test_a_pod_that_is_back_has_not_left() -> None:
    """A StatefulSet's next pod has the old one's name; the brake must doubt it if it vanishes without
    terminating.
    """

    def endpoint(*, terminating: bool) -> dict[str, Any]:
        return {
            "addresses": ["10.0.0.1"],
            "targetRef": {"kind": "Pod", "name": "db-0"},
            "conditions": {"ready": False, "terminating": terminating},
        }

    remembered = TerminatingEndpoints()
    for terminating, has_left in ((False, False), (True, True), (False, False), (True, True)):
        remembered.update_from_slice(
            {"metadata": {"namespace": "shop"}, "endpoints": [endpoint(terminating=terminating)]}
        )
        assert (("shop", "db-0") in remembered) is has_left
    assert ("other", "db-0") not in remembered


def test_however_many_go_at_once_there_is_a_bound() -> None:
    """Beyond the bound the oldest endpoints are forgotten."""
    seen = TerminatingEndpoints()
    window: SlidingChangeWindow[str, int] = SlidingChangeWindow(60.0)
    names = [f"pod-{number}" for number in range(MOST_TERMINATING_REMEMBERED + 5)]
    gone = [{"targetRef": {"name": name}, "conditions": {"terminating": True}} for name in names]
    seen.update_from_slice({"metadata": {"namespace": "shop"}, "endpoints": gone})
    assert [name for name in names if ("shop", name) not in seen] == names[:5]
    window.add_changes(0.0, "one", range(MAX_COUNTED_CHANGES + 5), range(MAX_COUNTED_CHANGES + 5))
    changes = window.recent_changes(0.0, "one")
    assert len(changes.left_keys) == len(changes.arrived_keys) == MAX_COUNTED_CHANGES


def test_a_watch_that_cannot_be_started_is_made_again() -> None:
    """A watch for which there was no thread does not count as there: its objects would never be read."""
    made = [Mock(), Mock()]
    made[0].start.side_effect = RuntimeError("can't start new thread")
    on_demand = OnDemandWatches(Mock(side_effect=made), lambda _: None)
    with pytest.raises(RuntimeError):
        on_demand.set_needed_scopes(("shop", "rating"), {None})
    on_demand.set_needed_scopes(("shop", "rating"), {None})
    assert on_demand.reflectors == (made[1],)
    assert made[1].start.called
