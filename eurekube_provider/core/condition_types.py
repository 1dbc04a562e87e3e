"""The names of conditions and of their reasons: each is written here and nowhere else."""

from __future__ import annotations

from enum import StrEnum

AWAITING_OPERATOR_REASON = "AwaitingOperator"
"""Reason of the condition Ready that the CRDs give to a custom resource that no operator has looked at."""

PROGRESS_CONDITION_TYPES = ("Reconciling", "Stalled")
"""The standard conditions of kstatus and Flux, for tools that do not know Eurekube's own."""


class StatusCondition(StrEnum):
    """Types of conditions of one kind of object, in the order in which its status shows them.

    Ready and Synced are always in the status. Any other condition is True while it applies, and absent until
    it has applied for the first time.
    """

    @property
    def is_in_every_status(self) -> bool:
        """True if every status has the condition."""
        return self in ("Ready", "Synced")


class SyncerCondition(StatusCondition):
    """Types of conditions of a EurekaSyncer."""

    READY = "Ready"
    """Callers find the application: an instance is UP, or the Service is scaled to zero. False while
    Eureka cannot be asked, no Service matches, or the syncer is refused. Unknown while the brake holds
    back the removal of all instances that are UP. The message says which instances Eureka holds
    meanwhile, and until when.
    """

    SYNCED = "Synced"
    """Eureka holds what the syncer wants, and no change waits. If False, the reason names the first
    problem.
    """

    BRAKED = "Braked"
    """The brake holds removals back: all or most instances would go without having been seen terminating,
    or some would while Kubernetes packs the EndpointSlices again for other ports. In the first case the
    removals wait for a minute, in the second for ten seconds; the message says until when. Removals of
    instances that are out of service wait with them.
    """

    CONFLICT = "Conflict"
    """An instance belongs to another owner, and was left alone. Or another namespace already has the
    application's name or a VIP address, and nothing is registered: a syncer keeps its names as long as
    it exists, even with no instance.
    """

    SELF_REGISTERED = "SelfRegistered"
    """A pod's own Eureka client registers the pod as well: at the pod's address with any port, or with the
    pod's name as id or host name.

    If that client came first with the address and port that the syncer would register, the syncer registers
    nothing for the pod. Two instances stand if the client uses another port or address (such as loopback),
    since callers may need the syncer's, or if Eureka's lists, which may be half a minute old, did not show
    the client's yet. The condition ends when the client is switched off, or when the Eureka lease of a dead
    pod that had the address ends.
    """

    DEAD_SELF_REGISTERED = "DeadSelfRegistered"
    """A pod that registered itself is gone, but its registration is still in Eureka: callers call it until
    its Eureka lease ends, under self-preservation for ever. With ``removeDeadSelfRegistered`` the
    operator removes the registration once it has proof that the pod is gone.
    """

    UNREADABLE_INSTANCE = "UnreadableInstance"
    """The registry holds an entry under the application that is in none of its forms, such as one of other
    software. The entry is left unchanged, and the syncer's instances are registered all the same. Callers may
    fail to read all instances of the application.
    """

    AMBIGUOUS_SERVICE = "AmbiguousService"
    """The selector finds several Services whose ports or pods differ, and none has the application's name.
    Registered instances are kept; another pod is registered only if it belongs to the same Service, and
    has the same port, as a registered one.
    """

    AMBIGUOUS_PORT = "AmbiguousPort"
    """The Service has several ports, and ``port`` names none of them; the message lists them."""

    NO_PORT = "NoPort"
    """None of the Service's EndpointSlices has the port, or in mode service the Service itself has not;
    registered instances are kept.
    """

    NO_ADDRESS = "NoAddress"
    """The Service does not have, or does not have yet, the address that ``advertise`` asks for, or a path of
    its host leads to another Service; registered instances are kept.
    """

    ENDPOINTS_LEFT_OUT = "EndpointsLeftOut"
    """Some endpoints of the Service cannot be registered, and the message says why: they lack the port
    that callers use, or its host port, or have a host name instead of an address. The other endpoints are
    registered.
    """

    METADATA_LEFT_OUT = "MetadataLeftOut"
    """Instances are registered without some metadata, or without the health check, that the spec takes
    from a port, a label or an annotation: the port does not exist, Eureka's clients could not read the
    value, or an instance has no room for it.
    """

    LEASE_TOO_SHORT = "LeaseTooShort"
    """Twice ``durationSeconds`` is not longer than ``renewalIntervalSeconds`` plus 17 s (a Lease of 15 s
    and one retry): instances would lapse while a standby operator takes over. They are registered all
    the same.
    """

    NAME_NOT_RESERVED = "NameNotReserved"
    """No setting of the operator reserves the application's name for this namespace, and the name is
    doubtful: others have instances under it, such as machines that register themselves or a stack, so
    that callers reach both; or it is not the name of the syncer's Service. The pods are registered all
    the same. Another cluster's syncers in a namespace of the same name do not count as others.
    """

    DRAIN_TOO_SHORT = "DrainTooShort"
    """The pods end while callers still call them, and a rolling update loses calls. The pods are
    registered all the same.
    """

    WAITING_FOR_CALLERS = "WaitingForCallers"
    """Kubernetes does not count new pods as ready yet: their readiness gate ``eurekube.io/callers-know``
    waits until callers know them, and the message says why. Each roll-out has this condition for a while.
    """

    PAUSED = "Paused"
    """The syncer's ``paused`` is true; the message counts the changes that wait."""

    RECONCILING = "Reconciling"
    """The spec is not carried out yet, but may be later without a person's help: kstatus and Flux wait. A
    fault that only a person can correct shows as Reconciling for its first two minutes.
    """

    STALLED = "Stalled"
    """The spec has not been carried out for two minutes, and only a person can help: kstatus and Flux
    report a failure. The reason is that of the condition that names the fault.
    """


class RefreshCondition(StatusCondition):
    """Types of conditions of a StackRefresh."""

    READY = "Ready"
    """The StackRefresh can work, and its last run succeeded. Unknown before the first run."""

    SYNCED = "Synced"
    """The last run began after the last change of the addresses."""

    BRAKED = "Braked"
    """Most addresses are gone without having been seen terminating, and no run begins for a minute."""

    PAUSED = "Paused"
    """The StackRefresh's ``paused`` is true: no run begins."""

    RECONCILING = "Reconciling"
    """The spec is not carried out yet, but may be later without a person's help: kstatus and Flux wait. A
    fault that only a person can correct shows as Reconciling for its first two minutes.
    """

    STALLED = "Stalled"
    """The spec has not been carried out for two minutes, and only a person can help: kstatus and Flux
    report a failure. The reason is that of the condition that names the fault.
    """


class RefreshReason(StrEnum):
    """The reasons of Ready and Synced of a StackRefresh, besides the types of conditions and the outcomes
    of failed runs.
    """

    SERVED = "Served"
    """The StackRefresh is in sync."""

    PENDING = "Pending"
    """A run has not begun or not ended yet."""

    RUNNING = "Running"
    """A run is under way."""

    SUCCEEDED = "Succeeded"
    """The last run succeeded."""

    UNKNOWN_TARGET = "UnknownTarget"
    """The operator's settings have no target of this name; nothing is run."""

    NOT_ALLOWED = "NotAllowed"
    """The operator's settings do not allow the target, its action, the times, or the selector's
    namespace; nothing is run.
    """

    NO_MATCHING_SERVICE = "NoMatchingService"
    """The selector finds no Service, and no run has served one before; nothing is run."""


class Reason(StrEnum):
    """Reasons of Ready and Synced of a EurekaSyncer that are not types of conditions.

    A EurekaMirror uses some of them as well.
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
    """The operator's settings do not allow the syncer its namespace, its application or its address; nothing
    is changed.
    """

    UNKNOWN_EUREKA = "UnknownEureka"
    """The operator has no connection of the name in ``spec.eureka``; nothing is changed."""

    INVALID_INSTANCE = "InvalidInstance"
    """The registration has a value that Eureka does not take, such as a name with a control character."""

    NO_MATCHING_SERVICE = "NoMatchingService"
    """The selector finds no Service."""

    EXTERNAL_NAME = "ExternalName"
    """The Service is of type ExternalName, which has no endpoints and no address."""

    NAMESPACE_NOT_READ = "NamespaceNotRead"
    """The operator has not read the namespace's Services yet, and no action is needed; or it may not read
    them any more.
    """

    NODES_NOT_READ = "NodesNotRead"
    """The operator has not read the nodes yet; no action is needed."""

    PODS_NOT_READ = "PodsNotRead"
    """The operator has not read the pods yet; no action is needed. If it may not read them, new pods are
    registered without the metadata from their labels.
    """

    ROUTES_NOT_READ = "RoutesNotRead"
    """The operator has not read the Ingresses, or the Gateways and HTTPRoutes, yet; if it stays, the operator
    may not read them, or the cluster does not know the kind. Registered instances are kept.
    """

    JOINING = "Joining"
    """Of a namespace's syncer: a Service joined or changed, and that is not carried out yet; it passes by
    itself.
    """

    LEAVING = "Leaving"
    """Of a namespace's syncer: a Service joins no more, and the operator deletes the Service's syncer: after
    a minute, or at once with the annotation ``eurekube.io/sync: "false"``.
    """

    SERVICE_REFUSED = "ServiceRefused"
    """Of a namespace's syncer: an annotation of a Service has a value that its field does not take, another
    EurekaSyncer has the name of the Service's syncer, or the API server stores another spec. The Service
    stays as it is, and the others are served.
    """

    NOT_SERVED = "NotServed"
    """No operator has looked at the syncer for longer than a lease: nobody renews its instances in Eureka."""

    INSTANCES_UP = "InstancesUp"
    """Instances are UP (Ready is True), although the syncer is not in sync."""

    NONE_UP = "NoneUp"
    """The syncer is in sync, and none of its instances is UP."""


class MirrorReason(StrEnum):
    """Reasons of Ready and Synced that only a EurekaMirror has, and that are not types of conditions."""

    INVALID_SPEC = "InvalidSpec"
    """This version's CRD would refuse the spec; nothing is changed."""

    IN_SYNC = "InSync"
    """The mirrored Services have the endpoints that Eureka holds."""

    ENDPOINTS_READY = "EndpointsReady"
    """Each mirrored Service has at least one ready endpoint."""

    NONE_READY = "NoneReady"
    """A mirrored Service has no ready endpoint, or the mirror has no Service."""
