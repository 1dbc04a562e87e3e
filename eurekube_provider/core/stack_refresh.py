"""The custom resource ``StackRefresh`` as a value, and the addresses that it follows.

``crds/`` has the schema with its bounds and rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.objects import Object, is_ready, qualified_name, service_name_of_slice
from eurekube_provider.core.syncer import Selector

AddressesByService = Mapping[str, tuple[str, ...]]
"""Sorted ``host:port`` texts, by ``namespace/name`` of their Service."""


class StackAction(StrEnum):
    """The operations of Pulumi that a StackRefresh may trigger."""

    REFRESH = "Refresh"
    """``pulumi refresh``: the stack's state is read again; its program does not run."""

    UP = "Up"
    """``pulumi up``: the stack's program runs, with its look-ups."""

    PREVIEW = "Preview"
    """``pulumi preview``: the stack's program runs, and nothing is changed."""


@dataclass(frozen=True, slots=True)
class StackRefresh:
    """The spec of a ``StackRefresh``.

    :param selector: selects the Services whose endpoints are followed.
    :param target: the name of the target in the operator's configuration.
    :param debounce_seconds: None for the default; the same for ``min_interval_seconds``.
    """

    namespace: str
    name: str
    selector: Selector
    action: StackAction
    target: str
    debounce_seconds: int | None = None
    min_interval_seconds: int | None = None
    is_paused: bool = False

    @classmethod
    def from_object(cls, item: Object) -> StackRefresh:
        """Read the custom resource.

        :raises ConfigurationError: the API server would have refused it; an older CRD may be installed.
        """
        metadata, spec = item["metadata"], item.get("spec") or {}
        target = spec.get("target")
        if not target:
            raise ConfigurationError("spec.target is missing: name a target of the operator's configuration")
        selector = Selector.from_object(item)
        try:
            action = StackAction(str(spec.get("action")))
        except ValueError:
            raise ConfigurationError(
                f"spec.action is {spec.get('action')!r}; it must be Refresh, Up or Preview"
            ) from None
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            selector=selector,
            action=action,
            target=target,
            debounce_seconds=spec.get("debounceSeconds"),
            min_interval_seconds=spec.get("minIntervalSeconds"),
            is_paused=bool(spec.get("paused")),
        )

    def digest(self, addresses: AddressesByService) -> str:
        """Return a hash of addresses, action and target: two equal hashes ask for the same run."""
        described = [self.target, str(self.action), sorted((name, *each) for name, each in addresses.items())]
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:32]


ReadyEndpoints = Mapping[tuple[str, str], tuple[str, str]]
"""By Service and ``host:port`` of each ready endpoint, its pod's namespace and name, or else its address."""


def find_ready_endpoints(services: Iterable[Object], slices: Iterable[Object]) -> ReadyEndpoints:
    """Return the ready endpoints of these Services."""
    names = {qualified_name(service) for service in services}
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for item in slices:
        metadata = item["metadata"]
        name = f"{metadata['namespace']}/{service_name_of_slice(item) or ''}"
        if name not in names:
            continue
        ports = [port["port"] for port in item.get("ports") or () if port.get("port")]
        for one in filter(is_ready, item.get("endpoints") or ()):
            host = one["addresses"][0]
            pod = (one.get("targetRef") or {}).get("name") or host
            shown = f"[{host}]" if ":" in host else host
            for address in [f"{shown}:{port}" for port in ports] or [shown]:
                found[name, address] = (metadata["namespace"], pod)
    return found


def group_addresses_by_service(services: Iterable[Object], endpoints: ReadyEndpoints) -> AddressesByService:
    """Group endpoints' addresses by Service; a Service without a ready endpoint has an empty group."""
    found: dict[str, list[str]] = {qualified_name(service): [] for service in services}
    for name, address in endpoints:
        found[name].append(address)
    return {name: tuple(sorted(addresses)) for name, addresses in found.items()}
