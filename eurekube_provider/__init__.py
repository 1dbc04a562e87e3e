"""Eurekube joins Netflix Eureka and Kubernetes: this module has the public names, and nothing else.

The names are loaded on first use, so that the operator does not load Pulumi, nor Pulumi's plugin process a
Kubernetes client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eurekube_provider.version import __version__

if TYPE_CHECKING:
    from eurekube_provider.core.drain_time import Drain
    from eurekube_provider.registrations.discovered import (
        FoundApplication,
        FoundEndpoint,
        FoundEndpoints,
        FoundInstance,
    )
    from eurekube_provider.resources.application import EurekaApplication
    from eurekube_provider.resources.arguments import (
        ApplicationInstanceArgs,
        ApplicationInstanceArgsDict,
        EurekaApplicationArgs,
        EurekaApplicationArgsDict,
        EurekaInstanceArgs,
        EurekaInstanceArgsDict,
    )
    from eurekube_provider.resources.drain_before_stop import DrainBeforeStop
    from eurekube_provider.resources.instance import EurekaInstance
    from eurekube_provider.resources.lookups import (
        get_application,
        get_application_output,
        get_endpoints,
        get_endpoints_output,
        get_instance,
        get_instance_output,
    )
    from eurekube_provider.resources.mirror_component import (
        EurekaMirror,
        EurekaMirrorArgs,
        EurekaMirrorArgsDict,
    )
    from eurekube_provider.resources.operator_component.component import EurekubeOperator
    from eurekube_provider.resources.operator_component.credentials import (
        EurekaSecretArgs,
        EurekaSecretArgsDict,
    )
    from eurekube_provider.resources.operator_component.eureka_arguments import (
        EurekaConnectionArgs,
        EurekaConnectionArgsDict,
    )
    from eurekube_provider.resources.operator_component.operator_arguments import (
        EurekubeOperatorArgs,
        EurekubeOperatorArgsDict,
    )
    from eurekube_provider.resources.operator_component.pod_arguments import (
        PodTolerationArgs,
        PodTolerationArgsDict,
    )
    from eurekube_provider.resources.operator_component.target_arguments import TargetArgs
    from eurekube_provider.resources.syncer_component import (
        EurekaSyncer,
        EurekaSyncerArgs,
        EurekaSyncerArgsDict,
    )

__all__ = [
    "ApplicationInstanceArgs",
    "ApplicationInstanceArgsDict",
    "Drain",
    "DrainBeforeStop",
    "EurekaApplication",
    "EurekaApplicationArgs",
    "EurekaApplicationArgsDict",
    "EurekaConnectionArgs",
    "EurekaConnectionArgsDict",
    "EurekaInstance",
    "EurekaInstanceArgs",
    "EurekaInstanceArgsDict",
    "EurekaMirror",
    "EurekaMirrorArgs",
    "EurekaMirrorArgsDict",
    "EurekaSecretArgs",
    "EurekaSecretArgsDict",
    "EurekaSyncer",
    "EurekaSyncerArgs",
    "EurekaSyncerArgsDict",
    "EurekubeOperator",
    "EurekubeOperatorArgs",
    "EurekubeOperatorArgsDict",
    "FoundApplication",
    "FoundEndpoint",
    "FoundEndpoints",
    "FoundInstance",
    "PodTolerationArgs",
    "PodTolerationArgsDict",
    "TargetArgs",
    "__version__",
    "get_application",
    "get_application_output",
    "get_endpoints",
    "get_endpoints_output",
    "get_instance",
    "get_instance_output",
]

_MODULES = {
    "ApplicationInstanceArgs": "arguments",
    "ApplicationInstanceArgsDict": "arguments",
    "Drain": "drain_before_stop",
    "DrainBeforeStop": "drain_before_stop",
    "EurekaApplication": "application",
    "EurekaApplicationArgs": "arguments",
    "EurekaApplicationArgsDict": "arguments",
    "EurekaInstance": "instance",
    "EurekaInstanceArgs": "arguments",
    "EurekaInstanceArgsDict": "arguments",
    "EurekaConnectionArgs": "operator_component.eureka_arguments",
    "EurekaConnectionArgsDict": "operator_component.eureka_arguments",
    "EurekaMirror": "mirror_component",
    "EurekaMirrorArgs": "mirror_component",
    "EurekaMirrorArgsDict": "mirror_component",
    "EurekaSecretArgs": "operator_component.credentials",
    "EurekaSecretArgsDict": "operator_component.credentials",
    "EurekaSyncer": "syncer_component",
    "EurekaSyncerArgs": "syncer_component",
    "EurekaSyncerArgsDict": "syncer_component",
    "EurekubeOperator": "operator_component.component",
    "EurekubeOperatorArgs": "operator_component.operator_arguments",
    "EurekubeOperatorArgsDict": "operator_component.operator_arguments",
    "FoundApplication": "registrations.discovered",
    "FoundEndpoint": "registrations.discovered",
    "FoundEndpoints": "registrations.discovered",
    "FoundInstance": "registrations.discovered",
    "PodTolerationArgs": "operator_component.pod_arguments",
    "PodTolerationArgsDict": "operator_component.pod_arguments",
    "TargetArgs": "operator_component.target_arguments",
    "get_application": "lookups",
    "get_application_output": "lookups",
    "get_endpoints": "lookups",
    "get_endpoints_output": "lookups",
    "get_instance": "lookups",
    "get_instance_output": "lookups",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562).

    :raises ProgramError: the name is a component's, and the extra ``kubernetes`` is not installed.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    if module.startswith("registrations."):
        return getattr(import_module(f"eurekube_provider.{module}"), name)
    from eurekube_provider.resources.program import ConvertToProgramError
    from eurekube_provider.runtime.extras import require_extra

    with ConvertToProgramError(), require_extra("kubernetes", name):
        return getattr(import_module(f"eurekube_provider.resources.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
