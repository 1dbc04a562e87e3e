"""The operations behind every kind of Pulumi provider: check, diff, create, read, update and delete.

A provider hands over properties with :data:`~eurekube_provider.registrations.values.UNKNOWN` for unknown
values, and with secrets unwrapped. Every call is idempotent.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.errors import EurekubeError, RegistryError, RegistryRejected
from eurekube_provider.core.identity import StackOwner, are_of_one_stack, parse_owner
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.core.plan import whose
from eurekube_provider.core.quoting import printable
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.removal_checks import REMOVAL_CHECKS
from eurekube_provider.eureka.uncached_reads import Refused, read_each
from eurekube_provider.registrations import application_state, instance_state, lifecycle
from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.called_addresses import CalledAddress
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.connections import Setting
from eurekube_provider.registrations.declared_resources import DECLARED_RESOURCES
from eurekube_provider.registrations.defaults import shortened
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.difference import (
    StateDifference,
    adopted,
    at_other_servers,
    findings,
    has_news,
    without_findings,
)
from eurekube_provider.registrations.draining import leftovers_of_earlier_run
from eurekube_provider.registrations.members import ID_BASE, check_members, members
from eurekube_provider.registrations.progress import SHOWN_EVERY_SECONDS, Progress
from eurekube_provider.registrations.properties import (
    ABSENT,
    HALF_DONE,
    INCARNATION,
    LEAVING,
    SECRET_ID,
    SEEN_INCARNATION,
    STILL_ENFORCED,
    Properties,
    contains_unknown,
    derived_secrets,
    without_secrets,
)
from eurekube_provider.registrations.property_check import Checked, check, same_address
from eurekube_provider.registrations.registry_lists import LISTS
from eurekube_provider.registrations.renewer_check import RENEWER_CHECK
from eurekube_provider.registrations.servers import (
    PEERS,
    abandoned_message,
    servers_of,
    servers_to_leave,
    with_server_hints,
)
from eurekube_provider.registrations.values import OnConflict

_REPORTED_OF_MANY = 3
"""The number of warnings, or of instances that were not removed, that are reported one by one."""


_LEFT = {
    ABSENT: "Eureka does not hold what the state has; the update registers it again",
    HALF_DONE: "an earlier run ended before its state was written; the update finishes or undoes what it did",
    LEAVING: "a drain was interrupted; the update puts it back into service, and a removal drains it again",
    STILL_ENFORCED: "an earlier run enforced a status that the program does not; the update takes it back",
    SEEN_INCARNATION: "Eureka names another creation of it than the state; the update puts the state's back",
}
"""Sentences for the leftovers of an earlier run, by mark."""


@dataclass(frozen=True, slots=True)
class Created:
    """A created resource: its id in Pulumi, and its state."""

    id: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class Found:
    """A resource as Eureka holds it.

    :ivar properties: the state of the resource now.
    :ivar inputs: the inputs that ask for this state, so that a preview shows drift.
    :ivar unnamed: the instances that no program names; any of their values may be a secret.
    :ivar id: the id in Pulumi, where somebody wrote the id in another form; else empty.
    """

    properties: Properties
    inputs: Properties
    unnamed: frozenset[str] = frozenset()
    id: str = ""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """The functions of one kind of resource, which read its properties and write its state.

    :ivar stables: the properties that an update never changes.
    """

    stables: tuple[str, ...]
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], Checked]
    shortened: Callable[[Mapping[str, Any]], Properties]
    diff: Callable[[Mapping[str, Any], Mapping[str, Any]], StateDifference]
    outputs: Callable[[Mapping[str, Any], DesiredState, ActualState], Properties]
    inputs: Callable[[Mapping[str, Any]], Properties]
    id_of: Callable[[DesiredState, Mapping[str, Any]], str]
    addresses: Callable[[Mapping[str, Any]], Collection[CalledAddress]]


INSTANCE = ResourceType(
    instance_state.IDENTITY,
    check,
    shortened,
    instance_state.diff,
    instance_state.outputs,
    instance_state.inputs,
    instance_state.id_of,
    lambda properties: CalledAddress.all_of([properties]),
)
APPLICATION = ResourceType(
    ("application", ID_BASE),
    check_members,
    dict,
    application_state.diff,
    application_state.outputs,
    application_state.inputs,
    application_state.id_of,
    lambda properties: CalledAddress.all_of(members(properties).values()),
)


class RegistrationResource:
    """A EurekaInstance or a EurekaApplication, as any provider serves it.

    :param setting: the stack's configuration; credentials come from there, or from the environment.
    :param tell: shows a person a sentence, and hides secrets in it; without it, sentences on standard error
        name no address, which may be a secret.
    :param show: shows a call's progress, and replaces the earlier message; without it, a line goes to
        standard error now and then.
    """

    def __init__(
        self,
        kind: ResourceType,
        setting: Setting,
        tell: Callable[[str], None] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._kind = kind
        self._setting = setting
        self._progress = Progress(show, SHOWN_EVERY_SECONDS) if show else Progress(printed_to_standard_error)
        self._tell = tell or printed_to_standard_error
        self._hides_secrets = tell is not None

    def check(self, olds: Properties, news: Properties, *, is_update: bool) -> Checked:
        """Normalise the properties, and refuse those that Eureka could not hold.

        The check of an update reads an earlier run's leftovers; that of a preview asks no server.
        """
        written, derived = without_secrets(news)
        checked = self._other_resources_at(self._kind.check(olds, written), olds)
        properties = {
            **self._kind.shortened(checked.properties),
            **derived_secrets(derived, checked.properties),
        }
        for one in checked.warnings[:_REPORTED_OF_MANY]:
            reason = one.reason if self._hides_secrets else one.without_value()
            self._tell(f"{properties.get('owner')}: {one.property}: {reason}")
        if len(checked.warnings) > _REPORTED_OF_MANY:
            self._tell(f"{properties.get('owner')}: and {len(checked.warnings) - _REPORTED_OF_MANY} more")
        DECLARED_RESOURCES.checked(properties)
        if olds and is_update and not checked.problems and not contains_unknown(checked.properties):
            properties |= self._left_by_an_earlier_run(olds, properties)
            DECLARED_RESOURCES.add_wanted(properties)
        return replace(checked, properties=properties)

    def diff(self, olds: Properties, news: Properties) -> StateDifference:
        """Compare a state with checked properties, and note a resource that is not replaced; ask no server.

        A refresh compares the state that it found with the earlier inputs, and finds nothing new where the
        inputs have all findings already. An update reports an earlier run's leftovers in words: their marks
        are no properties of a program.
        """
        olds = adopted(olds, news)
        if not DECLARED_RESOURCES.is_checked(news):
            difference = self._kind.diff(without_findings(self._kind.inputs(olds)), without_findings(news))
            is_new = has_news(findings(olds), findings(news))
            return replace(difference, changes=difference.changes or is_new)
        difference = self._kind.diff(olds, news)
        for mark, reason in _LEFT.items():
            if mark in olds or mark in news:
                self._tell(f"{news.get('owner')}: {reason}")
        if not difference.replaces:
            DECLARED_RESOURCES.add(olds)
        return difference

    def create(self, news: Properties) -> Created:
        """Register all instances of a resource or none, under a new incarnation.

        An error after which registrations may be left carries a state that names them.

        A replacement registers the new resource before the old one is removed, perhaps in another run; where
        both have the same place, only the incarnation tells them apart.
        """
        news = {**news, INCARNATION: secrets.token_hex(4)}
        wanted = DesiredState.from_properties(news)
        wait = CANCELLATION.begin(wanted.drain_seconds)
        peers = self._peers_for_writing(wanted)
        doubt = RENEWER_CHECK.check(peers, wanted.connection, wanted.renewer)
        id_ = secrets.token_hex(16) if SECRET_ID in news else self._kind.id_of(wanted, news)
        with _half_done(id_, news), self._progress.shown():
            held = lifecycle.create(wanted, peers, REMOVAL_CHECKS, wait)
        if doubt:
            self._tell(doubt)
        if wanted.has_members:
            REMOVAL_CHECKS.finish()  # of what the state did not have
            news["created"] = datetime.now(UTC).isoformat()
        self._tell_refused(held.refused)
        return Created(id_, self._kind.outputs(news, wanted, held))

    def read(self, olds: Properties) -> Found | None:
        """Look for the resource on every server. Return None only where each server holds nothing of it,
        or is abandoned.
        """
        previous = DesiredState.from_properties(olds)
        peers = servers_to_leave(self._setting, previous.connection, previous.service_urls)
        with with_server_hints(self._setting, previous.connection, previous.service_urls):
            held = lifecycle.read(previous, peers) if peers else None
        if held is None or peers is None:
            return None
        self._tell_refused(held.refused)
        self._tell_who_is_beside(held.ours.values(), peers)
        outs = self._kind.outputs(olds, previous, held)
        unnamed = frozenset(outs.get("instances", ())) - previous.registrations.keys()
        return Found(outs, self._kind.inputs(outs), unnamed)

    def update(self, olds: Properties, news: Properties) -> Properties:
        """Bring Eureka to the wanted registrations, and then remove those that are not wanted any more.

        An update is allowed where Eureka names the owner in the state. An error after a partial change
        carries a state that makes the next update finish it.
        """
        # One of an earlier release stays without: a removal must know what an update that failed has written.
        # Of what was only imported it removes nothing.
        is_adoption = "service_url" not in olds and news.get("on_conflict") == OnConflict.ADOPT
        olds = adopted(olds, news)
        previous = DesiredState.from_properties(olds)
        if is_adoption:
            olds[INCARNATION] = secrets.token_hex(4)
        kept = {name: olds.get(name) for name in ("created", INCARNATION)}
        news = {**news, **kept}
        wanted = DesiredState.from_properties(news)
        wait = CANCELLATION.begin(wanted.drain_seconds)
        peers = self._peers_for_writing(wanted)
        with _half_done("", olds), self._progress.shown():
            held = lifecycle.update(previous, wanted, peers, REMOVAL_CHECKS, wait)
        if wanted.has_members:
            REMOVAL_CHECKS.finish()
        self._tell_refused(held.refused)
        return self._kind.outputs(news, wanted, held)

    def delete(self, olds: Properties) -> None:
        """Remove instances that carry the incarnation of the state; name those that are left, since
        somebody else has them.
        """
        if "service_url" not in olds:
            self._tell(f"{olds.get('application')} was imported, never adopted, and was left as it is")
            return
        previous = DesiredState.from_properties(olds)
        wait = CANCELLATION.begin(previous.drain_seconds)
        DECLARED_RESOURCES.give_back(previous, self._peers)
        wanted = DECLARED_RESOURCES.wanted_of(previous)
        peers = servers_to_leave(self._setting, previous.connection, previous.service_urls)
        if peers is None:
            self._tell(abandoned_message(str(previous), previous.service_urls))
            return
        way_out = with_server_hints(
            self._setting, previous.connection, previous.service_urls, is_leaving=True
        )
        with way_out, self._progress.shown():
            removal = lifecycle.delete(previous, peers, wanted.__contains__, REMOVAL_CHECKS, wait)
            REMOVAL_CHECKS.finish()
        if previous.registrations and not (removal.removed or removal.left):
            self._tell(lifecycle.not_there(previous))
        for instance in removal.left[:_REPORTED_OF_MANY]:
            self._tell(lifecycle.left_alone(instance))
        if len(removal.left) > _REPORTED_OF_MANY:
            self._tell(f"and so were {len(removal.left) - _REPORTED_OF_MANY} more")
        self._tell_refused(removal.refused)

    def _named(self, instance: Instance) -> str:
        """Return an instance's address; "an address" where nothing hides secrets in the sentence."""
        return f"{instance.ip_address}:{instance.port.number}" if self._hides_secrets else "an address"

    def _other_resources_at(self, checked: Checked, olds: Properties) -> Checked:
        """Refuse an address that another resource of the program asks for; only warn if this resource had it
        before.

        The other resource may be the new one, where the engine checks that first.
        """
        owner = str(checked.properties.get("owner"))
        service_url = str(checked.properties.get("service_url"))
        found = DECLARED_RESOURCES.addresses.take(owner, service_url, checked.addresses)
        if not found or checked.problems:
            return checked
        stood = self._kind.addresses(olds)
        problems, warnings = list(checked.problems), list(checked.warnings)
        for at, other in found.items():
            parsed = parse_owner(other)
            name = parsed.name if isinstance(parsed, StackOwner) else other
            resource = f"the resource {name!r} of this program"
            same = same_address(at, checked.addresses[at], resource, stands=at in stood)
            (warnings if at in stood else problems).append(same)
        return replace(checked, problems=tuple(problems), warnings=tuple(warnings))

    def _left_by_an_earlier_run(self, olds: Properties, properties: Properties) -> Properties:
        """Return marks for leftovers of an earlier run in Eureka, so that an update handles them.

        A state that was written before that run does not show them. Servers that do not answer are no reason
        to fail: the next refresh shows the leftovers.
        """
        wanted = DesiredState.from_properties(properties)
        before = None if at_other_servers(olds, properties) else DesiredState.from_properties(olds)
        # What a refresh has found is a change in any case.
        is_back = None if before is None or findings(olds) else wanted.returned(before)
        peers = self._peers(wanted)
        if peers in PEERS.silent:
            return {}
        try:
            in_state = {} if before is None else before.instances
            left = leftovers_of_earlier_run(peers, wanted.instances.values(), in_state, self._tell, is_back)
        except RegistryError:
            PEERS.silent.add(peers)
            return {}
        self._tell_who_is_beside(wanted.instances.values(), peers, wanted.owner)
        return dict.fromkeys(sorted(left), True)

    def _tell_who_is_beside(
        self, instances: Iterable[Instance], peers: Peers, of_other_stacks_than: str = ""
    ) -> None:
        """Warn of other instances of the application at an address of ours.

        A creation refuses such an address. The other instance may have come since, or at the same time, when
        no list had it. An instance that no request can name is reported as the list has it. A server that
        does not answer is no reason to fail.

        :param of_other_stacks_than: an owner; instances of its stack are not reported.
        """
        listed = {
            each.key: each
            for each in LISTS.beside(instances, peers)
            if not are_of_one_stack(each.owner, of_other_stacks_than)
        }
        refused = Refused()
        try:
            read = read_each(peers, list(listed)[:_REPORTED_OF_MANY], refused)
        except RegistryError:
            return
        there = (*read.values(), *(listed[key] for key in refused))
        found = [each for each in there if each is not None and each.status is Status.UP]
        for each in found:
            self._tell(
                f"callers of {each.application} find {self._named(each)} twice, since"
                f" {each.instance_id} is registered there, too, and {whose(each)}; give one of them another"
                " host_name or port, or remove one"
            )
        if found and len(listed) > _REPORTED_OF_MANY:
            self._tell(f"and up to {len(listed) - _REPORTED_OF_MANY} more in the same way")

    def _tell_refused(self, refused: Mapping[Key, RegistryRejected]) -> None:
        """Warn of instances that are listed as the resource's own, and can be neither read nor removed."""
        for (application, instance_id), error in list(refused.items())[:_REPORTED_OF_MANY]:
            self._tell(
                f"{application} {instance_id} is listed as this resource's, was not registered by it, and is"
                f" left as it is, since no request can name it ({error}); end what registers it"
            )
        if len(refused) > _REPORTED_OF_MANY:
            self._tell(f"and {len(refused) - _REPORTED_OF_MANY} more in the same way")

    def _peers(self, of: DesiredState) -> Peers:
        return servers_of(self._setting, of.connection, of.service_urls)

    def _peers_for_writing(self, wanted: DesiredState) -> Peers:
        """Return the servers, and forget earlier removals there: a later registration is no leftover of a
        removal.
        """
        peers = self._peers(wanted)
        for place in wanted.keys:
            REMOVAL_CHECKS.forget(peers, place)
        return peers


@contextmanager
def _half_done(id_: str, properties: Properties) -> Iterator[None]:
    """Attach a state to an error after which registrations may be left, within the context."""
    try:
        yield
    except EurekubeError as error:
        if error.may_be_left:
            error.half_made = (id_, {**properties, HALF_DONE: True})
        raise


def printed_to_standard_error(sentence: str) -> None:
    """Print a sentence to standard error, which Pulumi shows of a dynamic provider."""
    print(printable(sentence), file=sys.stderr, flush=True)
