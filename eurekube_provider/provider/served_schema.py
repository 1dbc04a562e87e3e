"""The schema as it is committed and served; it is made in :mod:`~eurekube_provider.provider.schema`."""

from __future__ import annotations

from pathlib import Path

COMMITTED = Path(__file__).with_name("schema.json")


def served_schema() -> str:
    """The schema of the package, as JSON."""
    return COMMITTED.read_text(encoding="utf-8")
