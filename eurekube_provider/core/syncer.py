"""The custom resource ``EurekaSyncer`` as a value.

``crds/`` has the schema with its bounds and rules; this module has the operator's reading of the fields, and
their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.errors import ConfigurationError, InvalidInstance
from eurekube_provider.core.identity import (
    RESERVED_METADATA_PREFIX,
    Cluster,
    ClusterOwner,
    check_metadata_key,
    label_to_metadata_key,
)
from eurekube_provider.core.model import EMPTY_MAPPING, EurekaLease, shared_lease
from eurekube_provider.core.objects import (
    Object,
    app_name_of_service,
    conditions_of,
    is_being_deleted,
    is_mirrored,
)
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.reservations import lookup_names
from eurekube_provider.core.text import check_metadata, describe_unfit_name, describe_unreadable_text

DEFAULT_CONNECTION_NAME = "default"
"""The name of the connection of ``--eureka-url``, and of that of a syncer that names none."""

FINALIZER = "eurekube.io/deregister"
"""The finalizer that keeps a deleted syncer until its instances are out of Eureka."""

FORCE_DELETE_ANNOTATION = "eurekube.io/force-delete"
"""The annotation, with any value, that releases a deleted syncer at once, whatever stays in Eureka."""

READINESS_GATE = "eurekube.io/callers-know"
"""The readiness gate, and its condition, of pods that become ready once callers know them."""

FAIL_OVER_SECONDS = 15 + 2
"""Seconds until a standby writes in place of a replica that died: its Lease's duration, and one retry."""

_DEFAULT_LEASE = EurekaLease()

_TEXT_FIELDS = (
    "vipAddress",
    "secureVipAddress",
    "homePagePath",
    "statusPagePath",
    "healthCheckPath",
    "address",
)
"""Fields of the spec that are sent to Eureka as they are written."""

DEFAULT_NODE_COUNT = 1
"""The default number of nodes at which a Service with a node port is registered.

With more nodes the calls are shared, and the loss of a node costs only its share. But callers whose firewall
opens the port at the first node alone would at once lose the other nodes' share.
"""

COMPUTED_SECONDS_WORD = "Computed"
"""The value, in place of seconds, for the time that the operator computes from callers' caches."""

PortReference = int | str
"""A port's number, or its name."""

_EnumT = TypeVar("_EnumT", bound=StrEnum)


class Mode(StrEnum):
    """The modes of a syncer: which part of a Service becomes an instance."""

    POD = "pod"
    """Each endpoint becomes an instance: callers must be able to reach pod addresses."""

    SERVICE = "service"
    """The Service itself becomes one instance, at its advertised address."""


class Advertise(StrEnum):
    """The kinds of addresses at which Services, or in mode pod their pods, can be registered."""

    AUTO = "Auto"
    """The first of load balancer, external IP and cluster IP that the Service has."""

    LOAD_BALANCER = "LoadBalancer"
    EXTERNAL_IP = "ExternalIP"
    NODE_PORT = "NodePort"
    CLUSTER_IP = "ClusterIP"
    CLUSTER_DNS = "ClusterDNS"

    HOST_PORT = "HostPort"
    """In mode pod: the node's address, and the ``hostPort`` of the pod's container."""

    INGRESS = "Ingress"
    """The host of an Ingress' rule that leads to the Service, and the Ingress' address."""

    GATEWAY = "Gateway"
    """The host of an HTTPRoute that leads to the Service, and its Gateway's address."""


ROUTED_ADVERTISE_KINDS = frozenset({Advertise.INGRESS, Advertise.GATEWAY})
"""Kinds of addresses that the operator reads only where its configuration allows it."""


class NotReady(StrEnum):
    """The options for an endpoint that is not ready: register it as DOWN, or remove it."""

    DOWN = "Down"
    REMOVE = "Remove"


class OnTermination(StrEnum):
    """The options for an instance when the deletion of its pod begins."""

    DEREGISTER = "Deregister"

    OUT_OF_SERVICE = "OutOfService"
    """The instance is OUT_OF_SERVICE until the endpoint is gone, and is then deregistered."""


class WhenEurekaIsAway(StrEnum):
    """The options for pods that wait for callers while no server of Eureka answers."""

    WAIT = "Wait"
    """The pods wait: going on would replace pods that callers know by pods that no caller can learn of."""

    OPEN = "Open"


@dataclass(frozen=True, slots=True)
class ReadinessGateSettings:
    """A syncer's settings for pods that declare the readiness gate.

    :param callers_seconds: how long callers need to learn of a pod that Eureka shows; None to compute it.
    """

    callers_seconds: int | None = None
    when_eureka_is_away: WhenEurekaIsAway = WhenEurekaIsAway.WAIT


_DEFAULT_GATE = ReadinessGateSettings()


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector of Services: each given condition must match.

    :param app: the Services' label ``app``, or their name if they have no such label; empty for any.
    :param service: the name of the only Service, whatever its labels; empty for any.
    """

    namespace: str
    app: str = ""
    match_labels: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    service: str = ""

    def selects(self, service: Object) -> bool:
        """Return whether the selector matches a Service of its namespace; never a mirrored one."""
        if is_mirrored(service):
            return False
        if self.app and app_name_of_service(service) != self.app:
            return False
        if self.service and service["metadata"]["name"] != self.service:
            return False
        return self.match_labels.items() <= (service["metadata"].get("labels") or {}).items()

    @classmethod
    def from_object(cls, item: Object) -> Selector:
        """Read the selector of a custom resource; its default namespace is the custom resource's.

        :raises ConfigurationError: the custom resource has no selector.
        """
        written = (item.get("spec") or {}).get("selector") or {}
        if written.get("services"):
            raise ConfigurationError(
                "spec.selector.services means many Services: each has an EurekaSyncer of its own"
            )
        if not any(map(written.get, ("app", "matchLabels", "service"))):
            raise ConfigurationError(
                "spec.selector.app is missing, and so is spec.selector.matchLabels: name the label app of the"
                " Service, the Service, or other labels of it"
            )
        return cls(
            namespace=written.get("namespace") or item["metadata"]["namespace"],
            app=written.get("app") or "",
            service=written.get("service") or "",
            match_labels=written.get("matchLabels") or EMPTY_MAPPING,
        )

    def describe(self) -> str:
        """Return the selector in words, for the sentence that no Service matches it."""
        if self.service:
            return f"is called {self.service}"
        named = f" (or, without a label app, the name {self.app})" if self.app else ""
        return f"has the {self.labels_in_words}{named}"

    @property
    def labels_in_words(self) -> str:
        """The labels that the selector wants, in words."""
        labels = ",".join(f"{key}={value}" for key, value in sorted(self.match_labels.items()))
        if not self.app:
            return f"labels {labels}"
        return f"labels {labels} and app={self.app}" if labels else f"label app={self.app}"


@dataclass(frozen=True, slots=True)
class Syncer:
    """The spec of a ``EurekaSyncer``.

    :param application: the application's name in Eureka, in any case.
    :param port: None for the only TCP port, or the one named ``http``.
    :param secure_port: None for no https.
    :param address: the address for callers in place of the Service's own, in mode service.
    :param node_count: the number of nodes at which a Service is registered if its node port is advertised.
    :param metadata: fixed values, which win over those from labels.
    :param metadata_from_labels: labels of the Service.
    :param metadata_from_ports: by metadata key, the name of the port whose number is the value.
    :param metadata_from_annotations: by metadata key, the annotation of the Service that has the value.
    :param metadata_from_pod_labels: labels of the pod, in mode pod.
    :param health_check_port: None for the ports that callers use.
    :param removes_dead_self_registered: True if an instance that a pod registered itself is removed once the
        pod is gone.
    :param readiness_gate: settings for pods that declare the readiness gate.
    :param eureka: the name of a connection in the operator's configuration.
    """

    namespace: str
    name: str
    mode: Mode
    selector: Selector
    application: str
    vip_address: str = ""
    secure_vip_address: str = ""
    port: PortReference | None = None
    secure_port: PortReference | None = None
    advertise: Advertise = Advertise.AUTO
    address: str = ""
    node_count: int = DEFAULT_NODE_COUNT
    metadata: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    metadata_from_labels: tuple[str, ...] = ()
    metadata_from_pod_labels: tuple[str, ...] = ()
    metadata_from_ports: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    metadata_from_annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    home_page_path: str = "/"
    status_page_path: str = ""
    health_check_path: str = ""
    health_check_port: PortReference | None = None
    lease: EurekaLease = _DEFAULT_LEASE
    policy: Policy = Policy.SYNC
    not_ready: NotReady = NotReady.DOWN
    on_termination: OnTermination = OnTermination.DEREGISTER
    is_paused: bool = False
    removes_dead_self_registered: bool = False
    readiness_gate: ReadinessGateSettings = _DEFAULT_GATE
    eureka: str = DEFAULT_CONNECTION_NAME

    @classmethod
    def from_object(cls, syncer: Object) -> Syncer:
        """Read the custom resource.

        :raises ConfigurationError: the API server would have refused it; an older CRD may be installed.
        """
        return _SyncerReader(syncer).read()

    @property
    def names(self) -> frozenset[str]:
        """The names, in lower case, under which callers find the application."""
        return lookup_names(self.application, self.vip_address, self.secure_vip_address)

    def owner(self, cluster: Cluster) -> str:
        """Return the owner of the syncer's instances."""
        return str(ClusterOwner(cluster.name, self.namespace, self.name))

    @property
    def needs_nodes(self) -> bool:
        """True if the mapping needs the cluster's nodes."""
        return self.mode is Mode.SERVICE and self.advertise is Advertise.NODE_PORT

    @property
    def needs_routes(self) -> bool:
        """True if the mapping needs Ingresses, or Gateways and their HTTPRoutes."""
        return self.mode is Mode.SERVICE and self.advertise in ROUTED_ADVERTISE_KINDS

    @property
    def needs_pod_labels(self) -> bool:
        """True if the mapping needs the labels of the pods."""
        return self.mode is Mode.POD and bool(self.metadata_from_pod_labels)

    @property
    def needs_host_ports(self) -> bool:
        """True if the pods are registered at their nodes' addresses, which only whole pods have."""
        return self.mode is Mode.POD and self.advertise is Advertise.HOST_PORT

    @property
    def lease_problem(self) -> Problem | None:
        """The problem that instances may lapse while one replica of the operator takes over from another;
        None where they cannot.

        A renewed Eureka lease lives for twice its duration (com.netflix.eureka.lease.Lease), and a whole
        renewal interval of that may have passed when a replica dies.
        """
        lives, interval = 2 * self.lease.duration_seconds, self.lease.renewal_interval_seconds
        needed = FAIL_OVER_SECONDS + interval
        if lives > needed:
            return None
        return Problem(
            SyncerCondition.LEASE_TOO_SHORT,
            f"spec.lease.durationSeconds is {self.lease.duration_seconds}: instances live {lives} s after a"
            f" renewal, and until a standby operator renews in place of one that died, {needed} s may pass",
            f"take at least {self.shortest_safe_lease_seconds}",
        )

    @property
    def shortest_safe_lease_seconds(self) -> int:
        """The shortest ``durationSeconds`` with which instances outlive a take-over by another replica."""
        return (FAIL_OVER_SECONDS + self.lease.renewal_interval_seconds) // 2 + 1


def has_finalizer(syncer: Object) -> bool:
    """Return whether a custom resource, as last read, has the operator's finalizer."""
    return FINALIZER in (syncer["metadata"].get("finalizers") or ())


def awaits_finalizer_removal(syncer: Object) -> bool:
    """Return whether a custom resource was deleted, and waits for the operator to remove its finalizer."""
    return is_being_deleted(syncer) and has_finalizer(syncer)


def has_annotation(syncer: Object, name: str) -> bool:
    """Return whether a custom resource has an annotation, with any value."""
    return name in (syncer["metadata"].get("annotations") or {})


def claimed_names(syncer: Object) -> frozenset[str]:
    """Return the names under which a custom resource has registered, by its status, and may go on.

    It keeps them also after all was scaled to zero for a while, or after Eureka lost its memory. A status
    that an older operator or CRD wrote names the application only; if the present spec is in sync, it was
    allowed under all its names.
    """
    status = syncer.get("status") or {}
    if "names" in status:
        return frozenset(status["names"] or ())
    application = str(status.get("application") or "").lower()
    if not application or not (status.get("lastSyncTime") or status.get("registered")):
        return frozenset()
    if _is_in_sync(syncer):
        with suppress(ConfigurationError):
            wanted = Syncer.from_object(syncer)
            return wanted.names if wanted.application.lower() == application else frozenset([application])
    return frozenset([application])


def _is_in_sync(syncer: Object) -> bool:
    generation = syncer["metadata"].get("generation")
    synced = conditions_of(syncer).get(SyncerCondition.SYNCED, {})
    is_current = generation is not None and synced.get("observedGeneration") == generation
    return is_current and synced.get("status") == "True"


def connection_name(item: Object) -> str:
    """Return the name of the connection at which a custom resource registers."""
    return str((item.get("spec") or {}).get("eureka") or DEFAULT_CONNECTION_NAME)


def selector_of(item: Object | None) -> Selector | None:
    """Return a custom resource's selector, even if other fields are wrong; None where it has none."""
    if item is not None:
        with suppress(ConfigurationError):
            return Selector.from_object(item)
    return None


class _SyncerReader:
    def __init__(self, syncer: Object) -> None:
        self._syncer, self._metadata = syncer, syncer["metadata"]
        self._spec: Mapping[str, Any] = syncer.get("spec") or {}
        self._where = f"EurekaSyncer {self._metadata['namespace']}/{self._metadata['name']}"

    def read(self) -> Syncer:
        spec = self._spec
        mode = self._read_choice("mode", Mode, None)
        selector = self._read_selector()
        application = spec.get("application") or selector.app or selector.service
        if not application:
            raise self._error("spec.application is missing: the selector has no app to take the name from")
        if problem := describe_unfit_name(application):
            raise self._error(f"the application's name {application!r} {problem}")
        for field_name in _TEXT_FIELDS:
            if problem := describe_unreadable_text(spec.get(field_name) or ""):
                raise self._error(f"spec.{field_name} {problem}")
        lease = spec.get("lease") or {}
        advertise = self._read_choice("advertise", Advertise, Advertise.AUTO)
        if mode is Mode.SERVICE and advertise is Advertise.HOST_PORT:
            raise self._error("spec.advertise is HostPort, which is for mode pod: a Service has no host port")
        vip_address = spec.get("vipAddress") or application.lower()
        return Syncer(
            namespace=self._metadata["namespace"],
            name=self._metadata["name"],
            mode=mode,
            selector=selector,
            application=application,
            vip_address=vip_address,
            secure_vip_address=spec.get("secureVipAddress") or vip_address,
            port=spec.get("port"),
            secure_port=spec.get("securePort"),
            advertise=advertise,
            address=spec.get("address") or "",
            node_count=spec.get("nodes") or DEFAULT_NODE_COUNT,
            metadata=self._read_metadata_field("metadata"),
            metadata_from_labels=self._read_labels("metadataFromLabels"),
            metadata_from_pod_labels=self._read_labels("metadataFromPodLabels"),
            metadata_from_ports=self._read_metadata_field("metadataFromPorts"),
            metadata_from_annotations=self._read_metadata_field("metadataFromAnnotations"),
            home_page_path=spec.get("homePagePath") or "/",
            status_page_path=spec.get("statusPagePath") or "",
            health_check_path=spec.get("healthCheckPath") or "",
            health_check_port=spec.get("healthCheckPort"),
            lease=shared_lease(
                lease.get("renewalIntervalSeconds", _DEFAULT_LEASE.renewal_interval_seconds),
                lease.get("durationSeconds", _DEFAULT_LEASE.duration_seconds),
            ),
            policy=self._read_choice("policy", Policy, Policy.SYNC),
            not_ready=self._read_choice("notReady", NotReady, NotReady.DOWN),
            on_termination=self._read_choice("onTermination", OnTermination, OnTermination.DEREGISTER),
            is_paused=bool(spec.get("paused")),
            removes_dead_self_registered=bool(spec.get("removeDeadSelfRegistered")),
            readiness_gate=self._read_readiness_gate(),
            eureka=spec.get("eureka") or DEFAULT_CONNECTION_NAME,
        )

    def _read_selector(self) -> Selector:
        try:
            return Selector.from_object(self._syncer)
        except ConfigurationError as error:
            raise self._error(str(error)) from None

    def _read_metadata_field(self, field_name: str) -> Mapping[str, str]:
        """Return a field whose keys are metadata keys."""
        written: Mapping[str, str] = self._spec.get(field_name) or EMPTY_MAPPING
        for key in written:
            self._refuse_reserved(field_name, key, key)
        try:
            for key in written:
                check_metadata_key(key)
            check_metadata(written)
        except InvalidInstance as error:
            raise self._error(f"spec.{field_name}: {error}") from None
        return written

    def _read_readiness_gate(self) -> ReadinessGateSettings:
        written = self._spec.get("readinessGate") or {}
        seconds = written.get("callersSeconds", COMPUTED_SECONDS_WORD)
        is_number = isinstance(seconds, int) and not isinstance(seconds, bool) and seconds >= 0
        if seconds != COMPUTED_SECONDS_WORD and not is_number:
            sentence = (
                f"spec.readinessGate.callersSeconds is {seconds!r}; it must be {COMPUTED_SECONDS_WORD} or "
                "seconds"
            )
            raise self._error(sentence)
        when = self._read_choice("whenEurekaIsAway", WhenEurekaIsAway, WhenEurekaIsAway.WAIT, "readinessGate")
        return ReadinessGateSettings(None if seconds == COMPUTED_SECONDS_WORD else seconds, when)

    def _read_labels(self, field_name: str) -> tuple[str, ...]:
        labels = tuple(self._spec.get(field_name) or ())
        for label in labels:
            self._refuse_reserved(field_name, label, label_to_metadata_key(label))
        return labels

    def _refuse_reserved(self, field_name: str, written: str, key: str) -> None:
        if key.startswith(RESERVED_METADATA_PREFIX):
            raise self._error(
                f"spec.{field_name} has {written!r}: metadata keys that start with "
                f"{RESERVED_METADATA_PREFIX} are Eurekube's own"
            )

    def _read_choice(
        self, field_name: str, kind: type[_EnumT], default: _EnumT | None, within: str = ""
    ) -> _EnumT:
        written = (self._spec.get(within) or {}) if within else self._spec
        value = written.get(field_name, default)
        field_name = f"{within}.{field_name}" if within else field_name
        try:
            return kind(str(value))
        except ValueError:
            allowed = [str(item) for item in kind]
            listed = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            raise self._error(f"spec.{field_name} is {value!r}; it must be {listed}") from None

    def _error(self, sentence: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {sentence}")
