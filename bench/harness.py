"""How a benchmark measures and what it writes: medians of alternating runs, ratios, and all raw samples."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
_ONLY_SHOWN = ("title", "notes")


class Size(StrEnum):
    """How much is measured."""

    FULL = "full"
    QUICK = "quick"
    """Little, for whoever works on a benchmark: no proof, and no result file."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: seconds on the wall, and of processor time in this process."""

    wall_seconds: float
    cpu_seconds: float


@dataclass(slots=True)
class Result:
    """What a benchmark found.

    :ivar ours: the figures that the bar speaks of, by name; ``floor`` and each of ``peers`` alike.
    :ivar ratios: ours to the floor, and each peer to ours.
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


def measure(work: Callable[[], object]) -> Sample:
    """Time one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def alternate(
    contestants: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> dict[str, list[Sample]]:
    """Run all contestants in turn, again and again, so that a noisy minute hits all of them alike."""
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    for number in range(warm_up + rounds):
        for name, work in contestants.items():
            sample = measure(work)
            if number >= warm_up:
                samples[name].append(sample)
            show(f"  {name}: {sample.wall_seconds:.3f} s, CPU {sample.cpu_seconds:.3f} s")
    return samples


def medians(samples: list[Sample]) -> dict[str, float]:
    """Median wall and CPU seconds."""
    return {
        "wall_seconds": statistics.median(sample.wall_seconds for sample in samples),
        "cpu_seconds": statistics.median(sample.cpu_seconds for sample in samples),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least ``share`` (0 to 1) of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(milliseconds: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    return {"p50_ms": statistics.median(milliseconds), "p99_ms": percentile(milliseconds, 0.99)}


def raw(samples: Mapping[str, list[Sample]]) -> dict[str, list[dict[str, float]]]:
    """The samples as plain values."""
    return {name: [asdict(sample) for sample in runs] for name, runs in samples.items()}


def show(line: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def publish(result: Result, size: Size) -> None:
    """Print the table, and write ``bench/results/<id>.json`` of a full run."""
    table = Table(title=f"{result.id}: {result.title} ({result.unit})", title_justify="left")
    columns = {"ours": result.ours, "floor": result.floor, **result.peers}
    table.add_column("")
    for label, figures in columns.items():
        table.add_column(label if figures else "", justify="right")
    for name in dict.fromkeys(name for figures in columns.values() for name in figures):
        cells = (f"{figures[name]:.4g}" if name in figures else "" for figures in columns.values())
        table.add_row(name, *cells)
    console = Console(width=110)
    console.print(table)
    for name, ratio in result.ratios.items():
        console.print(f"  {name}: {ratio:.3g}", highlight=False)
    for note in result.notes:
        console.print(f"  {note}", highlight=False)
    console.print(f"  bar: {result.bar}: {'held' if result.held else 'NOT HELD'}\n", highlight=False)
    if size is Size.QUICK:
        console.print("  a quick run: no proof of anything, nothing was written\n", highlight=False)
        return
    RESULTS.mkdir(exist_ok=True)
    document = {**asdict(result), "machine": machine(), "versions": versions()}
    for name in _ONLY_SHOWN:
        del document[name]
    (RESULTS / f"{result.id}.json").write_text(json.dumps(document, indent=1) + "\n")


def machine() -> dict[str, object]:
    """What it ran on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cores": os.cpu_count(), "memory_gib": round(memory), "system": platform.system()}


def versions() -> dict[str, str]:
    """What ran."""
    names = ("eurekube-provider", "requests", "urllib3", "kubernetes", "kopf")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}
