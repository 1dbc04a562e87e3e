"""The Pulumi resource EurekaInstance, a thin shell around ``registrations.resource``.

The import path of :class:`InstanceProvider` is written into the state of every user: a wire format, frozen by
a test. The class has no attributes before it is pickled, so that the state holds nothing but its name.
Pulumi's plugin process imports this module, outside of any program: it makes no resources and loads no
Kubernetes client. Its annotations are objects, not strings: the SDK would evaluate strings again for each
resource.
"""

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, get_type_hints, overload

import pulumi
from pulumi.dynamic import Resource

from eurekube_provider.registrations.defaults import FIXED_DEFAULTS
from eurekube_provider.registrations.properties import (
    INCARNATION_PROPERTY,
    INSTANCE_DERIVATION_SOURCES,
    PROPERTIES,
)
from eurekube_provider.registrations.resource import INSTANCE_REGISTRATION_KIND
from eurekube_provider.resources.arguments import (
    EurekaInstanceArgs,
    EurekaInstanceArgsDict,
    InstanceOutputs,
    args_or_keywords,
)
from eurekube_provider.resources.dynamic_provider import RegistrationProvider
from eurekube_provider.resources.program import ConvertToProgramError, Options, refuse_unsupported_options
from eurekube_provider.resources.program_inputs import add_secret_stand_ins, properties_with_configuration


class InstanceProvider(RegistrationProvider):
    """The dynamic provider of EurekaInstance. States name it: it is never renamed or moved."""

    kind = INSTANCE_REGISTRATION_KIND


class EurekaInstance(InstanceOutputs, Resource, module="eurekube", name="EurekaInstance"):
    """One registration in Eureka that this stack owns and an operator renews.

    >>> EurekaInstance("billing", application="billing", host_name="192.0.2.10", port=8080)

    The arguments may be keywords, a class or a dictionary.

    Outputs are the inputs as Eureka holds them, and ``status`` (its own or a person's override),
    ``overridden_status``, ``last_updated`` (ISO 8601), ``owner``, ``service_url`` and ``incarnation``, which
    tells this registration from another one that the same resource made in its place.
    """

    @overload
    def __init__(
        self, name: str, args: EurekaInstanceArgs | EurekaInstanceArgsDict, opts: Options = None
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, *, opts: Options = None, **keywords: Unpack[EurekaInstanceArgsDict]
    ) -> None: ...
    def __init__(self, name: str, args: Any = None, opts: Options = None, **keywords: Any) -> None:
        with ConvertToProgramError(f"EurekaInstance {name!r}: "):
            args = args_or_keywords(args, keywords)
        refuse_unsupported_options("EurekaInstance", name, opts, "get_instance")
        given = {
            key: value
            for key, value in properties_with_configuration(name, args).items()
            if value is not None
        }
        given = add_secret_stand_ins(given, INSTANCE_DERIVATION_SOURCES)
        # What is only known afterwards must be among the properties, or it never becomes an output. The SDK
        # keeps looking through the outputs of all resources: those that are known without it are left out.
        properties = {**dict.fromkeys(_PROPERTY_NAMES_FROM_EUREKA), **given}
        if "secure_port" in given:
            properties.setdefault("secure_port_enabled", None)
        if "metadata" in given:
            properties.setdefault("zone", None)
        super().__init__(InstanceProvider(), name, properties, opts)
        for key in FIXED_DEFAULTS.keys() & given.keys() - {"metadata"}:
            value = given[key]
            if isinstance(value, pulumi.Output):  # it may turn out to be its default
                setattr(self, key, value.apply(partial(_value_or_default, key)))
            elif value == FIXED_DEFAULTS[key]:
                setattr(self, key, pulumi.Output.from_input(value))

    if not TYPE_CHECKING:  # a checker shall find misspelt names

        def __getattr__(self, name: str) -> pulumi.Output[Any]:
            """Return an output that the state leaves out because it has its default."""
            described = _OPTIONAL_PROPERTY_BY_NAME.get(name)
            if described is not None and described.derive is not None and described.derived_from:
                known = {source: getattr(self, source) for source in described.derived_from}
                return pulumi.Output.all(**known).apply(lambda found: described.derive(found, {}))
            if described is not None:
                return pulumi.Output.from_input(copy(described.default))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


# The SDK reads the annotations of the class alone, and makes whole numbers of the engine's floats by them.
EurekaInstance.__annotations__ = get_type_hints(InstanceOutputs)

_PROPERTY_NAMES_FROM_EUREKA = (
    "instance_id",
    "status",
    "overridden_status",
    "last_updated",
    "seen_owner",
    INCARNATION_PROPERTY,
)
"""Properties whose values come from Eureka, or from the check."""

_OPTIONAL_PROPERTY_BY_NAME = {
    each.name: each
    for each in PROPERTIES
    if not each.is_required and each.name not in _PROPERTY_NAMES_FROM_EUREKA
}
"""Descriptions of properties that the state may lack, because they are optional or have their default."""


def _value_or_default(key: str, value: Any) -> Any:
    return FIXED_DEFAULTS[key] if value is None else value
