"""Registration and removal of a rendered stack's instances without a state: their owner finds them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from dataclasses import replace

from eurekube_provider.core.identity import APPLICATION_MEMBER_KEY, StackOwner, parse_owner
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.removal_checks import RemovalChecks
from eurekube_provider.eureka.uncached_reads import RefusalByKey, read_everywhere
from eurekube_provider.registrations import lifecycle
from eurekube_provider.registrations.actual import read_actual
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION_NAME
from eurekube_provider.registrations.desired import DesiredState, Registration
from eurekube_provider.registrations.draining import InstanceAtServers, drain_and_find_registered_again
from eurekube_provider.registrations.values import OnConflict
from eurekube_provider.stateless.render import RenderedStack

STALE_LIST_WARNING = (
    "  Eureka's list is older than this apply: what another apply registered in the last 30 s, and the"
    " program does not have, may be there still; apply once more in 30 s"
)

LineReporter = Callable[[str], None]
"""A function that prints one line for a person."""


class RenderedRegistrations:
    """The registrations of a rendered stack at all its Eurekas; ``report`` gets a line for each, which ends
    with the connection's name in brackets unless that is the default one.
    """

    def __init__(self, rendered: RenderedStack, report: LineReporter) -> None:
        self._rendered = rendered
        self._report = report
        made = (*rendered.registrations.values(), *rendered.applications.values())
        self._resources = [DesiredState.from_properties(each).for_any_incarnation() for each in made]
        self._peers = {name: Peers(connection) for name, connection in rendered.connections.items()}
        self._registered_by_connection: dict[str, list[Instance]] = {}

    def register(self) -> None:
        """Register the program's instances, and then remove an application's other ones.

        :raises EurekubeError: the first resource that failed; finished ones stay.
        """
        for desired in self._resources:
            peers = self._peers[desired.connection]
            lines = lifecycle.preview_lines(desired, peers)
            held = lifecycle.update(desired, desired, peers)
            self._registered_by_connection.setdefault(desired.connection, []).extend(held.owned.values())
            for line in lines:
                self._report_without_secrets(line, desired.connection)

    def remove_unrendered(self) -> None:
        """Remove the stack's instances that are not rendered, as far as Eureka's list shows them.

        :raises EurekubeError: the first removal that failed.
        """
        late = [name for name in self._peers if self._is_list_stale(name)]
        self._remove_instances(self._find_unrendered(self._resources))
        for name in late:
            self._report_without_secrets(STALE_LIST_WARNING, name)

    def preview(self) -> None:
        """Report what :meth:`register` and :meth:`remove_unrendered` would do."""
        for desired in self._resources:
            for line in lifecycle.preview_lines(desired, self._peers[desired.connection]):
                self._report_without_secrets(line, desired.connection)
        for connection, instance in self._find_unrendered(self._resources):
            self._report_removed(instance, connection)

    def remove_all(self) -> None:
        """Remove all instances of the stack, after one common drain of those that ask for it.

        :raises EurekubeError: the first removal that failed.
        """
        registered_again = self._drain_all_and_find_registered_again()
        checks = RemovalChecks()
        for desired in self._resources:
            self._remove_resource(replace(desired, drain_seconds=0), checks, registered_again.__contains__)
        checks.check_and_remove_again()
        self._remove_instances(
            each for each in self._find_unrendered([]) if each[1].key not in registered_again
        )

    def _drain_all_and_find_registered_again(self) -> Container[tuple[str, str]]:
        """Wait for the longest drain that is asked for; return what another run registered meanwhile."""
        leaving: list[InstanceAtServers] = []
        for desired in self._resources:
            if desired.drain_seconds:
                peers = self._peers[desired.connection]
                held = read_actual(desired, [desired.owner], peers)
                leaving += [(peers, each) for each in held.owned.values()]
        longest = max((each.drain_seconds for each in self._resources), default=0)
        return drain_and_find_registered_again(leaving, longest, time.sleep)

    def _find_unrendered(self, resources: Iterable[DesiredState]) -> list[tuple[str, Instance]]:
        """Return the stack's instances that ``resources`` do not ask for, read again, each with its
        connection's name. A list is up to 30 s old: the next run may find more.
        """
        wanted: dict[tuple[str, str], str] = {}
        updated: set[tuple[str, str | None, str]] = set()
        for desired in resources:
            wanted |= dict.fromkeys(desired.program_keys, desired.connection)
            if desired.has_members:  # the update of an application removes its surplus
                updated.add((desired.connection, desired.owner, desired.application))
        found: list[tuple[str, Instance]] = []
        for name, peers in self._peers.items():
            for instance in self._read_owned_instances(peers):
                is_member = APPLICATION_MEMBER_KEY in instance.metadata
                if is_member and (name, instance.owner, instance.application) in updated:
                    continue
                elsewhere = wanted.get(instance.key)
                if elsewhere is None or not self._is_same_registration(instance, name, elsewhere):
                    found.append((name, instance))
        return sorted(found, key=lambda each: (each[0], each[1].key))

    def _read_owned_instances(self, peers: Peers) -> list[Instance]:
        """Return the stack's instances that the servers of one Eureka list, each read again as it is now."""
        there, _ = peers.list_everywhere()  # a server may lack instances that another one holds
        listed = [each for each in there if self._is_owned_by_stack(each)]
        if not listed:
            return []
        # No stack registers an id that no request can name: somebody else wrote the stack's owner there.
        reads = read_everywhere(peers, [one.key for one in listed], RefusalByKey())
        held = (reads.newest(each.key) for each in listed)
        return [each for each in held if each is not None and self._is_owned_by_stack(each)]

    def _is_list_stale(self, name: str) -> bool:
        """Return whether a list lacks what this run registered, and so perhaps what an earlier run did."""
        made = self._registered_by_connection.get(name, ())
        listed = {each.key: each for each in self._peers[name].list_instances()} if made else {}
        return any(
            (there := listed.get(each.key)) is None
            or there.last_dirty_timestamp_ms != each.last_dirty_timestamp_ms
            for each in made
        )

    def _is_owned_by_stack(self, instance: Instance) -> bool:
        owner, ours = parse_owner(instance.owner), self._rendered
        return isinstance(owner, StackOwner) and owner == StackOwner(
            ours.organization, ours.project, ours.stack, owner.name
        )

    def _is_same_registration(self, instance: Instance, here: str, wanted_at: str) -> bool:
        """Return whether an instance ``here`` is the wanted one: two connections may lead to one Eureka."""
        if here == wanted_at:
            return True
        there = self._peers[wanted_at].read(*instance.key)
        return there is not None and there.last_dirty_timestamp_ms == instance.last_dirty_timestamp_ms

    def _remove_instances(self, unrendered: Iterable[tuple[str, Instance]]) -> None:
        checks = RemovalChecks()
        members: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
        for connection, instance in unrendered:
            group = (connection, instance.owner or "", instance.application)
            if APPLICATION_MEMBER_KEY in instance.metadata:
                members.setdefault(group, set()).add(instance.key)
            else:
                alone = {instance.instance_id: Registration(instance)}
                single = replace(
                    self._resource_without_registrations(*group), registrations=alone, has_members=False
                )
                self._remove_resource(single, checks)
        for group, keys in members.items():
            resource = self._resource_without_registrations(*group)
            self._remove_resource(resource, checks, lambda place: place not in keys)  # noqa: B023 - at once
        checks.check_and_remove_again()

    def _resource_without_registrations(self, connection: str, owner: str, application: str) -> DesiredState:
        """Return a resource without registrations; its removal removes all instances of the owner."""
        urls = self._rendered.connections[connection].service_urls
        return DesiredState(application, owner, urls, connection, OnConflict.FAIL, 0, "", {}, None)

    def _remove_resource(
        self,
        desired: DesiredState,
        checks: RemovalChecks,
        spare: Callable[[tuple[str, str]], bool] = lambda _: False,
    ) -> None:
        removal = lifecycle.delete(desired, self._peers[desired.connection], spare, checks)
        for instance in removal.removed:
            self._report_removed(instance, desired.connection)
        for instance in removal.not_removed:
            self._report_without_secrets(f"! {lifecycle.not_removed_message(instance)}", desired.connection)

    def _report_removed(self, instance: Instance, connection: str) -> None:
        self._report_without_secrets(f"- {instance.application} {instance.instance_id}", connection)

    def _report_without_secrets(self, sentence: str, connection: str) -> None:
        """Report a sentence, secrets hidden, with the connection's name unless it is the default one."""
        line = self._rendered.hide_secrets(sentence)
        self._report(line if connection == DEFAULT_CONNECTION_NAME else f"{line} [{connection}]")
