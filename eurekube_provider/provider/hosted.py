"""The components with the native provider's type tokens and guard; they need ``pulumi-kubernetes``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi

from eurekube_provider.core.identity import DYNAMIC_OPERATOR_GUARD_TYPE, NATIVE_OPERATOR_GUARD_TYPE
from eurekube_provider.registrations.names import rename_properties, to_camel_case
from eurekube_provider.resources.mirror_component import EurekaMirror
from eurekube_provider.resources.operator_component.component import EurekubeOperator
from eurekube_provider.resources.syncer_component import EurekaSyncer


class NativeOperatorGuard(pulumi.CustomResource):
    """The guard of an operator, as a resource of the native provider."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        opts.aliases = [pulumi.Alias(type_=DYNAMIC_OPERATOR_GUARD_TYPE)]
        super().__init__(NATIVE_OPERATOR_GUARD_TYPE, name, rename_properties(inputs, to_camel_case), opts)


class NativeOperator(EurekubeOperator):
    """An EurekubeOperator for programs in every language."""

    TYPE = "eurekube:index:Operator"
    GUARD_CLASS: ClassVar[type[Any]] = NativeOperatorGuard
    CREATE_NAMESPACE_ARGUMENT_NAME = "createNamespace"

    def register_outputs(self, outputs: Any) -> None:
        """Register the outputs under the schema's names."""
        super().register_outputs(rename_properties(outputs, to_camel_case))


class NativeMirror(EurekaMirror):
    """A EurekaMirror for programs in every language."""

    TYPE = "eurekube:index:Mirror"


class NativeSyncer(EurekaSyncer):
    """A EurekaSyncer for programs in every language."""

    TYPE = "eurekube:index:Syncer"
