"""``python -m bench [--only P2,P7]``: runs the benchmarks; exit code 0 only if every bar held."""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.harness import publish, show

BENCHMARKS = {"P2": "bench.p2_renew", "P7": "bench.p7_plan"}


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="ID[,ID...]", default="", help=f"some of {', '.join(BENCHMARKS)}")
    names = [name.strip().upper() for name in parser.parse_args().only.split(",") if name.strip()]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    missed = []
    for name in names or BENCHMARKS:
        show(f"{name} ...")
        result = importlib.import_module(BENCHMARKS[name]).run()
        publish(result)
        if not result.held:
            missed.append(name)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
