"""Parsers of property values: each normalises a value, or raises an error that names a correct one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any, Final

from eurekube_provider.core.addresses import Address
from eurekube_provider.core.errors import ConfigurationError, InvalidInstance
from eurekube_provider.core.identity import (
    RESERVED_METADATA_PREFIX,
    StackOwner,
    check_metadata_key,
    parse_owner,
)
from eurekube_provider.core.model import Status
from eurekube_provider.core.networks import describe_ambiguous_address
from eurekube_provider.core.text import describe_unfit_name, describe_unreadable_text
from eurekube_provider.eureka.connection import Connection


class UnknownMarker(Enum):
    """A stand-in for a value that is not known before another resource is created."""

    UNKNOWN = "unknown"


UNKNOWN: Final = UnknownMarker.UNKNOWN


class OnConflict(StrEnum):
    """The treatment of an instance that has another owner: fail, or adopt the instance."""

    FAIL = "fail"
    ADOPT = "adopt"


SETTABLE_STATUSES = (Status.UP, Status.DOWN, Status.STARTING, Status.OUT_OF_SERVICE)

NO_RENEWER_PROBLEM_TEXT = (
    "a registration that nobody renews lapses after 90 seconds and drives Eureka into self-preservation: "
    "name the operator that shall renew it (by default eurekube), or write 'self' if the application sends "
    "its own renewals"
)

_METADATA_KEYS_PROBLEM_TEXT = (
    "a key would not arrive as written: use letters, digits, dots and dashes, starting with a letter"
)


class BadValue(Exception):
    """The error for a value that cannot be used; it becomes a problem of the value's property.

    :ivar reason: the end of a sentence that begins with the property's name, or a sentence of its own.
    :ivar redacted_reason: the reason without the value, which may be a secret.
    """

    def __init__(self, reason: str, redacted_reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.redacted_reason = redacted_reason or reason

    @classmethod
    def with_value(cls, value: Any, rest: str) -> BadValue:
        """Return an error whose reason begins with the value; the redacted reason is ``rest`` alone."""
        shown = repr(value) if isinstance(value, str) else _format_scalar(value)
        return cls(f"{shown} {rest}", rest)


class UnfitValue(BadValue):
    """The error for a value that must not be registered.

    :ivar value: the value, normalised: existing instances may have it, and are read with it.
    """

    def __init__(self, reason: str, value: Any, redacted_reason: str = "") -> None:
        super().__init__(reason, redacted_reason)
        self.value = value


# One parser for each kind of value: returns the normalised value, or raises BadValue.


def parse_text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise BadValue.with_value(value, "must be a text that is not empty")
    return _require_readable(value.strip())


def _require_readable(text: str) -> str:
    """Return the text; refuse one that a client of Eureka could not read. Errors do not repeat it."""
    if problem := describe_unreadable_text(text):
        raise UnfitValue(problem, text)
    return text


def parse_application(value: Any) -> str:
    """Return an application's name, in upper case as Eureka has it."""
    if not isinstance(value, str) or not value.strip():
        return parse_text(value)
    name = value.strip().upper()
    if problem := describe_unfit_name(name):
        raise UnfitValue(f"{value!r} {problem}", name, problem)
    return name


def strip_brackets(host_name: str) -> str:
    """Return a host name or address without the brackets that an IPv6 address has in a URL."""
    bare = host_name.removeprefix("[").removesuffix("]")
    return bare if ":" in bare else host_name


def _parse_host(value: Any) -> str:
    text = parse_text(value)
    if "/" in text or any(letter.isspace() for letter in text):
        raise BadValue.with_value(
            value, "must be a bare host name or address, without http:// and without a path"
        )
    if unlike := describe_ambiguous_address(text):
        raise UnfitValue(f"{value!r} {unlike}", text)
    return text


def parse_host_name(value: Any) -> str:
    """Return a host name or address as callers write it in a URL."""
    return Address.of(strip_brackets(_parse_host(value))).host_name


def parse_ip_address(value: Any) -> str:
    """Return an IP address, or a host name in its place, without brackets."""
    return strip_brackets(_parse_host(value))


def whole_number_parser(least: int, most: int) -> Callable[[Any], int]:
    """Return a parser of whole numbers from ``least`` to ``most``."""

    def normalise(value: Any) -> int:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value % 1 != 0 or not least <= value <= most:
            raise BadValue.with_value(value, f"must be a whole number from {least} to {most}")
        return int(value)

    return normalise


def parse_flag(value: Any) -> bool:
    """Return a boolean; refuse any other value."""
    if not isinstance(value, bool):
        raise BadValue.with_value(value, "must be true or false")
    return value


def parse_status(value: Any) -> str:
    """Return a status that a program may enforce."""
    if value not in SETTABLE_STATUSES:
        raise BadValue.with_value(
            value,
            f"must be one of {', '.join(SETTABLE_STATUSES)}; leave it out to start UP and to leave a "
            "person's override alone",
        )
    return str(value)


def parse_on_conflict(value: Any) -> str:
    """Return the text of a value of :class:`OnConflict`; refuse any other."""
    if value not in tuple(OnConflict):
        raise BadValue.with_value(value, f"must be {OnConflict.FAIL} or {OnConflict.ADOPT}")
    return str(value)


def parse_metadata(value: Any) -> dict[str, Any]:
    """Return a map of texts whose keys reach clients unchanged."""
    if not isinstance(value, Mapping):
        raise BadValue.with_value(value, "must be a map of texts")
    result: dict[str, Any] = {}
    problems = []
    for key, item in sorted(value.items()):
        if key.startswith(RESERVED_METADATA_PREFIX):
            reserved = f"keys that start with {RESERVED_METADATA_PREFIX} are Eurekube's own"
            raise BadValue(f"key {key!r}: {reserved}", reserved)
        try:
            check_metadata_key(key)
        except InvalidInstance as error:
            raise BadValue(error.reason, _METADATA_KEYS_PROBLEM_TEXT) from None
        if isinstance(item, Mapping | list | tuple):
            nested = "must be a text, since Eureka's metadata are not nested"
            raise BadValue(f"the value of {key!r} {nested}", f"a value {nested}")
        if item is UNKNOWN:
            result[key] = item
        elif item is not None:
            result[key] = _format_scalar(item)
            if problem := describe_unreadable_text(result[key]):
                problems.append((f"the value of {key!r} {problem}", f"a value {problem}"))
    if problems:
        messages, hidden = ("; ".join(parts) for parts in zip(*problems, strict=True))
        raise UnfitValue(messages, result, hidden)
    return result


def parse_url(value: Any) -> str:
    """Return a URL of http or https."""
    text = parse_text(value)
    if not text.startswith(("http://", "https://")):
        raise BadValue.with_value(value, "must start with http:// or https://")
    return text


def parse_renewer(value: Any) -> str:
    """Return the name of a registration's renewer; refuse an empty one."""
    if not isinstance(value, str) or not value.strip():
        raise BadValue(NO_RENEWER_PROBLEM_TEXT)
    return _require_readable(value.strip())


def parse_service_url(value: Any) -> str:
    """Return the URLs of one Eureka, separated by commas."""
    try:
        return ",".join(Connection.parse(parse_text(value)).service_urls)
    except ConfigurationError as error:
        raise BadValue(str(error)) from None


def parse_stack_owner(value: Any) -> str:
    """Return the owner of a registration: a resource of a stack."""
    if not isinstance(parse_owner(str(value)), StackOwner):
        raise BadValue.with_value(value, "must be stack/<organization>/<project>/<stack>/<name>")
    return _require_readable(str(value))


def _format_scalar(value: Any) -> str:
    """Return a scalar as text, as a person would write it: Pulumi's 8080.0 as 8080, True as true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value % 1 == 0:
        return str(int(value))
    return str(value)
