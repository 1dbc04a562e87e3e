"""The provider's method Construct, which makes the Python components for programs in every language.

Each request runs on an event loop and with settings of its own, so that many can be served at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.provider import ConstructResult, Provider
from pulumi.provider.server import ProviderServicer as ComponentServicer
from pulumi.resource import DependencyResource

from eurekube_provider.core.errors import ConfigurationError, EurekubeError
from eurekube_provider.core.wording import camel_case, format_list
from eurekube_provider.registrations.names import with_camel_case_names
from eurekube_provider.resources.program import ConvertToProgramError
from eurekube_provider.runtime.extras import require_extra
from eurekube_provider.version import __version__

COMPONENT_CLASS_NAMES_BY_TOKEN: Mapping[str, str] = {
    "eurekube:index:Mirror": "NativeMirror",
    "eurekube:index:Operator": "NativeOperator",
    "eurekube:index:Syncer": "NativeSyncer",
}
"""The class in :mod:`~eurekube_provider.provider.hosted` by type token; it needs the extra ``kubernetes``."""

_OUTPUT_NAMES_BY_TOKEN: Mapping[str, tuple[str, ...]] = {
    "eurekube:index:Mirror": ("name", "namespace"),
    "eurekube:index:Operator": ("namespace", "service_account", "operator_name"),
    "eurekube:index:Syncer": ("name", "namespace"),
}


def construct(request: Any, context: Any, engine_address: str) -> Any:
    """Make a component and its resources for the engine's request.

    :raises ConfigurationError: there is no such component, its arguments cannot be used, or the packages for
        Kubernetes are not installed.
    """
    if request.type not in COMPONENT_CLASS_NAMES_BY_TOKEN:
        raise ConfigurationError(
            f"there is no component {request.type!r} (there are {', '.join(COMPONENT_CLASS_NAMES_BY_TOKEN)})"
        )
    kind = _component_class(request.type)  # before the SDK looks for the classes of the providers given
    servicer = ComponentServicer(_SingleComponentProvider(request), [], engine_address)
    try:
        # The SDK keeps its settings in the context, and its tasks on the loop of the thread.
        return contextvars.Context().run(lambda: asyncio.run(servicer.Construct(request, context)))
    except EurekubeError as error:
        from eurekube_provider.provider.component_inputs import nested_argument_names

        # With the schema's names, for programs in other languages.
        text = re.sub(rf"^{kind.__base__.__name__}\b", request.type.rpartition(":")[2], str(error))
        text = with_camel_case_names(text, nested_argument_names(kind.ARGS))
        raise ConfigurationError(text) from None


class _SingleComponentProvider(Provider):
    """A provider that makes the component of one request."""

    def __init__(self, request: Any) -> None:
        super().__init__(__version__)
        self._request = request

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        from eurekube_provider.provider.component_inputs import ComponentInputs

        kind = _component_class(resource_type)
        with ConvertToProgramError(f"{resource_type.rpartition(':')[2]} {name!r}: "):
            found = ComponentInputs.read(kind.ARGS, self._request.inputs, inputs)
        options = options or pulumi.ResourceOptions()
        explicit: Any = options.depends_on
        dependencies = self._request.inputDependencies
        plain = [dependencies[each].urns for each in found.plain_argument_names if each in dependencies]
        urns = sorted({urn for each in plain for urn in each})
        options.depends_on = [*([] if explicit is None else explicit), *map(DependencyResource, urns)]
        names = _OUTPUT_NAMES_BY_TOKEN[resource_type]
        if not found.unknown_paths:
            made = kind(name, found.values, options)
            return ConstructResult(made.urn, {camel_case(each): getattr(made, each) for each in names})
        # Arguments that decide on the component's objects are unknown: it is made without them.
        bare = pulumi.ComponentResource(resource_type, name, None, options)
        unknown = format_list(found.unknown_paths, 5)
        pulumi.log.warn(f"its objects cannot be previewed: {unknown} is known only after the update", bare)
        bare.register_outputs({})
        later = pulumi.Output.from_input(pulumi.output.UNKNOWN)
        return ConstructResult(bare.urn, {camel_case(each): later for each in names})


def _component_class(token: str) -> Any:
    with require_extra("kubernetes", "a component"):
        from eurekube_provider.provider import hosted
    return getattr(hosted, COMPONENT_CLASS_NAMES_BY_TOKEN[token])
