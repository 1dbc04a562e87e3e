"""Comparison of instances without the fields that a server computes."""

from __future__ import annotations

from dataclasses import replace

from eurekube_provider.core.model import EMPTY_MAPPING, Instance, Status


def without_server_fields(instance: Instance) -> Instance:
    """Return a copy without the fields that the server computes: two equal copies ask for the same."""
    return replace(
        instance,
        overridden_status=Status.UNKNOWN,
        last_dirty_timestamp_ms=None,
        last_updated_timestamp_ms=None,
        unknown_fields=EMPTY_MAPPING,
    )
