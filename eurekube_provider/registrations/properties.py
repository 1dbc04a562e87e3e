"""Descriptions of all properties of a EurekaInstance and of a EurekaApplication.

Check, comparison, conversion and the table in docs/reference/pulumi.md are made of them; a test holds the
typed arguments and outputs to them. Renaming one needs a heading State in the CHANGELOG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from eurekube_provider.core.identity import OWNER_KEY, RENEWER_KEY
from eurekube_provider.core.model import EurekaLease
from eurekube_provider.registrations import values
from eurekube_provider.registrations.values import UNKNOWN, OnConflict

Properties = dict[str, Any]


class PropertyScope(Enum):
    """The resources or parts of resources for which a program may write a property."""

    ONE_INSTANCE = "for one instance"
    INSTANCE_OR_APPLICATION = "for one instance, or once for all of an application"
    RESOURCE = "for a resource"


@dataclass(frozen=True, slots=True)
class Property:
    """The description of one property.

    :ivar check: normalises a value that somebody wrote, or raises
        :class:`~eurekube_provider.registrations.values.BadValue`.
    :ivar description: the text for a person.
    :ivar instance_path: the path of the value in an :class:`~eurekube_provider.core.model.Instance`: a field,
        or one within a field. A property that is a key of the metadata, such as ``zone``, may be written in
        the metadata as well: ``property_check`` and ``members`` merge the two.
    :ivar type: the type of its values; the engine makes a float of every number.
    :ivar default: the value where none is given; a state need not hold it.
    :ivar derive: makes the default from the properties checked before and those given; None without a derived
        default.
    :ivar derived_from: the properties from which the default is made; it is a secret where one of them is.
    :ivar default_text: the default, for a person; without it, what ``default`` says.
    :ivar missing_error: the error where the property is required and not given.
    :ivar choices: all allowed values, where they are few.
    """

    name: str
    scope: PropertyScope
    check: Callable[[Any], Any]
    description: str
    instance_path: tuple[str, ...] = ()
    type: Callable[[Any], Any] = str
    default: Any = None
    derive: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = None
    derived_from: tuple[str, ...] = ()
    default_text: str = ""
    is_required: bool = False
    missing_error: str = "is required"
    choices: tuple[str, ...] = ()

    @property
    def may_be_absent(self) -> bool:
        """True if an instance may lack the property: it is not required, and has no default."""
        return not self.is_required and self.default is None and not self.default_text


def _derive_ip_address(checked: Mapping[str, Any], _given: Mapping[str, Any]) -> Any:
    # As given: a look-up here would make the preview depend on somebody's resolver.
    host_name = checked.get("host_name")
    return values.strip_brackets(host_name) if isinstance(host_name, str) else host_name


def _derive_vip_address(checked: Mapping[str, Any], _given: Mapping[str, Any]) -> Any:
    application = checked.get("application")
    return application.lower() if isinstance(application, str) else application


_OWN, _CONTENTS, _MANAGEMENT = PropertyScope


_required_property = partial(Property, is_required=True)


def _whole_number_property(
    name: str, scope: PropertyScope, least: int, most: int, default: int, description: str, *at: str
) -> Property:
    return Property(name, scope, values.whole_number_parser(least, most), description, at, int, default)


def _flag_property(name: str, description: str, *at: str, default: bool, **more: Any) -> Property:
    return Property(name, _CONTENTS, values.parse_flag, description, at, bool, default, **more)


def _lease_property(name: str, description: str) -> Property:
    default = getattr(EurekaLease(), name)
    return _whole_number_property(name, _CONTENTS, 1, 86400, default, description, "lease", name)


def _url_property(name: str) -> Property:
    description = "as Spring and Netflix show it; Eureka does not call it"
    return Property(name, _CONTENTS, values.parse_url, description, (name,))


_STATUS_DESCRIPTION = (
    "unset: UP at first, and a person's override is left alone and shown. Set: enforced, also over a "
    "person's. Taken out of the program again: what we enforced goes back to UP, unless a person changed it "
    "since"
)
_METADATA_DESCRIPTION = (
    "texts; keys of letters, digits, dots and dashes, not `eurekube.*`; at most 4096 bytes together. Larger"
    " ones that an earlier release has registered go on with a warning, and nothing can be added to them"
)
_APPLICATION_DESCRIPTION = "Eureka upper-cases it. **Another one is a replacement**"
_HOST_NAME_DESCRIPTION = "where Spring calls it: a name or an address that callers can reach"
_SECURE_PORT_DESCRIPTION = "naming one enables it, and Spring then calls https"
_DURATION_DESCRIPTION = "how long it stays without a renewal; longer than the time between two"
_DRAIN_DESCRIPTION = "on removal, how long it stays OUT_OF_SERVICE before"
_CONNECTION_DESCRIPTION = (
    "the name of one of `eurekube:connections`. Another name for a URL in common updates in place"
)
_INSTANCE_ID_DESCRIPTION = (
    "no slash, backslash, semicolon, percent sign or line end; at most 2048 letters in a URL. **Another one "
    "is a replacement** of a `EurekaInstance`; so is another port under the default id. A renamed stack "
    "keeps its ids"
)

PROPERTIES = (
    _required_property(
        "application", _MANAGEMENT, values.parse_application, _APPLICATION_DESCRIPTION, ("application",)
    ),
    _required_property("host_name", _OWN, values.parse_host_name, _HOST_NAME_DESCRIPTION, ("host_name",)),
    Property(
        "ip_address",
        _OWN,
        values.parse_ip_address,
        "nothing is resolved",
        ("ip_address",),
        derive=_derive_ip_address,
        derived_from=("host_name",),
        default_text="`host_name`",
    ),
    _required_property(
        "port", _CONTENTS, values.whole_number_parser(1, 65535), "1 to 65535", ("port", "number"), type=int
    ),
    _flag_property("port_enabled", "whether callers may use it", "port", "enabled", default=True),
    _whole_number_property(
        "secure_port", _CONTENTS, 1, 65535, 443, _SECURE_PORT_DESCRIPTION, "secure_port", "number"
    ),
    _flag_property(
        "secure_port_enabled",
        "Spring calls https whenever it is enabled",
        *("secure_port", "enabled"),
        default=False,
        derive=lambda _, given: "secure_port" in given,  # a program that names one means that
    ),
    Property(
        "vip_address",
        _CONTENTS,
        values.parse_text,
        "by which Spring finds it",
        ("vip_address",),
        derive=_derive_vip_address,
        derived_from=("application",),
        default_text="the application in lower case",
    ),
    Property(
        "secure_vip_address",
        _CONTENTS,
        values.parse_text,
        "by which it is found where https is asked for",
        ("secure_vip_address",),
        derive=lambda checked, _: checked.get("vip_address"),
        derived_from=("vip_address", "application"),
        default_text="`vip_address`",
    ),
    Property(
        "status",
        _CONTENTS,
        values.parse_status,
        _STATUS_DESCRIPTION,
        default_text="unset",
        choices=tuple(each.value for each in values.SETTABLE_STATUSES),
    ),
    Property(
        "zone",
        _CONTENTS,
        values.parse_text,
        "`metadata.zone`",
        ("metadata", "zone"),
        derived_from=("metadata",),
    ),
    Property(
        "metadata",
        _CONTENTS,
        values.parse_metadata,
        _METADATA_DESCRIPTION,
        ("metadata",),
        dict,
        {},
        default_text="none",
    ),
    _lease_property("renewal_interval_seconds", "the time between two renewals"),
    _lease_property("duration_seconds", _DURATION_DESCRIPTION),
    *map(_url_property, ("home_page_url", "status_page_url", "health_check_url", "secure_health_check_url")),
    _required_property(
        "renewer",
        _MANAGEMENT,
        values.parse_renewer,
        "who renews it, see below; an empty one is refused",
        ("metadata", RENEWER_KEY),
        missing_error=values.NO_RENEWER_PROBLEM_TEXT,
        default_text="`eurekube:operatorName`, else `eurekube`",
    ),
    Property(
        "on_conflict",
        _MANAGEMENT,
        values.parse_on_conflict,
        "or `adopt`, see below",
        default=OnConflict.FAIL.value,
        choices=tuple(each.value for each in OnConflict),
    ),
    _whole_number_property("drain_seconds", _MANAGEMENT, 0, 3600, 0, _DRAIN_DESCRIPTION),
    Property("connection", _MANAGEMENT, values.parse_text, _CONNECTION_DESCRIPTION, default="default"),
    _required_property("service_url", _MANAGEMENT, values.parse_service_url, ""),
    _required_property("owner", _MANAGEMENT, values.parse_stack_owner, "", ("metadata", OWNER_KEY)),
    Property(
        "instance_id",
        _OWN,
        values.parse_text,
        _INSTANCE_ID_DESCRIPTION,
        ("instance_id",),
        derived_from=("application", "port"),
        default_text="`<name>.<stack>.<project>:<application>:<port>`",
    ),
)
"""All properties, in the order in which they are checked: a default may need those before it."""

INPUT_NAMES = tuple(each.name for each in PROPERTIES)


def property_names(*scopes: PropertyScope) -> tuple[str, ...]:
    """Return the names of the properties that may be written in one of these scopes."""
    return tuple(each.name for each in PROPERTIES if each.scope in scopes)


ID_IS_DEFAULT_PROPERTY = "instance_id_is_default"
"""A bookkeeping property, True for a default instance id, which a renamed stack keeps."""

INCARNATION_PROPERTY = "incarnation"
"""The incarnation of a registration: made at creation, kept by updates, never set by a program."""

SEEN_INCARNATION_PROPERTY = "seen_incarnation"
"""The incarnation that Eureka names in place of the state's; by key for a EurekaApplication."""

LEAVING_MARK = "leaving"
"""The mark of an interrupted drain of ours that left an instance out of service; else absent."""

STILL_ENFORCED_MARK = "still_enforced"
"""The mark of a status that we enforced and the program does not (once True was written); else absent."""

ABSENT_MARK = "absent"
"""A mark, among the inputs of the update that registers it again: Eureka lacks an instance of the state."""

HALF_DONE_MARK = "half_done"
"""A mark, among the inputs of the update that undoes it: Eureka holds a change that the state lacks."""

LEFTOVER_MARKS = (LEAVING_MARK, STILL_ENFORCED_MARK, ABSENT_MARK, HALF_DONE_MARK)
"""Leftovers of an earlier run that a refresh or a check found, which an update must handle."""

ASKED_STATUS_PROPERTY = "asked_status"
"""The status that the program enforces, kept where Eureka held another one; else absent."""

OUTPUT_ONLY_NAMES = (
    *("overridden_status", "last_updated", "seen_owner", "status_is_enforced"),
    *(INCARNATION_PROPERTY, SEEN_INCARNATION_PROPERTY),
)
"""Properties that only Eureka knows; in the state, never among the inputs."""

SECRET_PLACEHOLDER = "(derived from a secret)"  # noqa: S105 - it says that there is one
"""A stand-in for a property that the check derives from a secret: it is one for Pulumi, too."""

SECRET_ID_MARK = "secret_id"  # noqa: S105 - the name of a property
"""A mark among the inputs: the id in Pulumi must not show the id in Eureka, which holds a secret."""

BOOKKEEPING_NAMES = frozenset(
    {
        *LEFTOVER_MARKS,
        ID_IS_DEFAULT_PROPERTY,
        SEEN_INCARNATION_PROPERTY,
        ASKED_STATUS_PROPERTY,
        SECRET_ID_MARK,
    }
)
"""Bookkeeping properties in a state, which no program or preview shows."""

INSTANCE_DERIVATION_SOURCES: Mapping[str, tuple[str, ...]] = {
    **{each.name: each.derived_from for each in PROPERTIES if each.derived_from},
    SECRET_ID_MARK: ("application", "instance_id", "port"),
}
"""The properties that a EurekaInstance's check derives, with their sources; secret where one of these is."""

APPLICATION_DERIVATION_SOURCES: Mapping[str, tuple[str, ...]] = {
    "zone": ("metadata",),
    SECRET_ID_MARK: ("application",),
}
"""The same of a EurekaApplication, whose state has written properties only."""

MEMBER_DERIVATION_SOURCES: Mapping[str, tuple[str, ...]] = {
    name: INSTANCE_DERIVATION_SOURCES[name] for name in ("ip_address", "zone")
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


def split_secret_placeholders(given: Mapping[str, Any]) -> tuple[Properties, list[str]]:
    """Return the given properties without stand-ins for secrets, and the names of those stand-ins."""
    derived = [name for name, value in given.items() if value == SECRET_PLACEHOLDER]
    return {name: value for name, value in given.items() if name not in derived}, derived


def select_derived_secrets(derived: Iterable[str], checked: Mapping[str, Any]) -> Properties:
    """Return the checked properties of these names, which derive from a secret, and are one in the state."""
    found = {name: checked[name] for name in derived if name in checked}
    return {**found, SECRET_ID_MARK: SECRET_PLACEHOLDER} if SECRET_ID_MARK in derived else found
