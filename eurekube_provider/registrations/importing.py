"""Import of instances that Eureka holds and no state has, for ``pulumi import`` and for a program's ``get``.

An import asks to adopt, and keeps the renewer: an instance that its own client renews would stay UP for ever
if an operator renewed it, too. The result of ``get`` is read only, and names the owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import (
    SELF_RENEWER_VALUE,
    StackOwner,
    are_owners_of_same_stack,
)
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import (
    RefusalByKey,
    read_instances,
    require_one_eureka_and_return_errors,
)
from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.application_state import outputs as application_outputs
from eurekube_provider.registrations.defaults import FIXED_DEFAULTS
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.instance_fields import instance_to_properties
from eurekube_provider.registrations.instance_state import outputs as instance_outputs
from eurekube_provider.registrations.members import MEMBER_PROPERTY_NAMES, check_application
from eurekube_provider.registrations.properties import INCARNATION_PROPERTY, PROPERTIES, Properties
from eurekube_provider.registrations.property_check import CheckedProperties, check
from eurekube_provider.registrations.registry_lists import SHARED_REGISTRY_LIST_CACHE
from eurekube_provider.registrations.resource import FoundResource
from eurekube_provider.registrations.values import SETTABLE_STATUSES, OnConflict


def import_instance(id_: str, owner: StackOwner, service_url: str, peers: Peers) -> FoundResource | None:
    """Read the instance that ``APPLICATION/instance-id`` names as a resource; None where Eureka holds none.

    :raises ConfigurationError: the id has another form.
    :raises RegistryError: Eureka cannot be asked.
    """
    application, _, instance_id = id_.strip().partition("/")
    if not application or not instance_id:
        raise ConfigurationError(f"{id_!r} must be APPLICATION/instance-id, as BILLING/vm-17:billing:8080")
    held = peers.read(application.upper(), instance_id)
    if held is None:
        require_one_eureka_and_return_errors(f"read {id_.strip()}", peers)
        return None
    asked = _instance_inputs(held) | {"application": held.application} | _renewer_and_on_conflict(held, owner)
    if held.owner == str(owner) and held.is_status_enforced and held.status in SETTABLE_STATUSES:
        asked["status"] = held.status.value  # else the next update would put it back into service
    checked = _require_no_problems(id_, check({}, {**asked, "service_url": service_url, "owner": str(owner)}))
    if held.owner == str(owner) and held.incarnation:
        checked[INCARNATION_PROPERTY] = held.incarnation
    desired = DesiredState.from_properties(checked)
    return FoundResource(
        instance_outputs(checked, desired, _to_actual_state([held], desired)), asked, id="/".join(held.key)
    )


def import_application(id_: str, owner: StackOwner, service_url: str, peers: Peers) -> FoundResource | None:
    """Read the instances of an application that have no other owner as a resource; None where there are none.

    Instances that cannot be read exactly are left out. Keys are the instances' ids, or numbers. All have one
    renewer in a program: the inputs leave out those with another one.

    :raises ConfigurationError: the id is no name of an application.
    :raises RegistryError: Eureka cannot be asked.
    """
    name = id_.strip()
    if "/" in name or not name:
        raise ConfigurationError(
            f"{id_!r} must be the name of an application, as BILLING: an Application is found by that alone,"
            " and one instance, as BILLING/vm-17:billing:8080, is an Instance"
        )
    listed = SHARED_REGISTRY_LIST_CACHE.instances_of_application(name.upper(), peers)
    mine = [one for one in listed if not one.owner or are_owners_of_same_stack(one.owner, str(owner))]
    by_key = _read_by_member_key(mine, peers)
    held = list(by_key.values())
    if not held:
        return None
    instances = {
        key: {each: value for each, value in _instance_inputs(one).items() if each in MEMBER_PROPERTY_NAMES}
        for key, one in by_key.items()
    }
    own = [one for one in held if one.owner == str(owner)] or [one for one in held if one.owner] or held
    asked: Properties = {
        **_renewer_and_on_conflict(own[0], owner),
        "application": held[0].application,
        "instances": instances,
    }
    # Existing instances may share an address.
    checked = _require_no_problems(
        id_, check_application(asked, {**asked, "service_url": service_url, "owner": str(owner)})
    )
    desired = DesiredState.from_properties(checked)
    properties = application_outputs(checked, desired, _to_actual_state(held, desired))
    unasked = frozenset(
        key for key, one in by_key.items() if (one.renewer or SELF_RENEWER_VALUE) != asked["renewer"]
    )
    inputs = without_instances(asked, unasked)
    return FoundResource(properties, inputs, id=held[0].application, unasked_keys=unasked)


def without_instances(inputs: Properties, keys: Collection[str]) -> Properties:
    """Return an application's inputs, findings of a refresh included, without the instances of these keys."""
    return {
        name: {key: item for key, item in value.items() if key not in keys}
        if isinstance(value, dict) and name != "metadata"
        else value
        for name, value in inputs.items()
    }


def mark_not_adopted_unless_owned(found: FoundResource) -> FoundResource:
    """Mark an imported resource as yet to be adopted, unless the stack owns one of its instances.

    A marked resource has no ``service_url``, and the ``owner`` that Eureka names, empty for none or several.
    """
    state = dict(found.properties)
    others = state.get("held_by_others")
    owners = {state.get("seen_owner")} if others is None else set(others.values())
    if state["owner"] in owners or (others is not None and others.keys() != state["instances"].keys()):
        return found
    for name in ("service_url", "seen_owner"):
        state.pop(name, None)
    state["owner"] = owners.pop() if len(owners) == 1 else ""
    if others is not None:
        state["held_by_others"] = {key: each for key, each in others.items() if each != state["owner"]}
    return replace(found, properties=state)


def _read_by_member_key(listed: Iterable[Instance], peers: Peers) -> dict[str, Instance]:
    """Read listed instances one by one; return each by its id, or by a number where that cannot be a key."""
    read = read_instances(peers, [one.key for one in listed], RefusalByKey()).values()
    held = [found for found in read if found is not None and not found.unreadable]
    found_by_key = {}
    for number, one in enumerate(sorted(held, key=lambda each: each.instance_id), start=1):
        is_key = not any(letter.isspace() or letter == "/" for letter in one.instance_id)
        found_by_key[one.instance_id if is_key else str(number)] = one
    return found_by_key


def _require_no_problems(id_: str, checked: CheckedProperties) -> Properties:
    if checked.problems:
        reasons = "; ".join(f"{one.property}: {one.reason}" for one in checked.problems)
        raise ConfigurationError(f"{id_} cannot be imported as it stands: {reasons}")
    return checked.properties


def _instance_inputs(held: Instance) -> Properties:
    """Return inputs that ask for an instance as it stands, without status: an override stays a person's."""
    found = instance_to_properties(held)
    for name in ("status", "owner", "renewer"):
        found.pop(name, None)
    found = {name: value for name, value in found.items() if value not in (None, "", {})}
    written = {name: value for name, value in found.items() if FIXED_DEFAULTS.get(name) != value}
    for each in PROPERTIES:
        if each.name in found and each.derive is not None:
            without = {name: value for name, value in written.items() if name != each.name}
            if each.derive(found, without) == found[each.name]:
                written.pop(each.name, None)
            else:
                written[each.name] = found[each.name]
    return written


def _renewer_and_on_conflict(held: Instance, owner: StackOwner) -> Properties:
    adopt = {} if held.owner == str(owner) else {"on_conflict": OnConflict.ADOPT.value}
    return {"renewer": held.renewer or SELF_RENEWER_VALUE, **adopt}


def _to_actual_state(held: list[Instance], desired: DesiredState) -> ActualState:
    ours = {one.key: one for one in held if one.owner == desired.owner}
    return ActualState(ours, {one.key: one for one in held if one.key not in ours}, {})
