"""Addresses at which callers reach an application, and what each resource of a program claims as its own."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from eurekube_provider.core.model import Status
from eurekube_provider.registrations.defaults import with_defaults
from eurekube_provider.registrations.values import UNKNOWN

_Claim = TypeVar("_Claim", bound=Hashable)


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
    def from_properties(cls, properties: Mapping[str, Any]) -> CalledAddress | None:
        """Return an instance's called address; None where a property is unknown or unusable, where no port is
        enabled, or where the enforced status is not UP: nobody calls it then.
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


class Declaration(NamedTuple):
    """A resource as a program declares it.

    :ivar mark: tells it from others of the same owner, as below another parent; empty where nothing does.
    """

    owner: str
    mark: str = ""

    def may_be(self, other: Declaration) -> bool:
        """Return whether both may be the same resource."""
        return self.owner == other.owner and ("" in (self.mark, other.mark) or self.mark == other.mark)


class ProgramClaims:
    """The called addresses and instances that each resource claims; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimants: dict[tuple[str, Hashable], Declaration] = {}
        self._claimed: dict[Declaration, list[tuple[str, Hashable]]] = {}

    def claim_and_find_conflicts(
        self, resource: Declaration, service_url: str, claims: Iterable[_Claim]
    ) -> dict[_Claim, Declaration]:
        """Record a resource's claims in place of its earlier ones; return those that another resource has at
        the same servers, each with that resource, and leave them out.
        """
        found: dict[_Claim, Declaration] = {}
        with self._lock:
            for place in self._claimed.pop(resource, ()):
                del self._claimants[place]
            claimed = self._claimed[resource] = []
            for claim in claims:
                place = (service_url, claim)
                claimant = self._claimants.setdefault(place, resource)
                if claimant == resource:
                    claimed.append(place)
                elif not claimant.may_be(resource):
                    found[claim] = claimant
        return found
