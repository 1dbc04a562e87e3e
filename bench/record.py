"""Records of benchmarks in ``bench/results``: the figures of a run, its day, and the measured code.

A record is written from valid runs alone, whether their bar held or not.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from bench.harness import Result

RESULTS_FOLDER = Path(__file__).parent / "results"
_UNRECORDED_FIELDS = ("title", "notes")

_MEASURED_PATHS = (
    "eurekube_provider",
    "bench",
    "lab",
    "plugin",
    "crds",
    "pyproject.toml",
    "requirements.lock",
    ":!bench/results",
)
"""Paths of the code that runs in a benchmark, for ``git status``; the records themselves are left out."""

Record = dict[str, Any]

Figures = dict[str, dict[str, float]]
"""Figures by name, then by contestant."""


class TreeState(StrEnum):
    """The state of the measured code, compared with the commit that a record names."""

    COMMITTED = "as committed"
    CHANGED = "changed"
    UNKNOWN = "unknown"
    """The record was written without a commit; it names the commit that added it to the repository."""


@dataclass(frozen=True, slots=True)
class MeasuredCode:
    """The measured code, and the day (UTC, as ``2026-11-27``) of the measurement."""

    date: str
    commit: str
    tree: TreeState

    @classmethod
    def checked_out_in(cls, repository: Path) -> MeasuredCode:
        """Return the code that is checked out in a repository now.

        :raises subprocess.CalledProcessError: this is no git repository.
        """

        def git(*arguments: str) -> str:
            command = ["git", "-C", str(repository), *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

        changed = git("status", "--porcelain", "--", *_MEASURED_PATHS)
        return cls(
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            commit=git("rev-parse", "--short=7", "HEAD"),
            tree=TreeState.CHANGED if changed else TreeState.COMMITTED,
        )


def make_record(runs: Sequence[Result], code: MeasuredCode) -> Record | None:
    """Return the record of all runs of one benchmark, or None if each of them was void.

    The figures are those of the run with the median first headline, of two in the middle the lower one.
    ``repeated`` has the headlines of every valid run, and ``void`` says why others were not valid. ``held``
    is true if the bar held in every valid run.
    """
    valid = [run for run in runs if not run.void]
    if not valid:
        return None
    ordered = sorted(valid, key=lambda run: run.ours[run.headlines[0]])
    median = ordered[(len(ordered) - 1) // 2]
    found = {name: value for name, value in asdict(median).items() if name not in _UNRECORDED_FIELDS}
    return {
        **found,
        "held": all(run.held for run in valid),
        "headlines": _headline_figures(median),
        "repeated": [{"held": run.held, "figures": _headline_figures(run)} for run in valid],
        "void": [run.void for run in runs if run.void],
        "measured": asdict(code),
        "machine": describe_machine(),
        "versions": package_versions(),
    }


def _headline_figures(run: Result) -> Figures:
    """Return each headline of a run, by contestant."""
    contestants = {"ours": run.ours, "floor": run.floor, **run.peers}
    return {
        name: {label: figures[name] for label, figures in contestants.items() if name in figures}
        for name in run.headlines
    }


def write_record(record: Record) -> None:
    """Write a record to ``bench/results/<id>.json``."""
    RESULTS_FOLDER.mkdir(exist_ok=True)
    (RESULTS_FOLDER / f"{record['id']}.json").write_text(
        json.dumps(record, indent=1) + "\n", encoding="utf-8"
    )


def read_record(name: str) -> Record:
    """Return the record of a benchmark.

    :raises FileNotFoundError: it has not been measured.
    """
    found: Record = json.loads((RESULTS_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def find_record(name: str) -> Record | None:
    """Return the record of a benchmark, or None if it has not been measured."""
    try:
        return read_record(name)
    except FileNotFoundError:
        return None


def format_verdict(record: Record) -> str:
    """Return ``held`` or ``not held`` for the bar of a record, in Markdown."""
    if record["held"]:
        return "held"
    runs = record["repeated"]
    held = sum(run["held"] for run in runs)
    return f"**not held** (held in {held} of {len(runs)} runs)" if len(runs) > 1 else "**not held**"


def format_measured_at(record: Record) -> str:
    """Return, in Markdown, the day and the commit of a record."""
    code = record["measured"]
    if code["tree"] == TreeState.UNKNOWN:
        return f"recorded on {code['date']} by `{code['commit']}`"
    changed = " with changes" if code["tree"] == TreeState.CHANGED else ""
    return f"{code['date']}, `{code['commit']}`{changed}"


def format_cell(value: float, digits: int = 4) -> str:
    """Return a figure for a table: whole numbers and thousands in full, others with ``digits`` digits."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.{digits}g}"


def format_name(name: str) -> str:
    """Return a figure's name for a table."""
    return name.replace("_ms", ", ms").replace("_seconds", ", s").replace("_", " ")


def format_headlines(headlines: Figures) -> str:
    """Return headlines as a phrase: ``p99, ms: ours 230, kopf 95; p50, ms: ...``."""
    return "; ".join(
        f"{format_name(name)}: "
        f"{', '.join(f'{label} {format_cell(value)}' for label, value in by_label.items())}"
        for name, by_label in headlines.items()
    )


def describe_machine() -> dict[str, object]:
    """Return the cores, the memory in GiB and the system of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cores": os.cpu_count(), "memory_gib": round(memory), "system": platform.system()}


def package_versions() -> dict[str, str]:
    """Return the version of Python and of each package that affects the figures."""
    names = ("eurekube-provider", "requests", "urllib3", "kubernetes", "kopf")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}
