"""``eurekube undrain``: takes back what ``eurekube drain`` set."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from eurekube_provider.cli.drain import add_target, describe, peers_of
from eurekube_provider.cli.terminal import say, wait
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.manual import Standing, instances_named, look, put_back
from eurekube_provider.eureka.peers import Peers

PATIENCE_SECONDS = 60.0
"""Within this time an operator has read Eureka anew and looked whether its pods are ready."""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        "Clear the status that a person set over what an application, or one instance of any, says of"
        " itself, on every Eureka server, and wait until it is UP: at once, or, where an operator registered"
        " it, as soon as that has looked whether the pod is ready. Callers find it when their caches are"
        " renewed. Nothing is done where no status was set."
    )
    add_target(parser)
    parser.add_argument("--no-wait", action="store_true", help="clear it, and end")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Put back; the exit code: 1 where something is not UP then, or a server did not answer."""
    peers = peers_of(options)
    try:
        instances = instances_named(peers, options.target)
        standings = put_back(peers, instances)
        if not options.no_wait:
            standings = _settled(peers, instances, standings)
    finally:
        peers.close()
    for one in standings:
        say(describe(one))
    complaints = _complaints(standings, is_final=not options.no_wait)
    for sentence in complaints:
        print(f"eurekube undrain: {sentence}", file=sys.stderr)
    return 1 if complaints else 0


def _settled(peers: Peers, instances: Sequence[Instance], standings: list[Standing]) -> list[Standing]:
    """How they stand as soon as all are UP or gone, or when there was time enough for it."""
    latest = standings

    def is_over() -> bool:
        nonlocal latest
        latest = look(peers, instances)
        return all(one.is_up or one.is_gone for one in latest)

    wait(PATIENCE_SECONDS, PATIENCE_SECONDS, "the operator may take", is_over)
    return latest


def _complaints(standings: Sequence[Standing], *, is_final: bool) -> list[str]:
    """What is not as it was meant."""
    found = {
        f"{url} did not answer and may keep the status: {error}": None
        for one in standings
        for url, error in one.failures.items()
    }
    for one in standings:
        name = f"{one.instance.application} {one.instance.instance_id}"
        if Status.OUT_OF_SERVICE in one.statuses.values():
            found[f"{name} is still out of service: its owner puts it there, e.g. on its way out"] = None
        elif is_final and not one.is_up and not one.is_gone:
            found[f"{name} is not UP: it is not ready, or no operator looks at it"] = None
    return list(found)
