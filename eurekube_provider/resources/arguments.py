"""The arguments of the resources that register, as class or dictionary, and their outputs, for type checkers.

Their names, meanings and defaults come from ``registrations.properties``; a test compares them. The
annotations are objects, not strings: the SDK would evaluate strings again for each resource.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

import pulumi

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.wording import camel_case, suggest_name
from eurekube_provider.registrations.names import to_snake_case

_T = TypeVar("_T")


SECRET_FIELD_METADATA: Mapping[str, bool] = {"secret": True}
"""The field metadata that mark an argument as a secret, in programs of any language."""


class ArgumentDefault(Enum):
    """A stand-in for an argument whose value comes from the stack's configuration."""

    FROM_CONFIG = "from-config"


@dataclass(kw_only=True, slots=True)
class RegistrationContentsArgs:
    """Contents of a registration beside its name, host and port.

    :ivar port_enabled: default True.
    :ivar secure_port: default 443, disabled; naming one enables it.
    :ivar secure_port_enabled: Spring calls https whenever it is enabled.
    :ivar vip_address: by which Spring finds it; default the application in lower case.
    :ivar secure_vip_address: default ``vip_address``.
    :ivar status: unset: UP at first, and then a person's override is left alone. Set: enforced.
    :ivar metadata: texts; keys of letters, digits, dots and dashes that do not start with ``eurekube.``.
    :ivar zone: the zone as Spring and Netflix clients read it, ``metadata.zone``.
    :ivar renewal_interval_seconds: default 30.
    :ivar duration_seconds: how long it stays without a renewal, default 90.
    """

    port_enabled: pulumi.Input[bool] | None = None
    secure_port: pulumi.Input[int] | None = None
    secure_port_enabled: pulumi.Input[bool] | None = None
    vip_address: pulumi.Input[str] | None = None
    secure_vip_address: pulumi.Input[str] | None = None
    status: pulumi.Input[str] | None = None
    metadata: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    zone: pulumi.Input[str] | None = None
    renewal_interval_seconds: pulumi.Input[int] | None = None
    duration_seconds: pulumi.Input[int] | None = None
    home_page_url: pulumi.Input[str] | None = None
    status_page_url: pulumi.Input[str] | None = None
    health_check_url: pulumi.Input[str] | None = None
    secure_health_check_url: pulumi.Input[str] | None = None


class RegistrationContentsArgsDict(TypedDict):
    """A dictionary with the keys of :class:`RegistrationContentsArgs`."""

    port_enabled: NotRequired[pulumi.Input[bool] | None]
    secure_port: NotRequired[pulumi.Input[int] | None]
    secure_port_enabled: NotRequired[pulumi.Input[bool] | None]
    vip_address: NotRequired[pulumi.Input[str] | None]
    secure_vip_address: NotRequired[pulumi.Input[str] | None]
    status: NotRequired[pulumi.Input[str] | None]
    metadata: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    zone: NotRequired[pulumi.Input[str] | None]
    renewal_interval_seconds: NotRequired[pulumi.Input[int] | None]
    duration_seconds: NotRequired[pulumi.Input[int] | None]
    home_page_url: NotRequired[pulumi.Input[str] | None]
    status_page_url: NotRequired[pulumi.Input[str] | None]
    health_check_url: NotRequired[pulumi.Input[str] | None]
    secure_health_check_url: NotRequired[pulumi.Input[str] | None]


@dataclass(kw_only=True, slots=True)
class RegistrationArgs(RegistrationContentsArgs):
    """Arguments of both resources.

    :ivar application: the application's name in Eureka, which upper-cases it. Another one is a replacement.
    :ivar renewer: the name of the operator that renews it, by default ``eurekube:operatorName`` or else
        ``eurekube``; ``self`` where the application sends its own renewals.
    :ivar on_conflict: ``fail`` (the default) or ``adopt``: what to do where the instance is there already
        and belongs to somebody else. An adopted one is removed on destroy like any other.
    :ivar drain_seconds: on removal, how long it stays OUT_OF_SERVICE before; default 0.
    :ivar connection: the name of one of ``eurekube:connections``; default the one of ``eurekube:url``.
    """

    application: pulumi.Input[str]
    renewer: pulumi.Input[str] | Literal[ArgumentDefault.FROM_CONFIG] | None = ArgumentDefault.FROM_CONFIG
    on_conflict: pulumi.Input[str] | None = None
    drain_seconds: pulumi.Input[int] | None = None
    connection: str | None = None


class RegistrationArgsDict(RegistrationContentsArgsDict):
    """A dictionary with the keys of :class:`RegistrationArgs`."""

    application: pulumi.Input[str]
    renewer: NotRequired[pulumi.Input[str] | None]
    on_conflict: NotRequired[pulumi.Input[str] | None]
    drain_seconds: NotRequired[pulumi.Input[int] | None]
    connection: NotRequired[str | None]


@dataclass(kw_only=True, slots=True)
class EurekaInstanceArgs(RegistrationArgs):
    """Arguments of a EurekaInstance, beside :class:`RegistrationArgs` and :class:`RegistrationContentsArgs`.

    :ivar host_name: where Spring calls it: a name or an address that callers can reach.
    :ivar port: 1 to 65535.
    :ivar ip_address: default ``host_name`` as given; nothing is resolved.
    :ivar instance_id: default ``<resource name>.<stack>.<project>:<application>:<port>``. Another id is a
        replacement.
    """

    host_name: pulumi.Input[str]
    port: pulumi.Input[int]
    ip_address: pulumi.Input[str] | None = None
    instance_id: pulumi.Input[str] | None = None


class EurekaInstanceArgsDict(RegistrationArgsDict):
    """A dictionary with the keys of :class:`EurekaInstanceArgs`."""

    host_name: pulumi.Input[str]
    port: pulumi.Input[int]
    ip_address: NotRequired[pulumi.Input[str] | None]
    instance_id: NotRequired[pulumi.Input[str] | None]


@dataclass(kw_only=True, slots=True)
class ApplicationInstanceArgs(RegistrationContentsArgs):
    """One instance of a EurekaApplication; what is not said here is the application's.

    :ivar host_name: where Spring calls it: a name or an address that callers can reach.
    :ivar ip_address: default ``host_name`` as given; nothing is resolved.
    :ivar instance_id: default ``<key>.<resource name>.<stack>.<project>:<application>:<port>``.
    :ivar metadata: added to the application's, and wins where both have a key.
    """

    host_name: pulumi.Input[str]
    port: pulumi.Input[int] | None = None
    ip_address: pulumi.Input[str] | None = None
    instance_id: pulumi.Input[str] | None = None


class ApplicationInstanceArgsDict(RegistrationContentsArgsDict):
    """A dictionary with the keys of :class:`ApplicationInstanceArgs`."""

    host_name: pulumi.Input[str]
    port: NotRequired[pulumi.Input[int] | None]
    ip_address: NotRequired[pulumi.Input[str] | None]
    instance_id: NotRequired[pulumi.Input[str] | None]


InstancesByKey = Mapping[str, pulumi.Input[ApplicationInstanceArgs | ApplicationInstanceArgsDict]]
"""Instances by the program's own keys, by which Pulumi shows additions, changes and removals."""


@dataclass(kw_only=True, slots=True)
class EurekaApplicationArgs(RegistrationArgs):
    """Arguments of a EurekaApplication, beside :class:`RegistrationArgs`.

    The arguments of :class:`RegistrationContentsArgs` apply to all instances; each instance may have its own
    instead.

    :ivar instances: by keys without slash and space; may be empty.
    """

    instances: pulumi.Input[InstancesByKey]
    port: pulumi.Input[int] | None = None


class EurekaApplicationArgsDict(RegistrationArgsDict):
    """A dictionary with the keys of :class:`EurekaApplicationArgs`."""

    instances: pulumi.Input[InstancesByKey]
    port: NotRequired[pulumi.Input[int] | None]


class RegistrationOutputs:
    """Outputs of both EurekaInstance and EurekaApplication."""

    application: pulumi.Output[str]
    zone: pulumi.Output[str | None]
    home_page_url: pulumi.Output[str | None]
    status_page_url: pulumi.Output[str | None]
    health_check_url: pulumi.Output[str | None]
    secure_health_check_url: pulumi.Output[str | None]
    renewer: pulumi.Output[str]
    on_conflict: pulumi.Output[str]
    drain_seconds: pulumi.Output[int]
    connection: pulumi.Output[str]
    service_url: pulumi.Output[str]
    owner: pulumi.Output[str]
    incarnation: pulumi.Output[str | None]


class InstanceOutputs(RegistrationOutputs):
    """Outputs of a EurekaInstance."""

    instance_id: pulumi.Output[str]
    host_name: pulumi.Output[str]
    ip_address: pulumi.Output[str]
    port: pulumi.Output[int]
    port_enabled: pulumi.Output[bool]
    secure_port: pulumi.Output[int]
    secure_port_enabled: pulumi.Output[bool]
    vip_address: pulumi.Output[str]
    secure_vip_address: pulumi.Output[str]
    status: pulumi.Output[str]
    metadata: pulumi.Output[Mapping[str, str]]
    renewal_interval_seconds: pulumi.Output[int]
    duration_seconds: pulumi.Output[int]
    overridden_status: pulumi.Output[str]
    last_updated: pulumi.Output[str | None]
    seen_owner: pulumi.Output[str]


class ApplicationOutputs(RegistrationOutputs):
    """Outputs of a EurekaApplication."""

    instances: pulumi.Output[Mapping[str, Any]]
    port: pulumi.Output[int | None]
    port_enabled: pulumi.Output[bool | None]
    secure_port: pulumi.Output[int | None]
    secure_port_enabled: pulumi.Output[bool | None]
    vip_address: pulumi.Output[str | None]
    secure_vip_address: pulumi.Output[str | None]
    status: pulumi.Output[str | None]
    metadata: pulumi.Output[Mapping[str, str] | None]
    renewal_interval_seconds: pulumi.Output[int | None]
    duration_seconds: pulumi.Output[int | None]
    id_base: pulumi.Output[str]
    statuses: pulumi.Output[Mapping[str, str]]
    held_by_others: pulumi.Output[Mapping[str, str]]
    created: pulumi.Output[str | None]


def as_dictionary(args: Any) -> Any:
    """Return arguments, given as class or dictionary, as a dictionary in snake case, else unchanged."""
    if is_dataclass(args) and not isinstance(args, type):
        return {field.name: getattr(args, field.name) for field in fields(args)}
    if isinstance(args, Mapping):
        return {to_snake_case(name) if isinstance(name, str) else name: value for name, value in args.items()}
    return args


def args_or_keywords(args: Any, keywords: Mapping[str, Any]) -> Any:
    """Return the arguments that a program gave: as class, dictionary or keywords; without any raise."""
    if args is None and not keywords:
        raise ConfigurationError("there are no arguments: give a class, a dictionary, or keywords")
    if args is not None and keywords:
        raise ConfigurationError(
            f"{', '.join(keywords)} must be among the other arguments, or all must be keywords"
        )
    return keywords if args is None else args


def as_arguments(kind: type[_T], given: Any, where: str = "") -> _T:
    """Return arguments, given as class or dictionary, as the class; keys may be in snake case or camel case.

    :raises ConfigurationError: a key is unknown or there twice, or a required one is missing.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{where}the arguments must be {kind.__name__} or a dictionary of them")
    known: dict[str, Any] = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    names = {name: name for name in known} | {camel_case(name): name for name in known}
    found: dict[str, Any] = {}
    for written, value in given.items():
        if written not in names:
            raise ConfigurationError(
                f"{where}there is no argument {written!r}; {suggest_name(str(written), known)}"
            )
        name = names[written]
        if name in found:
            raise ConfigurationError(f"{where}{name} is there twice, as {name} and as {camel_case(name)}")
        found[name] = value
    for name, field in known.items():
        if field.default is MISSING and field.default_factory is MISSING and name not in found:
            raise ConfigurationError(f"{where}{name} is required")
    return kind(**found)
