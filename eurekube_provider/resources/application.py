"""The Pulumi resource EurekaApplication, a thin shell around ``registrations.resource``.

The import path of :class:`ApplicationProvider` is written into the state of every user: a wire format, frozen
by a test. As with :mod:`~eurekube_provider.resources.instance`, Pulumi's plugin process imports this module.
"""

from collections.abc import Mapping
from typing import Any, Unpack, get_type_hints, overload

import pulumi
from pulumi.dynamic import Resource

from eurekube_provider.registrations.members import (
    APPLICATION_INPUT_NAMES,
    APPLICATION_OUTPUT_NAMES,
    ID_BASE_PROPERTY,
    instance_ids,
)
from eurekube_provider.registrations.properties import (
    APPLICATION_DERIVATION_SOURCES,
    MEMBER_DERIVATION_SOURCES,
)
from eurekube_provider.registrations.resource import APPLICATION_REGISTRATION_KIND
from eurekube_provider.resources.arguments import (
    ApplicationOutputs,
    EurekaApplicationArgs,
    EurekaApplicationArgsDict,
    args_or_keywords,
    as_dictionary,
)
from eurekube_provider.resources.dynamic_provider import RegistrationProvider
from eurekube_provider.resources.program import ConvertToProgramError, Options, refuse_unsupported_options
from eurekube_provider.resources.program_inputs import add_secret_stand_ins, properties_with_configuration


class ApplicationProvider(RegistrationProvider):
    """The dynamic provider of EurekaApplication. States name it: it is never renamed or moved."""

    kind = APPLICATION_REGISTRATION_KIND


class EurekaApplication(ApplicationOutputs, Resource, module="eurekube", name="EurekaApplication"):
    """Many registrations of one application that this stack owns and an operator renews.

    >>> EurekaApplication(
    ...     "billing",
    ...     application="billing",
    ...     port=8080,
    ...     instances={"a": {"host_name": "192.0.2.10"}, "b": {"host_name": "192.0.2.11"}},
    ... )

    The arguments may be keywords, a class or a dictionary.

    Its name must be its own among the stack's EurekaApplications of one application. ``statuses`` has, by
    key, each status in Eureka that is not UP or the one that is asked for, such as a person's OUT_OF_SERVICE;
    ``held_by_others`` the owner of each instance that was taken from us; ``created`` the time of creation
    (ISO 8601); ``incarnation`` the mark that tells its registrations from others that the same resource made.
    """

    @overload
    def __init__(
        self, name: str, args: EurekaApplicationArgs | EurekaApplicationArgsDict, opts: Options = None
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, *, opts: Options = None, **keywords: Unpack[EurekaApplicationArgsDict]
    ) -> None: ...
    def __init__(self, name: str, args: Any = None, opts: Options = None, **keywords: Any) -> None:
        with ConvertToProgramError(f"EurekaApplication {name!r}: "):
            args = args_or_keywords(args, keywords)
        refuse_unsupported_options("EurekaApplication", name, opts, "get_application")
        given = properties_with_configuration(name, args)
        instances = given.get("instances")
        given["instances"] = (
            instances.apply(_instances_as_dictionaries)
            if isinstance(instances, pulumi.Output)
            else _instances_as_dictionaries(instances)
        )
        given = add_secret_stand_ins(given, APPLICATION_DERIVATION_SOURCES)
        # What is only known afterwards must be among the properties, or it never becomes an output.
        properties = {**dict.fromkeys((*APPLICATION_INPUT_NAMES, *APPLICATION_OUTPUT_NAMES)), **given}
        super().__init__(ApplicationProvider(), name, properties, opts)

    @property
    def instance_ids(self) -> pulumi.Output[Mapping[str, str]]:
        """The id of each instance in Eureka, by key; computed, so that the state does not hold it."""
        names = ("instances", "application", "port", ID_BASE_PROPERTY)
        values = {name: getattr(self, name) for name in names}
        return pulumi.Output.all(**values).apply(
            lambda known: {key: str(id_) for key, id_ in instance_ids(known).items()}
        )


# The SDK reads the annotations of the class alone, and makes whole numbers of the engine's floats by them.
EurekaApplication.__annotations__ = get_type_hints(ApplicationOutputs)


def _instances_as_dictionaries(instances: Any) -> Any:
    """Return an application's instances by key, each as a dictionary; an output unchanged."""
    if not isinstance(instances, Mapping):
        return instances
    return {
        key: value.apply(_member_as_dictionary)
        if isinstance(value, pulumi.Output)
        else _member_as_dictionary(value)
        for key, value in instances.items()
    }


def _member_as_dictionary(member: Any) -> Any:
    """Return one instance of an application as a dictionary; what is no dictionary unchanged, for the check.
    None becomes an empty one, which the check refuses: the SDK would leave out its key, and so remove it.
    """
    found = {} if member is None else as_dictionary(member)
    return add_secret_stand_ins(found, MEMBER_DERIVATION_SOURCES) if isinstance(found, Mapping) else found
