"""``python -m bench [--only P2,P7] [--quick]``: runs the benchmarks; exit code 0 only if every bar held."""

from __future__ import annotations

import argparse
import importlib
import sys
import time

from bench.harness import Size, publish, show
from bench.report import write_report

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


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="ID[,ID...]", default="", help=f"some of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller: shows that it runs, proves nothing"
    )
    arguments = parser.parse_args()
    names = [name.strip().upper() for name in arguments.only.split(",") if name.strip()]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    size = Size.QUICK if arguments.quick else Size.FULL
    missed = []
    for name in names or BENCHMARKS:
        show(f"{name} ...")
        started = time.monotonic()
        result = importlib.import_module(BENCHMARKS[name]).run(size)
        publish(result, size)
        show(f"{name} took {time.monotonic() - started:.0f} s")
        if not result.held:
            missed.append(name)
    if size is Size.FULL:
        write_report()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
