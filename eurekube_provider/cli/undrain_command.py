"""``eurekube undrain``: takes back what ``eurekube drain`` set."""

from __future__ import annotations

import argparse
from contextlib import closing

from eurekube_provider.cli.drain_command import add_target, beyond_reach, chosen, describe, peers_of
from eurekube_provider.cli.terminal import complain, say
from eurekube_provider.core.model import Status
from eurekube_provider.eureka.overrides import can_be_asked_for, put_back


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        "Clear the status that a person set over what an application, or one instance of any, says of"
        " itself, on every Eureka server. What says that it is DOWN stays so; the rest is UP at once, and"
        " callers find it when their caches are renewed. Nothing is done where no status was set."
    )
    add_target(parser)


def run(options: argparse.Namespace) -> int:
    """Put instances back, and return the exit code.

    :returns: 1 where something is still out of service, or a server did not answer.
    """
    with closing(peers_of(options)) as peers:
        found = chosen(peers, options)
        results = put_back(peers, [one for one in found if can_be_asked_for(one)])
    complaints = dict.fromkeys(beyond_reach(found, "put back"))
    complaints |= {
        f"{url} did not answer and may keep the status: {error}": None
        for one in results
        for url, error in one.failures.items()
    }
    for one in results:
        say(describe(one))
        if Status.OUT_OF_SERVICE in one.statuses.values():
            name = f"{one.instance.application} {one.instance.instance_id}"
            complaints[f"{name} is still out of service: its owner puts it there, e.g. on its way out"] = None
    for sentence in complaints:
        complain(f"eurekube undrain: {sentence}")
    return 1 if complaints else 0
