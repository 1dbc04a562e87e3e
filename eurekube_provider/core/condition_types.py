"""The names of conditions, and of what they may give as their reason: each stands here and nowhere else."""

from __future__ import annotations

from enum import StrEnum

NOT_SERVED_YET = "AwaitingOperator"
"""Reason of the condition Ready that the CRDs give to a custom resource that no operator has looked at."""

PROGRESS = ("Reconciling", "Stalled")
"""Conditions for tools that know no others."""


class StatusCondition(StrEnum):
    """Types of conditions of one kind of object, in the order in which its status shows them.

    Ready and Synced are always there. The others are True while there is something to know, and absent where
    it never was.
    """

    @property
    def is_always_there(self) -> bool:
        """Return whether every status has it."""
        return self in ("Ready", "Synced")


class ConditionType(StatusCondition):
    """Types of conditions of a EurekaSyncer."""

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
    Kubernetes packs the EndpointSlices again for other ports. The removals wait for a minute, or for ten
    seconds in that case (the message says until when), also those of instances that are out of service.
    """

    CONFLICT = "Conflict"
    """An instance belongs to somebody else, and was left alone. Or another namespace has the application
    or a VIP address already, perhaps at zero instances: a syncer keeps a name as long as it exists. Then
    nothing is registered.
    """

    SELF_REGISTERED = "SelfRegistered"
    """The pod's own Eureka client registers it, too: at the pod's address, whatever the port, or with the
    pod's name as id or host name. Where it came first, at the very address and port that the syncer would
    register, it stays alone. At another port or address, such as loopback, both stand, since callers may need
    the syncer's; and so they do if Eureka's lists, which are up to half a minute old, did not show it yet:
    until that client is switched off, or until the Eureka lease of a dead pod that had the address ends.
    """

    DEAD_SELF_REGISTERED = "DeadSelfRegistered"
    """A pod that registered itself is gone, and its registration is not: callers go on calling it until its
    Eureka lease ends, in self-preservation for ever. With ``removeDeadSelfRegistered`` the operator removes
    it once that is proved.
    """

    UNREADABLE_INSTANCE = "UnreadableInstance"
    """Something stands under the application that is in no form of the registry's, such as other software's.
    It is left as it is, and those of the syncer are registered all the same. Callers may fail at all of them.
    """

    AMBIGUOUS_SERVICE = "AmbiguousService"
    """The selector finds several Services whose ports or pods differ, and none is called as the
    application. What is registered is kept, and of the others only pods of the same Service and port are
    registered.
    """

    AMBIGUOUS_PORT = "AmbiguousPort"
    """There are several ports, and none is named in ``port``; the message names what there is."""

    NO_PORT = "NoPort"
    """None of the Service's EndpointSlices has the port, in mode service the Service has not; what is
    registered is kept.
    """

    NO_ADDRESS = "NoAddress"
    """The address that ``advertise`` asks for is not there, or not yet; what is registered is kept."""

    ENDPOINTS_LEFT_OUT = "EndpointsLeftOut"
    """Endpoints of the Service cannot be instances, and the message says why: they lack the port that
    callers use, or have a host name in place of an address. The others are registered all the same.
    """

    METADATA_LEFT_OUT = "MetadataLeftOut"
    """Instances lack metadata, or their health check, that the spec takes from a port or an annotation: the
    port is not there, or the value is none that Eureka's clients can read. They are registered all the same.
    """

    LEASE_TOO_SHORT = "LeaseTooShort"
    """Twice ``durationSeconds`` is not longer than 17 s (a Lease of 15 s and one retry) and
    ``renewalIntervalSeconds``: instances would lapse while a standby operator takes over. They are
    registered all the same.
    """

    NAME_NOT_RESERVED = "NameNotReserved"
    """Nothing in the operator's settings gives the name to this namespace, and either others have instances
    under it, such as machines that register themselves or a stack, so that callers come to both; or it is not
    the name of the syncer's Service. The pods are registered all the same. Another cluster's syncers in a
    namespace of this name are not meant.
    """

    DRAIN_TOO_SHORT = "DrainTooShort"
    """The pods end while callers still call them: a rolling update loses calls. They are registered
    all the same.
    """

    WAITING_FOR_CALLERS = "WaitingForCallers"
    """Pods that declare the readiness gate ``eurekube.io/callers-know`` are not ready yet, since callers may
    not know them, or cannot learn of them: the message says why. In each roll-out it is there for a while.
    """

    PAUSED = "Paused"
    """``paused`` is true; the message counts the changes that wait."""

    RECONCILING = "Reconciling"
    """The spec is not carried out yet, and that may change by itself: kstatus and Flux wait. What only a
    person can change counts as this for two minutes.
    """

    STALLED = "Stalled"
    """Only a person can have the spec carried out, and two minutes have passed: kstatus and Flux call it
    failed. The reason is that of the condition that says what is wrong.
    """


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

    RECONCILING = "Reconciling"
    """The spec is not carried out yet, and that may change by itself: kstatus and Flux wait. What only a
    person can change counts as this for two minutes.
    """

    STALLED = "Stalled"
    """Only a person can have the spec carried out, and two minutes have passed: kstatus and Flux call it
    failed. The reason is that of the condition that says what is wrong.
    """


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
    """Reasons of Ready and Synced of a EurekaSyncer that are no types of conditions themselves.

    A EurekaMirror gives some of them as well.
    """

    EUREKA_UNREACHABLE = "EurekaUnreachable"
    """No server of the Eureka answers."""

    EUREKA_DENIED = "EurekaDenied"
    """Eureka refuses the credentials, or the registry does not allow a change with them."""

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
    """The registration has a value that Eureka does not take, such as a name with a control character."""

    NO_MATCHING_SERVICE = "NoMatchingService"
    """The selector finds no Service."""

    EXTERNAL_NAME = "ExternalName"
    """The Service is of type ExternalName, which has no endpoints and no address."""

    NAMESPACE_NOT_READ = "NamespaceNotRead"
    """The Services of the namespace have not been read yet; it passes by itself."""

    NODES_NOT_READ = "NodesNotRead"
    """The nodes have not been read yet; it passes by itself."""

    PODS_NOT_READ = "PodsNotRead"
    """The pods have not been read yet; it passes by itself."""

    NOT_SERVED = "NotServed"
    """No operator has looked at the syncer for longer than a lease: nobody renews what it has in Eureka."""

    INSTANCES_UP = "InstancesUp"
    """Ready, although not in sync."""

    NONE_UP = "NoneUp"
    """In sync, and no instance is UP."""


class MirrorReason(StrEnum):
    """Reasons of Ready and Synced of a EurekaMirror alone that are no types of conditions themselves."""

    INVALID_SPEC = "InvalidSpec"
    """The spec is not what the CRD of this version takes; nothing is changed."""

    IN_SYNC = "InSync"
    """The cluster shows what Eureka holds."""

    ENDPOINTS_READY = "EndpointsReady"
    """Each Service has an endpoint that is called."""

    NONE_READY = "NoneReady"
    """A Service has no endpoint that is called, or there is none."""
