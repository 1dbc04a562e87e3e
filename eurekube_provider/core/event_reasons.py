"""The reasons of Kubernetes Events that are not conditions: each is written here and nowhere else."""

from __future__ import annotations

from enum import StrEnum


class SyncerEvent(StrEnum):
    """Reasons of Events about a EurekaSyncer."""

    REGISTERED = "Registered"
    """Instances were registered; the message counts them. The first Event is written at once, the next sum
    after ten seconds; while registrations go on, the time between sums doubles up to five minutes.
    """

    DEREGISTERED = "Deregistered"
    """Instances were deregistered; the message counts them, summed up as for REGISTERED."""

    EUREKA_REACHABLE = "EurekaReachable"
    """Eureka answers again."""

    LEFT_BEHIND = "LeftBehind"
    """The syncer was deleted with ``eurekube.io/force-delete`` while Eureka did not answer: the message
    says which instances stay in Eureka, and until when.
    """


class ServiceEvent(StrEnum):
    """Reasons of Events about a Service that joins a namespace's syncer."""

    SYNC_REFUSED = "SyncRefused"
    """An annotation has a value that its field does not take, another EurekaSyncer has the name of the
    Service's syncer, or the API server stores another spec: the Service stays as it is.
    """


class PodEvent(StrEnum):
    """Reasons of Events about a pod that declares the readiness gate."""

    GATE_OPENED = "GateOpened"
    """The gate opened: callers know the pod, or there is no reason to wait for them."""

    GATE_WAITS = "GateWaits"
    """The pod waits until a person acts: Eureka is away, the syncer is paused or refused, or the API server
    refuses the gate's condition.
    """


class MirrorEvent(StrEnum):
    """Reasons of Events about a EurekaMirror."""

    REMOVED_WITHOUT_PROOF = "RemovedWithoutProof"
    """Endpoints were removed after ``holdSeconds``: Eureka no longer lists their instances, and no server
    could confirm that they had left.
    """


class RefreshEvent(StrEnum):
    """Reasons of Events about a StackRefresh, each with target, message and seconds of the run."""

    RUN_CHANGED = "RunChanged"
    """The run succeeded and changed something, or the preview found something to change."""

    RUN_UNCHANGED = "RunUnchanged"
    """The run succeeded, and there was nothing to change."""

    RUN_SUCCEEDED = "RunSucceeded"
    """The run succeeded; the target does not say whether anything changed."""

    RUN_FAILED = "RunFailed"
    """The run failed, and is tried again."""

    RUN_PENDING = "RunPending"
    """The requested run has not ended; the operator waits for it."""

    STACK_LOCKED = "StackLocked"
    """Somebody else works on the stack; the run did nothing, and is tried again."""

    RUN_CUT_OFF = "RunCutOff"
    """The replica that began the last run did not see its end; the run is repeated."""
