"""What both dynamic providers share: Pulumi's dictionaries, the way to Eureka, and incarnations.

Pulumi's plugin process imports it, outside of any program.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi.dynamic import Config
from pulumi.runtime import rpc

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryUnreachable
from eurekube_provider.core.identity import StackOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.quoting import printable
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.connections import (
    DEFAULT_CONNECTION,
    NAMESPACE,
    Setting,
    abandoned_urls,
    connection_of_state,
    connection_to,
    shared_peers,
)
from eurekube_provider.registrations.draining import was_left
from eurekube_provider.registrations.properties import (
    UNKNOWN,
    Checked,
    Properties,
    contains_unknown,
)
from eurekube_provider.registrations.removal_checks import SecondLooks
from eurekube_provider.resources.arguments import Default, as_dictionary
from eurekube_provider.resources.program import (
    is_rendered,
    program_connection,
    program_organization,
    program_renewer,
)

Sought = tuple[Peers, Iterable[Instance], Mapping[tuple[str, str], Instance]]

IN_UPDATE = "in_update"
"""Among what a program gives that is not previewed, and in no state: only then a check may ask Eureka."""

SIGNATURE, SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
"""How a secret is written on the way to Pulumi's engine; sdk/go/common/resource/sig of pulumi/pulumi."""

LOOKS = SecondLooks()
"""Of this process: the removals of one update are looked at once more together."""


def new_incarnation() -> str:
    """A mark for one creation of a resource's registrations: in state and metadata, and kept by updates.

    A replacement registers the new half before the old one is removed, perhaps in another run, and where it
    stands in the old one's place this is all that tells them apart.
    """
    return secrets.token_hex(4)


def stack_owner(name: str) -> str:
    """Whom a resource of the running program registers for."""
    return str(StackOwner(program_organization(), pulumi.get_project(), pulumi.get_stack(), name))


def given_properties(name: str, args: Any) -> Properties:
    """The arguments of the resource ``name``, with what the running program's configuration adds to them.

    :raises ProgramError: no Eureka is configured, or not under the connection that is named.
    """
    given = {"renewer": Default.FROM_CONFIG, **as_dictionary(args)}
    if given["renewer"] is Default.FROM_CONFIG:
        given["renewer"] = program_renewer()
    elif given["renewer"] is None:
        given["renewer"] = ""  # None would vanish on the way to the check, which says what is wrong with it
    connection = given.get("connection") or DEFAULT_CONNECTION
    if not is_rendered.get() and not pulumi.runtime.is_dry_run():
        given[IN_UPDATE] = True
    return {
        **given,
        "connection": None if connection == DEFAULT_CONNECTION else connection,
        "service_url": ",".join(program_connection(connection).service_urls),
        "owner": stack_owner(name),
    }


def peers_for(config: Config | None, connection: str, service_urls: Iterable[str]) -> Peers:
    """The servers of a state or of checked inputs, with what credentials are configured for them today."""
    return shared_peers(connection_of_state(_setting(config), service_urls, name=connection))


def peers_to_leave(config: Config | None, connection: str, service_urls: Iterable[str]) -> Peers | None:
    """The same for what is only looked for or removed; None where nobody is to be asked any more."""
    abandoned = abandoned_urls(_setting(config))
    left = [url for url in service_urls if url not in abandoned]
    return peers_for(config, connection, left) if left else None


def let_go(what: str, service_urls: Iterable[str]) -> str:
    """A sentence for a person about what was not looked for."""
    return printable(f"{what} at {', '.join(service_urls)} was let go of: {NAMESPACE}:abandonedUrls says so")


@contextmanager
def saying_the_way_out(
    config: Config | None, connection: str, service_urls: Iterable[str], *, is_leaving: bool = False
) -> Iterator[None]:
    """Let an error of servers that are not configured any more say how to go on without them.

    :param is_leaving: say so of configured ones, too: what is there is to be removed.
    """
    try:
        yield
    except (RegistryUnreachable, RegistryDenied) as error:
        urls = ",".join(service_urls)
        is_known = connection_to(_setting(config), urls.split(","), name=connection) is not None
        hints = []
        if isinstance(error, RegistryDenied) and not is_known:
            hints.append(
                "credentials are sent only to URLs that are configured: name this one in a connection of its"
                f" own with its credentials (pulumi config set --path {NAMESPACE}:connections.old.url {urls},"
                " and user and password beside it)"
            )
        if not is_known or (is_leaving and isinstance(error, RegistryUnreachable)):
            hints.append(
                "where these servers are gone for good, or are known by another URL now, let go of what they"
                f" hold: pulumi config set {NAMESPACE}:abandonedUrls {urls}"
            )
        if not hints:
            raise
        message = "; ".join((str(error), *hints))
        raise type(error)(message, url=error.url, status_code=error.status_code) from error


def _setting(config: Config | None) -> Setting:
    def setting(key: str) -> str | None:
        value = config.get(f"{NAMESPACE}:{key}") if config is not None else None
        return value if isinstance(value, str) or value is None else json.dumps(value)

    return setting


def is_asked_for(given: Mapping[str, Any], checked: Checked) -> bool:
    """Whether it is an update that asks for these properties, not a preview, and all of them are known."""
    return IN_UPDATE in given and not checked.problems and not contains_unknown(checked.properties)


def unfinished(given: Mapping[str, Any], checked: Checked, find: Callable[[], Sought]) -> Properties:
    """Marks for what an earlier run left in Eureka of what a state has, so that an update must see to it.

    A state that was written before that run does not say so. A preview asks nobody, and one that is not
    answered is no reason to fail: the next refresh shows it.

    :param find: the servers, what to look at, and the places that the state has there.
    """
    if not is_asked_for(given, checked):
        return {}
    peers, instances, in_state = find()
    if peers in _SILENT:
        return {}
    try:
        return dict.fromkeys(sorted(was_left(peers, instances, in_state, _say)), True)
    except RegistryError:
        _SILENT.add(peers)
        return {}


def _say(sentence: str) -> None:
    print(printable(sentence), file=sys.stderr, flush=True)


_TOLD_AT_ONCE = 3

_SILENT: set[Peers] = set()
"""Asked for nothing, and gave no answer: one time-out is enough."""


def read_in(properties: Mapping[str, Any]) -> Properties:
    """Pulumi's dictionary as ours: without its own keys, and with one marker for what is unknown.

    What this provider has made a secret comes without that again: the engine keeps the secrets.
    """
    return {key: _marked(value) for key, value in properties.items() if not key.startswith("__")}


def tell_of(checked: Checked, resource: str) -> None:
    """Say on standard error, which Pulumi shows, what is not refused and should be mended."""
    for one in checked.warnings[:_TOLD_AT_ONCE]:
        print(printable(f"{resource}: {one.property}: {one.reason}"), file=sys.stderr, flush=True)
    if len(checked.warnings) > _TOLD_AT_ONCE:
        print(f"{resource}: and {len(checked.warnings) - _TOLD_AT_ONCE} more", file=sys.stderr, flush=True)


def as_secret(value: Any) -> Properties:
    """``value`` as Pulumi's engine reads a secret: encrypted in the state, and shown to nobody."""
    return {SIGNATURE: SECRET, "value": value}


def write_out(properties: Mapping[str, Any]) -> Properties:
    """Ours as Pulumi's."""
    return {key: _unmarked(value) for key, value in properties.items()}


def _marked(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get(SIGNATURE) == SECRET:
            return _marked(value["value"])
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return UNKNOWN if isinstance(value, pulumi.output.Unknown) or value == rpc.UNKNOWN else value


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unmarked(item) for key, item in value.items()}
    return rpc.UNKNOWN if value is UNKNOWN else value
