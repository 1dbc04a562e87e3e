"""The schema as it is committed and served; ``scripts/provider_schema.py`` makes it."""

from __future__ import annotations

from pathlib import Path

COMMITTED = Path(__file__).with_name("schema.json")


def served_schema() -> str:
    """The schema of the package, as JSON."""
    return COMMITTED.read_text(encoding="utf-8")
