"""What a program changes of a resource that a state has, as far as it is alike for both kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance
from eurekube_provider.registrations.properties import MARKS
from eurekube_provider.registrations.values import UNKNOWN


@dataclass(frozen=True, slots=True)
class StateDifference:
    """What an update would do.

    :ivar replaces: the properties that need a new registration, which is made before the old one goes.
    """

    changes: bool
    replaces: tuple[str, ...] = ()


def is_unfinished(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Whether a refresh or the check found what an earlier run left, so that an update must see to it."""
    return any(olds.get(mark) or news.get(mark) for mark in MARKS)


def at_other_servers(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Whether two lists of URLs have none in common, so that they may be two Eurekas."""
    url = news.get("service_url")
    return url is UNKNOWN or set(str(olds.get("service_url")).split(",")).isdisjoint(str(url).split(","))


def is_still_enforced(actual: Instance, asked: str | None) -> bool:
    """Whether ``actual`` carries the mark of another enforced status than the one that is asked for."""
    return actual.enforced not in ("", asked)
