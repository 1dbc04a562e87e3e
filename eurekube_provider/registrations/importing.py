"""What Eureka holds and no state has, as a resource: for ``pulumi import``.

It mostly belongs to somebody else. So what is made of it asks to adopt it, and keeps who renews it: an
instance that no Eurekube registered is renewed by its own client, and would stay UP for ever if an operator
did that, too.
"""

from __future__ import annotations

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import RESERVED_PREFIX, SELF_RENEWED, StackOwner, are_of_one_stack
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.server_verification import require_a_verified_server
from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.application_state import outputs as application_outputs
from eurekube_provider.registrations.defaults import FIXED
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.instance_fields import properties_of
from eurekube_provider.registrations.instance_state import outputs as instance_outputs
from eurekube_provider.registrations.members import OWN, check_members
from eurekube_provider.registrations.properties import INCARNATION, PROPERTIES, Properties
from eurekube_provider.registrations.property_check import Checked, check
from eurekube_provider.registrations.registry_lists import LISTS
from eurekube_provider.registrations.resource import Found
from eurekube_provider.registrations.values import OnConflict


def imported_instance(id_: str, owner: StackOwner, service_url: str, peers: Peers) -> Found | None:
    """The instance that ``APPLICATION/instance-id`` names; None where Eureka holds none.

    :raises ConfigurationError: it is no such id.
    :raises RegistryError: Eureka cannot be asked.
    """
    application, _, instance_id = id_.partition("/")
    if not application or not instance_id:
        raise ConfigurationError(f"{id_!r} must be APPLICATION/instance-id, as BILLING/vm-17:billing:8080")
    held = peers.read(application.upper(), instance_id)
    if held is None:
        require_a_verified_server(f"import {id_}", peers)
        return None
    asked = _asking_for(held) | {"application": held.application} | _managed(held, owner)
    checked = _require_usable(id_, check({}, asked | _owner_properties(owner, service_url)))
    if held.owner == str(owner) and held.incarnation:
        checked[INCARNATION] = held.incarnation
    desired = DesiredState.from_properties(checked)
    return Found(instance_outputs(checked, desired, _actual([held], desired)), asked)


def imported_application(id_: str, owner: StackOwner, service_url: str, peers: Peers) -> Found | None:
    """The instances of an application that no other Eurekube has; None where Eureka lists none.

    Keys are the instances' ids, or numbers where an id cannot be a key.

    :raises RegistryError: Eureka cannot be asked.
    """
    listed = LISTS.of_application(id_.partition("/")[0].upper(), peers)
    mine = [one for one in listed if not one.owner or are_of_one_stack(one.owner, str(owner))]
    held = [found for one in mine if (found := peers.read(*one.key)) is not None]
    if not held:
        return None
    instances: dict[str, Properties] = {}
    for number, one in enumerate(sorted(held, key=lambda each: each.instance_id), start=1):
        is_key = not any(letter.isspace() or letter == "/" for letter in one.instance_id)
        instances[one.instance_id if is_key else str(number)] = {
            name: value for name, value in _asking_for(one).items() if name in OWN
        }
    renewers = {_renewer(one) for one in held}
    asked: Properties = {
        **_managed(held[0], owner),
        "application": held[0].application,
        "renewer": renewers.pop() if len(renewers) == 1 else SELF_RENEWED,
        "instances": instances,
    }
    checked = _require_usable(id_, check_members({}, asked | _owner_properties(owner, service_url)))
    desired = DesiredState.from_properties(checked)
    return Found(application_outputs(checked, desired, _actual(held, desired)), asked)


def _require_usable(id_: str, checked: Checked) -> Properties:
    """Checked properties.

    :raises ConfigurationError: what stands there cannot be asked for.
    """
    if checked.problems:
        told = "; ".join(f"{one.property}: {one.reason}" for one in checked.problems)
        raise ConfigurationError(f"{id_} cannot be imported as it stands: {told}")
    return checked.properties


def _asking_for(held: Instance) -> Properties:
    """What a program writes to ask for an instance as it stands; a person's status stays a person's."""
    found = properties_of(held)
    for name in ("status", "owner", "renewer"):
        found.pop(name, None)
    found["metadata"] = {
        key: value for key, value in found["metadata"].items() if not key.startswith(RESERVED_PREFIX)
    }
    found = {name: value for name, value in found.items() if value not in (None, "", {})}
    written = {name: value for name, value in found.items() if FIXED.get(name) != value}
    for each in PROPERTIES:
        if each.name in found and each.derive is not None:
            without = {name: value for name, value in written.items() if name != each.name}
            if each.derive(found, without) == found[each.name]:
                written.pop(each.name, None)
            else:
                written[each.name] = found[each.name]
    return written


def _managed(held: Instance, owner: StackOwner) -> Properties:
    is_own = held.owner == str(owner)
    adopt = {} if is_own else {"on_conflict": OnConflict.ADOPT.value}
    return {"renewer": _renewer(held), **adopt}


def _owner_properties(owner: StackOwner, service_url: str) -> Properties:
    return {"service_url": service_url, "owner": str(owner)}


def _renewer(held: Instance) -> str:
    return held.renewer or SELF_RENEWED


def _actual(held: list[Instance], desired: DesiredState) -> ActualState:
    ours = {one.key: one for one in held if one.owner == desired.owner}
    return ActualState(ours, {one.key: one for one in held if one.key not in ours}, {})
