"""The command ``eurekube drain``: takes instances out of service, and waits until no caller uses them."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from eurekube_provider.cli.caches import add_drain_duration_options, drain_from_options
from eurekube_provider.cli.terminal import print_error_line, print_line, wait_with_progress
from eurekube_provider.core.errors import ConfigurationError, RegistryError, RegistryRejected
from eurekube_provider.core.identity import parse_owner
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME
from eurekube_provider.core.wording import format_count
from eurekube_provider.eureka.overrides import (
    NamedInstances,
    StatusByServer,
    filter_still_listed,
    find_named_instances,
    is_another_instance_up_everywhere,
    read_listed_instances,
    read_statuses,
    set_out_of_service,
    unix_time_since_none_up,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.operator.settings import add_setting_flags, load_settings

_DELAYING_CACHES_PER_SERVER = 2
"""The number of a server's response caches that delay a list; each may be as old as the read-only cache."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Set OUT_OF_SERVICE over what an application, or one instance of any, says of itself, on every "
        "Eureka server, and wait until the callers' caches have forgotten it: it may be stopped then. It "
        "goes on running and renewing, and the operator keeps what is set here until `eurekube undrain` "
        "clears it. An application means the instances that it has now. What no request can reach, and what "
        "Eureka goes on to list although no server holds it, is named as not safe, with the exit code 1. "
        "Whatever else the operator knows about Eureka (EUREKA_USER, EUREKA_PASSWORD, EUREKA_CA_FILE ...) is "
        "read from the environment."
    )
    add_instance_selection_options(parser)
    add_drain_duration_options(parser, leave_out=("take_over_seconds",))
    parser.add_argument("--no-wait", action="store_true", help="set it, say for how long to wait, and end")


def add_instance_selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name instances and their Eureka."""
    parser.add_argument(
        "target", metavar="APPLICATION|INSTANCE", help="an application's name, or an instance's id"
    )
    parser.add_argument(
        "--connection",
        default=DEFAULT_CONNECTION_NAME,
        metavar="NAME",
        help=f"which Eureka of the configuration file [{DEFAULT_CONNECTION_NAME}]",
    )
    parser.add_argument(
        "--self-registered",
        action="store_true",
        help="of an application only what registered itself: neither a syncer's instances nor a stack's",
    )
    add_setting_flags(parser, frozenset({"config", "eureka-url"}))


def configured_peers(options: argparse.Namespace) -> Peers:
    """Return the servers of the named connection; raise ConfigurationError without it, or without a URL."""
    connections = load_settings({"config": options.config, "eureka_url": options.eureka_url}).connections
    if options.connection not in connections:
        raise ConfigurationError(
            f"--connection {options.connection}: there is none; there are {', '.join(connections)}"
        )
    return Peers(connections[options.connection])


def select_instances(peers: Peers, options: argparse.Namespace) -> NamedInstances:
    """Return the instances that the options name, or raise RegistryRejected where there are none."""
    found = find_named_instances(peers, options.target)
    if not options.self_registered:
        return found
    own = found.select(lambda one: parse_owner(one.owner) is None)
    if not own:
        count = len(list(found))
        raise RegistryRejected(f"nothing of {options.target} registered itself: {count} by Eurekube")
    return own


def describe_unaddressable(instances: Sequence[Instance], missed_outcome: str) -> list[str]:
    """Return a sentence for each instance that no request can name, and so is not e.g. ``drained``."""
    return [
        f"{one.application} {one.instance_id!r} is {one.status} and not {missed_outcome}: {one.unreadable}; "
        "end its process, and Eureka forgets it once its Eureka lease has lapsed"
        for one in instances
    ]


def run(options: argparse.Namespace) -> int:
    """Drain instances, and return the exit code: 1 where a caller may still find one of them UP."""
    with closing(configured_peers(options)) as peers:
        return _drain_instances(peers, options)


def _drain_instances(peers: Peers, options: argparse.Namespace) -> int:
    drain = drain_from_options(options)
    total = math.ceil(drain.forgotten_after_seconds + drain.margin_seconds)
    began = time.time()
    named = select_instances(peers, options)
    asked_at = time.monotonic()
    unreached = describe_unaddressable(named.unreadable, "drained")
    instances = list(named.registered)
    since = unix_time_since_none_up(peers, instances) if instances else 0.0
    results = set_out_of_service(peers, instances)
    duplicate_urls = report_duplicate_urls(peers)
    for one in results:
        print_line(describe_status_at_servers(one, duplicate_urls))
    for each in named.only_listed:
        print_line(
            f"{each.application} {each.instance_id}: listed as {each.status}, and 404 when it is asked for"
        )
    _warn_if_none_left_up(peers, results)
    complaints = [*unreached, *reasons_not_drained(results)]
    left = total if since is None else max(0, math.ceil(total - (time.time() - since)))
    if options.no_wait:
        if instances:
            print_line(f"callers may call them for {left} s more; then they may be stopped")
        return _print_complaints_and_get_exit_code(
            [*complaints, *describe_listed_not_held(named.only_listed, "this list may be older than that")]
        )
    if named.only_listed:
        younger_at = asked_at + _DELAYING_CACHES_PER_SERVER * drain.server_cache_seconds
        left = max(left, math.ceil(younger_at - time.monotonic()))
    if left:
        print_line(f"callers may call them for {left} s more: waiting")
        wait_with_progress(left, max(total, left), "caches may still be warm")
        complaints = [*unreached, *reasons_not_drained(read_statuses(peers, instances))]
        complaints += describe_missed_instances(peers, options, named, began)
    if named.only_listed:
        again = read_listed_instances(peers, filter_still_listed(peers, named.only_listed))
        complaints += describe_listed_not_held(again.only_listed, "this list is younger than that")
        complaints += [
            f"{one.application} {one.instance_id} is {one.status} and was not drained, since no server held"
            " it when it was asked for: drain once more"
            for one in again.registered
        ]
    if not complaints and instances:
        print_line(f"safe: they were out of service for {total} s, and no caller knows them any more")
    elif not complaints:
        print_line("safe: Eureka lists them no more")
    return _print_complaints_and_get_exit_code(complaints)


def report_duplicate_urls(peers: Peers) -> dict[str, str]:
    """Report each URL that leads to the same server as an earlier URL; return that URL by the later one."""
    duplicate_urls = peers.find_duplicate_urls()
    for url, other in duplicate_urls.items():
        print_error_line(
            f"{url} and {other} lead to one Eureka server, which counts as one: keep one of the two URLs"
        )
    return duplicate_urls


def describe_listed_not_held(instances: Sequence[Instance], why: str) -> list[str]:
    """Return a sentence for each instance that a list shows as UP and no server holds when asked for it.

    :param why: a remark on the age of the list.
    """
    return [
        f"{one.application} {one.instance_id} is not drained: Eureka lists it as {one.status}, and answers"
        f" 404 when it is asked for ({why}): its Eureka lease has lapsed, or it stands under another id"
        for one in instances
    ]


def describe_status_at_servers(result: StatusByServer, duplicate_urls: Mapping[str, str]) -> str:
    """Return one line on an instance and its status at the servers, each of which counts once."""
    instance = result.instance
    statuses = dict.fromkeys(str(status or "not there") for status in result.statuses.values())
    servers = format_count(len(result.statuses.keys() - duplicate_urls.keys()), "server")
    shown = " and ".join(statuses) or "unknown"
    return f"{instance.application} {instance.instance_id}: {shown} on {servers}"


def _warn_if_none_left_up(peers: Peers, results: Sequence[StatusByServer]) -> None:
    """Warn of each application without another instance UP in the list, which lacks the newest ones."""
    drained = {one.instance.key for one in results}
    for application in dict.fromkeys(one.instance.application for one in results):
        if not is_another_instance_up_everywhere(peers, application, drained):
            print_error_line(
                "eurekube drain: Eureka's list, which can be 30 s old, shows no other instance of "
                f"{application} that is UP on every server: unless one registered since, its callers will "
                "find none"
            )


def describe_missed_instances(
    peers: Peers, options: argparse.Namespace, drained: Iterable[Instance], began: float
) -> list[str]:
    """Return a sentence for each instance that was UP, and in no list yet, when the drain began."""
    try:
        now = select_instances(peers, options)
    except RegistryError:
        return []  # nothing is left of it; or nobody answers, which is said already
    keys = {one.key for one in drained}
    came = now.select(
        lambda one: one.key not in keys and one.status is Status.UP and one.written_at_ms <= began * 1000
    )
    return [
        *(
            f"{one.application} {one.instance_id} is UP and was not drained, since it was registered shortly"
            " before and not listed yet: drain once more"
            for one in came.registered
        ),
        *describe_unaddressable(came.unreadable, "drained"),
        *describe_listed_not_held(came.only_listed, "this list may be older than that"),
    ]


def reasons_not_drained(results: Sequence[StatusByServer]) -> list[str]:
    """Return a sentence for each instance that is still UP, and for each server that did not answer."""
    silent: dict[str, str] = {}
    found = []
    for one in results:
        silent |= {url: str(error) for url, error in one.failures.items()}
        if one.urls_where_up:
            name = f"{one.instance.application} {one.instance.instance_id}"
            found.append(
                f"{name} is UP at {', '.join(one.urls_where_up)}: somebody cleared it, or registered it again"
            )
    unknown = (f"not known what callers of {url} find: {error}" for url, error in silent.items())
    return [*found, *unknown]


def _print_complaints_and_get_exit_code(complaints: Sequence[str]) -> int:
    for sentence in complaints:
        print_error_line(f"eurekube drain: not safe: {sentence}")
    return 1 if complaints else 0
