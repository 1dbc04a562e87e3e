"""Parsers of property values: each normalises a value, or raises an error that names a correct one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any, Final

from eurekube_provider.core.addresses import Address
from eurekube_provider.core.errors import ConfigurationError, InvalidInstance
from eurekube_provider.core.identity import RESERVED_PREFIX, StackOwner, check_metadata_key, parse_owner
from eurekube_provider.core.model import Status
from eurekube_provider.core.networks import ambiguity
from eurekube_provider.core.text import name_problem, text_problem
from eurekube_provider.eureka.connection import Connection


class Marker(Enum):
    """A stand-in for a value that is not known before another resource is created."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Marker.UNKNOWN


class OnConflict(StrEnum):
    """The treatment of an instance that somebody else has: fail, or adopt it."""

    FAIL = "fail"
    ADOPT = "adopt"


SETTABLE_STATUSES = (Status.UP, Status.DOWN, Status.STARTING, Status.OUT_OF_SERVICE)

NO_RENEWER = (
    "a registration that nobody renews lapses after 90 seconds and drives Eureka into self-preservation:"
    " name the operator that shall renew it (by default eurekube), or write 'self' if the application"
    " sends its own renewals"
)

_METADATA_KEYS = (
    "a key would not arrive as written: use letters, digits, dots and dashes, starting with a letter"
)


class BadValue(Exception):
    """A value that cannot be used, which becomes a problem of its property.

    :ivar hidden: the reason without the value, which may be a secret.
    """

    def __init__(self, reason: str, hidden: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hidden = hidden or reason

    @classmethod
    def of(cls, value: Any, rest: str) -> BadValue:
        """Return an error whose reason begins with the value."""
        return cls(f"{_quoted(value)} {rest}", rest)


class UnfitValue(BadValue):
    """A value that must not be registered. Existing instances may have it, so the value is kept for
    reading them.
    """

    def __init__(self, reason: str, value: Any, hidden: str = "") -> None:
        super().__init__(reason, hidden)
        self.value = value


# One function for each kind of value: returns the normalised one, or raises BadValue.


def as_text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise BadValue.of(value, "must be a text that is not empty")
    return _readable(value.strip())


def _readable(text: str) -> str:
    """Return a text that all of Eureka's clients can read. Errors do not repeat it, since it may be a
    secret.
    """
    if problem := text_problem(text):
        raise UnfitValue(problem, text)
    return text


def as_application(value: Any) -> str:
    """Return an application's name, in upper case as Eureka has it."""
    if not isinstance(value, str) or not value.strip():
        return as_text(value)
    name = value.strip().upper()
    if problem := name_problem(name):
        raise UnfitValue(f"{value!r} {problem}", name, problem)
    return name


def bare_host(host_name: str) -> str:
    """Return a host name or address without the brackets that an IPv6 address has in a URL."""
    bare = host_name.removeprefix("[").removesuffix("]")
    return bare if ":" in bare else host_name


def _host(value: Any) -> str:
    text = as_text(value)
    if "/" in text or any(letter.isspace() for letter in text):
        raise BadValue.of(value, "must be a bare host name or address, without http:// and without a path")
    if unlike := ambiguity(text):
        raise UnfitValue(f"{value!r} {unlike}", text)
    return text


def as_host_name(value: Any) -> str:
    """Return a host name or address as callers write it in a URL."""
    return Address.of(bare_host(_host(value))).host_name


def as_ip_address(value: Any) -> str:
    """Return an IP address, or a host name in its place, without brackets."""
    return bare_host(_host(value))


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    """Return a parser of whole numbers from ``least`` to ``most``."""

    def normalise(value: Any) -> int:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value % 1 != 0 or not least <= value <= most:
            raise BadValue.of(value, f"must be a whole number from {least} to {most}")
        return int(value)

    return normalise


def as_flag(value: Any) -> bool:
    """Return a boolean; refuse any other value."""
    if not isinstance(value, bool):
        raise BadValue.of(value, "must be true or false")
    return value


def as_status(value: Any) -> str:
    """Return a status that a program may enforce."""
    if value not in SETTABLE_STATUSES:
        raise BadValue.of(
            value,
            f"must be one of {', '.join(SETTABLE_STATUSES)}; leave it out to start UP and to leave a person's"
            " override alone",
        )
    return str(value)


def as_on_conflict(value: Any) -> str:
    """Return a value of :class:`OnConflict`."""
    if value not in tuple(OnConflict):
        raise BadValue.of(value, f"must be {OnConflict.FAIL} or {OnConflict.ADOPT}")
    return str(value)


def as_metadata(value: Any) -> dict[str, Any]:
    """Return a map of texts whose keys reach clients unchanged."""
    if not isinstance(value, Mapping):
        raise BadValue.of(value, "must be a map of texts")
    result: dict[str, Any] = {}
    problems = []
    for key, item in sorted(value.items()):
        if key.startswith(RESERVED_PREFIX):
            reserved = f"keys that start with {RESERVED_PREFIX} are Eurekube's own"
            raise BadValue(f"key {key!r}: {reserved}", reserved)
        try:
            check_metadata_key(key)
        except InvalidInstance as error:
            raise BadValue(error.reason, _METADATA_KEYS) from None
        if isinstance(item, Mapping | list | tuple):
            nested = "must be a text, since Eureka's metadata are not nested"
            raise BadValue(f"the value of {key!r} {nested}", f"a value {nested}")
        if item is UNKNOWN:
            result[key] = item
        elif item is not None:
            result[key] = _as_written(item)
            if problem := text_problem(result[key]):
                problems.append((f"the value of {key!r} {problem}", f"a value {problem}"))
    if problems:
        messages, hidden = ("; ".join(parts) for parts in zip(*problems, strict=True))
        raise UnfitValue(messages, result, hidden)
    return result


def as_url(value: Any) -> str:
    """Return a URL of http or https."""
    text = as_text(value)
    if not text.startswith(("http://", "https://")):
        raise BadValue.of(value, "must start with http:// or https://")
    return text


def as_renewer(value: Any) -> str:
    """Return the name of a registration's renewer; refuse an empty one."""
    if not isinstance(value, str) or not value.strip():
        raise BadValue(NO_RENEWER)
    return _readable(value.strip())


def as_service_url(value: Any) -> str:
    """Return the URLs of one Eureka, separated by commas."""
    try:
        return ",".join(Connection.parse(as_text(value)).service_urls)
    except ConfigurationError as error:
        raise BadValue(str(error)) from None


def as_owner(value: Any) -> str:
    """Return the owner of a registration: a resource of a stack."""
    if not isinstance(parse_owner(str(value)), StackOwner):
        raise BadValue.of(value, "must be stack/<organization>/<project>/<stack>/<name>")
    return _readable(str(value))


def _as_written(value: Any) -> str:
    """Return a scalar as a person would write it: Pulumi's 8080.0 as 8080, True as true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value % 1 == 0:
        return str(int(value))
    return str(value)


def _quoted(value: Any) -> str:
    return repr(value) if isinstance(value, str) else _as_written(value)
