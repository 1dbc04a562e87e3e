"""The names of conditions, and of what they may give as their reason: each stands here and nowhere else."""

from __future__ import annotations

from enum import StrEnum


class StatusCondition(StrEnum):
    """Types of conditions of one kind of object, in the order in which its status shows them.

    Ready and Synced are always there. The others are True while there is something to know, and absent where
    it never was.
    """

    @property
    def is_always_there(self) -> bool:
        """Whether every status has it."""
        return self in ("Ready", "Synced")


class ConditionType(StatusCondition):
    """Types of conditions of an EurekaSyncer."""

    READY = "Ready"
    """Callers find the application: an instance is UP, or the Service is scaled to zero. False while
    Eureka cannot be asked, no Service matches, or the syncer is refused. Unknown while the brake holds
    back the removal of all that is UP. The message says what Eureka holds meanwhile, and until when.
    """

    SYNCED = "Synced"
    """Eureka holds what the syncer wants, and nothing waits. The reason is then ``Synced``, otherwise the
    first thing that is wrong.
    """

    BRAKED = "Braked"
    """All or most instances would be removed, and their pods were not seen terminating; or some, while
    Kubernetes packs the EndpointSlices anew for other ports. The removals wait for a minute, or for ten
    seconds in that case (the message says until when), also those of instances that are out of service.
    """

    CONFLICT = "Conflict"
    """An instance belongs to somebody else, and was left alone. Or another namespace has the application
    or a VIP address already; then nothing is registered.
    """

    SELF_REGISTERED = "SelfRegistered"
    """The pod's own Eureka client registers it, too. The registration that came first stays. If Eureka's
    lists, which are up to half a minute old, did not show it yet, both stay until that client is switched
    off.
    """

    AMBIGUOUS_PORT = "AmbiguousPort"
    """There are several ports, and none is named in ``port``; the message names what there is."""

    NO_PORT = "NoPort"
    """The port is not there; what is registered is kept."""

    NO_ADDRESS = "NoAddress"
    """The address that ``advertise`` asks for is not there; what is registered is kept."""

    LEASE_TOO_SHORT = "LeaseTooShort"
    """Twice ``durationSeconds`` is not longer than 17 s (a Lease of 15 s and one retry) and
    ``renewalIntervalSeconds``: instances would lapse while a standby operator takes over. They are
    registered all the same.
    """

    DRAIN_TOO_SHORT = "DrainTooShort"
    """The pods end while callers still call them: a rolling update loses calls. They are registered
    all the same.
    """

    PAUSED = "Paused"
    """``paused`` is true; the message counts the changes that wait."""


class RefreshCondition(StatusCondition):
    """Types of conditions of a StackRefresh."""

    READY = "Ready"
    """It can work, and the last run went well. Unknown before the first run."""

    SYNCED = "Synced"
    """The last run began after the last change of the addresses."""

    BRAKED = "Braked"
    """Most addresses are gone without having been seen terminating, and nothing is run for a minute."""

    PAUSED = "Paused"
    """``paused`` is true: nothing is run."""


class RefreshReason(StrEnum):
    """Reasons of Ready and Synced of a StackRefresh that are no types of conditions, nor a run's outcome."""

    SERVED = "Served"
    """In sync."""

    PENDING = "Pending"
    """A run is still to begin, or to end."""

    RUNNING = "Running"
    """A run goes on."""

    SUCCEEDED = "Succeeded"
    """The last run went well."""

    UNKNOWN_TARGET = "UnknownTarget"
    """The operator's settings have no target of this name; nothing is run."""

    NOT_ALLOWED = "NotAllowed"
    """The operator's settings do not allow the target, its action, the times, or the selector's
    namespace; nothing is run.
    """

    NO_MATCHING_SERVICE = "NoMatchingService"
    """The selector finds no Service, and none was served before; nothing is run."""


class Reason(StrEnum):
    """Reasons of Ready and Synced of an EurekaSyncer that are no types of conditions themselves.

    An EurekaMirror gives some of them as well.
    """

    EUREKA_UNREACHABLE = "EurekaUnreachable"
    """No server of the Eureka answers."""

    EUREKA_DENIED = "EurekaDenied"
    """Eureka refuses the credentials."""

    EUREKA_REJECTED = "EurekaRejected"
    """Eureka refuses what was sent."""

    KUBERNETES_ERROR = "KubernetesError"
    """The API server refuses or fails a request."""

    FAILED = "Failed"
    """Any other error; the log tells more."""

    NOT_ALLOWED = "NotAllowed"
    """The operator's settings allow the syncer no such namespace or application; nothing is changed."""

    UNKNOWN_EUREKA = "UnknownEureka"
    """The operator has no connection of this name; nothing is changed."""

    INVALID_INSTANCE = "InvalidInstance"
    """What would be registered is not what Eureka takes, such as a name with a control character."""

    NO_MATCHING_SERVICE = "NoMatchingService"
    """The selector finds no Service."""

    NAMESPACE_NOT_READ = "NamespaceNotRead"
    """The Services of the namespace have not been read yet; it passes by itself."""

    NODES_NOT_READ = "NodesNotRead"
    """The nodes have not been read yet; it passes by itself."""

    PODS_NOT_READ = "PodsNotRead"
    """The pods have not been read yet; it passes by itself."""

    INSTANCES_UP = "InstancesUp"
    """Ready, although not in sync."""

    NONE_UP = "NoneUp"
    """In sync, and no instance is UP."""


class MirrorReason(StrEnum):
    """Reasons of Ready and Synced of an EurekaMirror alone that are no types of conditions themselves."""

    INVALID_SPEC = "InvalidSpec"
    """The spec is not what the CRD of this version takes; nothing is changed."""

    IN_SYNC = "InSync"
    """The cluster shows what Eureka holds."""

    ENDPOINTS_READY = "EndpointsReady"
    """Each Service has an endpoint that is called."""

    NONE_READY = "NoneReady"
    """A Service has no endpoint that is called, or there is none."""
