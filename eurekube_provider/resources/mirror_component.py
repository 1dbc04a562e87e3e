"""The component EurekaMirror, by which the operator shows applications of Eureka as Services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NotRequired, TypedDict, Unpack, overload

import pulumi

from eurekube_provider.core.wording import camel_case
from eurekube_provider.resources.custom_object import CustomObject, TextInput, spec_arguments
from eurekube_provider.resources.operator_component.pod_arguments import TextMap
from eurekube_provider.resources.program import Options, ProgramError

_CRD_KEY_BY_ARGUMENT = {"allowed_cidrs": "allowedCIDRs"}
"""Fields whose spelling in the CRD differs from that of :func:`camel_case`."""


@dataclass(kw_only=True, slots=True)
class EurekaMirrorArgs:
    """Arguments of a EurekaMirror; only what is given here is written into the object.

    :ivar namespace: where the mirror and its Services live.
    :ivar application: the application's name in Eureka, in any case. Either it or ``pattern``.
    :ivar pattern: all applications that fit, such as ``SHOP-*``, and that fit one of ``allow`` as well.
    :ivar allow: names or patterns; required with ``pattern``.
    :ivar name: the object's name; default the resource's name.
    :ivar eureka: a connection of the operator's configuration; default ``default``.
    :ivar service_name: the Service's name, in which ``{application}`` may stand; default that alone.
    :ivar service_labels: labels of the Services that it makes, beside its own.
    :ivar service_annotations: their annotations, in the same way.
    :ivar headless: True if the Service has no address of its own; default false.
    :ivar attach_to: a Service of a person's, to which EndpointSlices are added; it must opt in by the
        annotation ``eurekube.io/attach-mirror`` with the mirror's name.
    :ivar port: the Service's port; default 80, called ``port_name``, default ``http``.
    :ivar secure_port: its port for https, where instances have one; default 443, called ``secure_port_name``,
        default ``https``.
    :ivar allowed_cidrs: networks of which one must have an address, beside what the operator allows.
    :ivar zones: the nodes' zone for each zone of Eureka's.
    :ivar include_other_clusters: also what syncers of other clusters registered; default false.
    :ivar hold_seconds: for so long is kept what vanished without proof; default 300.
    :ivar max_services: beyond so many Services no new one is made; default 250.
    :ivar paused: while true nothing is changed in the cluster.
    :ivar annotations: annotations of the object.
    :ivar labels: labels of the object.
    """

    namespace: TextInput
    application: TextInput | None = None
    pattern: TextInput | None = None
    allow: pulumi.Input[Sequence[TextInput]] | None = None
    name: TextInput | None = None
    eureka: TextInput | None = None
    service_name: TextInput | None = None
    service_labels: pulumi.Input[Mapping[str, TextInput]] | None = None
    service_annotations: pulumi.Input[Mapping[str, TextInput]] | None = None
    headless: pulumi.Input[bool] | None = None
    attach_to: TextInput | None = None
    port: pulumi.Input[int] | None = None
    port_name: TextInput | None = None
    secure_port: pulumi.Input[int] | None = None
    secure_port_name: TextInput | None = None
    allowed_cidrs: pulumi.Input[Sequence[TextInput]] | None = None
    zones: pulumi.Input[Mapping[str, TextInput]] | None = None
    include_other_clusters: pulumi.Input[bool] | None = None
    hold_seconds: pulumi.Input[int] | None = None
    max_services: pulumi.Input[int] | None = None
    paused: pulumi.Input[bool] | None = None
    annotations: TextMap = field(default_factory=dict)
    labels: TextMap = field(default_factory=dict)


class EurekaMirrorArgsDict(TypedDict):
    """A dictionary with the keys of :class:`EurekaMirrorArgs`."""

    namespace: TextInput
    application: NotRequired[TextInput | None]
    pattern: NotRequired[TextInput | None]
    allow: NotRequired[pulumi.Input[Sequence[TextInput]] | None]
    name: NotRequired[TextInput | None]
    eureka: NotRequired[TextInput | None]
    service_name: NotRequired[TextInput | None]
    service_labels: NotRequired[pulumi.Input[Mapping[str, TextInput]] | None]
    service_annotations: NotRequired[pulumi.Input[Mapping[str, TextInput]] | None]
    headless: NotRequired[pulumi.Input[bool] | None]
    attach_to: NotRequired[TextInput | None]
    port: NotRequired[pulumi.Input[int] | None]
    port_name: NotRequired[TextInput | None]
    secure_port: NotRequired[pulumi.Input[int] | None]
    secure_port_name: NotRequired[TextInput | None]
    allowed_cidrs: NotRequired[pulumi.Input[Sequence[TextInput]] | None]
    zones: NotRequired[pulumi.Input[Mapping[str, TextInput]] | None]
    include_other_clusters: NotRequired[pulumi.Input[bool] | None]
    hold_seconds: NotRequired[pulumi.Input[int] | None]
    max_services: NotRequired[pulumi.Input[int] | None]
    paused: NotRequired[pulumi.Input[bool] | None]
    annotations: NotRequired[TextMap]
    labels: NotRequired[TextMap]


class EurekaMirror(CustomObject):
    """A mirror: applications registered in Eureka become Services of the cluster.

    The arguments may be keywords, a class or a dictionary.

    Give the mirror ``depends_on=[operator]``: the operator serves its finalizer, so that the mirror must go
    first. The operator needs ``mirrors``.

    :raises ProgramError: the arguments would mirror nothing, or everything.
    """

    TYPE: ClassVar[str] = "eurekube:index:EurekaMirror"
    KIND: ClassVar[str] = "EurekaMirror"
    ARGS: ClassVar[type[Any]] = EurekaMirrorArgs

    @overload
    def __init__(
        self, resource_name: str, /, args: EurekaMirrorArgs | EurekaMirrorArgsDict, opts: Options = None
    ) -> None: ...
    @overload
    def __init__(
        self, resource_name: str, /, *, opts: Options = None, **keywords: Unpack[EurekaMirrorArgsDict]
    ) -> None: ...
    def __init__(
        self, resource_name: str, /, args: Any = None, opts: Options = None, **keywords: Any
    ) -> None:
        name = resource_name
        args = self._read_arguments(name, args, keywords)
        if (args.application is None) is (args.pattern is None):
            raise ProgramError(f"EurekaMirror {name!r}: either application or pattern must say what is meant")
        if args.pattern is not None and args.allow is None:
            raise ProgramError(
                f"EurekaMirror {name!r}: pattern needs allow, the applications that may become Services:"
                " anyone who registers in Eureka chooses their names"
            )
        self._make_object(name, args, mirror_spec(args), opts)


def mirror_spec(args: EurekaMirrorArgs) -> dict[str, Any]:
    """Return the ``spec`` of a EurekaMirror: the given arguments, under the names of the CRD."""
    return {
        _CRD_KEY_BY_ARGUMENT.get(name, camel_case(name)): value
        for name, value in spec_arguments(args).items()
    }
