"""Tests that run each night and before a release, not for each change: tests/nightly.toml names them."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class NightlyGroup:
    """Tests that run each night only, for one reason.

    :ivar reason: why other tests are enough for each change.
    :ivar patterns: regular expressions; a test belongs to the group if its id begins with a match.
    """

    reason: str
    patterns: tuple[str, ...]


@functools.cache
def read_groups() -> tuple[NightlyGroup, ...]:
    """Read the groups of tests/nightly.toml."""
    groups = tomllib.loads(FILE.read_text(encoding="utf-8"))["group"]
    return tuple(NightlyGroup(group["reason"], tuple(group["tests"])) for group in groups)


def is_nightly(nodeid: str) -> bool:
    """Return whether a test runs each night only."""
    return _nightly_pattern().match(nodeid) is not None


@functools.cache
def _nightly_pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for group in read_groups() for pattern in group.patterns))
