"""The properties of an EurekaInstance: what people write, checked and made one shape.

Knows neither Pulumi nor Eureka's wire. Pulumi hands over numbers as floats, drops keys without a value and
puts a marker where a value is not known yet; after :func:`check` none of that is left but the marker.

The names are part of every user's state: renaming one needs a heading State in the CHANGELOG.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from eurekube_provider.core.addresses import Address
from eurekube_provider.core.errors import ConfigurationError, InvalidInstance
from eurekube_provider.core.identity import RESERVED_PREFIX, StackOwner, check_metadata_key, parse_owner
from eurekube_provider.core.model import Status
from eurekube_provider.core.text import metadata_problem, name_problem, text_problem
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.registrations.defaults import FIXED

Properties = dict[str, Any]


class Marker(Enum):
    """Stands where a value is not known before something else is created."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Marker.UNKNOWN


class OnConflict(StrEnum):
    """What to do when the instance is there already and belongs to somebody else."""

    FAIL = "fail"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True)
class Problem:
    """One property that cannot be used, and what would be right."""

    property: str
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """Normalised properties, of use only where there are no problems.

    :ivar warnings: what is no reason to refuse them, and is to be told.
    """

    properties: Properties
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


URLS = ("home_page_url", "status_page_url", "health_check_url", "secure_health_check_url")

INPUTS = (
    "application",
    "instance_id",
    "host_name",
    "ip_address",
    "port",
    "port_enabled",
    "secure_port",
    "secure_port_enabled",
    "vip_address",
    "secure_vip_address",
    "status",
    "metadata",
    "zone",
    "renewal_interval_seconds",
    "duration_seconds",
    *URLS,
    "renewer",
    "on_conflict",
    "drain_seconds",
    "connection",
    "service_url",
    "owner",
)

DEFAULT_ID = "instance_id_is_default"
"""Bookkeeping beside the inputs: a default id survives a renamed stack, one that was removed does not."""

INCARNATION = "incarnation"
"""Which creation of a registration it is: made once, kept by updates, in no program's hands."""

SEEN_INCARNATION = "seen_incarnation"
"""Bookkeeping: which one Eureka names instead."""

LEAVING = "leaving"
"""Whether a drain of ours took it out of service and was interrupted; not there where none was."""

STILL_ENFORCED = "still_enforced"
"""Whether a status of ours stands that the program does not enforce; not there where none does."""

ABSENT = "absent"
"""Whether Eureka does not hold what the state has; among the inputs of the update that registers it anew."""

HALF_DONE = "half_done"
"""Whether Eureka holds what an update wrote and the state does not have; among the inputs of the update that
undoes it."""

ASKED_STATUS = "asked_status"
"""The status that is enforced, where Eureka held another one; not there where it did not."""

OUTPUTS = (
    "overridden_status",
    "last_updated",
    "seen_owner",
    "status_is_enforced",
    INCARNATION,
    SEEN_INCARNATION,
)
"""What only Eureka tells; in the state, never among the inputs."""

FROM_SECRET = "(derived from a secret)"  # noqa: S105 - it says that there is one
"""Stands for a property that the check derives from a secret one, so that Pulumi takes it for one as well."""

SECRET_ID = "secret_id"  # noqa: S105 - the name of a property
"""Among the inputs where the resource's id must not tell what Eureka's id is made of."""

SETTABLE_STATUSES = (Status.UP, Status.DOWN, Status.STARTING, Status.OUT_OF_SERVICE)

NO_RENEWER = (
    "a registration that nobody renews lapses after 90 seconds and drives Eureka into self-preservation:"
    " name the operator that shall renew it (by default eurekube), or write 'self' if the application"
    " sends its own renewals"
)


def contains_unknown(value: Any) -> bool:
    """Whether something in ``value`` is not known yet, at any depth."""
    if isinstance(value, Mapping):
        return any(contains_unknown(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(contains_unknown(item) for item in value)
    return value is UNKNOWN


def without_secrets(given: Mapping[str, Any]) -> tuple[Properties, list[str]]:
    """What was given, and the names of what is to be derived from a secret."""
    derived = [name for name, value in given.items() if value == FROM_SECRET]
    return {name: value for name, value in given.items() if name not in derived}, derived


def derived_secrets(derived: Iterable[str], checked: Mapping[str, Any]) -> Properties:
    """What was derived from a secret, to be written beside what was given: a refresh would tell it."""
    found = {name: checked[name] for name in derived if name in checked}
    return {**found, SECRET_ID: FROM_SECRET} if SECRET_ID in derived else found


def default_instance_id(owner: StackOwner, application: str, port: int) -> str:
    """The id of a registration that names none: ``<name>.<stack>.<project>:<application>:<port>``."""
    return f"{owner.name}.{owner.stack}.{owner.project}:{application.lower()}:{port}"


def check(olds: Mapping[str, Any], news: Mapping[str, Any]) -> Checked:
    """Normalise ``news``: defaults filled in, whole numbers as integers, keys without a value gone.

    :param olds: the checked properties of last time, empty on creation. A default id is taken over from
        them as long as application and port are the same, so that a renamed stack renames no instance.
    """
    return _Check(olds, news).run()


class _Check:
    """One call of :func:`check`: collects problems instead of raising at the first."""

    def __init__(self, olds: Mapping[str, Any], news: Mapping[str, Any]) -> None:
        self._olds = olds
        self._news = {
            key: value
            for key, value in news.items()
            if value is not None and key not in OUTPUTS and key != DEFAULT_ID
        }
        self._result: Properties = {}
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []

    def run(self) -> Checked:
        for key in sorted(set(self._news) - set(INPUTS)):
            near = difflib.get_close_matches(key, INPUTS, n=1)
            self._refuse(key, "there is no such property" + (f"; {near[0]} is one" if near else ""))
        self._names()
        self._ports()
        self._vip_addresses()
        self._keep("status", _status)
        self._metadata()
        self._lease()
        for name in URLS:
            self._keep(name, _url)
        self._management()
        self._instance_id()
        return Checked(self._result, tuple(self._problems), tuple(self._warnings))

    def _names(self) -> None:
        self._keep("application", _application, required=True)
        self._keep("host_name", _host_name, required=True)
        self._keep("ip_address", _ip_address)
        if "ip_address" not in self._result and "host_name" in self._result:
            # As given: a look-up here would make the preview depend on somebody's resolver.
            host_name = self._result["host_name"]
            self._result["ip_address"] = host_name if host_name is UNKNOWN else bare_host(host_name)

    def _ports(self) -> None:
        self._keep("port", _whole(1, 65535), required=True)
        self._keep("port_enabled", _flag, default=FIXED["port_enabled"])
        # Spring calls https whenever the secure port is enabled: whoever names one means that.
        named = "secure_port" in self._news
        self._keep("secure_port", _whole(1, 65535), default=FIXED["secure_port"])
        self._keep("secure_port_enabled", _flag, default=named)

    def _vip_addresses(self) -> None:
        self._keep("vip_address", _text)
        application = self._result.get("application")
        if "vip_address" not in self._result and application is not None:
            self._result["vip_address"] = application.lower() if isinstance(application, str) else application
        self._keep("secure_vip_address", _text, default=self._result.get("vip_address"))

    def _metadata(self) -> None:
        self._keep("zone", _text)
        self._keep("metadata", _metadata, default={})
        metadata = self._result.get("metadata")
        if not isinstance(metadata, dict):
            return
        self._size_of(metadata)
        if "zone" not in metadata:
            return
        zone = metadata.pop("zone")
        if self._result.setdefault("zone", zone) != zone:
            self._refuse("zone", "the metadata has another zone: give it in one place")

    def _size_of(self, metadata: Mapping[str, Any]) -> None:
        """Refuse metadata that are too large; but what a release before that rule registered may go on."""
        problem = metadata_problem({key: item for key, item in metadata.items() if item is not UNKNOWN})
        if not problem:
            return
        before = {"zone": self._olds.get("zone"), **(self._olds.get("metadata") or {})}
        if all(before.get(key) == item for key, item in metadata.items()):
            goes_on = "they were registered before that was refused, and stay; nothing can be added to them"
            self._warnings.append(Problem("metadata", f"{problem}; {goes_on}"))
        else:
            self._refuse("metadata", problem)

    def _lease(self) -> None:
        for name in ("renewal_interval_seconds", "duration_seconds"):
            self._keep(name, _whole(1, 86400), default=FIXED[name])
        interval = self._result.get("renewal_interval_seconds", UNKNOWN)
        duration = self._result.get("duration_seconds", UNKNOWN)
        if isinstance(interval, int) and isinstance(duration, int) and duration <= interval:
            self._refuse(
                "duration_seconds",
                f"{duration} seconds without a renewal are no longer than the {interval} seconds between two"
                " renewals, so that the instance would come and go; take three times as long",
            )

    def _management(self) -> None:
        self._keep("renewer", _renewer, required=True, missing=NO_RENEWER)
        self._keep("on_conflict", _on_conflict, default=FIXED["on_conflict"])
        self._keep("drain_seconds", _whole(0, 3600), default=FIXED["drain_seconds"])
        self._keep("connection", _text, default=FIXED["connection"])
        self._keep("service_url", _service_url, required=True)
        self._keep("owner", _owner, required=True)

    def _instance_id(self) -> None:
        self._result[DEFAULT_ID] = "instance_id" not in self._news
        self._keep("instance_id", _text, default=self._default_instance_id())
        value = self._result.get("instance_id")
        if isinstance(value, str) and (problem := name_problem(value)):
            self._refuse("instance_id", f"{value!r} {problem}")

    def _default_instance_id(self) -> str | Marker | None:
        application, port = self._result.get("application"), self._result.get("port")
        owner = self._result.get("owner")
        if UNKNOWN in (application, port, owner):
            return UNKNOWN
        parsed = parse_owner(owner)
        if (
            not isinstance(application, str)
            or not isinstance(port, int)
            or not isinstance(parsed, StackOwner)
        ):
            return None
        olds = self._olds
        if olds.get(DEFAULT_ID) and (olds.get("application"), olds.get("port")) == (application, port):
            return str(olds["instance_id"])
        return default_instance_id(parsed, application, port)

    def _keep(
        self,
        name: str,
        normalise: Callable[[Any], Any],
        *,
        default: Any = None,
        required: bool = False,
        missing: str = "is required",
    ) -> None:
        value = self._news.get(name)
        if value is None:
            if required:
                self._refuse(name, missing)
            elif default is not None:
                self._result[name] = default
            return
        if value is UNKNOWN:
            self._result[name] = value
            return
        try:
            self._result[name] = normalise(value)
        except _Unfit as unfit:
            self._result[name] = unfit.value
            self._refuse(name, unfit.reason)
        except _Refused as refused:
            self._refuse(name, refused.reason)

    def _refuse(self, name: str, reason: str) -> None:
        self._problems.append(Problem(name, reason))


class _Refused(Exception):
    """A value cannot be used; becomes a :class:`Problem`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Unfit(_Refused):
    """A value must not be registered. What stands already may have it, and so it is kept to be read."""

    def __init__(self, reason: str, value: Any) -> None:
        super().__init__(reason)
        self.value = value


# One function for each kind of value: returns the normalised one, or raises _Refused.


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Refused(f"{_quoted(value)} must be a text that is not empty")
    return _readable(value.strip())


def _readable(text: str) -> str:
    """A text that all of Eureka's clients can read. It is not repeated, since it may be a secret."""
    if problem := text_problem(text):
        raise _Unfit(problem, text)
    return text


def _application(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        return _text(value)
    name = value.strip().upper()
    if problem := name_problem(name):
        raise _Unfit(f"{value!r} {problem}", name)
    return name


def bare_host(host_name: str) -> str:
    """A host name or address without the brackets that an IPv6 address has in a URL."""
    bare = host_name.removeprefix("[").removesuffix("]")
    return bare if ":" in bare else host_name


def _host(value: Any) -> str:
    text = _text(value)
    if "/" in text or any(letter.isspace() for letter in text):
        raise _Refused(f"{value!r} must be a bare host name or address, without http:// and without a path")
    return text


def _host_name(value: Any) -> str:
    return Address.of(bare_host(_host(value))).host_name


def _ip_address(value: Any) -> str:
    return bare_host(_host(value))


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def normalise(value: Any) -> int:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value % 1 != 0 or not least <= value <= most:
            raise _Refused(f"{_quoted(value)} must be a whole number from {least} to {most}")
        return int(value)

    return normalise


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Refused(f"{_quoted(value)} must be true or false")
    return value


def _status(value: Any) -> str:
    if value not in SETTABLE_STATUSES:
        raise _Refused(
            f"{value!r} must be one of {', '.join(SETTABLE_STATUSES)}; leave it out to start UP and to leave"
            " a person's override alone"
        )
    return str(value)


def _on_conflict(value: Any) -> str:
    if value not in tuple(OnConflict):
        raise _Refused(f"{value!r} must be {OnConflict.FAIL} or {OnConflict.ADOPT}")
    return str(value)


def _metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Refused(f"{_quoted(value)} must be a map of texts")
    result: dict[str, Any] = {}
    problems = []
    for key, item in sorted(value.items()):
        if key.startswith(RESERVED_PREFIX):
            raise _Refused(f"key {key!r}: keys that start with {RESERVED_PREFIX} are Eurekube's own")
        try:
            check_metadata_key(key)
        except InvalidInstance as error:
            raise _Refused(error.reason) from None
        if isinstance(item, Mapping | list | tuple):
            raise _Refused(f"the value of {key!r} must be a text, since Eureka's metadata are not nested")
        if item is UNKNOWN:
            result[key] = item
        elif item is not None:
            result[key] = _shown(item)
            if problem := text_problem(result[key]):
                problems.append(f"the value of {key!r} {problem}")
    if problems:
        raise _Unfit("; ".join(problems), result)
    return result


def _url(value: Any) -> str:
    text = _text(value)
    if not text.startswith(("http://", "https://")):
        raise _Refused(f"{value!r} must start with http:// or https://")
    return text


def _renewer(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Refused(NO_RENEWER)
    return _readable(value.strip())


def _service_url(value: Any) -> str:
    try:
        return ",".join(Connection.parse(_text(value)).service_urls)
    except ConfigurationError as error:
        raise _Refused(str(error)) from None


def _owner(value: Any) -> str:
    if not isinstance(parse_owner(str(value)), StackOwner):
        raise _Refused(f"{value!r} must be stack/<organization>/<project>/<stack>/<name>")
    return _readable(str(value))


def _shown(value: Any) -> str:
    """A scalar as a person would write it: Pulumi's 8080.0 is 8080, True is true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value % 1 == 0:
        return str(int(value))
    return str(value)


def _quoted(value: Any) -> str:
    return repr(value) if isinstance(value, str) else _shown(value)
