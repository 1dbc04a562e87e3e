"""The measurement and result of a benchmark: medians of alternating runs, ratios, and all raw samples."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from rich.console import Console
from rich.table import Table


class Size(StrEnum):
    """The amount of measuring."""

    FULL = "full"
    QUICK = "quick"
    """A small run for anyone who works on a benchmark: no proof, and no result file."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed call: its wall seconds, and its processor seconds."""

    wall_seconds: float
    cpu_seconds: float


@dataclass(slots=True)
class Result:
    """The result of one run of a benchmark.

    :ivar ours: the figures that the bar speaks of, by name; ``floor`` and each of ``peers`` alike.
    :ivar ratios: ours to the floor, and each peer to ours.
    :ivar headlines: the figures that are compared with other runs', the first of ours by default; of several
        runs the one with the median first headline is recorded.
    :ivar stages: the time spent in each stage, in ``unit``, by column and row; it shows what could be
        improved.
    :ivar void: why the run measured nothing, whatever its figures say; empty if it is valid.
    """

    id: str
    title: str
    unit: str
    bar: str
    ours: dict[str, float]
    floor: dict[str, float]
    peers: dict[str, dict[str, float]]
    ratios: dict[str, float]
    held: bool
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    headlines: tuple[str, ...] = ()
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    void: str = ""

    def __post_init__(self) -> None:
        """Set the default headline."""
        self.headlines = self.headlines or tuple(self.ours)[:1]


def measure(work: Callable[[], object]) -> Sample:
    """Time one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def run_alternating(
    contestants: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> dict[str, list[Sample]]:
    """Run all contestants in turn, again and again, so that a noisy minute hits all of them alike."""
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    for number in range(warm_up + rounds):
        for name, work in contestants.items():
            sample = measure(work)
            if number >= warm_up:
                samples[name].append(sample)
            print_progress(f"  {name}: {sample.wall_seconds:.3f} s, CPU {sample.cpu_seconds:.3f} s")
    return samples


def medians(samples: list[Sample]) -> dict[str, float]:
    """Return the median wall and CPU seconds."""
    return {
        "wall_seconds": statistics.median(sample.wall_seconds for sample in samples),
        "cpu_seconds": statistics.median(sample.cpu_seconds for sample in samples),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of ``values`` that at least ``share`` (0 to 1) of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def median_and_p99(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    return {"p50_ms": statistics.median(milliseconds), "p99_ms": percentile(milliseconds, 0.99)}


def samples_to_json(samples: Mapping[str, list[Sample]]) -> dict[str, list[dict[str, float]]]:
    """Return the samples as plain values."""
    return {name: [asdict(sample) for sample in runs] for name, runs in samples.items()}


def print_progress(line: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def print_result(result: Result) -> None:
    """Print the result table of one run."""
    console = Console(width=110)
    columns = {"ours": result.ours, "floor": result.floor, **result.peers}
    console.print(_build_table(f"{result.id}: {result.title} ({result.unit})", columns))
    if result.stages:
        console.print(_build_table(f"{result.id}: where the time goes ({result.unit})", result.stages))
    for name, ratio in result.ratios.items():
        console.print(f"  {name}: {ratio:.3g}", highlight=False)
    for note in result.notes:
        console.print(f"  {note}", highlight=False)
    verdict = f"VOID ({result.void})" if result.void else "held" if result.held else "NOT HELD"
    console.print(f"  bar: {result.bar}: {verdict}\n", highlight=False)


def _build_table(title: str, columns: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for label, figures in columns.items():
        table.add_column(label if figures else "", justify="right")
    for name in dict.fromkeys(name for figures in columns.values() for name in figures):
        cells = (f"{figures[name]:.4g}" if name in figures else "" for figures in columns.values())
        table.add_row(name, *cells)
    return table
