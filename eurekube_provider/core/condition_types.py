"""The names of conditions, and of what they may give as their reason: each stands here and nowhere else."""

from enum import StrEnum


class ConditionType(StrEnum):
    """Types of conditions, in the order in which a status shows them.

    Ready and Synced are always there. The others are True while there is something to know, and absent where
    it never was.
    """

    READY = "Ready"
    SYNCED = "Synced"
    BRAKED = "Braked"
    CONFLICT = "Conflict"
    SELF_REGISTERED = "SelfRegistered"
    AMBIGUOUS_PORT = "AmbiguousPort"
    NO_PORT = "NoPort"
    NO_ADDRESS = "NoAddress"
    LEASE_TOO_SHORT = "LeaseTooShort"
    DRAIN_TOO_SHORT = "DrainTooShort"
    PAUSED = "Paused"

    @property
    def is_always_there(self) -> bool:
        """Whether every status has it."""
        return self in (ConditionType.READY, ConditionType.SYNCED)


class Reason(StrEnum):
    """Reasons of the conditions Ready and Synced that are no types of conditions themselves."""

    EUREKA_UNREACHABLE = "EurekaUnreachable"
    EUREKA_DENIED = "EurekaDenied"
    EUREKA_REJECTED = "EurekaRejected"
    KUBERNETES_ERROR = "KubernetesError"
    FAILED = "Failed"

    NOT_ALLOWED = "NotAllowed"
    UNKNOWN_EUREKA = "UnknownEureka"
    INVALID_INSTANCE = "InvalidInstance"
    NO_MATCHING_SERVICE = "NoMatchingService"

    NAMESPACE_NOT_READ = "NamespaceNotRead"
    NODES_NOT_READ = "NodesNotRead"
    PODS_NOT_READ = "PodsNotRead"

    INSTANCES_UP = "InstancesUp"
    NONE_UP = "NoneUp"
