"""Access to single StackRefreshes at the API server: reads of the object, and writes of the status."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, STACK_REFRESHES, KubeAccess
from eurekube_provider.operator.triggers.trigger_state import StackRefreshState, stack_refresh_status_patch

_log = logging.getLogger(__name__)

RefreshKey = tuple[str, str]
"""Namespace and name of a StackRefresh."""


class StackRefreshClient:
    """A reader and writer of single StackRefreshes."""

    def __init__(self, access: KubeAccess) -> None:
        self._access = access

    def read(self, key: RefreshKey) -> dict[str, Any] | None:
        """Return a StackRefresh from the API server, since a former leader may have just written it; None if
        it is gone.

        :raises KubernetesError: it could not be read.
        """
        return self._request_or_none_on_404("GET", STACK_REFRESHES.path(*key))

    def write_status(
        self, key: RefreshKey, item: dict[str, Any], state: StackRefreshState
    ) -> dict[str, Any] | None:
        """Write the status, unless the object already has it.

        :param item: the object with its current status.
        :returns: the object with its new status; None where it does not exist any more.
        :raises KubernetesError: it could not be written.
        """
        status = stack_refresh_status_patch(item, state, datetime.now(UTC))
        if _has_patch_values(item.get("status") or {}, status):
            return item
        written = self._request_or_none_on_404(
            "PATCH", STACK_REFRESHES.path(*key, "status"), {"status": status}
        )
        return None if written is None else {**item, "status": written.get("status")}

    def remove_release_annotation(self, key: RefreshKey) -> None:
        """Remove the release annotation, so that it does not release the next braked run as well."""
        _log.warning(
            "released the brake, as the release annotation asks: running the stack",
            extra={"refresh": "/".join(key)},
        )
        try:
            body = {"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: None}}}
            self._access.request(
                "PATCH", STACK_REFRESHES.path(*key), body=body, content_type=MERGE_PATCH_TYPE
            )
        except (KubernetesError, LeadershipLost) as error:
            extra = {"refresh": "/".join(key), "error": str(error)}
            _log.warning(
                "failed to remove the release annotation, going on: it also releases the next braked run",
                extra=extra,
            )

    def _request_or_none_on_404(self, method: str, path: str, body: object = None) -> dict[str, Any] | None:
        try:
            return self._access.request(method, path, body=body, content_type=MERGE_PATCH_TYPE)
        except KubernetesError as error:
            if error.status_code != 404:
                raise
            return None


def _has_patch_values(status: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Return whether a status already has all values of a merge patch."""

    def without_nulls(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: without_nulls(one) for key, one in value.items() if one is not None}
        return value

    return all(without_nulls(status.get(key)) == without_nulls(value) for key, value in patch.items())
