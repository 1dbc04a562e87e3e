"""The command ``eurekube watch``, which repeats the output of ``eurekube status``."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

from eurekube_provider.cli.comparison_blocks import StatusReport, build_status_report, status_blocks
from eurekube_provider.cli.inventory_options import (
    add_inventory_options,
    exit_if_nothing_read,
    open_inventory_reader,
    show_progress,
)
from eurekube_provider.cli.output import (
    Line,
    OutputFormat,
    Tone,
    create_console,
    format_blocks,
    to_renderable,
)
from eurekube_provider.cli.status_command import add_application_filters
from eurekube_provider.cli.terminal import print_text
from eurekube_provider.doctor.inventory_reader import ReportProgress

MIN_INTERVAL_SECONDS = 5.0
DEFAULT_INTERVAL_SECONDS = 15.0
"""Seconds between two reads, as the operator reads the registry; a server renews its list every 30 s."""

_TIME_PATTERN = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d+ (?:s|min)\b|(?<=SecondsAgo\": )\d+")

_Number = TypeVar("_Number", int, float)

DESCRIPTION = """\
Show what `eurekube status` shows, again and again, until Ctrl-C. On a terminal the screen is redrawn; else
each look that shows something new is printed. `--output json` prints one document a line.

  Exit code: 0 ended by Ctrl-C, or after --count looks
             2 neither Kubernetes nor Eureka could be read at first, or wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_application_filters(parser)
    parser.add_argument(
        "--interval",
        type=partial(_parse_number, float, MIN_INTERVAL_SECONDS),
        default=DEFAULT_INTERVAL_SECONDS,
        metavar="SECONDS",
        help=f"How often to look, {MIN_INTERVAL_SECONDS:g} or more. [{DEFAULT_INTERVAL_SECONDS:g}]",
    )
    parser.add_argument(
        "--count",
        type=partial(_parse_number, int, 1),
        metavar="NUMBER",
        help="End after so many looks. [never]",
    )
    add_inventory_options(parser)


def _parse_number(convert: Callable[[str], _Number], minimum: _Number, text: str) -> _Number:
    try:
        found = convert(text)
    except ValueError:
        found = None
    if found is None or not found >= minimum:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, {minimum:g} or more")
    return found


def run(options: argparse.Namespace) -> int:
    output = OutputFormat(options.output)
    with open_inventory_reader("watch", options) as reader:

        def read_status(progress: ReportProgress | None = None) -> StatusReport:
            inventory = reader.read(progress, asks_operators=True)
            return build_status_report(inventory, options.applications, only_differing=options.differences)

        with show_progress() as progress:
            first = read_status(progress)
        exit_if_nothing_read("watch", first.inventory)
        looks = _look_repeatedly(first, read_status, options.interval, options.count)
        with suppress(KeyboardInterrupt):
            if sys.stdout.isatty() and output is OutputFormat.TABLE:
                _redraw(looks, options.interval)
            else:
                _print_changed(looks, output)
    return 0


def _look_repeatedly(
    first: StatusReport, read_status: Callable[[], StatusReport], interval: float, count: int | None
) -> Iterator[StatusReport]:
    yield first
    for _ in itertools.repeat(None) if count is None else range(count - 1):
        time.sleep(interval)
        yield read_status()


def _redraw(looks: Iterable[StatusReport], interval: float) -> None:
    from rich.console import Group
    from rich.live import Live

    screen = create_console(sys.stdout)
    with Live(console=screen, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        for status in looks:
            when = Line.of(f"{time.strftime('%H:%M:%S')}, every {interval:g} s; Ctrl-C ends", Tone.DIM)
            shown = (to_renderable(block, screen.width) for block in (when, *status_blocks(status)))
            live.update(Group(*shown), refresh=True)


def _print_changed(looks: Iterable[StatusReport], output: OutputFormat) -> None:
    before = ""
    for status in looks:
        if output is OutputFormat.JSON:
            shown = text = json.dumps(status.to_dict()) + "\n"
        else:
            shown = format_blocks(status_blocks(status))
            text = f"{time.strftime('%H:%M:%S')}\n{shown}\n"
        # Times and ages are others at each look, and so is the padding.
        if (news := " ".join(_TIME_PATTERN.sub("", shown).split())) != before:
            before = news
            print_text(text)
