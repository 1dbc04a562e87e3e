"""The components as this provider serves them: with its own types and guard.

The import needs ``pulumi-kubernetes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi

from eurekube_provider.core.identity import GUARD_TYPE, NATIVE_GUARD_TYPE
from eurekube_provider.registrations.names import camel, renamed
from eurekube_provider.resources.mirror_component import EurekaMirror, EurekaMirrorArgs
from eurekube_provider.resources.operator_component.component import EurekubeOperator
from eurekube_provider.resources.operator_component.operator_arguments import EurekubeOperatorArgs
from eurekube_provider.resources.syncer_component import EurekaSyncer, EurekaSyncerArgs


class NativeOperatorGuard(pulumi.CustomResource):
    """The guard of an operator, served by the native provider."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        opts.aliases = [pulumi.Alias(type_=GUARD_TYPE)]
        super().__init__(NATIVE_GUARD_TYPE, name, renamed(inputs, camel), opts)


class HostedOperator(EurekubeOperator):
    """An EurekubeOperator, served to programs in every language."""

    TYPE = "eurekube:index:Operator"
    ARGS: ClassVar[type[Any]] = EurekubeOperatorArgs
    GUARD: ClassVar[type[Any]] = NativeOperatorGuard
    CREATE_NAMESPACE = "createNamespace"

    def register_outputs(self, outputs: Any) -> None:
        """Register the outputs under the schema's names."""
        super().register_outputs(renamed(outputs, camel))


class HostedMirror(EurekaMirror):
    """A EurekaMirror, served to programs in every language."""

    TYPE = "eurekube:index:Mirror"
    ARGS: ClassVar[type[Any]] = EurekaMirrorArgs


class HostedSyncer(EurekaSyncer):
    """A EurekaSyncer, served to programs in every language."""

    TYPE = "eurekube:index:Syncer"
    ARGS: ClassVar[type[Any]] = EurekaSyncerArgs
