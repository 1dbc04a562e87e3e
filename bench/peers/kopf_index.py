"""A kopf operator for ``kopf run`` that holds all EndpointSlices and syncers in memory.

Written after kopf's page "In-memory indexing". Each slice is kept as the addresses, names, zones and
readiness that a bridge would need.
"""

from __future__ import annotations

from typing import Any

import kopf


@kopf.index("discovery.k8s.io", "v1", "endpointslices")
def endpoints(
    body: kopf.Body, name: str, namespace: str | None, **_: Any
) -> dict[tuple[str | None, str], list[Any]]:
    """Return a slice's endpoints for the index, by namespace and slice."""
    return {
        (namespace, name): [
            {
                "addresses": endpoint["addresses"],
                "conditions": endpoint["conditions"],
                "pod": endpoint["targetRef"]["name"],
                "zone": endpoint["zone"],
            }
            for endpoint in body.get("endpoints") or ()
        ]
    }


@kopf.index("eurekube.io", "v1alpha1", "eurekasyncers")
def syncers(
    name: str, namespace: str | None, spec: kopf.Spec, **_: Any
) -> dict[tuple[str | None, str], dict[str, Any]]:
    """Return a syncer's spec for the index, by namespace and name."""
    return {(namespace, name): dict(spec)}


@kopf.on.event("eurekube.io", "v1alpha1", "eurekasyncers")
def changed(**arguments: Any) -> None:
    """Read the index: an operator must have at least one handler."""
    len(arguments["endpoints"])
