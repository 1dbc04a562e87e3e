"""The dynamic provider of EurekaInstance and EurekaApplication, which passes Pulumi's calls on to
``registrations.resource``.

Pulumi's plugin process imports this module, outside of any program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    ResourceProvider,
    UpdateResult,
)
from pulumi.runtime import rpc

from eurekube_provider.registrations.connections import NAMESPACE, connection_problems
from eurekube_provider.registrations.names import are_schemas
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.resource import RegistrationResource, ResourceType
from eurekube_provider.registrations.secret_values import as_secret, is_secret
from eurekube_provider.registrations.values import UNKNOWN
from eurekube_provider.resources.plugin import set_up
from eurekube_provider.resources.program_inputs import IN_UPDATE


class RegistrationProvider(ResourceProvider):
    """The dynamic provider of one kind of resource. States name its subclasses, which have no attributes
    of their own.
    """

    kind: ClassVar[ResourceType]
    serialize_as_secret_always = False  # there is nothing in it

    def configure(self, req: ConfigureRequest) -> None:
        """Keep the stack's configuration; credentials come from there, or from the environment.

        Each check reports problems of the connections, and so before the first creation. Resources in the
        state can still be read and removed.
        """
        self._config = req.config
        set_up()
        self._problems = connection_problems(self._setting)

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Normalise the properties, and refuse those that Eureka could not hold.

        No refusal repeats a value, which may be a secret. No refusal names its property to the engine either:
        the engine would show the value, even a secret one.
        """
        if problems := getattr(self, "_problems", ()):
            return CheckResult(news, [CheckFailure("", "; ".join(problems))])
        if are_schemas(_olds):
            return refusal_of_native_state(
                news,
                "keep the native provider's resource in the program, or leave out the alias: then the update"
                " registers again in the same place, and what stood there goes from the state alone",
            )
        given = read_in(news)
        is_update = given.pop(IN_UPDATE, None) is not None
        checked = self._resource.check(read_in(_olds), given, is_update=is_update)
        return CheckResult(
            write_out(checked.properties),
            [CheckFailure("", f"{each.property}: {each.without_value()}") for each in checked.problems],
        )

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Compare a state with checked properties, by their meaning as instances."""
        difference = self._resource.diff(read_in(_olds), read_in(_news))
        return DiffResult(
            changes=difference.changes,
            replaces=list(difference.replaces),
            stables=list(self.kind.stables),
        )

    def create(self, props: Properties) -> CreateResult:
        """Register the resource's instances, and return its id and state."""
        created = self._resource.create(read_in(props))
        return CreateResult(created.id, created.properties)

    def read(self, id_: str, props: Properties) -> ReadResult:
        """Return the resource as Eureka holds it; a blank id if Eureka does not hold it."""
        found = self._resource.read(read_in(props))
        if found is None:
            return ReadResult(id_="", outs={})
        outs, inputs = dict(found.properties), dict(found.inputs)
        for each in (outs, inputs) if found.unnamed else ():
            # What no program names may hold what was a secret of one, and no state says so.
            hidden = {name: as_secret(each["instances"][name]) for name in found.unnamed}
            each["instances"] = {**each["instances"], **hidden}
        return ReadResult(id_, outs, inputs)

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Register new and changed instances, then remove those that the program does not have any more."""
        return UpdateResult(self._resource.update(read_in(_olds), read_in(_news)))

    def delete(self, _id: str, _props: Properties) -> None:
        """Remove the resource's instances from Eureka."""
        self._resource.delete(read_in(_props))

    @property
    def _resource(self) -> RegistrationResource:
        return RegistrationResource(self.kind, self._setting)

    def _setting(self, key: str) -> str | None:
        config = getattr(self, "_config", None)
        value = config.get(f"{NAMESPACE}:{key}") if config is not None else None
        return value if isinstance(value, str) or value is None else json.dumps(value)


def refusal_of_native_state(news: Properties, remedy: str) -> CheckResult:
    """Refuse a resource whose state the native provider wrote.

    :param remedy: the sentence that says what to do instead.
    """
    reason = (
        "its state was written by the native provider, and a state moves from the dynamic provider to the"
        f" native one, not back: {remedy}"
    )
    return CheckResult(news, [CheckFailure("", reason)])


def read_in(properties: Mapping[str, Any]) -> Properties:
    """Return Pulumi's properties in our form: without Pulumi's own keys, with one marker for unknown values.

    Values that this provider marked as secrets come unwrapped: the engine tracks secrets itself.
    """
    return {key: _our_value(value) for key, value in properties.items() if not key.startswith("__")}


def write_out(properties: Mapping[str, Any]) -> Properties:
    """Return our properties in Pulumi's form."""
    return {key: _pulumi_value(value) for key, value in properties.items()}


def _our_value(value: Any) -> Any:
    if is_secret(value):
        return _our_value(value["value"])
    if isinstance(value, Mapping):
        return {key: _our_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_our_value(item) for item in value]
    return UNKNOWN if isinstance(value, pulumi.output.Unknown) or value == rpc.UNKNOWN else value


def _pulumi_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _pulumi_value(item) for key, item in value.items()}
    return rpc.UNKNOWN if value is UNKNOWN else value
