"""Where callers of an application end up, and which resource of a program registers there."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from eurekube_provider.core.model import Status
from eurekube_provider.registrations.defaults import completed
from eurekube_provider.registrations.values import UNKNOWN


class CalledAddress(NamedTuple):
    """The address at which callers of an application call it; a port that is not enabled is None.

    Some callers call the host name, as Spring does, others the address; a gateway tells hosts apart by name.
    They find an instance by its VIP address, and may prefer those of their zone.
    """

    application: str
    vip_address: str
    zone: str | None
    host_name: str
    ip_address: str
    port: int | None
    secure_port: int | None

    @classmethod
    def all_of(cls, instances: Iterable[Mapping[str, Any]]) -> set[CalledAddress]:
        """Return those of several instances' properties, as far as they are known."""
        return {at for each in instances if (at := cls.of(each)) is not None}

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> CalledAddress | None:
        """Return that of an instance's properties; None where one is not known yet or cannot be used.

        An instance of which no port is enabled, or whose enforced status is not UP, is called by nobody.
        """
        full = completed(properties)
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
    """The addresses that the program of a run asks for; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[str, CalledAddress], str] = {}
        self._taken: dict[str, list[tuple[str, CalledAddress]]] = {}

    def take(
        self, owner: str, service_url: str, addresses: Iterable[CalledAddress]
    ) -> dict[CalledAddress, str]:
        """Give a resource the addresses that it asks for, in place of what it asked for before.

        :param service_url: the servers at which it registers there.
        :returns: those that another resource has at the same servers, with its owner.
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
