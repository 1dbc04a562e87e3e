"""Command-line options for the ages of callers' caches."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.errors import ConfigurationError

HELP_BY_DRAIN_OPTION = {
    "server_cache_seconds": "Eureka's read-only cache; 0 where it is off",
    "client_fetch_seconds": "how often the slowest caller fetches the registry",
    "load_balancer_cache_seconds": "the slowest caller's load-balancer cache; 0 where it is off",
    "replication_seconds": "from one Eureka server to its peers",
    "take_over_seconds": "until a standby operator goes on in place of one that died",
    "margin_seconds": "requests under way, pauses and clocks",
}
"""The fields of :class:`~eurekube_provider.core.drain_time.Drain` that are options, with their help texts."""


def add_drain_duration_options(parser: argparse.ArgumentParser, leave_out: Iterable[str] = ()) -> None:
    """Add an option for each duration of a drain, except those in ``leave_out``."""
    default = Drain()
    for name, text in HELP_BY_DRAIN_OPTION.items():
        if name not in leave_out:
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                type=parse_seconds,
                default=getattr(default, name),
                metavar="SECONDS",
                help=f"{text} [{getattr(default, name):g}]",
            )


def drain_from_options(options: argparse.Namespace) -> Drain:
    """Return the drain whose durations the options give; a missing option gives the default."""
    said = vars(options)
    return Drain(**{name: said[name] for name in HELP_BY_DRAIN_OPTION if name in said})


def parse_seconds(text: str) -> float:
    """Return the seconds that an option gives; raise ArgumentTypeError for anything else."""
    try:
        return Drain(margin_seconds=float(text)).margin_seconds
    except (ValueError, ConfigurationError):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds from 0 on") from None
