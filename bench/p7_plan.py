"""P7: plan() of 10,000 and 100,000 desired against equal but distinct actual instances, 1 % changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.harness import Result, Size, medians, run_alternating, samples_to_json
from bench.registry import OWNER, make_instances
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import plan

BAR = "<= 3x the floor; 100,000 in <= 0.5 s"
MEASURES = ("eurekube_provider/core",)
ROUNDS = {Size.FULL: 9, Size.QUICK: 2}


def run(size: Size) -> Result:
    """Measure plan() and the floor in turn, for both numbers of instances."""
    contestants: dict[str, Callable[[], object]] = {}
    for count in (10_000, 100_000):
        actual = make_instances(count)
        desired = [
            replace(one, status=Status.DOWN) if number % 100 == 0 else one
            for number, one in enumerate(make_instances(count))
        ]
        assert len(plan(desired, actual, OWNER).changes) == count // 100
        assert len(_diff_by_hand(desired, actual)) == count // 100
        contestants[f"ours {count}"] = lambda d=desired, a=actual: plan(d, a, OWNER)  # type: ignore[misc]
        contestants[f"floor {count}"] = lambda d=desired, a=actual: _diff_by_hand(d, a)  # type: ignore[misc]
    samples = run_alternating(contestants, ROUNDS[size])
    wall = {name: medians(runs)["wall_seconds"] for name, runs in samples.items()}
    ours = {"10,000": wall["ours 10000"], "100,000": wall["ours 100000"]}
    floor = {"10,000": wall["floor 10000"], "100,000": wall["floor 100000"]}
    ratios = {f"{size}, ours to floor": ours[size] / floor[size] for size in ours}
    return Result(
        id="P7",
        title="plan() with 1 % changed",
        unit="seconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        peers={},
        ratios=ratios,
        held=all(ratio <= 3 for ratio in ratios.values()) and ours["100,000"] <= 0.5,
        runs=samples_to_json(samples),
    )


def _diff_by_hand(desired: list[Instance], actual: list[Instance]) -> list[tuple[str, str]]:
    """Return the keys that differ, by a loop over the union of the keys."""
    wanted = {one.key: one for one in desired}
    there = {one.key: one for one in actual}
    return [key for key in wanted.keys() | there.keys() if wanted.get(key) != there.get(key)]
