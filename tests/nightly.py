"""Tests that run each night and before a release, not for each change: tests/nightly.toml names them."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")


def reasons() -> dict[str, str]:
    """Return for each regular expression of test ids why another test is enough for each change."""
    groups = tomllib.loads(FILE.read_text(encoding="utf-8"))["group"]
    return {pattern: group["why"] for group in groups for pattern in group["tests"]}


def is_nightly(nodeid: str) -> bool:
    """Return whether a test runs each night only."""
    return _pattern().match(nodeid) is not None


@functools.cache
def _pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in reasons()))
