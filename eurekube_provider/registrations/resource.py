"""The operations behind every kind of Pulumi provider: check, diff, create, read, update and delete.

A provider hands over properties with :data:`~eurekube_provider.registrations.values.UNKNOWN` for unknown
values, and with secrets unwrapped. Every call is idempotent.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.errors import EurekubeError, RegistryError, RegistryRejected
from eurekube_provider.core.identity import (
    NATIVE_APPLICATION_TYPE,
    NATIVE_INSTANCE_TYPE,
    StackOwner,
    are_owners_of_same_stack,
    parse_owner,
)
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.plan import describe_owner
from eurekube_provider.core.quoting import printable
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.removal_checks import SHARED_REMOVAL_CHECKS
from eurekube_provider.eureka.uncached_reads import RefusalByKey, read_instances
from eurekube_provider.registrations import application_state, instance_state, lifecycle
from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.called_addresses import CalledAddress, Declaration
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.connections import SettingLookup
from eurekube_provider.registrations.declared_resources import DECLARED_RESOURCES
from eurekube_provider.registrations.defaults import (
    DERIVABLE_INPUT_NAMES,
    DERIVABLE_OUTPUT_NAMES,
    without_fixed_defaults,
)
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.difference import (
    StateDifference,
    complete_imported_state,
    diff,
    findings_of_refresh,
    has_new_finding,
    have_no_url_in_common,
    without_refresh_findings,
    without_values_of_state,
)
from eurekube_provider.registrations.draining import find_leftover_marks_of_earlier_run
from eurekube_provider.registrations.members import (
    APPLICATION_OUTPUT_NAMES,
    ID_BASE_PROPERTY,
    check_application,
    instance_ids,
    member_properties,
)
from eurekube_provider.registrations.progress import EPHEMERAL_MESSAGE_INTERVAL_SECONDS, ProgressReporter
from eurekube_provider.registrations.properties import (
    ABSENT_MARK,
    APPLICATION_DERIVATION_SOURCES,
    BOOKKEEPING_NAMES,
    HALF_DONE_MARK,
    INCARNATION_PROPERTY,
    INSTANCE_DERIVATION_SOURCES,
    LEAVING_MARK,
    OUTPUT_ONLY_NAMES,
    SECRET_ID_MARK,
    SEEN_INCARNATION_PROPERTY,
    STILL_ENFORCED_MARK,
    Properties,
    contains_unknown,
    select_derived_secrets,
    split_secret_placeholders,
)
from eurekube_provider.registrations.property_check import (
    CheckedProperties,
    CheckFailure,
    check,
    same_address_failure,
)
from eurekube_provider.registrations.registry_lists import SHARED_REGISTRY_LIST_CACHE, SHARED_RENEWER_CHECK
from eurekube_provider.registrations.servers import (
    SHARED_PEERS,
    abandoned_message,
    peers_for_urls,
    peers_not_abandoned,
    with_server_hints,
)
from eurekube_provider.registrations.values import OnConflict

_MAX_REPORTED_ONE_BY_ONE = 3

_SENTENCE_BY_LEFTOVER_MARK = {
    ABSENT_MARK: "Eureka does not hold what the state has; the update registers it again",
    HALF_DONE_MARK: (
        "an earlier run ended before its state was written; the update finishes or undoes what it did"
    ),
    LEAVING_MARK: (
        "a drain was interrupted; the update puts it back into service, and a removal drains it again"
    ),
    STILL_ENFORCED_MARK: (
        "an earlier run enforced a status that the program does not; the update takes it back"
    ),
    SEEN_INCARNATION_PROPERTY: (
        "Eureka names another creation of it than the state; the update puts the state's back"
    ),
}


@dataclass(frozen=True, slots=True)
class FoundResource:
    """A resource as Eureka holds it.

    :ivar properties: the state of the resource now.
    :ivar inputs: the inputs that ask for this state, so that a preview shows drift.
    :ivar undeclared_keys: the keys of instances that no program names; any of their values may be a secret.
    :ivar id: the id in Pulumi, where somebody wrote the id in another form; else empty.
    :ivar unasked_keys: the keys of instances that the inputs leave out, since a program could not ask for
        them beside the others.
    """

    properties: Properties
    inputs: Properties
    undeclared_keys: frozenset[str] = frozenset()
    id: str = ""
    unasked_keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RegistrationKind:
    """EurekaInstance or EurekaApplication: its names, and the functions for checks, inputs and outputs.

    :ivar token: its type in the native provider.
    :ivar stables: the properties that an update never changes.
    :ivar known_afterwards: properties that only Eureka knows, unknown in a preview.
    :ivar derivation_sources: the properties that the check derives, each with its sources.
    :ivar derivable_inputs, derivable_outputs: properties that the native provider leaves out of inputs and
        outputs where they follow from the rest.
    """

    token: str
    stables: tuple[str, ...]
    known_afterwards: tuple[str, ...]
    derivation_sources: Mapping[str, tuple[str, ...]]
    derivable_inputs: tuple[str, ...]
    derivable_outputs: tuple[str, ...]
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], CheckedProperties]
    without_fixed_defaults: Callable[[Mapping[str, Any]], Properties]
    outputs: Callable[[Mapping[str, Any], DesiredState, ActualState], Properties]
    inputs: Callable[[Mapping[str, Any]], Properties]
    resource_id: Callable[[DesiredState, Mapping[str, Any]], str]


INSTANCE_REGISTRATION_KIND = RegistrationKind(
    NATIVE_INSTANCE_TYPE,
    ("application", "instance_id"),
    tuple(name for name in OUTPUT_ONLY_NAMES if name not in BOOKKEEPING_NAMES),
    INSTANCE_DERIVATION_SOURCES,
    DERIVABLE_INPUT_NAMES,
    DERIVABLE_OUTPUT_NAMES,
    check,
    without_fixed_defaults,
    instance_state.outputs,
    instance_state.inputs,
    instance_state.resource_id,
)
APPLICATION_REGISTRATION_KIND = RegistrationKind(
    NATIVE_APPLICATION_TYPE,
    ("application", ID_BASE_PROPERTY),
    APPLICATION_OUTPUT_NAMES,
    APPLICATION_DERIVATION_SOURCES,
    (),
    (),
    check_application,
    dict,
    application_state.outputs,
    application_state.inputs,
    application_state.resource_id,
)


class RegistrationResource:
    """A EurekaInstance or a EurekaApplication, as every kind of provider handles it.

    :param setting: the stack's configuration; credentials come from there, or from the environment.
    :param warn: shows a person a sentence, and hides secrets in it; by default on standard error, where no
        sentence names an address, which may be a secret.
    :param show_progress: shows progress in place of the message before; by default now and then a line.
    """

    def __init__(
        self,
        kind: RegistrationKind,
        setting: SettingLookup,
        warn: Callable[[str], None] | None = None,
        show_progress: Callable[[str], None] | None = None,
    ) -> None:
        self._kind = kind
        self._setting = setting
        self._progress = (
            ProgressReporter(show_progress, EPHEMERAL_MESSAGE_INTERVAL_SECONDS)
            if show_progress
            else ProgressReporter(print_to_standard_error)
        )
        self._warn = warn or print_to_standard_error
        self._hides_secrets = warn is not None

    def check(
        self, olds: Properties, news: Properties, *, is_update: bool, mark: str = ""
    ) -> CheckedProperties:
        """Normalise the properties, and refuse those that Eureka could not hold.

        The check of an update reads an earlier run's leftovers; that of a preview asks no server.

        :param mark: tells the resource from others of the same owner in this program; may be empty.
        """
        written, derived = split_secret_placeholders(without_values_of_state(news, olds))
        checked = self._refuse_claims_of_others(self._kind.check(olds, written), olds, mark)
        properties = {
            **self._kind.without_fixed_defaults(checked.properties),
            **select_derived_secrets(derived, checked.properties),
        }
        owner = properties.get("owner")
        reasons = [
            f"{owner}: {one.property}: {one.reason if self._hides_secrets else one.reason_without_value()}"
            for one in checked.warnings
        ]
        self._warn_of_first(reasons, f"{owner}: and")
        is_in_state = bool(olds) and not checked.problems and not contains_unknown(checked.properties)
        if is_in_state and is_update:
            properties |= self._find_leftover_marks(olds, properties)
        DECLARED_RESOURCES.record_declared(properties, is_in_state=is_in_state and is_update)
        return replace(checked, properties=properties)

    def diff(self, olds: Properties, news: Properties) -> StateDifference:
        """Compare a state with checked properties, and note a resource that is not replaced; ask no server.

        A refresh compares what it found with the earlier inputs, and finds nothing new where they have all
        findings already. An update reports leftovers in words: their marks are no properties of a program.
        """
        olds = complete_imported_state(olds, news)
        if not DECLARED_RESOURCES.is_declared(news):
            difference = diff(
                without_refresh_findings(self._kind.inputs(olds)), without_refresh_findings(news)
            )
            is_new = has_new_finding(findings_of_refresh(olds), findings_of_refresh(news))
            return replace(difference, has_changes=difference.has_changes or is_new)
        difference = diff(olds, news)
        for mark, reason in _SENTENCE_BY_LEFTOVER_MARK.items():
            if mark in olds or mark in news:
                self._warn(f"{news.get('owner')}: {reason}")
        if not difference.replaces:
            DECLARED_RESOURCES.record_not_replaced(olds)
        return difference

    def create(self, news: Properties) -> tuple[str, Properties]:
        """Register all instances of a resource or none, under a new incarnation, by which a replacement tells
        them from those of the old resource in the same place; return the id in Pulumi, and the state.

        An error after which registrations may be left carries a state that names them.
        """
        news = {**news, INCARNATION_PROPERTY: secrets.token_hex(4)}
        wanted = DesiredState.from_properties(news)
        wait = CANCELLATION.begin_call(wanted.drain_seconds)
        peers = self._peers_without_removal_checks(wanted)
        doubt = SHARED_RENEWER_CHECK.missing_renewer_warning(peers, wanted.connection, wanted.renewer)
        id_ = secrets.token_hex(16) if SECRET_ID_MARK in news else self._kind.resource_id(wanted, news)
        with _attach_half_made_state(id_, news), self._progress.activate():
            held = lifecycle.create(wanted, peers, SHARED_REMOVAL_CHECKS, wait)
        if doubt:
            self._warn(doubt)
        if wanted.has_members:
            SHARED_REMOVAL_CHECKS.check_and_remove_again()  # of members that the program does not have
            news["created"] = datetime.now(UTC).isoformat()
        self._warn_of_unaddressable(held.unaddressable)
        return id_, self._kind.outputs(news, wanted, held)

    def read(self, olds: Properties) -> FoundResource | None:
        """Look for the resource; return None only where each server holds nothing of it, or is abandoned."""
        previous = DesiredState.from_properties(olds)
        peers = peers_not_abandoned(self._setting, previous.connection, previous.service_urls)
        with with_server_hints(self._setting, previous.connection, previous.service_urls):
            held = lifecycle.read(previous, peers) if peers else None
        if held is None or peers is None:
            return None
        self._warn_of_unaddressable(held.unaddressable)
        self._warn_of_shared_addresses(held.owned.values(), peers)
        outs = self._kind.outputs(olds, previous, held)
        unnamed = frozenset(outs.get("instances", ())) - previous.registrations.keys()
        return FoundResource(outs, self._kind.inputs(outs), unnamed)

    def update(self, olds: Properties, news: Properties) -> Properties:
        """Bring Eureka to the wanted registrations, and then remove those that are not wanted any more.

        An error after a partial change carries a state that makes the next update finish it.
        """
        # A removal must know the incarnation that a failed update has written. A resource of an earlier
        # release stays without one, and a resource that was only imported is not removed.
        is_adoption = "service_url" not in olds and news.get("on_conflict") == OnConflict.ADOPT
        olds = complete_imported_state(olds, news)
        previous = DesiredState.from_properties(olds)
        if is_adoption:
            olds[INCARNATION_PROPERTY] = secrets.token_hex(4)
        kept = {name: olds.get(name) for name in ("created", INCARNATION_PROPERTY)}
        news = {**news, **kept}
        wanted = DesiredState.from_properties(news)
        wait = CANCELLATION.begin_call(wanted.drain_seconds)
        peers = self._peers_without_removal_checks(wanted)
        with _attach_half_made_state("", olds), self._progress.activate():
            held = lifecycle.update(previous, wanted, peers, SHARED_REMOVAL_CHECKS, wait)
        if wanted.has_members:
            SHARED_REMOVAL_CHECKS.check_and_remove_again()
        self._warn_of_unaddressable(held.unaddressable)
        return self._kind.outputs(news, wanted, held)

    def delete(self, olds: Properties) -> None:
        """Remove instances of the state's incarnation; report the others, which have another owner."""
        if "service_url" not in olds:
            self._warn(f"{olds.get('application')} was imported, never adopted, and was left as it is")
            return
        previous = DesiredState.from_properties(olds)
        wait = CANCELLATION.begin_call(previous.drain_seconds)
        DECLARED_RESOURCES.restore_taken_places(previous, self._peers)
        wanted = DECLARED_RESOURCES.keys_still_wanted(previous)
        peers = peers_not_abandoned(self._setting, previous.connection, previous.service_urls)
        if peers is None:
            self._warn(abandoned_message(str(previous), previous.service_urls))
            return
        way_out = with_server_hints(
            self._setting, previous.connection, previous.service_urls, is_leaving=True
        )
        with way_out, self._progress.activate():
            removal = lifecycle.delete(previous, peers, wanted.__contains__, SHARED_REMOVAL_CHECKS, wait)
            SHARED_REMOVAL_CHECKS.check_and_remove_again()
        if previous.registrations and not (removal.removed or removal.not_removed):
            self._warn(lifecycle.not_registered_message(previous))
        # After a replacement in place the program's new registration stands there.
        left = [one for one in removal.not_removed if one.key not in wanted or previous.has_registered(one)]
        self._warn_of_first(map(lifecycle.not_removed_message, left), "and so were")
        self._warn_of_unaddressable(removal.unaddressable)

    def _refuse_claims_of_others(
        self, checked: CheckedProperties, olds: Properties, mark: str
    ) -> CheckedProperties:
        """Refuse an instance or an address that another resource of the program asks for, perhaps a newer one
        that was checked first; only warn if this resource had the address before.
        """
        resource = Declaration(str(checked.properties.get("owner")), mark)
        service_url = str(checked.properties.get("service_url"))
        instances = _claimed_instances(checked.properties)
        claims: list[Hashable] = [*instances, *checked.addresses]
        found = DECLARED_RESOURCES.claims.claim_and_find_conflicts(resource, service_url, claims)
        if not found or checked.problems:
            return checked
        before = member_properties(olds).values() if "instances" in olds else [olds]
        stood = set(map(CalledAddress.from_properties, before))
        problems, warnings = list(checked.problems), list(checked.warnings)
        for claim, other in found.items():
            parsed = parse_owner(other.owner)
            name = parsed.name if isinstance(parsed, StackOwner) else other.owner
            if isinstance(claim, CalledAddress):
                where, which = checked.addresses[claim], f"the resource {name!r} of this program"
                same = same_address_failure(claim, where, which, had_address_before=claim in stood)
                (warnings if claim in stood else problems).append(same)
                continue
            path, what = instances[claim]
            if other.owner == resource.owner:
                reason = f"another resource of the name {name!r} in this program {what}; rename one of them"
            else:
                reason = f"the resource {name!r} of this program {what}; give one of them another id"
            problems.append(CheckFailure(path, reason))
        return replace(checked, problems=tuple(problems), warnings=tuple(warnings))

    def _find_leftover_marks(self, olds: Properties, properties: Properties) -> Properties:
        """Return marks for leftovers of an earlier run, which an older state does not show, so that an update
        handles them; none where no server answers: the next refresh shows them.
        """
        wanted = DesiredState.from_properties(properties)
        before = None if have_no_url_in_common(olds, properties) else DesiredState.from_properties(olds)
        # With findings of a refresh, an update follows in any case.
        has_findings = bool(findings_of_refresh(olds))
        is_back = (
            (lambda _: False)
            if before is None or has_findings
            else wanted.make_registered_again_check(before)
        )
        peers = self._peers(wanted)
        if peers in SHARED_PEERS.unresponsive:
            return {}
        try:
            in_state = {} if before is None else before.instances
            left = find_leftover_marks_of_earlier_run(
                peers, wanted.instances.values(), in_state, self._warn, is_back, is_owner_found=has_findings
            )
        except RegistryError:
            SHARED_PEERS.unresponsive.add(peers)
            return {}
        self._warn_of_shared_addresses(wanted.instances.values(), peers, wanted.owner)
        return dict.fromkeys(sorted(left), True)

    def _warn_of_shared_addresses(
        self, instances: Iterable[Instance], peers: Peers, ignored_owner: str = ""
    ) -> None:
        """Warn of other instances of the application at an address of ours, which came since it was
        registered.

        An instance that no request can name is reported as the list has it; no server's silence is an error.

        :param ignored_owner: an owner; instances of its stack are not reported.
        """
        listed = {
            each.key: each
            for each in SHARED_REGISTRY_LIST_CACHE.other_instances_at_addresses(instances, peers)
            if not are_owners_of_same_stack(each.owner, ignored_owner)
        }
        refused = RefusalByKey()
        try:
            read = read_instances(peers, list(listed)[:_MAX_REPORTED_ONE_BY_ONE], refused)
        except RegistryError:
            return
        there = (*read.values(), *(listed[key] for key in refused))
        found = [each for each in there if each is not None and each.status is Status.UP]
        for each in found:
            address = f"{each.ip_address}:{each.port.number}" if self._hides_secrets else "an address"
            self._warn(
                f"callers of {each.application} find {address} twice, since "
                f"{each.instance_id} is registered there, too, and {describe_owner(each)}; give one of them "
                "another host_name or port, or remove one"
            )
        if found and len(listed) > _MAX_REPORTED_ONE_BY_ONE:
            self._warn(f"and up to {len(listed) - _MAX_REPORTED_ONE_BY_ONE} more in the same way")

    def _warn_of_unaddressable(self, refused: Mapping[InstanceKey, RegistryRejected]) -> None:
        """Warn of instances that are listed as the resource's own, and can be neither read nor removed."""
        sentences = (
            f"{application} {instance_id} is listed as this resource's, was not registered by it, and is"
            f" left as it is, since no request can name it ({error}); end what registers it"
            for (application, instance_id), error in refused.items()
        )
        self._warn_of_first(sentences, "and", " in the same way")

    def _warn_of_first(self, sentences: Iterable[str], before: str, after: str = "") -> None:
        """Show a person the first sentences; of the others the number, in one more sentence."""
        every = list(sentences)
        for sentence in every[:_MAX_REPORTED_ONE_BY_ONE]:
            self._warn(sentence)
        if len(every) > _MAX_REPORTED_ONE_BY_ONE:
            self._warn(f"{before} {len(every) - _MAX_REPORTED_ONE_BY_ONE} more{after}")

    def _peers(self, desired: DesiredState) -> Peers:
        return peers_for_urls(self._setting, desired.connection, desired.service_urls)

    def _peers_without_removal_checks(self, wanted: DesiredState) -> Peers:
        """Return the servers, without checks of removals: a new registration is no leftover of one."""
        peers = self._peers(wanted)
        for place in wanted.program_keys:
            SHARED_REMOVAL_CHECKS.forget(peers, place)
        return peers


def _claimed_instances(properties: Mapping[str, Any]) -> dict[Hashable, tuple[str, str]]:
    """Return what no second resource of a program may register, each with the path of its property and with
    words for it: instances, and members of an application under one owner.
    """
    application, members = properties.get("application"), properties.get("instances")
    if not isinstance(application, str):
        return {}
    found: dict[Hashable, tuple[str, str]] = {}
    if members is None:
        ids = {"instance_id": properties.get("instance_id")}
    else:
        known = instance_ids(properties) if isinstance(members, Mapping) else {}
        ids = {f"instances.{key}.instance_id": id_ for key, id_ in known.items()}
        what = "has instances of this application, and an update of one would remove those of the other"
        found[application, "", properties.get("owner")] = "instances", what
    for path, id_ in ids.items():
        if isinstance(id_, str):
            found[application, id_] = path, "registers the same instance"
    return found


@contextmanager
def _attach_half_made_state(id_: str, properties: Properties) -> Iterator[None]:
    """Attach a state to an error after which registrations may be left, within the context."""
    try:
        yield
    except EurekubeError as error:
        if error.may_leave_resource:
            error.partial_resource = (id_, {**properties, HALF_DONE_MARK: True})
        raise


def print_to_standard_error(sentence: str) -> None:
    """Print a sentence to standard error, which Pulumi shows of a dynamic provider."""
    print(printable(sentence), file=sys.stderr, flush=True)
