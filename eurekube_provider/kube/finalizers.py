"""Finalizers, which keep one of Eurekube's deleted objects until everything that it made is gone."""

from __future__ import annotations

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.objects import Object
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, ApiResource, KubeAccess

_MAX_ATTEMPTS = 3


def set_finalizer(
    access: KubeAccess, resource: ApiResource, item: Object, finalizer: str, *, present: bool
) -> bool:
    """Add or remove one finalizer of an object, and keep all others.

    The object is read first, since a local copy may be old; another object that has its name by now is left
    alone.

    :returns: True if the object exists with or without the finalizer as asked; False if the object is gone,
        or is being deleted and the finalizer was to be added.
    :raises KubernetesError: the API refused, or did not answer.
    """
    metadata = item["metadata"]
    path = resource.path(metadata["namespace"], metadata["name"])
    for attempt in range(_MAX_ATTEMPTS):
        try:
            current = access.get(path)["metadata"]
            if metadata.get("uid") not in (None, current.get("uid")):
                return False
            before = list(current.get("finalizers") or ())
            if current.get("deletionTimestamp") and present:
                return False
            if (finalizer in before) is present:
                return True
            finalizers = [*before, finalizer] if present else [one for one in before if one != finalizer]
            body = {"metadata": {"resourceVersion": current["resourceVersion"], "finalizers": finalizers}}
            access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
        except KubernetesError as error:
            if error.status_code == 404:
                return False
            if error.status_code != 409 or attempt + 1 == _MAX_ATTEMPTS:
                raise
        else:
            return True
    return False
