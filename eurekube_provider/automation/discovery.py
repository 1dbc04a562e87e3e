"""The effect of a stack's run on service discovery, as ``automation.summary`` derives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class ChangeKind(StrEnum):
    """The kinds of changes of an instance, or of a syncer."""

    REGISTERS = "registers"
    LEAVES = "leaves"
    MOVES = "moves"
    """The instance is registered under another id or at other servers, and the old one is removed."""
    CHANGES = "changes"


class WarningConcern(StrEnum):
    """The subjects of warnings."""

    BRAKE = "brake"
    RENEWER = "renewer"
    OWNER = "owner"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DiscoveryChange:
    """The change of one instance of an application, or of one syncer.

    :ivar name: the resource's name, or the key within its EurekaApplication; ``namespace/name`` of a syncer.
    :ivar details: old and new value by property; empty texts for values that are not set.
    :ivar drain_seconds: the seconds out of service before the removal.
    """

    kind: ChangeKind
    name: str
    address: str = ""
    instance_id: str = ""
    details: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    drain_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ApplicationChange:
    """The changes of one application at one Eureka; ``before`` and ``after`` are counts of instances."""

    application: str
    service_url: str
    changes: tuple[DiscoveryChange, ...]
    before: int | None
    after: int | None

    def changes_of_kind(self, kind: ChangeKind) -> tuple[DiscoveryChange, ...]:
        return tuple(change for change in self.changes if change.kind is kind)


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A refused change of a stack's run: the resource's name, or an instance's key within it, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DiscoveryWarning:
    """A warning to a person about one resource, instance or application."""

    concern: WarningConcern
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class DiscoverySummary:
    """The effect of one run of a stack on Eureka: changes, refusals and warnings.

    :ivar other_changes: the number of other resources by operation, without registrations and syncers.
    :ivar has_failed: True if the run ended with an error, so that the summary may be incomplete.
    """

    project: str
    stack: str
    applications: tuple[ApplicationChange, ...]
    syncers: tuple[DiscoveryChange, ...]
    refused: tuple[RefusedChange, ...]
    warnings: tuple[DiscoveryWarning, ...]
    other_changes: Mapping[str, int]
    has_failed: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
