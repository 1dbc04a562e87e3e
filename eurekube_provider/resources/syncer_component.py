"""The component EurekaSyncer, which asks the operator to keep a Service's endpoints registered in Eureka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NotRequired, TypedDict, Unpack, overload

import pulumi

from eurekube_provider.core.wording import camel_case
from eurekube_provider.resources.custom_object import CustomObject, TextInput, spec_arguments
from eurekube_provider.resources.operator_component.pod_arguments import TextMap
from eurekube_provider.resources.program import Options, ProgramError

_WAIT_FOR_ANNOTATION = "pulumi.com/waitFor"
_WAIT_FOR_READY_ANNOTATIONS = {_WAIT_FOR_ANNOTATION: "condition=Ready"}
"""The annotation by which the Kubernetes provider waits for Ready; ``eurekube render`` leaves it out."""

_SELECTOR_KEY_BY_ARGUMENT = {
    "selector_namespace": "namespace",
    "app": "app",
    "match_labels": "matchLabels",
    "service": "service",
    "services": "services",
}
_CRD_KEY_BY_ARGUMENT = {"service_annotations": "annotations"}
"""Arguments whose name in the spec is another argument's, which is the object's own."""

_ARGUMENTS_BY_GROUP = {
    "lease": ("renewal_interval_seconds", "duration_seconds"),
    "readinessGate": ("callers_seconds", "when_eureka_is_away"),
}
"""Arguments that the CRD has below a key of their own."""

_AdvertisedAddress = Literal["Auto", "LoadBalancer", "ExternalIP", "NodePort", "ClusterIP", "ClusterDNS"]
Advertise = Literal[_AdvertisedAddress, "Ingress", "Gateway", "HostPort"]


@dataclass(kw_only=True, slots=True)
class EurekaSyncerArgs:
    """Arguments of a EurekaSyncer; only what is given here is written into the object.

    :ivar namespace: where the syncer lives.
    :ivar app: the label ``app`` of the Service, or its name. One of ``app``, ``match_labels``, ``service``
        and ``services`` is needed.
    :ivar match_labels: labels of the Service; with ``app``, both must match.
    :ivar service: the name of the Service, whatever its labels.
    :ivar services: ``Annotated`` or ``All``: each Service of the namespace that joins has a syncer of its
        own, made from this one.
    :ivar service_annotations: with ``services``, the fields that annotations of a Service may set.
    :ivar selector_namespace: the Service's namespace; default the syncer's own. Another one only where the
        operator's configuration allows it.
    :ivar mode: ``pod``: each endpoint becomes an instance. ``service``: the Service becomes one.
    :ivar name: the object's name; default the resource's name.
    :ivar application: the application's name in Eureka; default ``app`` or ``service``, required without
        them. With ``services`` a template; default ``{service}``.
    :ivar vip_address: the name that Spring clients look up; default the application, in lower case.
    :ivar secure_vip_address: the name that Spring clients look up for https; default ``vip_address``.
    :ivar port: name or number of the Service's port; default the only TCP port, else the one named ``http``.
    :ivar secure_port: name or number of the port for https, which Spring calls whenever it is given.
    :ivar advertise: the Service's address in mode service; default ``Auto``: load balancer, external IP,
        cluster IP. In mode pod only ``HostPort``: the node's address and the container's ``hostPort``.
    :ivar address: an IP address or host name in place of ``advertise``, where the operator allows it.
    :ivar nodes: with advertise ``NodePort``: at how many ready nodes it is registered; default 1.
    :ivar metadata: metadata of the instances: fixed values.
    :ivar metadata_from_labels: labels of the Service that become metadata.
    :ivar metadata_from_pod_labels: labels of the pod that become metadata, in mode pod.
    :ivar metadata_from_ports: metadata keys, each with the name of the port whose number it has.
    :ivar metadata_from_annotations: metadata keys, each with the Service's annotation whose value it has.
    :ivar home_page_path: of the home page, with a slash before; default ``/``.
    :ivar status_page_path: of the status page, with a slash before; default none.
    :ivar health_check_path: of the health check, with a slash before; default none.
    :ivar health_check_port: name or number of the health check's port; default those that callers use.
    :ivar renewal_interval_seconds: at most so long between two renewals; default 30.
    :ivar duration_seconds: Eureka forgets an instance after twice this time without a renewal; default 90.
    :ivar policy: ``UpsertOnly`` deregisters nothing while the syncer is there; default ``Sync``.
    :ivar paused: while true nothing is changed: what is registered is renewed, and comes back where it was
        forgotten.
    :ivar not_ready: the treatment of endpoints that are not ready; default ``Down``.
    :ivar on_termination: the action when the deletion of a pod begins; default ``Deregister``.
    :ivar remove_dead_self_registered: True if what a pod's own Eureka client registered is removed once the
        pod is gone; default false.
    :ivar callers_seconds: of pods that declare the readiness gate: how long callers need to learn of one that
        Eureka shows, in seconds; default ``Computed``.
    :ivar when_eureka_is_away: ``Open``: such pods become ready while no server of Eureka answers; default
        ``Wait``.
    :ivar eureka: a connection of the operator's configuration; default ``default``.
    :ivar annotations: annotations of the object, e.g. ``eurekube.io/release-brake``.
    :ivar labels: labels of the object.
    :ivar wait_ready_seconds: how long ``up`` waits for the condition ``Ready``, without which it fails: all
        that the syncer asks for is in Eureka then. Default: it does not wait.
    """

    namespace: TextInput
    app: TextInput | None = None
    match_labels: pulumi.Input[Mapping[str, TextInput]] | None = None
    service: TextInput | None = None
    services: pulumi.Input[Literal["Annotated", "All"]] | TextInput | None = None
    service_annotations: pulumi.Input[Sequence[TextInput]] | None = None
    selector_namespace: TextInput | None = None
    mode: pulumi.Input[Literal["pod", "service"]] | TextInput = "pod"
    name: TextInput | None = None
    application: TextInput | None = None
    vip_address: TextInput | None = None
    secure_vip_address: TextInput | None = None
    port: pulumi.Input[int] | TextInput | None = None
    secure_port: pulumi.Input[int] | TextInput | None = None
    advertise: pulumi.Input[Advertise] | TextInput | None = None
    address: TextInput | None = None
    nodes: pulumi.Input[int] | None = None
    metadata: pulumi.Input[Mapping[str, TextInput]] | None = None
    metadata_from_labels: pulumi.Input[Sequence[TextInput]] | None = None
    metadata_from_pod_labels: pulumi.Input[Sequence[TextInput]] | None = None
    metadata_from_ports: pulumi.Input[Mapping[str, TextInput]] | None = None
    metadata_from_annotations: pulumi.Input[Mapping[str, TextInput]] | None = None
    home_page_path: TextInput | None = None
    status_page_path: TextInput | None = None
    health_check_path: TextInput | None = None
    health_check_port: pulumi.Input[int] | TextInput | None = None
    renewal_interval_seconds: pulumi.Input[int] | None = None
    duration_seconds: pulumi.Input[int] | None = None
    policy: pulumi.Input[Literal["Sync", "UpsertOnly"]] | TextInput | None = None
    paused: pulumi.Input[bool] | None = None
    not_ready: pulumi.Input[Literal["Down", "Remove"]] | TextInput | None = None
    on_termination: pulumi.Input[Literal["Deregister", "OutOfService"]] | TextInput | None = None
    remove_dead_self_registered: pulumi.Input[bool] | None = None
    callers_seconds: pulumi.Input[int] | TextInput | None = None
    when_eureka_is_away: pulumi.Input[Literal["Wait", "Open"]] | TextInput | None = None
    eureka: TextInput | None = None
    annotations: TextMap = field(default_factory=dict)
    labels: TextMap = field(default_factory=dict)
    wait_ready_seconds: int | None = None


class EurekaSyncerArgsDict(TypedDict):
    """A dictionary with the keys of :class:`EurekaSyncerArgs`."""

    namespace: TextInput
    app: NotRequired[TextInput | None]
    match_labels: NotRequired[pulumi.Input[Mapping[str, TextInput]] | None]
    service: NotRequired[TextInput | None]
    services: NotRequired[pulumi.Input[Literal["Annotated", "All"]] | TextInput | None]
    service_annotations: NotRequired[pulumi.Input[Sequence[TextInput]] | None]
    selector_namespace: NotRequired[TextInput | None]
    mode: NotRequired[pulumi.Input[Literal["pod", "service"]] | TextInput]
    name: NotRequired[TextInput | None]
    application: NotRequired[TextInput | None]
    vip_address: NotRequired[TextInput | None]
    secure_vip_address: NotRequired[TextInput | None]
    port: NotRequired[pulumi.Input[int] | TextInput | None]
    secure_port: NotRequired[pulumi.Input[int] | TextInput | None]
    advertise: NotRequired[pulumi.Input[Advertise] | TextInput | None]
    address: NotRequired[TextInput | None]
    nodes: NotRequired[pulumi.Input[int] | None]
    metadata: NotRequired[pulumi.Input[Mapping[str, TextInput]] | None]
    metadata_from_labels: NotRequired[pulumi.Input[Sequence[TextInput]] | None]
    metadata_from_pod_labels: NotRequired[pulumi.Input[Sequence[TextInput]] | None]
    metadata_from_ports: NotRequired[pulumi.Input[Mapping[str, TextInput]] | None]
    metadata_from_annotations: NotRequired[pulumi.Input[Mapping[str, TextInput]] | None]
    home_page_path: NotRequired[TextInput | None]
    status_page_path: NotRequired[TextInput | None]
    health_check_path: NotRequired[TextInput | None]
    health_check_port: NotRequired[pulumi.Input[int] | TextInput | None]
    renewal_interval_seconds: NotRequired[pulumi.Input[int] | None]
    duration_seconds: NotRequired[pulumi.Input[int] | None]
    policy: NotRequired[pulumi.Input[Literal["Sync", "UpsertOnly"]] | TextInput | None]
    paused: NotRequired[pulumi.Input[bool] | None]
    not_ready: NotRequired[pulumi.Input[Literal["Down", "Remove"]] | TextInput | None]
    on_termination: NotRequired[pulumi.Input[Literal["Deregister", "OutOfService"]] | TextInput | None]
    remove_dead_self_registered: NotRequired[pulumi.Input[bool] | None]
    callers_seconds: NotRequired[pulumi.Input[int] | TextInput | None]
    when_eureka_is_away: NotRequired[pulumi.Input[Literal["Wait", "Open"]] | TextInput | None]
    eureka: NotRequired[TextInput | None]
    annotations: NotRequired[TextMap]
    labels: NotRequired[TextMap]
    wait_ready_seconds: NotRequired[int | None]


class EurekaSyncer(CustomObject):
    """A syncer: a Service's endpoints become instances of an application in Eureka.

    The arguments may be keywords, a class or a dictionary.

    Give the syncer ``depends_on=[operator]``: the operator serves its finalizer, so that the syncer must go
    first.

    :raises ProgramError: the arguments would select nothing, or wait for no time.
    """

    TYPE: ClassVar[str] = "eurekube:index:EurekaSyncer"
    KIND: ClassVar[str] = "EurekaSyncer"
    ARGS: ClassVar[type[Any]] = EurekaSyncerArgs

    @overload
    def __init__(
        self, resource_name: str, /, args: EurekaSyncerArgs | EurekaSyncerArgsDict, opts: Options = None
    ) -> None: ...
    @overload
    def __init__(
        self, resource_name: str, /, *, opts: Options = None, **keywords: Unpack[EurekaSyncerArgsDict]
    ) -> None: ...
    def __init__(
        self, resource_name: str, /, args: Any = None, opts: Options = None, **keywords: Any
    ) -> None:
        name = resource_name
        args = self._read_arguments(name, args, keywords)
        if args.wait_ready_seconds is not None and _WAIT_FOR_ANNOTATION in args.annotations:
            raise ProgramError(
                f"EurekaSyncer {name!r}: annotations must not set {_WAIT_FOR_ANNOTATION} beside "
                "wait_ready_seconds"
            )
        if all(one is None for one in (args.app, args.match_labels, args.service, args.services)):
            raise ProgramError(
                f"EurekaSyncer {name!r}: app, match_labels, service or services must say which Service is "
                "meant"
            )
        patience = args.wait_ready_seconds
        if patience is not None and (not isinstance(patience, int) or patience < 1):
            raise ProgramError(
                f"EurekaSyncer {name!r}: wait_ready_seconds must be a whole number from 1 on,"
                f" not {patience!r}"
            )
        # Not for the deletion, which waits for the operator, and that for Eureka.
        timeouts = pulumi.CustomTimeouts(create=f"{patience}s", update=f"{patience}s") if patience else None
        waiting = _WAIT_FOR_READY_ANNOTATIONS if patience else None
        self._make_object(name, args, syncer_spec(args), opts, waiting, timeouts)


def syncer_spec(args: EurekaSyncerArgs) -> dict[str, Any]:
    """Return the ``spec`` of a EurekaSyncer: the given arguments, under the names of the CRD."""
    said = spec_arguments(args)
    selector = {key: said.pop(name) for name, key in _SELECTOR_KEY_BY_ARGUMENT.items() if name in said}
    groups = {
        group: {camel_case(name): said.pop(name) for name in names if name in said}
        for group, names in _ARGUMENTS_BY_GROUP.items()
    }
    spec = {_CRD_KEY_BY_ARGUMENT.get(name, camel_case(name)): value for name, value in said.items()}
    return {**spec, "selector": selector, **{group: those for group, those in groups.items() if those}}
