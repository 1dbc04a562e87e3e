"""The command ``eurekube drain``: takes instances out of service, and waits until no caller uses them."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from eurekube_provider.cli.caches import add_cache_options, drain_of
from eurekube_provider.cli.terminal import complain, say, wait
from eurekube_provider.core.errors import ConfigurationError, RegistryError, RegistryRejected
from eurekube_provider.core.identity import parse_owner
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.syncer import DEFAULT_CONNECTION
from eurekube_provider.core.wording import counted
from eurekube_provider.eureka.overrides import (
    Named,
    StatusByServer,
    another_is_up,
    instances_named,
    out_since,
    read_named,
    read_statuses,
    set_out_of_service,
    still_listed,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.operator.settings import add_settings, settings_from

_CACHES_OF_A_SERVER = 2
"""The number of a server's response caches that delay a list; each may be as old as the read-only cache."""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        "Set OUT_OF_SERVICE over what an application, or one instance of any, says of itself, on every"
        " Eureka server, and wait until the callers' caches have forgotten it: it may be stopped then. It"
        " goes on running and renewing, and the operator keeps what is set here until `eurekube undrain`"
        " clears it. An application means the instances that it has now. What no request can reach, and what"
        " Eureka goes on to list although no server holds it, is named as not safe, with the exit code 1."
        " Whatever else the operator knows about Eureka (EUREKA_USER, EUREKA_PASSWORD, EUREKA_CA_FILE ...)"
        " is read from the environment."
    )
    add_target(parser)
    add_cache_options(parser, leave_out=("take_over_seconds",))
    parser.add_argument("--no-wait", action="store_true", help="set it, say for how long to wait, and end")


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name instances and their Eureka."""
    parser.add_argument(
        "target", metavar="APPLICATION|INSTANCE", help="an application's name, or an instance's id"
    )
    parser.add_argument(
        "--connection",
        default=DEFAULT_CONNECTION,
        metavar="NAME",
        help=f"which Eureka of the configuration file [{DEFAULT_CONNECTION}]",
    )
    parser.add_argument(
        "--self-registered",
        action="store_true",
        help="of an application only what registered itself: neither a syncer's instances nor a stack's",
    )
    add_settings(parser, frozenset({"config", "eureka-url"}))


def peers_of(options: argparse.Namespace) -> Peers:
    """Return the servers of the connection that the options name.

    :raises ConfigurationError: there is no URL, or no connection of that name.
    """
    connections = settings_from({"config": options.config, "eureka_url": options.eureka_url}).connections
    if options.connection not in connections:
        raise ConfigurationError(
            f"--connection {options.connection}: there is none; there are {', '.join(connections)}"
        )
    return Peers(connections[options.connection])


def chosen(peers: Peers, options: argparse.Namespace) -> Named:
    """Return the instances that the options name.

    :raises RegistryRejected: there is no instance of that name.
    """
    found = instances_named(peers, options.target)
    if not options.self_registered:
        return found
    own = found.only(lambda one: parse_owner(one.owner) is None)
    if not own:
        count = len(list(found))
        raise RegistryRejected(f"nothing of {options.target} registered itself: {count} by Eurekube")
    return own


def beyond_reach(instances: Sequence[Instance], status: str) -> list[str]:
    """Return a sentence for each instance that no request can name; other instances are drained all the same.

    :param status: the outcome that these instances miss, such as ``drained``.
    """
    return [
        f"{one.application} {one.instance_id!r} is {one.status} and not {status}: {one.unreadable}; end its"
        " process, and Eureka forgets it once its Eureka lease has lapsed"
        for one in instances
    ]


def run(options: argparse.Namespace) -> int:
    """Drain, and return the exit code: 1 where a caller may still find an instance UP."""
    with closing(peers_of(options)) as peers:
        return _drain(peers, options)


def _drain(peers: Peers, options: argparse.Namespace) -> int:
    drain = drain_of(options)
    total = math.ceil(drain.forgotten_after_seconds + drain.margin_seconds)
    began = time.time()
    named = chosen(peers, options)
    asked_at = time.monotonic()
    unreached = beyond_reach(named.beyond, "drained")
    instances = list(named.held)
    since = out_since(peers, instances) if instances else 0.0
    results = set_out_of_service(peers, instances)
    same = servers_named_twice(peers)
    for one in results:
        say(describe(one, same))
    for each in named.unseen:
        say(f"{each.application} {each.instance_id}: listed as {each.status}, and 404 when it is asked for")
    _warn_of_the_last(peers, results)
    complaints = [*unreached, *unfinished(results)]
    left = total if since is None else max(0, math.ceil(total - (time.time() - since)))
    if options.no_wait:
        if instances:
            say(f"callers may call them for {left} s more; then they may be stopped")
        return _print_complaints([*complaints, *unsettled(named.unseen, "this list may be older than that")])
    if named.unseen:
        younger_at = asked_at + _CACHES_OF_A_SERVER * drain.server_cache_seconds
        left = max(left, math.ceil(younger_at - time.monotonic()))
    if left:
        say(f"callers may call them for {left} s more: waiting")
        wait(left, max(total, left), "caches may still be warm")
        complaints = [*unreached, *unfinished(read_statuses(peers, instances))]
        complaints += left_out(peers, options, named, began)
    if named.unseen:
        again = read_named(peers, still_listed(peers, named.unseen))
        complaints += unsettled(again.unseen, "this list is younger than that")
        complaints += [
            f"{one.application} {one.instance_id} is {one.status} and was not drained, since no server held"
            " it when it was asked for: drain once more"
            for one in again.held
        ]
    if not complaints and instances:
        say(f"safe: they were out of service for {total} s, and no caller knows them any more")
    elif not complaints:
        say("safe: Eureka lists them no more")
    return _print_complaints(complaints)


def servers_named_twice(peers: Peers) -> dict[str, str]:
    """Return, and report, the URLs that lead to a server which another URL leads to already."""
    same = peers.named_twice()
    for url, other in same.items():
        complain(
            f"{url} and {other} lead to one Eureka server, which counts as one: keep one of the two URLs"
        )
    return same


def unsettled(instances: Sequence[Instance], why: str) -> list[str]:
    """Return a sentence for each instance that a list shows as UP and no server holds when asked for it.

    :param why: a remark on the age of the list.
    """
    return [
        f"{one.application} {one.instance_id} is not drained: Eureka lists it as {one.status}, and answers"
        f" 404 when it is asked for ({why}): its Eureka lease has lapsed, or it stands under another id"
        for one in instances
    ]


def describe(result: StatusByServer, same: Mapping[str, str]) -> str:
    """Return one line on an instance and its status at the servers.

    :param same: the URLs that lead to a server which another URL names already.
    """
    instance = result.instance
    statuses = dict.fromkeys(str(status or "not there") for status in result.statuses.values())
    servers = counted(len(result.statuses.keys() - same.keys()), "server")
    shown = " and ".join(statuses) or "unknown"
    return f"{instance.application} {instance.instance_id}: {shown} on {servers}"


def _warn_of_the_last(peers: Peers, results: Sequence[StatusByServer]) -> None:
    """Warn if callers are left without any instance; an instance that registered just now is in no list
    yet.
    """
    drained = {one.instance.key for one in results}
    for application in dict.fromkeys(one.instance.application for one in results):
        if not another_is_up(peers, application, drained):
            complain(
                "eurekube drain: Eureka's list, which can be 30 s old, shows no other instance of"
                f" {application} that is UP on every server: unless one registered since, its callers will"
                " find none"
            )


def left_out(
    peers: Peers, options: argparse.Namespace, drained: Iterable[Instance], began: float
) -> list[str]:
    """Return a sentence for each instance that was UP when the drain began but in no list yet; later ones
    stay.
    """
    try:
        now = chosen(peers, options)
    except RegistryError:
        return []  # nothing is left of it; or nobody answers, which is said already
    keys = {one.key for one in drained}
    came = now.only(
        lambda one: one.key not in keys and one.status is Status.UP and one.written_at_ms <= began * 1000
    )
    return [
        *(
            f"{one.application} {one.instance_id} is UP and was not drained, since it was registered shortly"
            " before and not listed yet: drain once more"
            for one in came.held
        ),
        *beyond_reach(came.beyond, "drained"),
        *unsettled(came.unseen, "this list may be older than that"),
    ]


def unfinished(results: Sequence[StatusByServer]) -> list[str]:
    """Return the reasons why the drain is not complete."""
    silent: dict[str, str] = {}
    found = []
    for one in results:
        silent |= {url: str(error) for url, error in one.failures.items()}
        if one.up_at:
            name = f"{one.instance.application} {one.instance.instance_id}"
            found.append(
                f"{name} is UP at {', '.join(one.up_at)}: somebody cleared it, or registered it again"
            )
    unknown = (f"not known what callers of {url} find: {error}" for url, error in silent.items())
    return [*found, *unknown]


def _print_complaints(complaints: Sequence[str]) -> int:
    for sentence in complaints:
        complain(f"eurekube drain: not safe: {sentence}")
    return 1 if complaints else 0
