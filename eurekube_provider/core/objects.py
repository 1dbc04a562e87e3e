"""Helpers to read Kubernetes objects as the API sends them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from eurekube_provider.core.condition_types import AWAITING_OPERATOR_REASON

Object = Mapping[str, Any]
"""A Kubernetes object as raw JSON."""

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""The label by which an EndpointSlice names its Service."""

STACK_LABEL = "eurekube.io/stack"
"""The label with the stack that an object belongs to, as ``<project>.<stack>``."""

SLICE_MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
"""The label with the manager that writes an EndpointSlice."""

KUBERNETES_SLICE_MANAGER = "endpointslice-controller.k8s.io"
"""Manager of the EndpointSlices of a Service with a selector: Kubernetes itself."""

MIRROR_SLICE_MANAGER = "mirror.eurekube.io"
"""Manager of the EndpointSlices of a EurekaMirror."""

MIRROR_KIND = "EurekaMirror"
"""The kind of a mirror in an owner reference."""

MIRROR_LABEL = "eurekube.io/mirror"
"""The label of Services and EndpointSlices with the EurekaMirror that they belong to."""

ATTACH_MIRROR_ANNOTATION = "eurekube.io/attach-mirror"
"""The annotation, on a person's Service, with the mirror that may add EndpointSlices to it."""


def is_object_name(text: str) -> bool:
    """Return whether a text is a valid name for objects of most kinds (RFC 1123 subdomain)."""
    return len(text) <= 253 and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text) is not None


def app_name_of_service(service: Object) -> str:
    """Return the name by which syncers select a Service: its label ``app``, else its own name."""
    metadata = service["metadata"]
    return str((metadata.get("labels") or {}).get("app") or metadata["name"])


def service_name_of_slice(endpoint_slice: Object) -> str | None:
    """Return the name of the Service that an EndpointSlice belongs to; None where it belongs to none.

    None also for a mirror's slice: its endpoints come from Eureka, and must not be registered there again.
    """
    if is_mirrored(endpoint_slice):
        return None
    return (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL)


def is_mirrored(item: Object) -> bool:
    """Return whether a mirror made a Service or an EndpointSlice, so that no syncer may register it.

    False for a Service to which a mirror only adds slices: that Service has pods of its own.
    """
    labels = (item.get("metadata") or {}).get("labels") or {}
    return labels.get(SLICE_MANAGED_BY_LABEL) == MIRROR_SLICE_MANAGER or MIRROR_LABEL in labels


def parse_api_time(text: object) -> datetime | None:
    """Parse an RFC 3339 time as the API writes it; return None for any other text."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else None


def mirror_allowed_to_attach(service: Object) -> str | None:
    """Return the mirror that may add EndpointSlices to a Service, by its annotation; None for none."""
    found: str | None = (service["metadata"].get("annotations") or {}).get(ATTACH_MIRROR_ANNOTATION)
    return found


def is_managed_by_kubernetes(endpoint_slice: Object) -> bool:
    """Return whether Kubernetes itself writes an EndpointSlice, and so may move its endpoints."""
    return (endpoint_slice["metadata"].get("labels") or {}).get(
        SLICE_MANAGED_BY_LABEL
    ) == KUBERNETES_SLICE_MANAGER


def conditions_of(item: Object) -> dict[str, Object]:
    """Return the conditions in an object's status, by type, but for those of its CRD's defaults."""
    written = (item.get("status") or {}).get("conditions") or ()
    return {one["type"]: one for one in written if one.get("reason") != AWAITING_OPERATOR_REASON}


def is_ready(endpoint: Object) -> bool:
    """Return whether Kubernetes calls an endpoint ready and not terminating; unknown means yes (KEP-1672).

    With ``publishNotReadyAddresses`` Kubernetes always says so: the Service's owner wants early calls.
    """
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating")


def is_terminating(endpoint: Object) -> bool:
    """Return whether the deletion of an endpoint's pod has begun."""
    return bool((endpoint.get("conditions") or {}).get("terminating"))


def endpoint_state(endpoint: Object) -> str:
    """Return ``terminating``, ``ready`` or ``not ready``."""
    return "terminating" if is_terminating(endpoint) else "ready" if is_ready(endpoint) else "not ready"


def pod_name_of_endpoint(endpoint: Object) -> str:
    """Return the name of an endpoint's pod; empty where it has none, as in hand-written EndpointSlices."""
    target = endpoint.get("targetRef") or {}
    return str(target.get("name") or "") if target.get("kind") == "Pod" else ""


def pod_addresses(pod: Object) -> set[str]:
    """Return the addresses of a pod, which may be its node's; none before the pod has one."""
    status = pod.get("status") or {}
    several = (str(one.get("ip") or "") for one in status.get("podIPs") or ())
    return {str(status.get("podIP") or ""), *several} - {""}


def has_pod_ended(pod: Object) -> bool:
    """Return whether a pod's containers have ended for good, as those of an evicted one, which stays for days
    and keeps its address in its status.
    """
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def has_unshared_address(pod: Object, address: str) -> bool:
    """Return whether an address is a pod's own, and not shared with the pod's node."""
    return not (pod.get("spec") or {}).get("hostNetwork") and address in pod_addresses(pod)


def endpoints_of(slices: Iterable[Object]) -> Iterator[Object]:
    """Yield the endpoints of EndpointSlices."""
    return (endpoint for one in slices for endpoint in one.get("endpoints") or ())


def endpoint_name(endpoint: Object) -> str:
    """Return the name of an endpoint's pod, else its address."""
    return pod_name_of_endpoint(endpoint) or str(endpoint["addresses"][0])


def is_external_name(service: Object) -> bool:
    """Return whether a Service is only a DNS name: EndpointSlices of an earlier type do not count."""
    return (service.get("spec") or {}).get("type") == "ExternalName"


def is_headless(service: Object) -> bool:
    """Return whether a Service has no cluster IP, or none yet."""
    return (service.get("spec") or {}).get("clusterIP") in (None, "", "None")


def publishes_not_ready_addresses(service: Object) -> bool:
    """Return whether a Service publishes its pods as ready before they are."""
    return bool((service.get("spec") or {}).get("publishNotReadyAddresses"))


def is_being_deleted(item: Object) -> bool:
    """Return whether the deletion of an object has begun."""
    return bool(item["metadata"].get("deletionTimestamp"))


def key_of(item: Object) -> tuple[str, str]:
    """Return namespace and name of an object; an empty namespace for one of the whole cluster."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def resource_version(item: Object) -> int:
    """Return the resourceVersion of an object or a list as a number, of which a larger one is newer
    (KEP-5504); 0 where it cannot be compared.
    """
    version = str((item.get("metadata") or {}).get("resourceVersion"))
    return int(version) if version.isdecimal() else 0


def qualified_name(thing: Object) -> str:
    """Return ``namespace/name`` of an object, for messages."""
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
