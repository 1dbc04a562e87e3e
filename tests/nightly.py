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
    :ivar on_real_servers_only: True if the tests run for each change all the same, on development servers.
    """

    reason: str
    patterns: tuple[str, ...]
    on_real_servers_only: bool = False


@functools.cache
def read_groups() -> tuple[NightlyGroup, ...]:
    """Read the groups of tests/nightly.toml."""
    groups = tomllib.loads(FILE.read_text(encoding="utf-8"))["group"]
    return tuple(
        NightlyGroup(group["reason"], tuple(group["tests"]), group.get("on_real_servers_only", False))
        for group in groups
    )


def is_nightly(nodeid: str, *, on_real_servers: bool = True) -> bool:
    """Return whether a test, on real or on development servers of Eureka, runs each night only."""
    return _nightly_pattern(on_real_servers=on_real_servers).match(nodeid) is not None


@functools.cache
def _nightly_pattern(*, on_real_servers: bool) -> re.Pattern[str]:
    groups = [group for group in read_groups() if on_real_servers or not group.on_real_servers_only]
    return re.compile("|".join(f"(?:{pattern})" for group in groups for pattern in group.patterns))
