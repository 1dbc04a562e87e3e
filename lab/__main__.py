"""The lab from the command line: `python -m lab up`, `down`, `status`, `fetch`; also as `make lab-up` ..."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.beside import run_in_background
from lab.builds import temporary_go_caches
from lab.errors import LabError
from lab.eureka import require_java
from lab.eureka_package import provide_eureka
from lab.lab import MAX_EUREKAS
from lab.ports import FIXED_PORTS, Ports
from lab.programs import NIGHTLY_TOOL_NAMES, SERVER_PROGRAM_NAMES, TEST_TOOL_NAMES, provide_programs
from lab.progress import say
from lab.pulumi import provide_pulumi
from lab.spring import provide_spring_admin, provide_spring_client, provide_spring_gateway
from lab.supervisor import (
    LabState,
    describe_running_lab,
    raising_on_signals,
    read_state,
    run_in_foreground,
    start_detached,
    stop_lab,
    supervisor_pid,
)

_INTERRUPTED_EXIT_CODE = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; for `status`, 0 when all servers run, else 1."""
    options = _parser().parse_args(arguments)
    folder = Path(options.directory).resolve()
    try:
        match options.command:
            case "up":
                return _start_lab(folder, options)
            case "down":
                sys.stdout.write("the lab is down\n" if stop_lab(folder) else "no lab was up\n")
                return 0
            case "status":
                return _print_status(folder)
            case _:
                with raising_on_signals():
                    _fetch_programs(
                        for_tests=options.tests, for_nightly_tests=options.nightly, with_pulumi=options.pulumi
                    )
                return 0
    except LabError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say(f"interrupted; {describe_running_lab(folder)}")
        return _INTERRUPTED_EXIT_CODE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description="Real servers on this machine.")
    default = Path(__file__).parent.parent / ".lab"
    parser.add_argument(
        "--directory", default=default, help="where the lab that is up keeps its files (%(default)s)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the servers, and come back when they are ready")
    up.add_argument(
        "--eureka", type=int, choices=range(MAX_EUREKAS + 1), default=1, help="how many Eureka servers"
    )
    up.add_argument(
        "--free-ports", action="store_true", help="take free ports instead of 8761 and up, and 6443"
    )
    up.add_argument(
        "--foreground", action="store_true", help="stay, and stop the servers on Ctrl-C or SIGTERM"
    )
    commands.add_parser("down", help="stop them")
    commands.add_parser("status", help="show how they are")
    fetch = commands.add_parser("fetch", help="only get the programs of a lab into the cache")
    fetch.add_argument("--tests", action="store_true", help="and what else the tests run: helm, CoreDNS ...")
    fetch.add_argument("--nightly", action="store_true", help="and what only nightly tests run")
    fetch.add_argument("--pulumi", action="store_true", help="and a Pulumi engine, which takes long to build")
    return parser


def _fetch_programs(*, for_tests: bool, for_nightly_tests: bool, with_pulumi: bool) -> None:
    """Build the programs with Go while Maven, which mostly waits for downloads, packages the Java ones."""
    with (
        run_in_background(lambda: _package_java_programs(for_tests=for_tests)),
        temporary_go_caches() as caches,
    ):
        tests = TEST_TOOL_NAMES if for_tests else ()
        nightly = NIGHTLY_TOOL_NAMES if for_nightly_tests else ()
        provide_programs((*SERVER_PROGRAM_NAMES, *tests, *nightly), caches)
        if with_pulumi:
            provide_pulumi(caches)


def _package_java_programs(*, for_tests: bool) -> None:
    java = require_java()
    provide_eureka(java, "2025.0")
    if for_tests:
        provide_eureka(java, "2025.1")
        provide_spring_client()
        provide_spring_gateway()
        provide_spring_admin()


def _start_lab(folder: Path, options: argparse.Namespace) -> int:
    ports = Ports() if options.free_ports else FIXED_PORTS
    if (pid := supervisor_pid(folder)) is not None:
        state = read_state(folder)
        if state is None:
            raise LabError(
                f"a lab is starting in {folder} already (process {pid}): wait, or `python -m lab down`"
            )
        say(f"the lab is already up (process {pid}); `python -m lab down` stops it")
        _print_urls(state)
    elif options.foreground:
        run_in_foreground(folder, options.eureka, ports=ports, report=_print_urls)
    else:
        _print_urls(start_detached(folder, options.eureka, ports=ports))
    return 0


def _print_urls(state: LabState) -> None:
    for url in state.eureka_urls:
        sys.stdout.write(f"Eureka      {url}\n")
    sys.stdout.write(f"Kubernetes  {state.api_server_url}\n\nexport KUBECONFIG={state.kubeconfig}\n")
    sys.stdout.flush()


def _print_status(folder: Path) -> int:
    pid = supervisor_pid(folder)
    if pid is None:
        sys.stdout.write("no lab is up; `python -m lab up` starts one\n")
        return 1
    state = read_state(folder)
    if state is None:
        sys.stdout.write(f"the lab is starting (process {pid}), see {folder / 'supervisor.log'}\n")
        return 1
    rows = [
        (server.name, server.state, str(server.pid or ""), server.url, server.log) for server in state.servers
    ]
    columns = ("SERVER", "STATE", "PID", "URL", "LOG")
    if sys.stdout.isatty():
        table = Table(*columns)
        for row in rows:
            table.add_row(*row, style=None if row[1] == "running" else "red")
        Console().print(table)
    else:
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in (columns, *rows):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write(line.rstrip() + "\n")
    return 0 if all(server.state == "running" for server in state.servers) else 1


if __name__ == "__main__":
    sys.exit(main())
