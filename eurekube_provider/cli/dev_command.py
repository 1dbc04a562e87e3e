"""The command ``eurekube dev eureka``, which runs Eureka servers in memory; not for production."""

from __future__ import annotations

import argparse

from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.runtime.signals import stop_event_on_signals

_MAX_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run Eureka servers for development and tests, in memory and without passwords, until Ctrl-C. They"
        " answer as Spring Cloud's do, and show at / what is registered."
    )
    parser.add_argument("server", choices=["eureka"], help="What to run.")
    parser.add_argument(
        "--port",
        type=int,
        default=8761,
        metavar="PORT",
        help="The first server's; 0: any that is free. [8761]",
    )
    parser.add_argument(
        "--peers",
        type=int,
        default=1,
        metavar="N",
        help="Servers that tell each other, on ports in a row. [1]",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="Where to listen. [127.0.0.1: this machine alone]",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="Lists as fresh as reads, evictions each second, no self-preservation: for tests.",
    )


def run(options: argparse.Namespace) -> None:
    """Run Eureka servers until SIGTERM or SIGINT; raise ConfigurationError, as where a port is taken."""
    ports = range(options.port, options.port + options.peers) if options.port else ()
    if options.peers < 1 or not 0 <= options.port <= _MAX_PORT - options.peers + 1:
        raise argparse.ArgumentError(
            None,
            f"--port {options.port} --peers {options.peers}: ports go up to {_MAX_PORT}, and there is at"
            " least one server: choose others",
        )
    stop = stop_event_on_signals()
    with EurekaServers(options.peers, host=options.host, ports=ports, quick=options.quick) as servers:
        print("Eureka for development and tests: in memory, and without passwords")
        for url in servers.urls:
            print(f"  {url}")
        print(
            f"  {servers.urls[0].removesuffix('eureka')} shows what is registered; Ctrl-C ends it", flush=True
        )
        stop.wait()
