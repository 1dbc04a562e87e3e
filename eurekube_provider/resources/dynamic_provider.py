"""The dynamic provider of both resources: Pulumi's dictionaries in, ``registrations.resource`` behind.

Pulumi's plugin process imports it, outside of any program.
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
    """Serves one kind of resource. A state names its subclasses, which have no attributes of their own."""

    kind: ClassVar[ResourceType]
    serialize_as_secret_always = False  # there is nothing in it

    def configure(self, req: ConfigureRequest) -> None:
        """Keep the stack's configuration; credentials come from there, or from the environment.

        What is wrong with its connections is reported by each check, so before the first creation. What the
        state has can be read and removed all the same.
        """
        self._config = req.config
        set_up()
        self._problems = connection_problems(self._setting)

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Normalise the properties and refuse what Eureka could not hold.

        No refusal repeats a value, which may be a secret. Nor is one about a named property: the engine would
        show its value, be it a secret or not.
        """
        if problems := getattr(self, "_problems", ()):
            return CheckResult(news, [CheckFailure("", "; ".join(problems))])
        if are_schemas(_olds):
            return moved_back(
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
        """Compare as instances, never as dictionaries."""
        difference = self._resource.diff(read_in(_olds), read_in(_news))
        return DiffResult(
            changes=difference.changes,
            replaces=list(difference.replaces),
            stables=list(self.kind.stables),
        )

    def create(self, props: Properties) -> CreateResult:
        """Register."""
        created = self._resource.create(read_in(props))
        return CreateResult(created.id, created.properties)

    def read(self, id_: str, props: Properties) -> ReadResult:
        """Return the resource as Eureka holds it, and a blank id for none."""
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
        """Register what came and changed, then remove what went."""
        return UpdateResult(self._resource.update(read_in(_olds), read_in(_news)))

    def delete(self, _id: str, _props: Properties) -> None:
        """Remove."""
        self._resource.delete(read_in(_props))

    @property
    def _resource(self) -> RegistrationResource:
        return RegistrationResource(self.kind, self._setting)

    def _setting(self, key: str) -> str | None:
        config = getattr(self, "_config", None)
        value = config.get(f"{NAMESPACE}:{key}") if config is not None else None
        return value if isinstance(value, str) or value is None else json.dumps(value)


def moved_back(news: Properties, remedy: str) -> CheckResult:
    """Refuse a resource whose state the native provider wrote.

    :param remedy: the alternative.
    """
    reason = (
        "its state was written by the native provider, and a state moves from the dynamic provider to the"
        f" native one, not back: {remedy}"
    )
    return CheckResult(news, [CheckFailure("", reason)])


def read_in(properties: Mapping[str, Any]) -> Properties:
    """Pulumi's dictionary as ours: without its own keys, and with one marker for what is unknown.

    What this provider has made a secret comes without that again: the engine keeps the secrets.
    """
    return {key: _our_value(value) for key, value in properties.items() if not key.startswith("__")}


def write_out(properties: Mapping[str, Any]) -> Properties:
    """Ours as Pulumi's."""
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
