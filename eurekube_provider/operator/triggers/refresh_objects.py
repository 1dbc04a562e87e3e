"""Access to single StackRefreshes: reads past the operator's copy, and writes of the status."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.brake import RELEASE_ANNOTATION
from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.kube.access import MERGE_PATCH, REFRESHES, KubeAccess
from eurekube_provider.operator.triggers.trigger_state import TriggerState, status_of

_log = logging.getLogger(__name__)

Key = tuple[str, str]


class RefreshObjects:
    """A reader and writer of single StackRefreshes."""

    def __init__(self, access: KubeAccess) -> None:
        self._access = access

    def read(self, key: Key) -> dict[str, Any] | None:
        """Return a StackRefresh from the API server, since a former leader may have just written it; None if
        it is gone.

        :raises KubernetesError: it could not be read.
        """
        return self._unless_gone("GET", REFRESHES.path(*key))

    def write_status(self, key: Key, item: dict[str, Any], state: TriggerState) -> dict[str, Any] | None:
        """Write the status, if it says something new.

        :param item: the object with its current status.
        :returns: the object with its new status; None where it does not exist any more.
        :raises KubernetesError: it could not be written.
        """
        status = status_of(item, state, datetime.now(UTC))
        if _is_written(item.get("status") or {}, status):
            return item
        written = self._unless_gone("PATCH", REFRESHES.path(*key, "status"), {"status": status})
        return None if written is None else {**item, "status": written.get("status")}

    def take_off_release(self, key: Key) -> None:
        """Remove the release annotation that was obeyed: it shall not release the next hold as well."""
        _log.warning("released the brake on a person's request", extra={"refresh": "/".join(key)})
        try:
            body = {"metadata": {"annotations": {RELEASE_ANNOTATION: None}}}
            self._access.request("PATCH", REFRESHES.path(*key), body=body, content_type=MERGE_PATCH)
        except (KubernetesError, LeadershipLost) as error:
            extra = {"refresh": "/".join(key), "error": str(error)}
            _log.warning("failed to remove the annotation that releases the brake", extra=extra)

    def _unless_gone(self, method: str, path: str, body: object = None) -> dict[str, Any] | None:
        try:
            return self._access.request(method, path, body=body, content_type=MERGE_PATCH)
        except KubernetesError as error:
            if error.status_code != 404:
                raise
            return None


def _is_written(status: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Return whether a status already has all values of a merge patch."""

    def without_nulls(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: without_nulls(one) for key, one in value.items() if one is not None}
        return value

    return all(without_nulls(status.get(key)) == without_nulls(value) for key, value in patch.items())
