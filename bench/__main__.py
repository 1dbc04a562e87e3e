"""``python -m bench [--only P2,P7] [--repeat 3] [--quick]``: exit code 0 only if every bar held."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness import Result, Size, publish, show
from bench.record import MeasuredCode, in_words, record_of, write
from bench.report import write_report

ROOT = Path(__file__).parents[1]

BENCHMARKS = {
    "P1": "bench.p1_latency",
    "P2": "bench.p2_renew",
    "P3": "bench.p3_start",
    "P4": "bench.p4_restart",
    "P5": "bench.p5_memory",
    "P6": "bench.p6_idle",
    "P7": "bench.p7_plan",
    "P8": "bench.p8_churn",
    "P9": "bench.p9_up",
    "P10": "bench.p10_failover",
    "P11": "bench.p11_drain",
    "P12": "bench.p12_growth",
    "P13": "bench.p13_harm",
    "P14": "bench.p14_mirror",
    "P15": "bench.p15_partial",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks that were asked for, and write records and page of full runs.

    :returns: 0 only if every run was valid and held its bar.
    """
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="ID[,ID...]", default="", help=f"some of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--repeat", metavar="N", type=int, default=1, help="run each N times, and record the median run"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller: shows that it runs, proves nothing"
    )
    arguments = parser.parse_args(argv)
    names = [name.strip().upper() for name in arguments.only.split(",") if name.strip()]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if arguments.repeat < 1:
        parser.error(f"--repeat is {arguments.repeat}; it must be at least 1")
    size = Size.QUICK if arguments.quick else Size.FULL
    code = MeasuredCode.of(ROOT)
    is_held = True
    for name in names or BENCHMARKS:
        runs = _runs(name, size, arguments.repeat)
        is_held = is_held and all(run.held and not run.void for run in runs)
        found = record_of(runs, code)
        if found is None:
            show(f"{name}: no run was valid, so that the last record stays")
            continue
        for number, run in enumerate(found["repeated"], 1):
            held = "held" if run["held"] else "not held"
            show(f"{name}, valid run {number}: {held}: {in_words(run['figures'])}")
        if size is Size.FULL:
            write(found)
        else:
            show(f"{name}: a quick run proves nothing, so that nothing was written")
    if size is Size.FULL:
        write_report()
    return 0 if is_held else 1


def _runs(name: str, size: Size, count: int) -> list[Result]:
    """Run a benchmark so many times, and print what each run found."""
    module = importlib.import_module(BENCHMARKS[name])
    runs: list[Result] = []
    for number in range(1, count + 1):
        show(f"{name}, run {number} of {count} ...")
        started = time.monotonic()
        runs.append(module.run(size))
        publish(runs[-1])
        show(f"{name}, run {number} of {count}, took {time.monotonic() - started:.0f} s")
    return runs


if __name__ == "__main__":
    sys.exit(main())
