"""The effect of a stack's run on discovery: which instances come, go and change, and what deserves a warning.

Values only; :mod:`~eurekube_provider.automation.summary` derives them from Pulumi's steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class ChangeKind(StrEnum):
    """The changes of one instance, or of a syncer."""

    REGISTERS = "registers"
    LEAVES = "leaves"
    MOVES = "moves"
    """It is registered under another id, or elsewhere, and the old one goes."""
    CHANGES = "changes"


class Concern(StrEnum):
    """The subjects of warnings."""

    BRAKE = "brake"
    RENEWER = "renewer"
    OWNER = "owner"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DiscoveryChange:
    """One instance of an application, or one syncer.

    :ivar name: the resource's name, or the key within its EurekaApplication; ``namespace/name`` of a syncer.
    :ivar details: by property, what it was and what it becomes; empty texts for what is not set.
    :ivar drain_seconds: how long it stays out of service before it goes.
    """

    kind: ChangeKind
    name: str
    address: str = ""
    instance_id: str = ""
    details: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    drain_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ApplicationChange:
    """The changes of one application at one Eureka.

    :ivar before, after: how many instances of this stack it has; None where that is not reported.
    """

    application: str
    service_url: str
    changes: tuple[DiscoveryChange, ...]
    before: int | None
    after: int | None

    def of(self, kind: ChangeKind) -> tuple[DiscoveryChange, ...]:
        """Return the changes of one kind."""
        return tuple(change for change in self.changes if change.kind is kind)


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that will not be made, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DiscoveryWarning:
    """A warning about something that deserves a second look."""

    concern: Concern
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """The summary of one run.

    :ivar other_changes: resources beside registrations and syncers, by what happens to them.
    :ivar has_failed: the run ended with an error, so that the rest may lack something.
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
        """Return the summary as plain JSON values."""
        return asdict(self)
