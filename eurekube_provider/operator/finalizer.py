"""The finalizer of a syncer: written before its first registration, removed after its last deregistration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import MERGE_PATCH, SYNCERS, KubeAccess

FINALIZER = "eurekube.io/deregister"
"""Keeps a deleted syncer until its instances are out of Eureka."""

_ATTEMPTS = 3


def has_finalizer(syncer: Mapping[str, Any]) -> bool:
    """Whether the object, as we know it, has ours."""
    return FINALIZER in (syncer["metadata"].get("finalizers") or ())


def set_finalizer(access: KubeAccess, syncer: Mapping[str, Any], *, present: bool) -> None:
    """Add or remove ours beside those of others; a syncer that is gone needs none.

    :raises KubernetesError: the API refused, or did not answer.
    """
    path = SYNCERS.path(syncer["metadata"]["namespace"], syncer["metadata"]["name"])
    for attempt in range(_ATTEMPTS):
        try:
            current = access.get(path)["metadata"]
            others = [name for name in current.get("finalizers") or () if name != FINALIZER]
            if current.get("deletionTimestamp") and present:
                return
            finalizers = [*others, FINALIZER] if present else others
            body = {"metadata": {"resourceVersion": current["resourceVersion"], "finalizers": finalizers}}
            access.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except KubernetesError as error:
            if error.status_code == 404:
                return
            if error.status_code == 409 and attempt + 1 < _ATTEMPTS:
                continue
            raise
        return
