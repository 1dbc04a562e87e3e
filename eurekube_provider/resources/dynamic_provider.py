"""The dynamic provider of EurekaInstance and EurekaApplication, a shell around ``registrations.resource``.
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

from eurekube_provider.registrations.connections import CONFIG_NAMESPACE, connection_problems
from eurekube_provider.registrations.names import has_camel_case_name
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.resource import RegistrationKind, RegistrationResource
from eurekube_provider.registrations.secret_values import as_secret, is_secret
from eurekube_provider.registrations.values import UNKNOWN
from eurekube_provider.resources.plugin import set_up_plugin_process
from eurekube_provider.resources.program_inputs import IN_PREVIEW_KEY, IN_UPDATE_KEY


class RegistrationProvider(ResourceProvider):
    """The dynamic provider of one kind of resource; states name its subclasses, which add no attributes."""

    kind: ClassVar[RegistrationKind]
    serialize_as_secret_always = False  # the provider's pickle holds no secret

    def configure(self, req: ConfigureRequest) -> None:
        """Keep the stack's configuration; credentials come from there, or from the environment.

        Each check reports problems of the connections, and so before the first creation. Resources in the
        state can still be read and removed.
        """
        self._config = req.config
        set_up_plugin_process()
        self._problems = connection_problems(self._read_setting)

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Normalise the properties, and refuse those that Eureka could not hold.

        No refusal repeats a value, which may be a secret. No refusal names its property to the engine either:
        the engine would show the value, even a secret one.
        """
        if problems := getattr(self, "_problems", ()):
            return CheckResult(news, [CheckFailure("", "; ".join(problems))])
        if has_camel_case_name(_olds):
            return refuse_state_from_native_provider(
                news,
                "keep the native provider's resource in the program, or leave out the alias: then the update"
                " registers again in the same place, and what stood there goes from the state alone",
            )
        given = from_pulumi_properties(news)
        is_update = IN_UPDATE_KEY in given
        numbers = [given.pop(key, "") for key in (IN_UPDATE_KEY, IN_PREVIEW_KEY)]
        checked = self._registration_resource.check(
            from_pulumi_properties(_olds), given, is_update=is_update, mark="".join(map(str, numbers))
        )
        return CheckResult(
            _to_pulumi_value(checked.properties),
            [
                CheckFailure("", f"{each.property}: {each.reason_without_value()}")
                for each in checked.problems
            ],
        )

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        difference = self._registration_resource.diff(
            from_pulumi_properties(_olds), from_pulumi_properties(_news)
        )
        return DiffResult(
            changes=difference.has_changes,
            replaces=list(difference.replaces),
            stables=list(self.kind.stables),
        )

    def create(self, props: Properties) -> CreateResult:
        return CreateResult(*self._registration_resource.create(from_pulumi_properties(props)))

    def read(self, id_: str, props: Properties) -> ReadResult:
        """Return the resource as Eureka holds it; a blank id if Eureka does not hold it."""
        found = self._registration_resource.read(from_pulumi_properties(props))
        if found is None:
            return ReadResult(id_="", outs={})
        outs, inputs = dict(found.properties), dict(found.inputs)
        for each in (outs, inputs) if found.undeclared_keys else ():
            # An instance that no program names may hold a value that was a secret in a program: it is hidden.
            hidden = {name: as_secret(each["instances"][name]) for name in found.undeclared_keys}
            each["instances"] = {**each["instances"], **hidden}
        return ReadResult(id_, outs, inputs)

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        return UpdateResult(
            self._registration_resource.update(from_pulumi_properties(_olds), from_pulumi_properties(_news))
        )

    def delete(self, _id: str, _props: Properties) -> None:
        self._registration_resource.delete(from_pulumi_properties(_props))

    @property
    def _registration_resource(self) -> RegistrationResource:
        return RegistrationResource(self.kind, self._read_setting)

    def _read_setting(self, key: str) -> str | None:
        config = getattr(self, "_config", None)
        value = config.get(f"{CONFIG_NAMESPACE}:{key}") if config is not None else None
        return value if isinstance(value, str) or value is None else json.dumps(value)


def refuse_state_from_native_provider(news: Properties, remedy: str) -> CheckResult:
    """Refuse a resource whose state the native provider wrote.

    :param remedy: the sentence that says what to do instead.
    """
    reason = (
        "its state was written by the native provider, and a state moves from the dynamic provider to the"
        f" native one, not back: {remedy}"
    )
    return CheckResult(news, [CheckFailure("", reason)])


def from_pulumi_properties(properties: Mapping[str, Any]) -> Properties:
    """Return Pulumi's properties in this project's form: without Pulumi's own keys, each unknown value as
    :data:`~eurekube_provider.registrations.values.UNKNOWN`.

    Values that this provider marked as secrets come unwrapped: the engine tracks secrets itself.
    """
    return {key: _from_pulumi_value(value) for key, value in properties.items() if not key.startswith("__")}


def _from_pulumi_value(value: Any) -> Any:
    if is_secret(value):
        return _from_pulumi_value(value["value"])
    if isinstance(value, Mapping):
        return {key: _from_pulumi_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_pulumi_value(item) for item in value]
    return UNKNOWN if isinstance(value, pulumi.output.Unknown) or value == rpc.UNKNOWN else value


def _to_pulumi_value(value: Any) -> Any:
    """Return a value in Pulumi's form: what is unknown in it as Pulumi's marker."""
    if isinstance(value, Mapping):
        return {key: _to_pulumi_value(item) for key, item in value.items()}
    return rpc.UNKNOWN if value is UNKNOWN else value
