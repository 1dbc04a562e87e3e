"""The custom resource ``EurekaMirror`` as a value: which applications become Services, and how.

``crds/`` has the schema with its bounds and rules; this module has the operator's reading of the fields, and
their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.networks import Network, parse_networks
from eurekube_provider.core.objects import Object
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME
from eurekube_provider.core.text import describe_unfit_name

APPLICATION_PLACEHOLDER = "{application}"
"""Placeholder of the application's name in ``serviceName``."""

APPLICATION_ANNOTATION = "eurekube.io/application"
"""The annotation, on objects that a mirror writes, with the Eureka application that they show."""

SOURCE_ANNOTATION = "eurekube.io/source"
"""The annotation, on a mirror's EndpointSlice, with the URLs of the servers that listed its endpoints."""

SPEC_KEYS_ANNOTATION = "eurekube.io/given"
"""The annotation, on a mirrored Service, with the labels' and annotations' keys from the spec, as JSON."""

RESERVED_LABEL_PREFIX, MANAGED_BY_LABEL = "eurekube.io/", "app.kubernetes.io/managed-by"
"""The prefix and the key of labels and annotations that a mirror's spec may not set."""

LAST_READ_ANNOTATION = "eurekube.io/last-read"
"""The annotation, on a mirrored Service, with the last written time at which Eureka was read."""

DEFAULT_HOLD_SECONDS = 300
DEFAULT_MAX_SERVICES = 250


def mirrored_application(item: Object) -> str:
    """Return the application that a mirror's object shows; empty where its annotation is gone."""
    return str((item["metadata"].get("annotations") or {}).get(APPLICATION_ANNOTATION) or "")


class MirrorForm(StrEnum):
    """The forms in which an application can be called in the cluster."""

    CLUSTER_IP = "ClusterIP"
    """A Service without a selector and with a cluster IP."""

    HEADLESS = "Headless"
    """A Service without a selector and without a cluster IP: its name resolves to the instances'
    addresses.
    """

    ATTACHED = "Attached"
    """EndpointSlices that are added to a Service which a person owns."""


@dataclass(frozen=True, slots=True)
class ServicePort:
    """A port of a mirrored Service.

    :ivar name: also the name of the instances' port in EndpointSlices.
    :ivar app_protocol: ``https`` for the secure port, empty for the other.
    """

    name: str
    number: int
    app_protocol: str = ""


@dataclass(frozen=True, slots=True)
class Mirror:
    """The spec of a ``EurekaMirror``.

    :ivar application: the mirrored application, in upper case; empty where ``pattern`` selects applications.
    :ivar pattern: a pattern of application names with ``*`` and ``?``, in upper case.
    :ivar allow: names or patterns, in upper case; an application that matches ``pattern`` must match one of
        them, too.
    :ivar eureka: the name of a connection in the operator's configuration.
    :ivar service_name: the Services' name, in which :data:`APPLICATION_PLACEHOLDER` may stand.
    :ivar service_labels: labels of the Services that the mirror makes, beside its own;
        ``service_annotations`` in the same way.
    :ivar attach_to: the name of a person's Service; empty where the mirror makes its own.
    :ivar allowed_networks: networks, one of which must contain an address as well; empty for all that the
        operator allows.
    :ivar zones: the zone of nodes for each zone of Eureka's.
    :ivar includes_other_clusters: True if instances that other clusters' syncers registered are mirrored,
        too.
    :ivar hold_seconds: for how long an instance that vanished without proof is kept.
    :ivar max_services: the number of Services from which on no new one is made.
    """

    namespace: str
    name: str
    application: str = ""
    pattern: str = ""
    allow: tuple[str, ...] = ()
    eureka: str = DEFAULT_CONNECTION_NAME
    form: MirrorForm = MirrorForm.CLUSTER_IP
    service_name: str = APPLICATION_PLACEHOLDER
    service_labels: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    service_annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    attach_to: str = ""
    port: ServicePort = ServicePort("http", 80)
    secure_port: ServicePort = ServicePort("https", 443, "https")
    allowed_networks: tuple[Network, ...] = ()
    zones: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    includes_other_clusters: bool = False
    hold_seconds: int = DEFAULT_HOLD_SECONDS
    max_services: int = DEFAULT_MAX_SERVICES
    is_paused: bool = False

    @classmethod
    def from_object(cls, item: Object) -> Mirror:
        """Read the custom resource.

        :raises ConfigurationError: the API server would have refused it; an older CRD may be installed.
        """
        return _MirrorReader(item).read()

    @property
    def allows_all(self) -> bool:
        """True if the allow list excludes no application, such as ``*`` alone."""
        return any(not one.strip("*?") and "*" in one for one in self.allow)

    def selects_application(self, application: str) -> bool:
        """Return whether the mirror shows an application, given in upper case."""
        if self.application:
            return application == self.application
        return fnmatchcase(application, self.pattern) and any(
            fnmatchcase(application, one) for one in self.allow
        )


class _MirrorReader:
    def __init__(self, item: Object) -> None:
        self._metadata = item["metadata"]
        self._spec: Mapping[str, Any] = item.get("spec") or {}
        self._where = f"EurekaMirror {self._metadata['namespace']}/{self._metadata['name']}"

    def read(self) -> Mirror:
        spec = self._spec
        application = str(spec.get("application") or "").upper()
        pattern = str(spec.get("pattern") or "").upper()
        allow = tuple(str(one).upper() for one in spec.get("allow") or ())
        attach_to = str(spec.get("attachTo") or "")
        service_name = str(spec.get("serviceName") or APPLICATION_PLACEHOLDER)
        is_headless = bool(spec.get("headless"))
        if bool(application) == bool(pattern):
            raise self._error("name one application, or a pattern with an allow list")
        if application and (problem := describe_unfit_name(application)):
            raise self._error(f"spec.application {application!r} {problem}")
        if pattern and not allow:
            raise self._error(
                "spec.allow is missing: anyone who registers in Eureka would make Services here by any name;"
                " list the applications that are meant"
            )
        if pattern and attach_to:
            raise self._error("spec.attachTo needs spec.application: one Service shows one application")
        if pattern and APPLICATION_PLACEHOLDER not in service_name:
            raise self._error(
                f"spec.serviceName is {service_name!r}: with a pattern it must contain "
                f"{APPLICATION_PLACEHOLDER},"
                " so that each application has a Service of its own"
            )
        if attach_to and is_headless:
            raise self._error("spec.headless is for a Service that the mirror makes, not with spec.attachTo")
        port = ServicePort(str(spec.get("portName") or "http"), self._number("port", 80))
        secure = ServicePort(
            str(spec.get("securePortName") or "https"), self._number("securePort", 443), "https"
        )
        if port.name == secure.name or port.number == secure.number:
            raise self._error("port and securePort must differ, by number and by name")
        form = MirrorForm.HEADLESS if is_headless else MirrorForm.CLUSTER_IP
        return Mirror(
            namespace=self._metadata["namespace"],
            name=self._metadata["name"],
            application=application,
            pattern=pattern,
            allow=allow,
            eureka=spec.get("eureka") or DEFAULT_CONNECTION_NAME,
            form=MirrorForm.ATTACHED if attach_to else form,
            service_name=service_name,
            service_labels=self._extra_metadata("serviceLabels"),
            service_annotations=self._extra_metadata("serviceAnnotations"),
            attach_to=attach_to,
            port=port,
            secure_port=secure,
            allowed_networks=self._networks(spec.get("allowedCIDRs") or ()),
            zones=spec.get("zones") or EMPTY_MAPPING,
            includes_other_clusters=bool(spec.get("includeOtherClusters")),
            hold_seconds=self._number("holdSeconds", DEFAULT_HOLD_SECONDS),
            max_services=self._number("maxServices", DEFAULT_MAX_SERVICES),
            is_paused=bool(spec.get("paused")),
        )

    def _extra_metadata(self, field_name: str) -> Mapping[str, str]:
        written: Mapping[str, str] = self._spec.get(field_name) or EMPTY_MAPPING
        for key in written:
            if key.startswith(RESERVED_LABEL_PREFIX) or key == MANAGED_BY_LABEL:
                raise self._error(f"spec.{field_name} has {key!r}, which is the mirror's own")
        return written

    def _number(self, field_name: str, default: int) -> int:
        value = self._spec.get(field_name, default)
        if not isinstance(value, int) or value < 1:
            raise self._error(f"spec.{field_name} is {value!r}: it must be a whole number from 1 on")
        return value

    def _networks(self, written: Sequence[Any]) -> tuple[Network, ...]:
        try:
            return parse_networks(map(str, written))
        except ValueError as error:
            raise self._error(f"spec.allowedCIDRs: {error}") from None

    def _error(self, sentence: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {sentence}")
