"""The command ``eurekube summary``: summarises a preview's effect on discovery, as a comment or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from eurekube_provider.automation.markdown import format_comment
from eurekube_provider.automation.steps import read_event_log
from eurekube_provider.automation.summary import summarise
from eurekube_provider.cli.terminal import print_text
from eurekube_provider.core.errors import ConfigurationError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tell which applications gain, lose or change which instances, what is refused, and what deserves a"
        " second look: 'pulumi preview --json --show-sames | eurekube summary'. Asks no server."
    )
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="what 'pulumi preview --json' printed, or an event log [standard input]",
    )
    parser.add_argument("--format", choices=("markdown", "json"), default="markdown", help="[markdown]")


def run(options: argparse.Namespace) -> None:
    """Print the summary; raise ConfigurationError for a file that is no preview's document or event log."""
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{options.file} cannot be read: {error}") from None
    summary = summarise(read_event_log(text))
    print_text(
        format_comment(summary)
        if options.format == "markdown"
        else f"{json.dumps(summary.to_json(), indent=2)}\n"
    )
