"""Run benchmarks: ``python -m bench [--only P2,P7] [--repeat 3] [--quick]``; exit code 0 only if every bar
held.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness import Result, Size, print_progress, print_result
from bench.record import MeasuredCode, format_headlines, make_record, write_record
from bench.report import write_report
from lab.pulumi import pulumi_search_path

ROOT = Path(__file__).parents[1]

BENCHMARKS = {
    "P1": "bench.p1_latency",
    "P1x3": "bench.p1_three",
    "P2": "bench.p2_renew",
    "P3": "bench.p3_start",
    "P4": "bench.p4_restart",
    "P5": "bench.p5_memory",
    "P6": "bench.p6_idle",
    "P7": "bench.p7_plan",
    "P8": "bench.p8_churn",
    "P8x3": "bench.p8_three",
    "P9": "bench.p9_up",
    "P10": "bench.p10_failover",
    "P11": "bench.p11_drain",
    "P12": "bench.p12_growth",
    "P13": "bench.p13_harm",
    "P14": "bench.p14_mirror",
    "P15": "bench.p15_partial",
    "P16": "bench.p16_callers",
    "P17": "bench.p17_eureka_size",
    "P18": "bench.p18_joined",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested benchmarks, and write the records and the page of full runs.

    :returns: 0 only if every run was valid and held its bar.
    """
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="ID[,ID...]", default="", help=f"some of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--repeat",
        metavar="N",
        type=int,
        help="run each N times, and record the median run (by default once, or as often as a record needs)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller: shows that it runs, proves nothing"
    )
    arguments = parser.parse_args(argv)
    known = {name.upper(): name for name in BENCHMARKS}
    asked = [name.strip().upper() for name in arguments.only.split(",") if name.strip()]
    unknown = [name for name in asked if name not in known]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if arguments.repeat is not None and arguments.repeat < 1:
        parser.error(f"--repeat is {arguments.repeat}; it must be at least 1")
    names = [known[name] for name in asked] or list(BENCHMARKS)
    if lacks := [f"{name} needs {program}" for name in names for program in missing_programs(name)]:
        parser.error(f"nothing was measured: {', '.join(lacks)}, which is not on PATH")
    size = Size.QUICK if arguments.quick else Size.FULL
    code = MeasuredCode.checked_out_in(ROOT)
    is_held = True
    for name in names:
        needed = getattr(importlib.import_module(BENCHMARKS[name]), "RUNS", 1)
        quick = 1 if size is Size.QUICK else needed
        runs = _run_repeatedly(name, size, arguments.repeat or quick)
        is_held = is_held and all(run.held and not run.void for run in runs)
        found = make_record(runs, code)
        if found is None:
            print_progress(f"{name}: no run was valid, so that the last record stays")
            continue
        for number, run in enumerate(found["repeated"], 1):
            held = "held" if run["held"] else "not held"
            print_progress(f"{name}, valid run {number}: {held}: {format_headlines(run['figures'])}")
        valid = len(found["repeated"])
        if size is Size.QUICK:
            print_progress(f"{name}: a quick run proves nothing, so that nothing was written")
        elif valid < needed:
            print_progress(
                f"{name}: {valid} valid of the {needed} runs that are a record, so that the last one stays"
            )
        else:
            write_record(found)
    if size is Size.FULL:
        write_report()
    return 0 if is_held else 1


def missing_programs(name: str) -> list[str]:
    """Return the programs that a benchmark needs and that are not on PATH."""
    module = importlib.import_module(BENCHMARKS[name])
    programs: Sequence[str] = getattr(module, "PROGRAMS", ())
    return [program for program in programs if shutil.which(program, path=pulumi_search_path()) is None]


def _run_repeatedly(name: str, size: Size, count: int) -> list[Result]:
    """Run a benchmark ``count`` times, and print the result of each run."""
    module = importlib.import_module(BENCHMARKS[name])
    runs: list[Result] = []
    for number in range(1, count + 1):
        print_progress(f"{name}, run {number} of {count} ...")
        started = time.monotonic()
        runs.append(module.run(size))
        print_result(runs[-1])
        print_progress(f"{name}, run {number} of {count}, took {time.monotonic() - started:.0f} s")
    return runs


if __name__ == "__main__":
    sys.exit(main())
