"""Helpers to read Kubernetes objects as the API sends them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]
"""A Kubernetes object as raw JSON."""

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""The label by which an EndpointSlice names its Service."""

STACK_LABEL = "eurekube.io/stack"
"""Names the stack that an object belongs to, as ``<project>.<stack>``."""

MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
"""The label by which an EndpointSlice names who writes it."""

SLICE_CONTROLLER = "endpointslice-controller.k8s.io"
"""Who writes the EndpointSlices of a Service with a selector: Kubernetes itself."""

MIRROR_MANAGER = "mirror.eurekube.io"
"""Who writes the EndpointSlices of an EurekaMirror."""

MIRROR_LABEL = "eurekube.io/mirror"
"""The label by which Services and EndpointSlices name the EurekaMirror that they are of."""

ATTACH_ANNOTATION = "eurekube.io/attach-mirror"
"""On a Service of a person's: the mirror that may add EndpointSlices to it."""


def is_object_name(text: str) -> bool:
    """Whether an object of most kinds may be called so (RFC 1123 subdomain)."""
    return len(text) <= 253 and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text) is not None


def app_of(service: Object) -> str:
    """The name by which syncers select a Service: its label ``app``, else its own name."""
    metadata = service["metadata"]
    return str((metadata.get("labels") or {}).get("app") or metadata["name"])


def service_of(endpoint_slice: Object) -> str | None:
    """The name of the Service that an EndpointSlice is of; None where it is of none.

    None also for a mirror's slice: its endpoints came out of Eureka, and nothing of ours takes them back in.
    """
    if is_mirrored(endpoint_slice):
        return None
    return (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL)


def is_mirrored(item: Object) -> bool:
    """Whether a Service or an EndpointSlice shows what stands in Eureka, so that no syncer registers it.

    A Service to which a mirror's slices were added is not meant: that one has pods of its own.
    """
    labels = (item.get("metadata") or {}).get("labels") or {}
    return labels.get(MANAGED_BY_LABEL) == MIRROR_MANAGER or MIRROR_LABEL in labels


def is_packed_by_kubernetes(endpoint_slice: Object) -> bool:
    """Whether Kubernetes itself writes an EndpointSlice, and so may pack its endpoints into another one."""
    return (endpoint_slice["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == SLICE_CONTROLLER


def conditions_of(item: Object) -> dict[str, Object]:
    """The conditions in an object's status, by type."""
    return {one["type"]: one for one in (item.get("status") or {}).get("conditions") or ()}


def is_ready(endpoint: Object) -> bool:
    """Whether Kubernetes says that an endpoint can be called; unknown means yes (KEP-1672).

    With ``publishNotReadyAddresses`` Kubernetes always says so: whoever sets it wants to be called early.
    """
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating")


def is_terminating(endpoint: Object) -> bool:
    """Whether the deletion of its pod has begun."""
    return bool((endpoint.get("conditions") or {}).get("terminating"))


def qualified(thing: Object) -> str:
    """``namespace/name``, for messages."""
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
