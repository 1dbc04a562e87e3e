"""The door for every kind of Pulumi provider: check, diff, create, read, update and delete, without Pulumi.

A provider hands over properties with :data:`~eurekube_provider.registrations.values.UNKNOWN` for what is
not known yet, and without secrets' wrappings. Every call is idempotent.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.errors import EurekubeError, RegistryError
from eurekube_provider.core.quoting import printable
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.removal_checks import REMOVAL_CHECKS
from eurekube_provider.registrations import application_state, instance_state, lifecycle
from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.connections import Setting
from eurekube_provider.registrations.defaults import shortened
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.difference import StateDifference, at_other_servers
from eurekube_provider.registrations.draining import was_left
from eurekube_provider.registrations.members import ID_BASE, check_members
from eurekube_provider.registrations.properties import (
    HALF_DONE,
    INCARNATION,
    SECRET_ID,
    Properties,
    contains_unknown,
    derived_secrets,
    without_secrets,
)
from eurekube_provider.registrations.property_check import Checked, check
from eurekube_provider.registrations.renewer_check import RENEWER_CHECK
from eurekube_provider.registrations.run_resources import RUN_RESOURCES
from eurekube_provider.registrations.servers import (
    PEERS,
    let_go,
    saying_the_way_out,
    servers_of,
    servers_to_leave,
)

_TOLD_OF_MANY = 3
"""How many warnings, or instances that were not removed, are told."""


@dataclass(frozen=True, slots=True)
class Created:
    """A resource that was made: what Pulumi calls it, and its state."""

    id: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class Found:
    """What Eureka holds of a resource.

    :ivar properties: its state by now.
    :ivar inputs: what a program would have to write for that, so that a preview shows drift.
    :ivar unnamed: the instances that no program names, of which nobody knows what is secret.
    """

    properties: Properties
    inputs: Properties
    unnamed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells one kind of resource from another: how its properties are read and its state is written.

    :ivar stables: the properties that an update never changes.
    """

    stables: tuple[str, ...]
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], Checked]
    shortened: Callable[[Mapping[str, Any]], Properties]
    diff: Callable[[Mapping[str, Any], Mapping[str, Any]], StateDifference]
    outputs: Callable[[Mapping[str, Any], DesiredState, ActualState], Properties]
    inputs: Callable[[Mapping[str, Any]], Properties]
    id_of: Callable[[DesiredState, Mapping[str, Any]], str]


INSTANCE = Kind(
    instance_state.IDENTITY,
    check,
    shortened,
    instance_state.diff,
    instance_state.outputs,
    instance_state.inputs,
    instance_state.id_of,
)
APPLICATION = Kind(
    ("application", ID_BASE),
    check_members,
    dict,
    application_state.diff,
    application_state.outputs,
    application_state.inputs,
    application_state.id_of,
)


class RegistrationResource:
    """An EurekaInstance or an EurekaApplication, as any provider serves it.

    :param setting: the stack's configuration; credentials come from there, or from the environment.
    :param tell: shows a person a sentence.
    """

    def __init__(self, kind: Kind, setting: Setting, tell: Callable[[str], None] | None = None) -> None:
        self._kind = kind
        self._setting = setting
        self._tell = tell or told_on_standard_error

    def check(self, olds: Properties, news: Properties, *, is_update: bool) -> Checked:
        """Normalise the properties, and refuse what Eureka could not hold.

        That of an update reads what an earlier run left; that of a preview asks no server.
        """
        written, derived = without_secrets(news)
        checked = self._kind.check(olds, written)
        properties = {
            **self._kind.shortened(checked.properties),
            **derived_secrets(derived, checked.properties),
        }
        for one in checked.warnings[:_TOLD_OF_MANY]:
            self._tell(f"{properties.get('owner')}: {one.property}: {one.reason}")
        if len(checked.warnings) > _TOLD_OF_MANY:
            self._tell(f"{properties.get('owner')}: and {len(checked.warnings) - _TOLD_OF_MANY} more")
        if olds and is_update and not checked.problems and not contains_unknown(checked.properties):
            properties |= self._left_by_an_earlier_run(olds, properties)
            RUN_RESOURCES.ask_for(properties)
        return replace(checked, properties=properties)

    def diff(self, olds: Properties, news: Properties) -> StateDifference:
        """Compare a state with checked properties, and note what goes on in place; asks no server."""
        difference = self._kind.diff(olds, news)
        if not difference.replaces:
            RUN_RESOURCES.add(olds)
        return difference

    def create(self, news: Properties) -> Created:
        """Register all or none, under an incarnation of its own.

        An error of which something may be left carries a state that names it.

        A replacement registers the new half before the old one is removed, perhaps in another run, and where
        it stands in the old one's place its incarnation is all that tells them apart.
        """
        news = {**news, INCARNATION: secrets.token_hex(4)}
        wanted = DesiredState.from_properties(news)
        wait = CANCELLATION.begin(wanted.drain_seconds)
        peers = self._peers_for_writing(wanted)
        doubt = RENEWER_CHECK.check(peers, wanted.connection, wanted.renewer)
        id_ = secrets.token_hex(16) if SECRET_ID in news else self._kind.id_of(wanted, news)
        with _half_done(id_, news):
            held = lifecycle.create(wanted, peers, REMOVAL_CHECKS, wait)
        if doubt:
            self._tell(doubt)
        if wanted.has_members:
            REMOVAL_CHECKS.finish()  # of what the state did not have
            news["created"] = datetime.now(UTC).isoformat()
        return Created(id_, self._kind.outputs(news, wanted, held))

    def read(self, olds: Properties) -> Found | None:
        """Look for it on every server. None only where each holds nothing of it, or is abandoned."""
        previous = DesiredState.from_properties(olds)
        peers = servers_to_leave(self._setting, previous.connection, previous.service_urls)
        with saying_the_way_out(self._setting, previous.connection, previous.service_urls):
            held = lifecycle.read(previous, peers) if peers else None
        if held is None:
            return None
        outs = self._kind.outputs(olds, previous, held)
        unnamed = frozenset(outs.get("instances", ())) - previous.registrations.keys()
        return Found(outs, self._kind.inputs(outs), unnamed)

    def update(self, olds: Properties, news: Properties) -> Properties:
        """Bring Eureka to what is asked for, and then remove what went.

        It is allowed where Eureka names the owner that the state names. An error of which something may
        be done carries a state that has the next update see to it.
        """
        # One of an earlier release stays without: a removal must know what an update that failed has written.
        kept = {name: olds.get(name) for name in ("created", INCARNATION)}
        news = {**news, **kept}
        previous, wanted = DesiredState.from_properties(olds), DesiredState.from_properties(news)
        wait = CANCELLATION.begin(wanted.drain_seconds)
        peers = self._peers_for_writing(wanted)
        with _half_done("", olds):
            held = lifecycle.update(previous, wanted, peers, REMOVAL_CHECKS, wait)
        if wanted.has_members:
            REMOVAL_CHECKS.finish()
        return self._kind.outputs(news, wanted, held)

    def delete(self, olds: Properties) -> None:
        """Remove what carries the mark of the state; name what is left, since it is somebody else's."""
        previous = DesiredState.from_properties(olds)
        wait = CANCELLATION.begin(previous.drain_seconds)
        RUN_RESOURCES.give_back(previous, self._peers)
        wanted = RUN_RESOURCES.wanted_of(previous)
        peers = servers_to_leave(self._setting, previous.connection, previous.service_urls)
        if peers is None:
            self._tell(let_go(str(previous), previous.service_urls))
            return
        with saying_the_way_out(self._setting, previous.connection, previous.service_urls, is_leaving=True):
            removal = lifecycle.delete(previous, peers, wanted.__contains__, REMOVAL_CHECKS, wait)
            REMOVAL_CHECKS.finish()
        for instance in removal.left[:_TOLD_OF_MANY]:
            self._tell(lifecycle.left_alone(instance))
        if len(removal.left) > _TOLD_OF_MANY:
            self._tell(f"and so were {len(removal.left) - _TOLD_OF_MANY} more")

    def _left_by_an_earlier_run(self, olds: Properties, properties: Properties) -> Properties:
        """Marks for what an earlier run left in Eureka of what a state has, so that an update must see to it.

        A state that was written before that run does not say so. Servers that do not answer are no reason to
        fail: the next refresh shows it.
        """
        wanted = DesiredState.from_properties(properties)
        moved = at_other_servers(olds, properties)
        in_state = {} if moved else DesiredState.from_properties(olds).instances
        peers = self._peers(wanted)
        if peers in PEERS.silent:
            return {}
        try:
            left = was_left(peers, wanted.instances.values(), in_state, self._tell)
        except RegistryError:
            PEERS.silent.add(peers)
            return {}
        return dict.fromkeys(sorted(left), True)

    def _peers(self, of: DesiredState) -> Peers:
        return servers_of(self._setting, of.connection, of.service_urls)

    def _peers_for_writing(self, wanted: DesiredState) -> Peers:
        """The servers; what is registered there from now on was not left by a removal of this process."""
        peers = self._peers(wanted)
        for place in wanted.keys:
            REMOVAL_CHECKS.forget(peers, place)
        return peers


@contextmanager
def _half_done(id_: str, properties: Properties) -> Iterator[None]:
    """Let an error of which something may be left carry a state that says so."""
    try:
        yield
    except EurekubeError as error:
        if error.may_be_left:
            error.half_made = (id_, {**properties, HALF_DONE: True})
        raise


def told_on_standard_error(sentence: str) -> None:
    """Say it there, which Pulumi shows of a dynamic provider."""
    print(printable(sentence), file=sys.stderr, flush=True)
