"""The command ``eurekube undrain``, which clears the status that ``eurekube drain`` set."""

from __future__ import annotations

import argparse
from contextlib import closing

from eurekube_provider.cli.drain_command import (
    add_instance_selection_options,
    configured_peers,
    describe_status_at_servers,
    describe_unaddressable,
    report_duplicate_urls,
    select_instances,
)
from eurekube_provider.cli.terminal import print_error_line, print_line
from eurekube_provider.core.model import Status
from eurekube_provider.eureka.overrides import clear_overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Clear the status that a person set over what an application, or one instance of any, says of"
        " itself, on every Eureka server. What says that it is DOWN stays so; the rest is UP at once, and"
        " callers find it when their caches are renewed. Nothing is done where no status was set. An instance"
        " that registered itself as OUT_OF_SERVICE, which Eureka keeps whatever it says since, is put into"
        " service where it is named by its id."
    )
    add_instance_selection_options(parser)


def run(options: argparse.Namespace) -> int:
    """Put instances back into service; return 1 if one is still out of it, or a server did not answer."""
    with closing(configured_peers(options)) as peers:
        named = select_instances(peers, options)
        is_by_id = all(one.instance_id == options.target for one in named)
        results = clear_overrides(peers, named.registered, includes_registered_out_of_service=is_by_id)
        same = report_duplicate_urls(peers)
    out = [one for one in named.unreadable if one.status is not Status.UP]
    complaints = dict.fromkeys(describe_unaddressable(out, "put back"))
    complaints |= {
        f"{url} did not answer and may keep the status: {error}": None
        for one in results
        for url, error in one.failures.items()
    }
    for one in results:
        print_line(describe_status_at_servers(one, same))
        if Status.OUT_OF_SERVICE in one.statuses.values():
            name = f"{one.instance.application} {one.instance.instance_id}"
            why = "its owner puts it there, e.g. on its way out"
            if one.instance.is_self_registered_out_of_service and not is_by_id:
                why = (
                    "it registered itself so, and Eureka keeps that whatever it says since; to put it into"
                    f" service, name it: eurekube undrain {one.instance.instance_id}"
                )
            complaints[f"{name} is still out of service: {why}"] = None
    for sentence in complaints:
        print_error_line(f"eurekube undrain: {sentence}")
    return 1 if complaints else 0
