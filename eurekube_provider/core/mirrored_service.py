"""A mirrored Service as the API's JSON: the wanted Service, and its differences from the existing one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from eurekube_provider.core.mirror import (
    APPLICATION_ANNOTATION,
    MANAGED_BY_LABEL,
    SOURCE_ANNOTATION,
    SPEC_KEYS_ANNOTATION,
    Mirror,
    MirrorForm,
)
from eurekube_provider.core.mirror_endpoints import EndpointGroup, MirrorEndpoint
from eurekube_provider.core.mirror_slices import SliceMetadata, port_body
from eurekube_provider.core.objects import (
    MIRROR_LABEL,
    MIRROR_SLICE_MANAGER,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
    Object,
)


def mirrored_service_ports(
    mirror: Mirror, endpoints: Collection[MirrorEndpoint], service: Object | None
) -> list[dict[str, Any]]:
    """Return the ports of a mirrored Service: those that its instances have.

    Without any instance, the Service keeps its ports; a new Service gets the plain port.
    """
    named = {name for one in endpoints for name, _, _ in one.group.ports}
    if not named and service is not None:
        named = {str(one.get("name") or "") for one in (service.get("spec") or {}).get("ports") or ()}
    ours = [port for port in (mirror.port, mirror.secure_port) if port.name in named] or [mirror.port]
    return [port_body(one.name, one.number, one.app_protocol) for one in ours]


def mirrored_service_body(
    mirror: Mirror, owner: Mapping[str, Any], application: str, name: str, ports: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a Service without a selector, so that Kubernetes writes no EndpointSlices for it."""
    spec: dict[str, Any] = {"type": "ClusterIP", "ports": ports, "ipFamilyPolicy": "PreferDualStack"}
    if mirror.form is MirrorForm.HEADLESS:
        spec["clusterIP"] = "None"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": mirror.namespace,
            "labels": {**mirror.service_labels, MIRROR_LABEL: mirror.name, MANAGED_BY_LABEL: "eurekube"},
            "annotations": {
                **mirror.service_annotations,
                APPLICATION_ANNOTATION: application,
                **_spec_keys_annotation(mirror),
            },
            "ownerReferences": [dict(owner)],
        },
        "spec": spec,
    }


def _spec_keys_annotation(mirror: Mirror) -> dict[str, str]:
    keys = {
        name: sorted(given)
        for name, given in (("labels", mirror.service_labels), ("annotations", mirror.service_annotations))
        if given
    }
    return {SPEC_KEYS_ANNOTATION: json.dumps(keys)} if keys else {}


def _spec_keys_before(service: Object) -> Mapping[str, Collection[str]]:
    """Return the labels' and annotations' keys that the spec gave before; anyone may have edited them."""
    written = (service["metadata"].get("annotations") or {}).get(SPEC_KEYS_ANNOTATION)
    with suppress(ValueError, RecursionError):
        found = json.loads(written or "{}")
        if isinstance(found, dict):
            given = {
                name: [key for key in keys if isinstance(key, str)]
                for name, keys in found.items()
                if isinstance(keys, list)
            }
            return {**given, "annotations": [*given.get("annotations", ()), SPEC_KEYS_ANNOTATION]}
    return {}


def service_patch(service: Object, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that brings a Service to the wanted form, empty for none; additions of others stay.

    Labels and annotations that the mirror's spec no longer gives are None in the patch.
    """
    metadata = service["metadata"]
    before = _spec_keys_before(service)
    patch: dict[str, Any] = {}
    for field_name in ("labels", "annotations"):
        stands = metadata.get(field_name) or {}
        differing = {
            key: value for key, value in wanted["metadata"][field_name].items() if stands.get(key) != value
        }
        gone = (key for key in before.get(field_name, ()) if key in stands)
        differing |= {key: None for key in gone if key not in wanted["metadata"][field_name]}
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


def has_cluster_ip_of_form(service: Object, form: MirrorForm) -> bool:
    """Return whether a Service has a cluster IP, or none, as its form wants; that cannot be changed later."""
    is_headless = (service.get("spec") or {}).get("clusterIP") == "None"
    return is_headless is (form is MirrorForm.HEADLESS)


def uncalled_clause(service: Object, form: MirrorForm, group: EndpointGroup) -> str:
    """Return why a Service calls no endpoint of a group, as the end of a sentence about it; empty where it
    does.
    """
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return f"is an alias of {spec.get('externalName')} (spec.type)"
    if spec.get("clusterIP") == "None":  # its name resolves to all of them
        return ""
    if spec.get("internalTrafficPolicy") == "Local":
        return "calls what runs on the caller's own node alone (spec.internalTrafficPolicy)"
    if group.family not in (spec.get("ipFamilies") or [group.family]):
        return f"has no {group.family} address"
    # A mirror's own Service is given their ports.
    names = {str(one.get("name") or "") for one in spec.get("ports") or ()}
    if form is MirrorForm.ATTACHED and names.isdisjoint(name for name, _, _ in group.ports):
        return f"has no port named {' or '.join(name for name, _, _ in group.ports)}"
    return ""


def build_slice_metadata(
    mirror: Mirror, application: str, service: str, owner: Mapping[str, Any], source: str
) -> SliceMetadata:
    """Return the metadata that all slices of a Service have in common.

    :param source: the servers that are read; empty where they are not known.
    """
    labels = {
        SERVICE_NAME_LABEL: service,
        SLICE_MANAGED_BY_LABEL: MIRROR_SLICE_MANAGER,
        MIRROR_LABEL: mirror.name,
    }
    if mirror.form is MirrorForm.HEADLESS:
        labels["service.kubernetes.io/headless"] = ""
    annotations = {APPLICATION_ANNOTATION: application} | ({SOURCE_ANNOTATION: source} if source else {})
    return SliceMetadata(mirror.namespace, service, labels, annotations, owner)


def owner_reference(item: Object) -> dict[str, Any]:
    """Return an owner reference to ``item``: Kubernetes removes the owned object once its owner is gone."""
    metadata = item["metadata"]
    return {
        "apiVersion": item.get("apiVersion") or "v1",
        "kind": item.get("kind") or "Service",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
