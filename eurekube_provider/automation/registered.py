"""The instances of a stack's registrations as Pulumi's states have them, ready to be compared. In a preview
any property, also a map, may be unknown until the update, or a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from eurekube_provider.automation.steps import MASKED_VALUE
from eurekube_provider.core.identity import DYNAMIC_INSTANCE_TYPE
from eurekube_provider.registrations.defaults import with_defaults
from eurekube_provider.registrations.desired import InstanceAddresses, has_registered_itself_again
from eurekube_provider.registrations.members import APPLICATION_OUTPUT_NAMES, ID_BASE_PROPERTY
from eurekube_provider.registrations.properties import (
    BOOKKEEPING_NAMES,
    INCARNATION_PROPERTY,
    LEAVING_MARK,
    OUTPUT_ONLY_NAMES,
    SEEN_INCARNATION_PROPERTY,
    STILL_ENFORCED_MARK,
    PropertyScope,
    property_names,
)

SYNCER_TYPE = "kubernetes:eurekube.io/v1alpha1:EurekaSyncer"
OPERATOR_TYPES = frozenset({"eurekube:index:EurekubeOperator", "eurekube:index:Operator"})
"""The types of the operator's component: in Python, and of the native provider."""

UNKNOWN_VALUE_TEXT = "(known in the update only)"

_UNCOMPARED_PROPERTIES = {
    *property_names(PropertyScope.RESOURCE),
    *OUTPUT_ONLY_NAMES,
    *APPLICATION_OUTPUT_NAMES,
    *BOOKKEEPING_NAMES,
    ID_BASE_PROPERTY,
    "instances",
    "instance_id",
} - {"renewer", "drain_seconds"}

_PER_INSTANCE_PROPERTIES = ("host_name", "ip_address", "port", "instance_id")
"""The properties by which instances of one application differ."""

_OWNER_MARK_PROPERTIES = (SEEN_INCARNATION_PROPERTY, STILL_ENFORCED_MARK, LEAVING_MARK)
"""Properties in which a refresh stores the owner's marks that it found in Eureka."""

_UNKNOWN_OWNER_TEXT = "nobody that Eurekube knows"

ApplicationPlace = tuple[str, str]
"""Application and service URL of a registration."""


@dataclass(frozen=True, slots=True)
class RegisteredInstance:
    """An instance of a stack's registration, as one of the stack's states describes it.

    :ivar key: its name in the program: the resource's name, or the key within its application.
    :ivar contents: all other properties that can differ, such as ``host_name`` and ``metadata.tier``.
    :ivar adopts: True if it may take over an instance of somebody else (``on_conflict: adopt``).
    :ivar owner_marks: the owner's marks in Eureka, by names such as ``owner`` and ``incarnation``.
    :ivar incarnation: the incarnation in the state; empty for an instance that was only imported.
    :ivar foreign_owner: the owner in Eureka if that is somebody else; else empty.
    :ivar has_known_properties: False if only its key and its application's properties are known.
    """

    application: str
    service_url: str
    key: str
    instance_id: str
    contents: Mapping[str, str]
    is_up: bool
    drain_seconds: int
    renewer: str
    adopts: bool
    owner_marks: Mapping[str, str]
    incarnation: str
    foreign_owner: str
    has_known_properties: bool

    @property
    def place(self) -> ApplicationPlace:
        return self.application, self.service_url

    def shares_no_url_with(self, other: RegisteredInstance) -> bool:
        return set(self.service_url.split(",")).isdisjoint(other.service_url.split(","))

    @property
    def id_and_addresses(self) -> InstanceAddresses:
        """The instance's id and the addresses at which callers find it, as far as they are known."""
        addresses = (self.contents.get("ip_address", ""), self.contents.get("host_name", ""))
        return InstanceAddresses(self.application, self.instance_id, self.contents.get("port", ""), addresses)

    def was_registered_again_by_client(self, found: RegisteredInstance) -> bool:
        """Return whether ``found``, from a refresh, was registered again by the instance's own client, and so
        belongs to this stack still; an update has the same rule.
        """
        was_ours = found.foreign_owner == _UNKNOWN_OWNER_TEXT and bool(found.incarnation)
        return has_registered_itself_again(
            self.id_and_addresses, found.id_and_addresses, self.renewer, was_ours=was_ours
        )

    @property
    def address(self) -> str:
        """The address at which callers find the instance."""
        host, port = self.contents.get("host_name", ""), self.contents.get("port", "")
        secure = self.contents.get("secure_port", "")
        is_secure = self.contents.get("secure_port_enabled") == "true"
        if UNKNOWN_VALUE_TEXT in (host, port):
            return UNKNOWN_VALUE_TEXT
        if not self.has_known_properties:
            return MASKED_VALUE
        return f"https://{host}:{secure}" if is_secure else f"{host}:{port}"


def lists_all_instances(properties: Mapping[str, Any]) -> bool:
    return find_unknown_values(properties).keys().isdisjoint(("application", "instances"))


def find_unknown_values(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the placeholders of what a preview does not know, by names such as ``instances.a.metadata``."""
    instances = properties.get("instances")
    maps = {"instances": instances, "metadata": properties.get("metadata")}
    for key, own in map_or_empty(instances).items():
        maps |= {f"instances.{key}": own, f"instances.{key}.metadata": map_or_empty(own).get("metadata")}
    found = {name: value for name, value in maps.items() if not isinstance(value, Mapping | None)}
    application = properties.get("application")
    return {"application": application, **found} if application in (UNKNOWN, MASKED_VALUE) else found


def application_place(properties: Mapping[str, Any]) -> ApplicationPlace:
    return as_text(properties.get("application")), _sorted_urls(properties)


def iterate_instances(kind: str, name: str, properties: Mapping[str, Any]) -> Iterator[RegisteredInstance]:
    if kind == DYNAMIC_INSTANCE_TYPE:
        full = with_defaults(properties)
        found = {mark: full.get(mark) for mark in _OWNER_MARK_PROPERTIES}
        yield _make_instance(name, full, full, full.get("status", "UP"), _foreign_owner(full), found)
        return
    if not lists_all_instances(properties):
        return
    statuses = map_or_empty(properties.get("statuses"))
    others = map_or_empty(properties.get("held_by_others"))
    for key, member in map_or_empty(properties.get("instances")).items():
        own = member if isinstance(member, Mapping) else dict.fromkeys(_PER_INSTANCE_PROPERTIES, member)
        full = {**properties, **own}
        full["metadata"] = _merge_metadata(properties.get("metadata"), own.get("metadata"))
        if "secure_port" in own and "secure_port_enabled" not in own:
            full["secure_port_enabled"] = True
        foreign = (as_text(others[key]) or _UNKNOWN_OWNER_TEXT) if key in others else ""
        found = {mark: map_or_empty(properties.get(mark)).get(key) for mark in _OWNER_MARK_PROPERTIES}
        status = statuses.get(key, "UP")
        yield _make_instance(
            key, properties, full, status, foreign, found, has_known_properties=own is member
        )


def as_text(value: Any) -> str:
    """Return a property's value as a person writes it; empty for a value that is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).replace(UNKNOWN, UNKNOWN_VALUE_TEXT)


def map_or_empty(value: Any) -> Mapping[str, Any]:
    """Return a property's map; empty for any other value, or one that is not reported."""
    return value if isinstance(value, Mapping) else {}


def flatten(properties: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested properties by their dotted names."""
    flat: dict[str, str] = {}
    for name, value in properties.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        elif value is not None:
            flat[f"{prefix}{name}"] = as_text(value)
    return flat


def _sorted_urls(properties: Mapping[str, Any]) -> str:
    """Return the service URLs, sorted: states may list the same URLs in another order."""
    return ",".join(sorted(as_text(properties.get("service_url")).split(",")))


def _make_instance(
    key: str,
    resource: Mapping[str, Any],
    full: Mapping[str, Any],
    status: str,
    foreign: str,
    found: Mapping[str, Any],
    *,
    has_known_properties: bool = True,
) -> RegisteredInstance:
    """Return the instance with the key ``key``; ``full`` has its own properties in place of shared ones, and
    ``found`` the values of :data:`_OWNER_MARK_PROPERTIES`.
    """
    own = {
        name: value
        for name, value in full.items()
        if name not in _UNCOMPARED_PROPERTIES and not name.startswith("__")
    }
    contents = flatten(own)
    contents.setdefault("ip_address", contents.get("host_name", ""))
    application = as_text(resource.get("application"))
    drain_seconds = resource.get("drain_seconds")
    seen = found[SEEN_INCARNATION_PROPERTY]
    owner_marks = {
        "owner": foreign or as_text(resource.get("owner")),
        "incarnation": as_text(resource.get(INCARNATION_PROPERTY) if seen is None else seen),
        "enforced status": as_text(found[STILL_ENFORCED_MARK]),
        "leaving": as_text(found[LEAVING_MARK]),
    }
    default = f"{key}.{as_text(resource.get('id_base'))}:{application.lower()}:{contents.get('port', '')}"
    return RegisteredInstance(
        application=application,
        service_url=_sorted_urls(resource),
        key=key,
        instance_id=as_text(full.get("instance_id")) or default,
        contents=contents,
        is_up=status == "UP",
        drain_seconds=int(drain_seconds) if isinstance(drain_seconds, int | float) else 0,
        renewer=as_text(resource.get("renewer")),
        adopts=resource.get("on_conflict") == "adopt",
        owner_marks=owner_marks,
        incarnation=as_text(resource.get(INCARNATION_PROPERTY)),
        foreign_owner=foreign,
        has_known_properties=has_known_properties,
    )


def _merge_metadata(shared: Any, own: Any) -> Any:
    """Return both metadata merged key by key; if one of the maps is not reported, return that value."""
    for metadata in (shared, own):
        if metadata and not isinstance(metadata, Mapping):
            return metadata
    return {**(shared or {}), **(own or {})}


def _foreign_owner(properties: Mapping[str, Any]) -> str:
    seen = properties.get("seen_owner")
    if seen is None or seen == properties.get("owner"):
        return ""
    return as_text(seen) or _UNKNOWN_OWNER_TEXT
