"""The command ``eurekube watch``, which repeats the output of ``eurekube status``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from eurekube_provider.cli.comparison_blocks import InventoryStatus, blocks_of, status_of
from eurekube_provider.cli.inventory_options import (
    add_inventory_options,
    reading,
    require_one,
    shown_progress,
)
from eurekube_provider.cli.output import Line, OutputFormat, Tone, console, renderable, text
from eurekube_provider.cli.status_command import add_filters
from eurekube_provider.cli.terminal import put
from eurekube_provider.doctor.inventory_reader import Progress

LEAST_SECONDS = 5.0
DEFAULT_SECONDS = 15.0
"""Seconds between two reads, as the operator reads the registry; a server renews its list every 30 s."""

_Read = Callable[[], InventoryStatus]
_N = TypeVar("_N", int, float)

DESCRIPTION = """\
Show what `eurekube status` shows, again and again, until Ctrl-C. On a terminal the screen is redrawn; else
each look that shows something new is printed. `--output json` prints one document a line.

  Exit code: 0 ended by Ctrl-C, or after --count looks
             2 neither world could be read at the first look, or wrong usage
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = DESCRIPTION
    add_filters(parser)
    parser.add_argument(
        "--interval",
        type=partial(_number, float, LEAST_SECONDS),
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help=f"How often to look, {LEAST_SECONDS:g} or more. [{DEFAULT_SECONDS:g}]",
    )
    parser.add_argument(
        "--count",
        type=partial(_number, int, 1),
        metavar="NUMBER",
        help="End after so many looks. [never]",
    )
    add_inventory_options(parser)


def _number(read: Callable[[str], _N], least: _N, text: str) -> _N:
    try:
        found = read(text)
    except ValueError:
        found = None
    if found is None or not found >= least:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, {least:g} or more")
    return found


def run(options: argparse.Namespace) -> int:
    """Read and print the status until Ctrl-C; return the exit code."""
    interval, count, output = options.interval, options.count, OutputFormat(options.output)
    with reading("watch", options) as reader:

        def read(progress: Progress | None = None) -> InventoryStatus:
            inventory = reader.read(progress, asks_operators=True)
            return status_of(inventory, options.applications, only_differing=options.differences)

        with shown_progress() as progress:
            first = read(progress)
        require_one("watch", first.inventory)
        try:
            if sys.stdout.isatty() and output is OutputFormat.TABLE:
                _redraw(first, read, interval, count)
            else:
                _print(first, read, interval, count, output)
        except KeyboardInterrupt:
            return 0
    return 0


def _redraw(status: InventoryStatus, read: _Read, interval: float, count: int | None) -> None:
    from rich.console import Group
    from rich.live import Live

    screen = console(sys.stdout)
    with Live(console=screen, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        looks = 1
        while True:
            when = Line.of(f"{time.strftime('%H:%M:%S')}, every {interval:g} s; Ctrl-C ends", Tone.DIM)
            shown = (renderable(block, screen.width) for block in (when, *blocks_of(status)))
            live.update(Group(*shown), refresh=True)
            if looks == count:
                return
            time.sleep(interval)
            status, looks = read(), looks + 1


def _print(
    status: InventoryStatus, read: _Read, interval: float, count: int | None, output: OutputFormat
) -> None:
    before, looks = "", 1
    while True:
        shown = _as_text(status, output)
        if shown != before:
            before = shown
            put(shown if output is OutputFormat.JSON else f"{time.strftime('%H:%M:%S')}\n{shown}\n")
        if looks == count:
            return
        time.sleep(interval)
        status, looks = read(), looks + 1


def _as_text(status: InventoryStatus, output: OutputFormat) -> str:
    if output is OutputFormat.JSON:
        return json.dumps(status.to_dict()) + "\n"
    return text(blocks_of(status))
