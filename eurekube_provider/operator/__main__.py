"""The command line ``python -m eurekube_provider.operator``: flags for settings and for single tasks."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from eurekube_provider.core.errors import ConfigurationError, EurekubeError
from eurekube_provider.core.quoting import printable_lines
from eurekube_provider.runtime import logs
from eurekube_provider.runtime.extras import MissingExtra, require_extra
from eurekube_provider.runtime.signals import stop_event_on_signals

try:
    with require_extra("operator", "the operator"):
        from eurekube_provider.kube.access import KubeAccess
        from eurekube_provider.kube.syncer_guard import uninstall_refusal
        from eurekube_provider.operator import selfcheck
        from eurekube_provider.operator.dry_run import RunReport, to_json_text
        from eurekube_provider.operator.identity_check import CheckVerdict
        from eurekube_provider.operator.run import run
        from eurekube_provider.operator.settings import Settings, add_setting_flags, load_settings
except MissingExtra as missing:
    if __name__ != "__main__":
        raise
    sys.exit(f"eurekube operator: {missing}")

_log = logging.getLogger("eurekube_provider.operator")

HELP_DESCRIPTION = "Keeps the endpoints of Kubernetes Services registered in Netflix Eureka."
HELP_EPILOG = (
    "Secrets come from EUREKA_PASSWORD and EUREKA_TOKEN, or from the files that the flags"
    " ending with -file name. Exit codes: 0 done, or ended by a signal; 1 the configuration is wrong, a"
    " change failed, or --check found something to fix; 2 wrong usage."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run the operator; see :func:`run_with_options`."""
    parser = argparse.ArgumentParser(
        prog="python -m eurekube_provider.operator",
        description=HELP_DESCRIPTION,
        epilog=HELP_EPILOG,
        # An abbreviated flag could be meant for another one.
        allow_abbrev=False,
    )
    add_flags(parser)
    return run_with_options(parser.parse_args(arguments))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of single tasks, such as ``--once``, and the flags of all settings."""
    parser.add_argument(
        "--once",
        action="store_true",
        help="read everything, wait for the Lease, plan, carry it out, print the plans and end; renews"
        " nothing afterwards. Fails where another operator renews the Lease meanwhile. Lets deleted syncers"
        " go that wait for an operator which is gone",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="change nothing, in Eureka or in Kubernetes: print the plans (with --once), or log them as they"
        " change",
    )
    parser.add_argument(
        "--without-lease",
        action="store_true",
        help="have --once neither wait for the Lease nor take it: only where no operator can be running any"
        " more, or the Lease cannot be written",
    )
    parser.add_argument("--check", action="store_true", help="print what hampers the operator, and end")
    parser.add_argument(
        "--check-removal",
        action="store_true",
        help="print the EurekaSyncers and EurekaMirrors that would be left alone, and the workloads whose"
        " pods declare the readiness gate, and end; 1 where there are any. The chart asks it before it is "
        "uninstalled",
    )
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="how --once and --check print [text]"
    )
    add_setting_flags(parser)


def run_with_options(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT, or do the task of ``--once``, ``--check`` or ``--check-removal``.

    :returns: 0 after a signal, or when all is done or well; 1 when the configuration is wrong, with one
        sentence on standard error, when a change failed, or when ``--check`` found something to fix.
    """
    try:
        settings = load_settings(vars(options), needs_eureka=not options.check_removal)
    except ConfigurationError as error:
        print(f"eurekube operator: {error}", file=sys.stderr)
        return 1
    logs.set_up_logging(settings.log_format, settings.log_level)
    if options.check:
        findings = selfcheck.run_checks(settings)
        sys.stdout.write(
            to_json_text([asdict(finding) for finding in findings])
            if options.output == "json"
            else printable_lines(selfcheck.format_results(findings))
        )
        return int(any(finding.verdict is CheckVerdict.WARNING for finding in findings))
    if options.check_removal:
        return _print_reason_not_to_uninstall(settings)
    if options.without_lease:
        if not options.once:
            print("eurekube operator: --without-lease is for --once alone", file=sys.stderr)
            return 2
        settings = replace(settings, leader_elect=False)
    run_report = None
    if options.once or options.dry_run:
        run_report = RunReport(is_once=options.once, is_dry=options.dry_run, output=options.output)
    try:
        run(settings, stop_event_on_signals(), run_report)
    except EurekubeError as error:
        _log.error(
            "failed to run the operator, ending this process: no instance is deregistered",
            extra={"error": str(error)},
        )
        return 1
    return int(run_report is not None and run_report.is_once and run_report.has_failed)


def _print_reason_not_to_uninstall(settings: Settings) -> int:
    try:
        access = KubeAccess.load(settings.kubeconfig, settings.context)
    except EurekubeError as error:
        print(f"eurekube operator: {error}", file=sys.stderr)
        return 1
    why = uninstall_refusal(access, settings.watch_namespaces, settings.watched_gate_namespaces)
    print(why or "no EurekaSyncer, no EurekaMirror and no readiness gate needs the operator")
    return int(why is not None)


if __name__ == "__main__":
    sys.exit(main())
