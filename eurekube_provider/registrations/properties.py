"""Descriptions of all properties of a EurekaInstance and of a EurekaApplication.

The check, the difference between two states, the way to an instance and back, and the table in
docs/reference/pulumi.md are made of these descriptions; the arguments and outputs of the resources, which
type checkers read, are held to them by a test. The names are part of every user's state: renaming one needs a
heading State in the CHANGELOG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from eurekube_provider.core.identity import OWNER_KEY, RENEWER_KEY
from eurekube_provider.core.model import EurekaLease
from eurekube_provider.registrations import values
from eurekube_provider.registrations.values import UNKNOWN, OnConflict

Properties = dict[str, Any]


class Scope(Enum):
    """The places where a program may write a property."""

    OWN = "for one instance"
    CONTENTS = "for one instance, or once for all of an application"
    MANAGEMENT = "for a resource"


@dataclass(frozen=True, slots=True)
class Property:
    """The description of one property.

    :ivar check: normalises a value that somebody wrote, or raises
        :class:`~eurekube_provider.registrations.values.BadValue`.
    :ivar description: the text for a person.
    :ivar at: the place of the value in an :class:`~eurekube_provider.core.model.Instance`: a field, or one
        within a field. A property that is a key of the metadata, such as ``zone``, may be written in the
        metadata as well: ``property_check`` and ``members`` merge the two.
    :ivar type: the type of its values; the engine makes a float of every number.
    :ivar default: the value where none is given; a state need not hold it.
    :ivar derive: makes the default from the properties checked before and those given; None without a derived
        default.
    :ivar derived_from: the properties from which the default is made; it is a secret where one of them is.
    :ivar default_text: the default, for a person; without it, what ``default`` says.
    :ivar missing: the error where the property is required and not given.
    :ivar choices: all allowed values, where they are few.
    """

    name: str
    scope: Scope
    check: Callable[[Any], Any]
    description: str
    at: tuple[str, ...] = ()
    type: Callable[[Any], Any] = str
    default: Any = None
    derive: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = None
    derived_from: tuple[str, ...] = ()
    default_text: str = ""
    is_required: bool = False
    missing: str = "is required"
    choices: tuple[str, ...] = ()

    @property
    def is_optional(self) -> bool:
        """Return whether an instance may lack the property: it is not required and has no default."""
        return not self.is_required and self.default is None and not self.default_text


def _host_alone(checked: Mapping[str, Any], _given: Mapping[str, Any]) -> Any:
    # As given: a look-up here would make the preview depend on somebody's resolver.
    host_name = checked.get("host_name")
    return values.bare_host(host_name) if isinstance(host_name, str) else host_name


def _lower_application(checked: Mapping[str, Any], _given: Mapping[str, Any]) -> Any:
    application = checked.get("application")
    return application.lower() if isinstance(application, str) else application


def _required(
    name: str, scope: Scope, check: Callable[[Any], Any], description: str, **more: Any
) -> Property:
    return Property(name, scope, check, description, is_required=True, **more)


def _whole_number(
    name: str, scope: Scope, least: int, most: int, default: int, description: str, *at: str
) -> Property:
    return Property(name, scope, values.whole_number(least, most), description, at, int, default)


def _flag(name: str, description: str, *at: str, default: bool, **more: Any) -> Property:
    return Property(name, Scope.CONTENTS, values.as_flag, description, at, bool, default, **more)


def _lease_property(name: str, description: str) -> Property:
    return _whole_number(
        name, Scope.CONTENTS, 1, 86400, getattr(EurekaLease(), name), description, "lease", name
    )


def _url(name: str) -> Property:
    description = "as Spring and Netflix show it; Eureka does not call it"
    return Property(name, Scope.CONTENTS, values.as_url, description, at=(name,))


_APPLICATION = "Eureka upper-cases it. **Another one is a replacement**"
_HOST_NAME = "where Spring calls it: a name or an address that callers can reach"
_STATUS = (
    "unset: UP at first, and a person's override is left alone and shown. Set: enforced, also over a"
    " person's. Taken out of the program again: what we enforced goes back to UP, unless a person changed"
    " it since"
)
_METADATA = (
    "texts; keys of letters, digits, dots and dashes, not `eurekube.*`; at most 4096 bytes together. Larger"
    " ones that an earlier release has registered go on with a warning, and nothing can be added to them"
)
_SECURE_PORT = "naming one enables it, and Spring then calls https"
_DURATION = "how long it stays without a renewal; longer than the time between two"
_DRAIN = "on removal, how long it stays OUT_OF_SERVICE before"
_CONNECTION = "the name of one of `eurekube:connections`. Another name for a URL in common updates in place"
_INSTANCE_ID = (
    "no slash, backslash, semicolon, percent sign or line end; at most 2048 letters in a URL. **Another one"
    " is a replacement** of a `EurekaInstance`; so is another port under the default id. A renamed stack"
    " keeps its ids"
)
_OWN, _CONTENTS, _MANAGEMENT = Scope.OWN, Scope.CONTENTS, Scope.MANAGEMENT

PROPERTIES = (
    _required("application", _MANAGEMENT, values.as_application, _APPLICATION, at=("application",)),
    _required("host_name", _OWN, values.as_host_name, _HOST_NAME, at=("host_name",)),
    Property(
        "ip_address",
        _OWN,
        values.as_ip_address,
        "nothing is resolved",
        at=("ip_address",),
        derive=_host_alone,
        derived_from=("host_name",),
        default_text="`host_name`",
    ),
    _required(
        "port", _CONTENTS, values.whole_number(1, 65535), "1 to 65535", at=("port", "number"), type=int
    ),
    _flag("port_enabled", "whether callers may use it", "port", "enabled", default=True),
    _whole_number("secure_port", _CONTENTS, 1, 65535, 443, _SECURE_PORT, "secure_port", "number"),
    _flag(
        "secure_port_enabled",
        "Spring calls https whenever it is enabled",
        *("secure_port", "enabled"),
        default=False,
        derive=lambda _, given: "secure_port" in given,  # a program that names one means that
    ),
    Property(
        "vip_address",
        _CONTENTS,
        values.as_text,
        "by which Spring finds it",
        at=("vip_address",),
        derive=_lower_application,
        derived_from=("application",),
        default_text="the application in lower case",
    ),
    Property(
        "secure_vip_address",
        _CONTENTS,
        values.as_text,
        "by which it is found where https is asked for",
        at=("secure_vip_address",),
        derive=lambda checked, _: checked.get("vip_address"),
        derived_from=("vip_address", "application"),
        default_text="`vip_address`",
    ),
    Property(
        "status",
        _CONTENTS,
        values.as_status,
        _STATUS,
        default_text="unset",
        choices=tuple(each.value for each in values.SETTABLE_STATUSES),
    ),
    Property(
        "zone", _CONTENTS, values.as_text, "`metadata.zone`", ("metadata", "zone"), derived_from=("metadata",)
    ),
    Property(
        "metadata", _CONTENTS, values.as_metadata, _METADATA, ("metadata",), dict, {}, default_text="none"
    ),
    _lease_property("renewal_interval_seconds", "the time between two renewals"),
    _lease_property("duration_seconds", _DURATION),
    *map(_url, ("home_page_url", "status_page_url", "health_check_url", "secure_health_check_url")),
    _required(
        "renewer",
        _MANAGEMENT,
        values.as_renewer,
        "who renews it, see below; an empty one is refused",
        at=("metadata", RENEWER_KEY),
        missing=values.NO_RENEWER,
        default_text="`eurekube:operatorName`, else `eurekube`",
    ),
    Property(
        "on_conflict",
        _MANAGEMENT,
        values.as_on_conflict,
        "or `adopt`, see below",
        default=OnConflict.FAIL.value,
        choices=tuple(each.value for each in OnConflict),
    ),
    _whole_number("drain_seconds", _MANAGEMENT, 0, 3600, 0, _DRAIN),
    Property("connection", _MANAGEMENT, values.as_text, _CONNECTION, default="default"),
    _required("service_url", _MANAGEMENT, values.as_service_url, ""),
    _required("owner", _MANAGEMENT, values.as_owner, "", at=("metadata", OWNER_KEY)),
    Property(
        "instance_id",
        _OWN,
        values.as_text,
        _INSTANCE_ID,
        at=("instance_id",),
        derived_from=("application", "port"),
        default_text="`<name>.<stack>.<project>:<application>:<port>`",
    ),
)
"""All properties, in the order in which they are checked: a default may need those before it."""

INPUTS = tuple(each.name for each in PROPERTIES)


def names_in(*scopes: Scope) -> tuple[str, ...]:
    """Return the names of the properties that may be written in one of these scopes."""
    return tuple(each.name for each in PROPERTIES if each.scope in scopes)


DEFAULT_ID = "instance_id_is_default"
"""A bookkeeping property: the id is a default one, which a renamed stack keeps."""

INCARNATION = "incarnation"
"""The incarnation of a registration: made at creation, kept by updates, never set by a program."""

SEEN_INCARNATION = "seen_incarnation"
"""A bookkeeping property: the incarnation that Eureka names in place of the state's; by key for a
EurekaApplication. An earlier release wrote the last one alone.
"""

LEAVING = "leaving"
"""The mark of an interrupted drain of ours that left an instance out of service; absent without one. For a
EurekaApplication by key.
"""

STILL_ENFORCED = "still_enforced"
"""The mark of a status that we enforced and the program does not enforce any more; absent without one. An
earlier release wrote True.
"""

ABSENT = "absent"
"""A mark: Eureka does not hold an instance of the state. The inputs of the update that registers it again
have the mark.
"""

HALF_DONE = "half_done"
"""A mark: Eureka holds a change that the state does not have. The inputs of the update that undoes it have
the mark.
"""

MARKS = (LEAVING, STILL_ENFORCED, ABSENT, HALF_DONE)
"""Leftovers of an earlier run that a refresh or a check found, which an update must handle."""

ASKED_STATUS = "asked_status"
"""The status that the program enforces, kept where Eureka held another one; else absent."""

OUTPUTS = (
    "overridden_status",
    "last_updated",
    "seen_owner",
    "status_is_enforced",
    INCARNATION,
    SEEN_INCARNATION,
)
"""Properties that only Eureka knows; in the state, never among the inputs."""

FROM_SECRET = "(derived from a secret)"  # noqa: S105 - it says that there is one
"""A stand-in for a property that the check derives from a secret one, so that Pulumi treats it as a
secret, too.
"""

SECRET_ID = "secret_id"  # noqa: S105 - the name of a property
"""A mark among the inputs: the resource's id in Pulumi must not show the instance's id in Eureka, which
holds a secret.
"""

BOOKKEEPING = frozenset({*MARKS, DEFAULT_ID, SEEN_INCARNATION, ASKED_STATUS, SECRET_ID})
"""Bookkeeping properties in a state, which no program or preview shows."""

INSTANCE_DERIVED: Mapping[str, tuple[str, ...]] = {
    **{each.name: each.derived_from for each in PROPERTIES if each.derived_from},
    SECRET_ID: ("application", "instance_id", "port"),
}
"""Properties that the check of a EurekaInstance derives, each with its sources; it is a secret where a
source is.
"""

APPLICATION_DERIVED: Mapping[str, tuple[str, ...]] = {"zone": ("metadata",), SECRET_ID: ("application",)}
"""Properties that the check of a EurekaApplication derives, each with its sources. Only written properties
are in its state.
"""

MEMBER_DERIVED: Mapping[str, tuple[str, ...]] = {
    name: INSTANCE_DERIVED[name] for name in ("ip_address", "zone")
}
"""Properties that the check of one of a EurekaApplication's instances derives, each with its sources."""


def contains_unknown(value: Any) -> bool:
    """Return whether something in ``value`` is not known yet, at any depth."""
    if isinstance(value, str):  # most are
        return False
    if isinstance(value, Mapping):
        return any(contains_unknown(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(contains_unknown(item) for item in value)
    return value is UNKNOWN


def without_secrets(given: Mapping[str, Any]) -> tuple[Properties, list[str]]:
    """Return the given properties without stand-ins for secrets, and the names of those stand-ins."""
    derived = [name for name, value in given.items() if value == FROM_SECRET]
    return {name: value for name, value in given.items() if name not in derived}, derived


def derived_secrets(derived: Iterable[str], checked: Mapping[str, Any]) -> Properties:
    """Return the properties that derive from a secret, to be written out: a refresh would otherwise show
    them in plain.
    """
    found = {name: checked[name] for name in derived if name in checked}
    return {**found, SECRET_ID: FROM_SECRET} if SECRET_ID in derived else found
