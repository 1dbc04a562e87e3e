"""Concurrent runs: one at a time for each stack, and limited slots for failing targets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eurekube_provider.core.stack_refresh import StackAction
from eurekube_provider.operator.triggers import runs as module
from eurekube_provider.operator.triggers.runs import MOST_CONCURRENT_RUNS, RunPool, RunRequest
from eurekube_provider.operator.triggers.targets import (
    AutomationStack,
    ConcurrencyLimit,
    PulumiStack,
    StackRun,
    StackRunOutcome,
    StackRunResult,
    Target,
    Webhook,
    parse_targets,
)
from lab.waiting import wait_until

HEAVY = [f"heavy-{number}" for number in range(6)]
LIGHT = [f"light-{number}" for number in range(40)]


class Played:
    """Targets whose runs end when a test lets them."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.error: Exception | None = None
        self.has_ended = threading.Event()
        concurrency = {
            name: ConcurrencyLimit(name, runs_local_process=name in HEAVY) for name in (*HEAVY, *LIGHT)
        }
        concurrency |= {"same": ConcurrencyLimit(HEAVY[0])}
        self.runs = RunPool(dict.fromkeys(concurrency, self._run), self.has_ended.set, concurrency)

    def _run(self, _: StackRun) -> StackRunResult:
        if self.error is not None:
            raise self.error
        self.open.wait(30)
        return StackRunResult(StackRunOutcome.SUCCEEDED, "ran")

    def begin(self, target: str, *, is_retry: bool = False) -> bool:
        """Begin a run if the limits allow it; return False if not."""
        if not self.runs.may_start_run(target, is_retry=is_retry):
            return False
        request = RunRequest(("shop", target), "u", 1, target, "w", is_retry)
        cancelled = self.runs.cancelled
        self.runs.start_run(
            request, StackRun("shop", target, StackAction.UP, "eks", {}, "k", 1, 60.0, cancelled)
        )
        return True


@pytest.fixture
def played() -> Iterator[Played]:
    """Yield targets without a run, and end their runs after the test."""
    one = Played()
    yield one
    one.open.set()
    one.runs.join(30)


def test_one_run_of_a_stack_at_a_time(played: Played) -> None:
    """Two targets that name one stack do not run at the same time."""
    assert played.begin(HEAVY[0])
    assert not played.begin("same")
    played.open.set()
    wait_until(played.runs.pop_finished, "the run to end", 20)
    assert played.begin("same")


def test_dead_targets_leave_room(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that failed before take at most half of the slots; a hanging run keeps its slot for a minute."""
    assert [played.begin(name, is_retry=True) for name in HEAVY[:3]] == [True, True, False]
    assert [played.begin(name) for name in HEAVY[2:5]] == [True, True, False]
    assert played.runs.next_local_slot_free_at() is not None
    assert played.begin(LIGHT[0])  # it wants no processor
    monkeypatch.setattr(module, "LOCAL_RUN_SLOT_SECONDS", 0.0)
    assert played.begin(HEAVY[4])
    assert played.runs.next_local_slot_free_at() is None


def test_what_only_waits_has_many_slots(played: Played) -> None:
    """Runs that need no processor have more slots, half of them for runs that failed before."""
    begun = [played.begin(name, is_retry=True) for name in LIGHT[:20]]
    assert begun.count(True) == MOST_CONCURRENT_RUNS // 2
    assert [played.begin(name) for name in LIGHT[20:]].count(True) == MOST_CONCURRENT_RUNS // 2


def test_what_a_library_says_is_reported_to_nobody(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error's text may contain a header with a secret: neither status nor log repeats it."""
    played.error = ValueError(f"Bearer hidden{len(LIGHT)}")
    assert played.begin(LIGHT[0])
    assert played.has_ended.wait(20)
    (ended,) = played.runs.pop_finished()
    assert ended.result.message == "the run broke off (ValueError); the operator's log says where"
    assert "hidden40" not in "".join(str(vars(record)) for record in caplog.records)


def test_targets_that_name_one_stack_share_a_concurrency_group(tmp_path: Path) -> None:
    """Two targets name one stack if project and stack are equal, with different folders or short names."""
    written = {}
    for name, stack in (("a", "dev"), ("b", "organization/shop/dev"), ("c", "prod")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
        written[name] = {"kind": "automation", "namespaces": "*", "stack": stack, "work-dir": str(folder)}
    found = parse_targets(written, "x: targets")
    groups = {name: target.concurrency.group for name, target in found.items()}
    assert groups["a"] == groups["b"] != groups["c"]
    everybody = frozenset("*")
    others = [
        Target("d", PulumiStack("pulumi", "dev"), everybody),
        Target("e", Webhook("http://h"), everybody),
        Target("f", Webhook("http://h"), everybody),
        Target("g", AutomationStack("dev", "/srv"), everybody),
    ]
    limits = [one.concurrency for one in others]
    assert len({one.group for one in limits} | {groups["a"]}) == 5
    assert Target("h", PulumiStack("pulumi", "dev"), everybody).concurrency.group == limits[0].group
    assert [one.runs_local_process for one in limits] == [False, False, False, True]
