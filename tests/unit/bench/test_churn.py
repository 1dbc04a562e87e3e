"""Rolling updates of the churn benchmark: the meaning of each step, and the changes that count as shown."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bench import churn
from bench.churn import GONE, ChangeLag, Churn, Rollout
from eurekube_provider.core.model import InstanceKey

FIRST, SECOND = "http://eureka-1", "http://eureka-2"


class Field:
    """A benchmark environment of two servers that makes no Services."""

    lab = SimpleNamespace(eureka_urls=[FIRST, SECOND])

    def create_service(self, *_: object) -> None:
        """Make no Service."""


class Probers:
    """Servers' instances by URL and key, and a factory of probers for them."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, InstanceKey], str] = {}

    def __call__(self, url: str) -> Any:
        """Return a prober of one server."""

        def read(key: InstanceKey) -> dict[str, str] | None:
            status = self.held.get((url, key))
            return {"status": status} if status else None

        def statuses(keys: list[InstanceKey]) -> dict[InstanceKey, str]:
            return {key: self.held[url, key] for key in keys if (url, key) in self.held}

        return SimpleNamespace(read=read, read_statuses=statuses, close=lambda: None)


@pytest.fixture
def probers(monkeypatch: pytest.MonkeyPatch) -> Probers:
    """Replace the probers by ones that read given instances."""
    made = Probers()
    monkeypatch.setattr(churn, "Prober", made)
    return made


def test_an_endpoint_comes_and_another_one_goes() -> None:
    """A rolling update replaces one endpoint in four steps, the last of which changes nothing in Eureka."""
    rollout = Rollout("shop", "rating", 7, {6: "UP", 7: "UP"})
    steps = [rollout.change_next_endpoint() for _ in range(4)]
    assert [(number, state) for number, state, _ in steps] == [(8, "DOWN"), (8, "UP"), (6, GONE), (6, GONE)]
    assert [json.loads(patch)[0]["op"] for _, _, patch in steps] == ["add", "replace", "replace", "remove"]
    assert rollout.endpoints == {7: "UP", 8: "UP"}


def test_a_change_is_shown_once_each_server_shows_it() -> None:
    """The first and the last server's times are separate figures; a change superseded before every server
    showed it is left out.
    """
    made = Churn(Field(), "shop", 0, lambda name, number: f"{name}-{number}", 1.0)  # type: ignore[arg-type]
    lag = ChangeLag(0.0, ("RATING", "a"), "UP")
    lag.shown = {FIRST: 10.0, SECOND: 500.0}
    made.lags = [lag, ChangeLag(0.0, ("RATING", "b"), "UP", {FIRST: 1.0}, is_superseded=True)]
    assert made.lag_milliseconds(min) == [10.0]
    assert made.lag_milliseconds(max) == [500.0]
    assert made.superseded_count == 1


def test_where_one_server_lacks_something_it_differs(probers: Probers) -> None:
    """An instance that one server lacks is reported with this server."""
    made = Churn(Field(), "shop", 0, lambda name, number: f"{name}-{number}", 1.0)  # type: ignore[arg-type]
    wanted = made.expected_statuses()
    assert len(wanted) == churn.SERVICE_COUNT * churn.START_ENDPOINTS
    probers.held = {(url, key): "UP" for url in (FIRST, SECOND) for key in wanted}
    assert made.find_differences() == set()
    key = next(iter(wanted))
    del probers.held[SECOND, key]
    assert made.find_differences() == {(SECOND, key)}


def test_what_is_followed_is_looked_at_until_each_server_shows_it(
    probers: Probers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A followed change is checked until every server shows it, or until the next change of its instance
    supersedes it.
    """
    shown, never = ("SHOP-0", "a"), ("SHOP-0", "b")
    probers.held = {(url, shown): "UP" for url in (FIRST, SECOND)} | {(FIRST, never): "UP"}
    made = Churn(Field(), "shop", 0, lambda name, number: f"{name}-{number}", 1.0)  # type: ignore[arg-type]

    def write(_lane: int, _rate: int, _seconds: float, followed: list[ChangeLag]) -> int:
        with lock:
            if not followed:
                made.record_expected_status(shown, "UP")
                made.record_expected_status(never, GONE)
                followed += [ChangeLag(0.0, shown, "UP"), ChangeLag(0.0, never, "DOWN")]
        return 1

    lock = threading.Lock()
    monkeypatch.setattr(made, "write_changes", write)
    made.run(100, 0.0)
    assert made.made == churn.WRITER_COUNT
    assert [sorted(lag.shown) for lag in made.lags] == [[FIRST, SECOND], []]
    assert [lag.is_superseded for lag in made.lags] == [False, True]
    assert made.lost == []
