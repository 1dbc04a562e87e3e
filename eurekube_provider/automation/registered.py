"""The instances of a stack's registrations as Pulumi's states have them, ready to be compared.

The instances of a ``EurekaApplication`` take properties that they do not set from their application. In a
preview any property, also a map, may be unknown until the update, or a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from eurekube_provider.automation.steps import MASKED
from eurekube_provider.core.identity import INSTANCE_TYPE
from eurekube_provider.registrations.defaults import completed
from eurekube_provider.registrations.desired import Called, came_back
from eurekube_provider.registrations.members import ID_BASE, MEMBER_OUTPUTS
from eurekube_provider.registrations.properties import (
    ABSENT,
    ASKED_STATUS,
    DEFAULT_ID,
    HALF_DONE,
    INCARNATION,
    LEAVING,
    OUTPUTS,
    SECRET_ID,
    SEEN_INCARNATION,
    STILL_ENFORCED,
    Scope,
    names_in,
)

SYNCER = "kubernetes:eurekube.io/v1alpha1:EurekaSyncer"
OPERATORS = frozenset({"eurekube:index:EurekubeOperator", "eurekube:index:Operator"})
"""The types of the operator's component: in Python, and of the native provider."""

NOT_KNOWN_YET = "(known in the update only)"

_BESIDE = frozenset(
    {*names_in(Scope.MANAGEMENT), *OUTPUTS, *MEMBER_OUTPUTS, ID_BASE, DEFAULT_ID, SECRET_ID, "instances"}
    | {"instance_id", ABSENT, ASKED_STATUS, HALF_DONE, LEAVING, STILL_ENFORCED}
) - {"renewer", "drain_seconds"}
"""Properties that are not compared as an instance's contents."""

_ITS_OWN = ("host_name", "ip_address", "port", "instance_id")
"""The properties by which instances of one application differ."""

_MARKS = (SEEN_INCARNATION, STILL_ENFORCED, LEAVING)
"""Properties in which a refresh notes its findings about marks in Eureka."""

_NOBODY = "nobody that Eurekube knows"

Place = tuple[str, str]
"""Application and service URL of a registration."""


@dataclass(frozen=True, slots=True)
class Registered:
    """An instance as a state has it.

    :ivar key: its name in the program: the resource's name, or the key within its application.
    :ivar contents: all other properties that can differ, by names such as ``host_name`` and
        ``metadata.tier``.
    :ivar marks: the owner's marks in Eureka, by names such as ``owner`` and ``incarnation``.
    :ivar incarnation: the incarnation in the state; empty for an instance that was only imported.
    :ivar foreign_owner: the owner in Eureka if that is somebody else; else empty.
    :ivar is_reported: True if more is known than its key and its application's properties.
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
    marks: Mapping[str, str]
    incarnation: str
    foreign_owner: str
    is_reported: bool

    @property
    def place(self) -> Place:
        """The application and the service URL under which the instance is registered."""
        return self.application, self.service_url

    def is_elsewhere_than(self, other: Registered) -> bool:
        """Return whether the service URLs of two instances have none in common."""
        return set(self.service_url.split(",")).isdisjoint(other.service_url.split(","))

    @property
    def called(self) -> Called:
        """The instance's id and the addresses at which callers find it, as far as they are known."""
        addresses = (self.contents.get("ip_address", ""), self.contents.get("host_name", ""))
        return Called(self.application, self.instance_id, self.contents.get("port", ""), addresses)

    def came_back(self, found: Registered) -> bool:
        """Return whether ``found``, from a refresh, is our own application again, by the same rule as an
        update.
        """
        was_ours = found.foreign_owner == _NOBODY and bool(found.incarnation)
        return came_back(self.called, found.called, self.renewer, was_ours=was_ours)

    @property
    def address(self) -> str:
        """The address at which callers find the instance."""
        host, port = self.contents.get("host_name", ""), self.contents.get("port", "")
        secure = self.contents.get("secure_port", "")
        is_secure = self.contents.get("secure_port_enabled") == "true"
        if NOT_KNOWN_YET in (host, port):
            return NOT_KNOWN_YET
        if not self.is_reported:
            return MASKED
        return f"https://{host}:{secure}" if is_secure else f"{host}:{port}"


def is_known(properties: Mapping[str, Any]) -> bool:
    """Return whether a state lists all instances of a resource."""
    return unknown_keys(properties).keys().isdisjoint(("application", "instances"))


def unknown_keys(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the maps, and perhaps the application, whose contents a preview does not tell.

    :returns: the values in their place, by dotted names such as ``instances.a.metadata``.
    """
    instances = properties.get("instances")
    maps = {"instances": instances, "metadata": properties.get("metadata")}
    for key, own in as_map(instances).items():
        maps |= {f"instances.{key}": own, f"instances.{key}.metadata": as_map(own).get("metadata")}
    found = {name: value for name, value in maps.items() if not isinstance(value, Mapping | None)}
    application = properties.get("application")
    return {"application": application, **found} if application in (UNKNOWN, MASKED) else found


def place_of(properties: Mapping[str, Any]) -> Place:
    """Return the application and the service URL of one resource."""
    return as_text(properties.get("application")), _urls(properties)


def registered(kind: str, name: str, properties: Mapping[str, Any]) -> Iterator[Registered]:
    """Yield the instances of one resource."""
    if kind == INSTANCE_TYPE:
        full = completed(properties)
        found = {mark: full.get(mark) for mark in _MARKS}
        yield _one(name, full, full, full.get("status", "UP"), _foreign(full), found)
        return
    if not is_known(properties):
        return
    statuses, others = as_map(properties.get("statuses")), as_map(properties.get("held_by_others"))
    for key, member in as_map(properties.get("instances")).items():
        own = member if isinstance(member, Mapping) else dict.fromkeys(_ITS_OWN, member)
        full = {**properties, **own}
        full["metadata"] = _merged(properties.get("metadata"), own.get("metadata"))
        if "secure_port" in own and "secure_port_enabled" not in own:
            full["secure_port_enabled"] = True
        foreign = (as_text(others[key]) or _NOBODY) if key in others else ""
        found = {mark: as_map(properties.get(mark)).get(key) for mark in _MARKS}
        status = statuses.get(key, "UP")
        yield _one(key, properties, full, status, foreign, found, is_reported=own is member)


def as_text(value: Any) -> str:
    """Return a property's value as a person writes it; empty for a value that is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).replace(UNKNOWN, NOT_KNOWN_YET)


def as_map(value: Any) -> Mapping[str, Any]:
    """Return a property's map; empty for any other value, or one that is not reported."""
    return value if isinstance(value, Mapping) else {}


def flattened(properties: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return nested properties by their dotted names."""
    flat: dict[str, str] = {}
    for name, value in properties.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{before}{name}.")
        elif value is not None:
            flat[f"{before}{name}"] = as_text(value)
    return flat


def _urls(properties: Mapping[str, Any]) -> str:
    """Return the service URLs, sorted: states may list the same URLs in another order."""
    return ",".join(sorted(as_text(properties.get("service_url")).split(",")))


def _one(
    key: str,
    resource: Mapping[str, Any],
    full: Mapping[str, Any],
    status: str,
    foreign: str,
    found: Mapping[str, Any],
    *,
    is_reported: bool = True,
) -> Registered:
    # Its status is Eureka's, or a person's, and not what a program changes unless it enforces one.
    own = {name: value for name, value in full.items() if name not in _BESIDE and not name.startswith("__")}
    contents = flattened(own)
    contents.setdefault("ip_address", contents.get("host_name", ""))
    application = as_text(resource.get("application"))
    drain_seconds = resource.get("drain_seconds")
    seen = found[SEEN_INCARNATION]
    marks = {
        "owner": foreign or as_text(resource.get("owner")),
        "incarnation": as_text(resource.get(INCARNATION) if seen is None else seen),
        "enforced status": as_text(found[STILL_ENFORCED]),
        "leaving": as_text(found[LEAVING]),
    }
    default = f"{key}.{as_text(resource.get('id_base'))}:{application.lower()}:{contents.get('port', '')}"
    return Registered(
        application=application,
        service_url=_urls(resource),
        key=key,
        instance_id=as_text(full.get("instance_id")) or default,
        contents=contents,
        is_up=status == "UP",
        drain_seconds=int(drain_seconds) if isinstance(drain_seconds, int | float) else 0,
        renewer=as_text(resource.get("renewer")),
        adopts=resource.get("on_conflict") == "adopt",
        marks=marks,
        incarnation=as_text(resource.get(INCARNATION)),
        foreign_owner=foreign,
        is_reported=is_reported,
    )


def _merged(above: Any, own: Any) -> Any:
    """Return metadata merged key by key; if one of the two maps is not reported, return that value."""
    for metadata in (above, own):
        if metadata and not isinstance(metadata, Mapping):
            return metadata
    return {**(above or {}), **(own or {})}


def _foreign(properties: Mapping[str, Any]) -> str:
    seen = properties.get("seen_owner")
    if seen is None or seen == properties.get("owner"):
        return ""
    return as_text(seen) or _NOBODY
