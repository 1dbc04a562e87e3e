"""A mirrored Service as the API has it: what must stand there, and how it differs from what does. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from eurekube_provider.core.mirror import (
    APPLICATION_ANNOTATION,
    LAST_READ_ANNOTATION,
    Mirror,
    MirrorForm,
    ServicePort,
)
from eurekube_provider.core.mirror_endpoints import MirrorEndpoint
from eurekube_provider.core.mirror_slices import SliceOwner
from eurekube_provider.core.objects import (
    MANAGED_BY_LABEL,
    MIRROR_LABEL,
    MIRROR_MANAGER,
    SERVICE_NAME_LABEL,
)
from eurekube_provider.operator.index import Object
from eurekube_provider.runtime.clock import utc_time

LAST_READ_SECONDS = 600.0
"""How often a Service says when Eureka was last read, while nothing else changes: each write is sent to every
node, and who looks for its age wants hours from minutes."""


def service_ports(
    mirror: Mirror, endpoints: Collection[MirrorEndpoint], service: Object | None
) -> list[dict[str, Any]]:
    """The ports of a mirrored Service: those that its instances have.

    Without any instance, those that it has had; without that, the plain one.
    """
    named = {name for one in endpoints for name, _, _ in one.group.ports}
    if not named and service is not None:
        named = {str(one.get("name") or "") for one in (service.get("spec") or {}).get("ports") or ()}
    ours = [port for port in (mirror.port, mirror.secure_port) if port.name in named] or [mirror.port]
    return [_port(one) for one in ours]


def _port(port: ServicePort) -> dict[str, Any]:
    found: dict[str, Any] = {"name": port.name, "port": port.number, "protocol": "TCP"}
    return {**found, "appProtocol": port.app_protocol} if port.app_protocol else found


def service_body(
    mirror: Mirror, owner: Mapping[str, Any], application: str, name: str, ports: list[dict[str, Any]]
) -> dict[str, Any]:
    """A Service without a selector, so that Kubernetes leaves its EndpointSlices to us."""
    spec: dict[str, Any] = {"type": "ClusterIP", "ports": ports, "ipFamilyPolicy": "PreferDualStack"}
    if mirror.form is MirrorForm.HEADLESS:
        spec["clusterIP"] = "None"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": mirror.namespace,
            "labels": {MIRROR_LABEL: mirror.name, "app.kubernetes.io/managed-by": "eurekube"},
            "annotations": {APPLICATION_ANNOTATION: application},
            "ownerReferences": [dict(owner)],
        },
        "spec": spec,
    }


def service_patch(service: Object, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What of a Service must be changed so that it is as wanted; what others added to it stays."""
    metadata = service["metadata"]
    patch: dict[str, Any] = {}
    for field_name in ("labels", "annotations"):
        stands = metadata.get(field_name) or {}
        differing = {
            key: value for key, value in wanted["metadata"][field_name].items() if stands.get(key) != value
        }
        if differing:
            patch[field_name] = differing
    (owner,) = wanted["metadata"]["ownerReferences"]
    references = metadata.get("ownerReferences") or []
    if not any(one.get("uid") == owner["uid"] for one in references):
        # A mirror of the same name that is gone does not count: this one took its place.
        others = [one for one in references if one.get("kind") != owner["kind"]]
        patch["ownerReferences"] = [*others, owner]
    ports = [_port_fields(one) for one in (service.get("spec") or {}).get("ports") or ()]
    spec = {"ports": wanted["spec"]["ports"]} if ports != wanted["spec"]["ports"] else {}
    return ({"metadata": patch} if patch else {}) | ({"spec": spec} if spec else {})


def _port_fields(port: Mapping[str, Any]) -> dict[str, Any]:
    return {key: port[key] for key in ("name", "port", "protocol", "appProtocol") if port.get(key)}


def has_form(service: Object, form: MirrorForm) -> bool:
    """Whether a Service of ours has an address of its own where it should; that cannot be changed later."""
    is_headless = (service.get("spec") or {}).get("clusterIP") == "None"
    return is_headless is (form is MirrorForm.HEADLESS)


def slice_owner(mirror: Mirror, application: str, service: str, owner: Mapping[str, Any]) -> SliceOwner:
    """What the slices of a Service have in common."""
    labels = {
        SERVICE_NAME_LABEL: service,
        MANAGED_BY_LABEL: MIRROR_MANAGER,
        MIRROR_LABEL: mirror.name,
    }
    if mirror.form is MirrorForm.HEADLESS:
        labels["service.kubernetes.io/headless"] = ""
    return SliceOwner(mirror.namespace, service, labels, {APPLICATION_ANNOTATION: application}, owner)


def owner_reference(item: Object, *, is_controller: bool) -> dict[str, Any]:
    """The reference by which Kubernetes removes what is owned once its owner is gone."""
    metadata = item["metadata"]
    found = {
        "apiVersion": item.get("apiVersion") or "v1",
        "kind": item.get("kind") or "Service",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {**found, "controller": True} if is_controller else found


def last_read(read_at: float | None) -> dict[str, str]:
    """The annotation that says when Eureka was read last; none where it never was."""
    if read_at is None:
        return {}
    return {LAST_READ_ANNOTATION: utc_time(read_at)}


def last_read_patch(service: Object, read_at: float | None, *, is_exact: bool) -> dict[str, Any]:
    """What says when Eureka was last read; nothing where what stands there will do.

    :param is_exact: whether minutes count, as when Eureka does not answer any more.
    """
    if read_at is None:
        return {}
    stands = str((service["metadata"].get("annotations") or {}).get(LAST_READ_ANNOTATION) or "")
    try:
        age = read_at - datetime.fromisoformat(stands).timestamp()
    except ValueError:
        age = LAST_READ_SECONDS
    if age >= (1.0 if is_exact else LAST_READ_SECONDS):
        return {"metadata": {"annotations": last_read(read_at)}}
    return {}
