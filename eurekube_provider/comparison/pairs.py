"""Endpoints and instances of one application, each beside its counterpart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, is_ready, is_terminating


@dataclass(frozen=True, slots=True)
class Pair:
    """One endpoint and the instance at its address.

    :ivar endpoint: the pod's name, else the address; empty where no endpoint has the address.
    :ivar endpoint_state: ``ready``, ``not ready`` or ``terminating``; empty where there is none.
    :ivar instance_id: empty where Eureka has no instance at the address, as is ``status``.
    :ivar manager: the instance's manager, where it is not the one that was asked for.
    """

    address: str
    endpoint: str = ""
    endpoint_state: str = ""
    instance_id: str = ""
    status: str = ""
    manager: str = ""

    @property
    def agrees(self) -> bool:
        """Return whether callers are sent there exactly where Kubernetes says that it is ready."""
        is_right = bool(self.instance_id) and not self.manager
        return is_right and (self.endpoint_state == "ready") == (self.status == Status.UP)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "address": self.address,
            "endpoint": self.endpoint,
            "endpointState": self.endpoint_state,
            "instanceId": self.instance_id,
            "status": self.status,
            "keeper": self.manager,
            "agrees": self.agrees,
        }


def pairs_of(
    slices: Iterable[Object], instances: Iterable[Instance], others: Mapping[str, tuple[Instance, str]]
) -> list[Pair]:
    """Put endpoints and instances together by their addresses; those that do not agree come first.

    :param instances: of one manager.
    :param others: an instance of somebody else under the same name and who keeps it, by its address: shown
        where the manager has none there.
    """
    there = {one.ip_address: one for one in instances}
    found: dict[str, Pair] = {}
    for endpoint in (one for each in slices for one in each.get("endpoints") or ()):
        address = str(endpoint["addresses"][0])
        instance, manager = there.pop(address, None), ""
        if instance is None and address in found:
            continue  # an endpoint of two slices
        if instance is None and address in others:
            instance, manager = others[address]
        target = endpoint.get("targetRef") or {}
        found[address] = Pair(
            address,
            str(target.get("name") or address),
            "terminating" if is_terminating(endpoint) else "ready" if is_ready(endpoint) else "not ready",
            instance.instance_id if instance else "",
            str(instance.status) if instance else "",
            manager,
        )
    for address, one in there.items():
        found[address] = Pair(address, instance_id=one.instance_id, status=str(one.status))
    return sorted(found.values(), key=lambda one: (one.agrees, one.endpoint or one.instance_id))
