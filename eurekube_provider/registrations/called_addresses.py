"""The addresses at which callers reach an application, and the resource of a program that registers each."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from eurekube_provider.core.model import Status
from eurekube_provider.registrations.defaults import with_defaults
from eurekube_provider.registrations.values import UNKNOWN


class CalledAddress(NamedTuple):
    """The address at which callers call an instance of an application; a disabled port is None.

    Some callers call the host name, as Spring does, others the IP address; a gateway tells hosts apart by
    name. Callers find an instance by its VIP address, and may prefer those of their zone.
    """

    application: str
    vip_address: str
    zone: str | None
    host_name: str
    ip_address: str
    port: int | None
    secure_port: int | None

    @classmethod
    def from_instances(cls, instances: Iterable[Mapping[str, Any]]) -> set[CalledAddress]:
        """Return the called addresses of several instances' properties, leaving out unknown ones."""
        return {at for each in instances if (at := cls.from_properties(each)) is not None}

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> CalledAddress | None:
        """Return the called address of an instance's properties; None where a property is unknown or
        unusable.

        Nobody calls an instance that has no enabled port, or whose enforced status is not UP.
        """
        full = with_defaults(properties)
        ports = [
            full.get(name) if full.get(f"{name}_enabled") is not False else None
            for name in ("port", "secure_port")
        ]
        names = ("application", "vip_address", "host_name", "ip_address")
        application, vip_address, host_name, ip_address = texts = [full.get(name) for name in names]
        zone, status = full.get("zone"), full.get("status")
        others = (
            zone,
            status,
            full.get("metadata"),
            full.get("port_enabled"),
            full.get("secure_port_enabled"),
        )
        if any(each is UNKNOWN for each in (*ports, *texts, *others)):
            return None
        if not all(isinstance(each, str) for each in texts) or status not in (None, Status.UP):
            return None
        if not any(ports) or not all(isinstance(each, int | float | None) for each in ports):
            return None
        port, secure_port = (None if each is None else int(each) for each in ports)
        found_by, called = str(vip_address).lower(), str(host_name).lower()
        return cls(str(application), found_by, zone, called, str(ip_address), port, secure_port)


class ProgramAddresses:
    """A table of the called addresses of each resource of a program; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[str, CalledAddress], str] = {}
        self._taken: dict[str, list[tuple[str, CalledAddress]]] = {}

    def claim_and_find_conflicts(
        self, owner: str, service_url: str, addresses: Iterable[CalledAddress]
    ) -> dict[CalledAddress, str]:
        """Record the addresses of a resource, in place of its earlier ones; leave out those that another
        resource has.

        :param service_url: the servers at which the resource registers.
        :returns: the addresses that another resource has at the same servers, each with that resource's
            owner.
        """
        found: dict[CalledAddress, str] = {}
        with self._lock:
            for place in self._taken.pop(owner, ()):
                del self._owners[place]
            taken = self._taken[owner] = []
            for at in addresses:
                place = (service_url, at)
                if self._owners.setdefault(place, owner) == owner:
                    taken.append(place)
                else:
                    found[at] = self._owners[place]
        return found
