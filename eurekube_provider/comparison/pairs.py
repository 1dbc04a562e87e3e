"""Pairs of an endpoint in Kubernetes and an instance in Eureka at the same address, for one application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.identity import pod_and_namespace_of_id
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, endpoint_name, endpoint_state


@dataclass(frozen=True, slots=True)
class EndpointInstancePair:
    """One endpoint and the instance at its address.

    :ivar endpoint: the pod's name, else the address; empty where no endpoint has the address.
    :ivar endpoint_state: ``ready``, ``not ready`` or ``terminating``; empty without an endpoint.
    :ivar instance_id: the instance's id; empty, as ``status``, where Eureka has no instance at the address.
    :ivar manager: the instance's manager, if that is not the manager whose instances are paired.
    """

    address: str
    endpoint: str = ""
    endpoint_state: str = ""
    instance_id: str = ""
    status: str = ""
    manager: str = ""

    @property
    def agrees(self) -> bool:
        """Return whether the manager has an instance there that is UP exactly when the endpoint is ready."""
        is_right = bool(self.instance_id) and not self.manager
        return is_right and (self.endpoint_state == "ready") == (self.status == Status.UP)

    def to_dict(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "endpoint": self.endpoint,
            "endpointState": self.endpoint_state,
            "instanceId": self.instance_id,
            "status": self.status,
            "keeper": self.manager,
            "agrees": self.agrees,
        }


def pair_endpoints_with_instances(
    slices: Iterable[Object], instances: Iterable[Instance], others: Mapping[str, tuple[Instance, str]]
) -> list[EndpointInstancePair]:
    """Pair endpoints and instances by names and addresses, those that do not agree first. ``others`` are
    instances of other managers by address, shown where this one has none.
    """
    there = {(pod_and_namespace_of_id(one.instance_id)[0], one.ip_address): one for one in instances}
    found: dict[tuple[str, str], EndpointInstancePair] = {}
    for endpoint in (one for each in slices for one in each.get("endpoints") or ()):
        address = str(endpoint["addresses"][0])
        place = endpoint_name(endpoint), address  # pods on one node may share its address
        instance, manager = there.pop(place, None), ""
        if instance is None and place in found:
            continue  # an endpoint of two slices
        if instance is None and address in others:
            instance, manager = others[address]
        target = endpoint.get("targetRef") or {}
        found[place] = EndpointInstancePair(
            address,
            str(target.get("name") or address),
            endpoint_state(endpoint),
            instance.instance_id if instance else "",
            str(instance.status) if instance else "",
            manager,
        )
    for place, one in there.items():
        found[place] = EndpointInstancePair(
            one.ip_address, instance_id=one.instance_id, status=str(one.status)
        )
    return sorted(found.values(), key=lambda one: (one.agrees, one.endpoint or one.instance_id))
