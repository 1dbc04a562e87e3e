"""What both dynamic providers share: Pulumi's dictionaries, the way to Eureka, and replaced halves.

Pulumi's plugin process imports it, outside of any program.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pulumi.dynamic import Config
from pulumi.runtime import rpc

from eurekube_provider.core.identity import StackOwner
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.resources.arguments import Default, as_dictionary
from eurekube_provider.resources.connections import (
    DEFAULT_CONNECTION,
    NAMESPACE,
    configured_connection,
    shared_peers,
)
from eurekube_provider.resources.looks import SecondLooks
from eurekube_provider.resources.program import program_connection, program_renewer
from eurekube_provider.resources.properties import UNKNOWN, Properties

Place = tuple[str, str]
"""Application and instance id; of many, application and owner."""

LOOKS = SecondLooks()
"""Of this process: the removals of one update are looked at once more together."""


class Replaced:
    """What this process registered, so that the half that it replaces does not remove it.

    Where a person forces a replacement, Pulumi registers the same id anew and then removes "the old one",
    which is the new one. The plugin process lives as long as one update, so that such a removal is known by
    the registration that went before it, and by a state older than that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Place, list[tuple[frozenset[str], str | None]]] = {}

    def add(self, peers: Peers, place: Place, when: str | None) -> None:
        """It was registered.

        :param when: what only its own state says; None where the state before says the same.
        """
        with self._lock:
            self._taken(peers, place)
            self._made.setdefault(place, []).append((frozenset(peers.connection.service_urls), when))

    def take(self, peers: Peers, place: Place, when: str | None) -> bool:
        """Whether a removal by the state that says ``when`` would remove what replaced it; asked once."""
        with self._lock:
            return any(made is None or made != when for made in self._taken(peers, place))

    def forget(self, peers: Peers, place: Place) -> None:
        """It goes on as it is: what removes it from now on is meant."""
        with self._lock:
            self._taken(peers, place)

    def _taken(self, peers: Peers, place: Place) -> list[str | None]:
        """Forget what was registered there at this Eureka; when each was."""
        here = [
            one for one in self._made.get(place, ()) if not one[0].isdisjoint(peers.connection.service_urls)
        ]
        self._made[place] = [one for one in self._made.get(place, ()) if one not in here]
        return [when for _, when in here]


REPLACED = Replaced()


def stack_owner(name: str) -> str:
    """Whom a resource of the running program registers for."""
    organization = pulumi.get_organization() or "organization"
    return str(StackOwner(organization, pulumi.get_project(), pulumi.get_stack(), name))


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
    return {
        **given,
        "connection": None if connection == DEFAULT_CONNECTION else connection,
        "service_url": ",".join(program_connection(connection).service_urls),
        "owner": stack_owner(name),
    }


def peers_for(config: Config | None, connection: str, service_urls: Iterable[str]) -> Peers:
    """The servers of a state or of checked inputs, with the credentials that are configured today."""

    def setting(key: str) -> str | None:
        value = config.get(f"{NAMESPACE}:{key}") if config is not None else None
        return value if isinstance(value, str) or value is None else json.dumps(value)

    return shared_peers(configured_connection(setting, service_url=",".join(service_urls), name=connection))


def read_in(properties: Mapping[str, Any]) -> Properties:
    """Pulumi's dictionary as ours: without its own keys, and with one marker for what is unknown."""
    return {key: _marked(value) for key, value in properties.items() if not key.startswith("__")}


def write_out(properties: Mapping[str, Any]) -> Properties:
    """Ours as Pulumi's."""
    return {key: _unmarked(value) for key, value in properties.items()}


def _marked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return UNKNOWN if isinstance(value, pulumi.output.Unknown) or value == rpc.UNKNOWN else value


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unmarked(item) for key, item in value.items()}
    return rpc.UNKNOWN if value is UNKNOWN else value
