"""The reasons of Kubernetes Events that are no conditions: each stands here and nowhere else."""

from __future__ import annotations

from enum import StrEnum


class SyncerEvent(StrEnum):
    """Reasons of Events about a EurekaSyncer."""

    REGISTERED = "Registered"
    """So many instances were registered. What follows within ten seconds is added up; while it goes
    on, sums come after twice as long each time, up to five minutes.
    """

    DEREGISTERED = "Deregistered"
    """So many instances were taken out; added up in the same way."""

    EUREKA_REACHABLE = "EurekaReachable"
    """Eureka answers again."""

    LEFT_BEHIND = "LeftBehind"
    """The syncer was deleted with ``eurekube.io/force-delete`` while Eureka did not answer: what
    stays there, and until when.
    """


class PodEvent(StrEnum):
    """Reasons of Events about a pod that declares the readiness gate."""

    GATE_OPENED = "GateOpened"
    """The gate opened: callers know the pod, or there is no reason to wait for them."""

    GATE_WAITS = "GateWaits"
    """The pod waits, and somebody has to do something: Eureka is away, or the syncer is paused or refused."""


class MirrorEvent(StrEnum):
    """Reasons of Events about a EurekaMirror."""

    REMOVED_WITHOUT_PROOF = "RemovedWithoutProof"
    """Endpoints were removed after ``holdSeconds``: Eureka lists them no more, and no server could
    say that they had left.
    """


class RefreshEvent(StrEnum):
    """Reasons of Events about a StackRefresh, each with target, message and seconds of the run."""

    RUN_CHANGED = "RunChanged"
    """The run went well, and changed something; a preview found something to change."""

    RUN_UNCHANGED = "RunUnchanged"
    """The run went well, and there was nothing to change."""

    RUN_SUCCEEDED = "RunSucceeded"
    """The run went well; the target does not say whether anything changed."""

    RUN_FAILED = "RunFailed"
    """The run failed; it is tried again."""

    RUN_PENDING = "RunPending"
    """The requested run has not ended; the operator waits for it."""

    STACK_LOCKED = "StackLocked"
    """Somebody else works on the stack; nothing was done, and it is tried again."""

    RUN_CUT_OFF = "RunCutOff"
    """The replica that began the last run did not see its end; it is run again."""
