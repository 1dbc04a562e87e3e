"""The model of an instance: one Eureka ``InstanceInfo`` as a value.

The model knows neither JSON nor Kubernetes.

Source of the fields and defaults: ``com.netflix.appinfo.InstanceInfo`` and ``LeaseInfo`` of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.reservations import lookup_names

EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})

InstanceKey = tuple[str, str]
"""Key of an instance in a registry: its application, in upper case, and its id."""

FindInstance = Callable[[InstanceKey], "Instance | None"]
"""A function that returns the known instance of a key; None for none."""

DEFAULT_DATA_CENTER_CLASS = "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"


MAX_INTERNED_TEXTS = 16_384
"""The number of texts that :func:`intern_text` remembers; the least recently used are forgotten first."""

MAX_SHARED_VALUES = 4096
"""The number of ports, and of lease times, that :func:`shared_port` and :func:`shared_lease` remember."""


@lru_cache(maxsize=MAX_INTERNED_TEXTS)
def intern_text(text: str) -> str:
    """Return one object for all texts that are equal to this one: instances repeat the same few texts.

    Not ``sys.intern``: Python 3.12.0 to 3.12.6 keep its texts for ever, and metadata that change with each
    rollout would fill the memory.
    """
    return text


class Status(StrEnum):
    """The states that Eureka knows. Callers use only instances that are UP."""

    UP = "UP"
    DOWN = "DOWN"
    STARTING = "STARTING"
    OUT_OF_SERVICE = "OUT_OF_SERVICE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port and whether callers may use it.

    :param number: 1 to 65535. Eureka's own default is 7001 (7002 for the secure port).
    :param enabled: Spring calls https on the secure port whenever that one is enabled.
    """

    number: int
    enabled: bool = True


@lru_cache(maxsize=MAX_SHARED_VALUES)
def shared_port(number: int, *, enabled: bool) -> Port:
    """Return the one object for a port: thousands of instances share a few, and compare them at each plan."""
    return Port(number, enabled)


@dataclass(frozen=True, slots=True)
class EurekaLease:
    """The times of an instance's lease in Eureka.

    :param renewal_interval_seconds: the interval that the instance promises, default 30. The server expects
        two renewals a minute whatever the value.
    :param duration_seconds: default 90. The server forgets an instance after twice this time once it has been
        renewed, and after once this time when it never was.
    """

    renewal_interval_seconds: int = 30
    duration_seconds: int = 90


@lru_cache(maxsize=MAX_SHARED_VALUES)
def shared_lease(renewal_interval_seconds: int, duration_seconds: int) -> EurekaLease:
    """Return the one object for the times of a lease: thousands of instances share a few."""
    return EurekaLease(renewal_interval_seconds, duration_seconds)


@dataclass(frozen=True, slots=True)
class DataCenter:
    """The data centre of an instance; one other than ``MyOwn`` is read and kept, and never written."""

    name: str = "MyOwn"
    java_class: str = DEFAULT_DATA_CENTER_CLASS
    metadata: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)


_DEFAULT_DATA_CENTER = DataCenter()


@dataclass(frozen=True, slots=True)
class Instance:
    """One copy of an application: its address, its status, and its owner.

    ``application`` is upper-cased as Eureka does. ``vip_address`` and ``secure_vip_address`` default to the
    lower-cased application name, since Spring looks services up by VIP and never by application.

    :ivar key: application and instance id, one object for all that remember it.
    :ivar unreadable: why an instance that was read from Eureka can be shown but not relied on: no request can
        name it, or one of its fields is empty or is understood differently by different readers. Empty for a
        sound instance, and for one that is to be registered.
    :raises InvalidInstance: a field has a value that no Eureka server could hold or ever give back; never
        raised for an instance that was read, see ``unreadable``.
    """

    application: str
    instance_id: str
    host_name: str
    ip_address: str
    port: Port
    secure_port: Port = Port(443, enabled=False)
    vip_address: str = ""
    secure_vip_address: str = ""
    status: Status = Status.UP
    metadata: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    lease: EurekaLease = EurekaLease()
    home_page_url: str = ""
    status_page_url: str = ""
    health_check_url: str = ""
    secure_health_check_url: str = ""
    data_center: DataCenter = _DEFAULT_DATA_CENTER
    # The server sets the fields below, or they are only kept to be sent back.
    overridden_status: Status = Status.UNKNOWN
    last_dirty_timestamp_ms: int | None = None
    last_updated_timestamp_ms: int | None = None
    # When its lease ends, by the server that was asked, which evicts it some time later.
    lease_ends_ms: int | None = field(default=None, compare=False)
    unknown_fields: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    unreadable: str = field(default="", compare=False)
    key: InstanceKey = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Normalise the names, and refuse those by which an instance could never be read or removed."""
        if (not self.application or "/" in self.application) and not self.unreadable:
            raise InvalidInstance("application", f"{self.application!r} must be a name without a slash")
        if (not self.instance_id or "/" in self.instance_id) and not self.unreadable:
            raise InvalidInstance(
                "instance_id",
                f"{self.instance_id!r} must be a name without a slash: Eureka would accept it once"
                " and could never read or remove it again",
            )
        object.__setattr__(self, "application", intern_text(self.application.upper()))
        object.__setattr__(self, "key", (self.application, self.instance_id))
        if not self.vip_address:
            object.__setattr__(self, "vip_address", self.application.lower())
        if not self.secure_vip_address:
            object.__setattr__(self, "secure_vip_address", self.vip_address)

    @property
    def address(self) -> str:
        """Address and enabled port, e.g. ``10.0.0.1:8080``; ``10.0.0.1 (no port)`` where none is enabled."""
        enabled = next((one for one in (self.port, self.secure_port) if one.enabled), None)
        return f"{self.ip_address} (no port)" if enabled is None else f"{self.ip_address}:{enabled.number}"

    @property
    def names(self) -> frozenset[str]:
        """The names, in lower case, under which callers find the instance."""
        return lookup_names(self.application, self.vip_address, self.secure_vip_address)

    @property
    def owner(self) -> str | None:
        """The owner; None for an instance that Eurekube did not register."""
        return self.metadata.get("eurekube.owner")

    @property
    def incarnation(self) -> str:
        """The incarnation of a stack's registration; empty where the metadata have none."""
        return self.metadata.get("eurekube.incarnation", "")

    @property
    def is_leaving(self) -> bool:
        """True if the instance has the mark of a drain: Eurekube, and no person, set OUT_OF_SERVICE."""
        return "eurekube.leaving" in self.metadata

    @property
    def enforced(self) -> str:
        """The status that a stack's program enforced, or was about to; empty for none.

        Two statuses, with a space between them, where the second was to replace the first.
        """
        return self.metadata.get("eurekube.enforced", "")

    @property
    def is_status_enforced(self) -> bool:
        """True if a stack's program enforced the present status, and no person set it."""
        return self.status.value in self.enforced.split()

    @property
    def renewer(self) -> str | None:
        """The operator that must renew the instance, for registrations that a stack owns."""
        return self.metadata.get("eurekube.renewer")

    @property
    def zone(self) -> str | None:
        """The zone as Spring and Netflix clients read it."""
        if self.data_center.name == "Amazon":
            return self.data_center.metadata.get("availability-zone")
        return self.metadata.get("zone")

    @property
    def written_at_ms(self) -> int:
        """The time, in ms, when the contents were written, by the writer's clock; 0 where it is not known."""
        return self.last_dirty_timestamp_ms or 0

    @property
    def is_overridden(self) -> bool:
        """True if a person, or a tool of theirs, set an override, which hides the registered status."""
        return self.overridden_status is not Status.UNKNOWN

    @property
    def is_self_registered_out_of_service(self) -> bool:
        """True if an application registered itself as OUT_OF_SERVICE, which no later registration can change.

        A server keeps the status UP or OUT_OF_SERVICE of an instance that registers again, whatever the new
        registration says: only an override that is set and cleared changes it. Source: LeaseExistsRule of
        Netflix/eureka.
        """
        return self.status is Status.OUT_OF_SERVICE and not (self.is_overridden or self.owner)


_PARTS_OF_ONE_INSTANCE = (
    "instance_id",
    "key",
    "host_name",
    "ip_address",
    "home_page_url",
    "status_page_url",
    "health_check_url",
    "secure_health_check_url",
    "last_dirty_timestamp_ms",
)
"""The fields that hardly two instances share, and all versions of one instance do."""

_parts_of = attrgetter(*_PARTS_OF_ONE_INSTANCE)


def share_equal_parts(instance: Instance, known: Instance | None) -> None:
    """Have a new instance hold a known version's objects in equal fields: they are in memory once."""
    if known is None or known is instance:
        return
    for name, own, part in zip(_PARTS_OF_ONE_INSTANCE, _parts_of(instance), _parts_of(known), strict=True):
        if own is not part and own == part:
            object.__setattr__(instance, name, part)


def same_contents_but_status(one: Instance, other: Instance) -> bool:
    """Return whether two instances ask for the same, but for the status and what the server computes.

    A plan compares every instance, so the fields are compared one by one for speed. Ports and leases are
    mostly the same objects, see :func:`shared_port`.
    """
    return (
        one.host_name == other.host_name
        and one.ip_address == other.ip_address
        and (one.port is other.port or one.port == other.port)
        and (one.secure_port is other.secure_port or one.secure_port == other.secure_port)
        and one.vip_address == other.vip_address
        and one.secure_vip_address == other.secure_vip_address
        and one.metadata == other.metadata
        and (one.lease is other.lease or one.lease == other.lease)
        and one.home_page_url == other.home_page_url
        and one.status_page_url == other.status_page_url
        and one.health_check_url == other.health_check_url
        and one.secure_health_check_url == other.secure_health_check_url
    )


def newest(versions: Iterable[Instance | None]) -> Instance | None:
    """Return the version of an instance that was written last, of several servers' ones; None for none.

    Among equally new versions the one with an enforced status wins: servers that get a status at the same
    time may keep different ones, and the other status is then no person's.
    """
    held = (one for one in versions if one is not None)
    return max(held, key=lambda instance: (instance.written_at_ms, instance.is_status_enforced), default=None)
