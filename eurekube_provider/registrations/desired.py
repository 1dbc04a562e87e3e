"""Desired registrations of one resource of a stack, read from its properties or its state.

A EurekaInstance is handled as a EurekaApplication with one registration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from eurekube_provider.core.enforcement import StackInstancePolicy
from eurekube_provider.core.identity import (
    APPLICATION_MEMBER_KEY,
    ENFORCED_KEY,
    INCARNATION_KEY,
    SELF_RENEWER_VALUE,
    are_owners_of_same_stack,
)
from eurekube_provider.core.model import EMPTY_MAPPING, Instance, InstanceKey, Status
from eurekube_provider.registrations.defaults import with_defaults
from eurekube_provider.registrations.instance_fields import properties_to_instance
from eurekube_provider.registrations.members import member_properties
from eurekube_provider.registrations.properties import (
    ASKED_STATUS_PROPERTY,
    INCARNATION_PROPERTY,
    PROPERTIES,
    PropertyScope,
)
from eurekube_provider.registrations.values import OnConflict

_MANAGEMENT_PROPERTIES = tuple(each for each in PROPERTIES if each.scope is PropertyScope.RESOURCE)


class InstanceAddresses(NamedTuple):
    """An instance's application, id and port, and the addresses at which it is called.

    :ivar port: the port's number as text.
    :ivar addresses: IP addresses and host names.
    """

    application: str
    instance_id: str
    port: str
    addresses: tuple[str, ...]

    @classmethod
    def from_instance(cls, instance: Instance) -> InstanceAddresses:
        """Return the application, id, port and addresses of an instance, its IP address first."""
        addresses = (instance.ip_address, instance.host_name)
        return cls(*instance.key, str(instance.port.number), addresses)


def has_registered_itself_again(
    known: InstanceAddresses, have: InstanceAddresses, renewer: str | None, *, was_ours: bool
) -> bool:
    """Return whether an instance without an owner was registered again by the application of a known one,
    which renews itself and has its id, port and address.

    :param known: the place and addresses in the state, or in the program where others stood in the state.
    :param was_ours: False for a state that an import wrote, which does not prove that it ever was ours.
    """
    return (
        was_ours
        and renewer == SELF_RENEWER_VALUE
        and have[:3] == known[:3]
        and known.addresses[0] in have.addresses
    )


@dataclass(frozen=True, slots=True)
class Registration:
    """One instance that a resource asks for.

    :ivar instance: with owner, renewer and zone in its metadata; its status is UP where none is enforced.
    :ivar enforced_status: the status to enforce; None to start UP and to leave it to people from then on.
    :ivar asked_status: the status that a state's program enforced; ``status`` is the one that Eureka held
        instead.
    :ivar is_held_by_other: True if the state has here an instance that Eureka held for another owner, or for
        none.
    """

    instance: Instance
    enforced_status: Status | None = None
    asked_status: Status | None = None
    is_held_by_other: bool = False

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, Any], more_metadata: Mapping[str, str] = EMPTY_MAPPING
    ) -> Registration:
        """Read checked properties, or those of a state, with their defaults; nothing in them may be unknown.

        The ``status`` of a state is enforced only where ``status_is_enforced`` says so.
        """
        status = Status(properties["status"]) if properties.get("status") else None
        if properties.get("status_is_enforced") is False:
            status = None
        incarnation = properties.get(INCARNATION_PROPERTY)
        marks = {INCARNATION_KEY: str(incarnation)} if incarnation else {}
        asked = Status(properties[ASKED_STATUS_PROPERTY]) if properties.get(ASKED_STATUS_PROPERTY) else status
        if asked not in (None, Status.UP):
            marks[ENFORCED_KEY] = asked.value
        instance = properties_to_instance(properties, status or Status.UP, {**marks, **more_metadata})
        owner = properties.get("owner")
        return cls(instance, status, asked, properties.get("seen_owner", owner) != owner)

    def __str__(self) -> str:
        return f"{self.instance.application} {self.instance.instance_id}"

    def has_registered_itself_again(self, previous: Registration, have: Instance) -> bool:
        """Return whether ``have`` is the previous instance, registered again by its own application."""
        known = self.instance if previous.is_held_by_other else previous.instance
        return (
            have.owner is None
            and not have.unreadable
            and self.instance.key == previous.instance.key
            and has_registered_itself_again(
                InstanceAddresses.from_instance(known),
                InstanceAddresses.from_instance(have),
                self.instance.renewer,
                was_ours=bool(previous.instance.incarnation) or not previous.is_held_by_other,
            )
        )

    def enforce_up_once_where_status_lifted(
        self, previous: Registration, have: Instance | None
    ) -> Registration:
        """Enforce UP once, where the program lifted the status that Eureka still has; a person's stays."""
        is_over = previous.asked_status is not None and self.enforced_status is None
        if is_over and have is not None and have.status is previous.asked_status:
            return replace(self, enforced_status=Status.UP)
        return self


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The registrations of one resource, asked for by checked properties or by a state.

    :ivar owner: the owner that the instances are registered for, as text.
    :ivar connection: the name of one of ``eurekube:connections``, or of the default connection.
    :ivar drain_seconds: how long an instance stays OUT_OF_SERVICE before it is removed.
    :ivar renewer: who renews the instances: an operator's name, or the value for their own client.
    :ivar registrations: by the keys that the program gave them; each carries its key in its metadata. An
        EurekaInstance's has its id for a key.
    :ivar incarnation: the incarnation of the resource, as in the instances' metadata. Empty for a resource
        made before incarnations existed; None without a state: then every instance of the owner is meant.
    :ivar has_members: True for a EurekaApplication, of which Eureka may hold more instances than these.
    :ivar management_properties: the properties that are the same for all its registrations, to be compared.
    """

    application: str
    owner: str
    service_urls: tuple[str, ...]
    connection: str
    on_conflict: OnConflict
    drain_seconds: int
    renewer: str
    registrations: Mapping[str, Registration]
    incarnation: str | None = ""
    has_members: bool = True
    management_properties: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> DesiredState:
        """Read the checked properties, or the state, of either kind of resource; no value may be unknown."""
        has_members = "instances" in properties
        properties = properties if has_members else with_defaults(properties)
        incarnation = str(properties.get(INCARNATION_PROPERTY) or "")
        if has_members:
            found = {
                key: Registration.from_properties(
                    with_defaults({**full, INCARNATION_PROPERTY: incarnation}), {APPLICATION_MEMBER_KEY: key}
                )
                for key, full in member_properties(properties).items()
            }
            for key in (properties.get("statuses") or {}).keys() & found.keys():
                found[key] = replace(found[key], asked_status=None)  # not the program's was found
            for key in (properties.get("held_by_others") or {}).keys() & found.keys():
                found[key] = replace(found[key], is_held_by_other=True)
        else:
            found = {str(properties["instance_id"]): Registration.from_properties(properties)}
        return cls(
            application=str(properties["application"]),
            owner=str(properties["owner"]),
            service_urls=tuple(str(properties["service_url"]).split(",")),
            connection=str(properties["connection"]),
            on_conflict=OnConflict(properties["on_conflict"]),
            drain_seconds=int(properties["drain_seconds"]),
            renewer=str(properties["renewer"]),
            registrations=found,
            incarnation=incarnation,
            has_members=has_members,
            management_properties={
                **{each.name: each.type(properties[each.name]) for each in _MANAGEMENT_PROPERTIES},
                "service_url": frozenset(str(properties["service_url"]).split(",")),
            },
        )

    def __str__(self) -> str:
        return self.application if self.has_members else str(self.single_registration)

    @property
    def single_registration(self) -> Registration:
        """The one registration of a EurekaInstance."""
        (single_registration,) = self.registrations.values()
        return single_registration

    @property
    def program_keys(self) -> dict[InstanceKey, str]:
        """The program's key of each instance, by application and id."""
        return {each.instance.key: key for key, each in self.registrations.items()}

    @property
    def instances(self) -> dict[InstanceKey, Instance]:
        """The wanted instances, by application and id."""
        return {each.instance.key: each.instance for each in self.registrations.values()}

    def has_registered(self, held: Instance) -> bool:
        """Return whether this incarnation of the resource registered ``held``, perhaps under another name in
        its stack: an update that renamed it may have ended before the state was written.
        """
        if self.incarnation not in (None, held.incarnation):
            return False
        return held.owner == self.owner or (
            bool(self.incarnation) and are_owners_of_same_stack(held.owner, self.owner)
        )

    def make_registered_again_check(self, previous: DesiredState) -> Callable[[Instance], bool]:
        """Return a predicate: True for a previous instance that its own application has registered again.

        :param previous: the properties of a state; without one nothing is known to have been ours.
        """
        before = {each.instance.key: each for each in previous.registrations.values()}
        places = {each.instance.key: each for each in self.registrations.values()}

        def is_registered_again(have: Instance) -> bool:
            known, wanted = before.get(have.key), places.get(have.key)
            return (
                known is not None and wanted is not None and wanted.has_registered_itself_again(known, have)
            )

        return is_registered_again if previous.incarnation is not None else lambda _: False

    def policies(self, owned_keys: Iterable[InstanceKey]) -> dict[InstanceKey, StackInstancePolicy]:
        """Return the policy of each place; ``owned_keys`` are this resource's own places, or taken over."""
        policies = dict.fromkeys(owned_keys, StackInstancePolicy(adopts=True))
        for each in self.registrations.values():
            place = each.instance.key
            adopts = self.on_conflict is OnConflict.ADOPT or place in policies
            policies[place] = StackInstancePolicy(adopts, each.enforced_status)
        return policies

    def for_any_incarnation(self, owned: Mapping[InstanceKey, Instance] | None = None) -> DesiredState:
        """Return a copy that applies to instances of any incarnation, for a caller without a state; instances
        that the owner already has keep their incarnation.
        """
        kept = dict(self.registrations)
        for key, each in self.registrations.items():
            held = (owned or {}).get(each.instance.key)
            if held is not None and held.owner == self.owner and held.incarnation:
                metadata = {**each.instance.metadata, INCARNATION_KEY: held.incarnation}
                kept[key] = replace(each, instance=replace(each.instance, metadata=metadata))
        return replace(self, registrations=kept, incarnation=None)

    def enforce_up_once_where_status_lifted(
        self, previous: DesiredState, owned: Mapping[InstanceKey, Instance]
    ) -> DesiredState:
        """Set UP as the status to enforce once, wherever the program lifted the status that it enforced."""
        now = dict(self.registrations)
        for key, each in self.registrations.items():
            earlier = previous.registrations.get(key)
            if earlier is not None and earlier.instance.key == each.instance.key:
                now[key] = each.enforce_up_once_where_status_lifted(earlier, owned.get(each.instance.key))
        return replace(self, registrations=now)


def program_key(instance: Instance, keys: Mapping[InstanceKey, str]) -> str:
    """Return the key that the program gives, or once gave, an instance; without one, its instance id."""
    return keys.get(instance.key) or instance.metadata.get(APPLICATION_MEMBER_KEY) or instance.instance_id
