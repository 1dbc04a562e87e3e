"""The command ``eurekube drift``, which reports changes made without a stack; for scheduled jobs."""

from __future__ import annotations

import argparse
import json
import signal
import sys

from eurekube_provider.automation.markdown import format_drift_report
from eurekube_provider.automation.stack import StackRunner, StackTarget
from eurekube_provider.automation.stack_run import RunOutcome, StackOperation
from eurekube_provider.automation.summary import summarise
from eurekube_provider.cli.caches import parse_seconds
from eurekube_provider.cli.stack_arguments import add_project_option
from eurekube_provider.cli.terminal import print_text
from eurekube_provider.core.errors import EurekubeError

DRIFT_EXIT_CODE = 2
"""The exit code if there is drift; 0 without drift, 1 if the stack could not be compared."""


class DriftUnknown(EurekubeError):
    """Raised where the stack could not be compared with Eureka and the cluster."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare a stack's state with what Eureka and the cluster hold, past Eureka's caches. Changes "
        "nothing, not even the state. Exit code 0 without drift, 2 with drift, 1 where it could not be "
        "looked for."
    )
    parser.add_argument("--stack", required=True, metavar="NAME", help="the stack")
    add_project_option(parser)
    parser.add_argument(
        "--format", choices=("markdown", "json"), help="[markdown on a terminal, json elsewhere]"
    )
    parser.add_argument(
        "--timeout-seconds", type=parse_seconds, default=600.0, metavar="SECONDS", help="[600]"
    )


def run(options: argparse.Namespace) -> int:
    """Compare a stack with Eureka and the cluster, print the differences, and return the exit code.

    :raises ConfigurationError: there is no project, or no Pulumi CLI.
    :raises DriftUnknown: the stack could not be compared.
    """
    runner = StackRunner(StackTarget(options.stack, options.project, options.timeout_seconds))
    signal.signal(signal.SIGTERM, lambda *_: runner.cancel("cancelled by SIGTERM"))
    signal.signal(signal.SIGINT, lambda *_: runner.cancel("interrupted"))
    result = runner.run(StackOperation.DRIFT)
    if result.outcome not in (RunOutcome.CHANGED, RunOutcome.UNCHANGED):
        raise DriftUnknown(result.message)
    found = summarise(runner.log, is_drift=True)
    drifted = result.outcome is RunOutcome.CHANGED or bool(found.applications)
    document = {"drifted": drifted, **result.to_json(), **found.to_json()}
    written = options.format or ("markdown" if sys.stdout.isatty() else "json")
    print_text(format_drift_report(found) if written == "markdown" else f"{json.dumps(document, indent=2)}\n")
    return DRIFT_EXIT_CODE if drifted else 0
