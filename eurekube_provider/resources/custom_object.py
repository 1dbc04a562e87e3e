"""The common part of the components EurekaSyncer and EurekaMirror, which each make one custom resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi_kubernetes.apiextensions.CustomResource import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from eurekube_provider.resources.arguments import args_or_keywords, as_arguments, as_dictionary
from eurekube_provider.resources.labels import object_labels
from eurekube_provider.resources.operator_component.pod_arguments import (
    check_text_map,
    refuse_reserved_labels,
    without_none,
)
from eurekube_provider.resources.program import (
    ConvertToProgramError,
    Options,
    refuse_aliases_of_native_component,
)

TextInput = pulumi.Input[str]

_ARGUMENTS_NOT_IN_SPEC = frozenset({"namespace", "name", "annotations", "labels", "wait_ready_seconds"})


def spec_arguments(args: Any) -> dict[str, Any]:
    """Return the given arguments that belong into the ``spec`` of the object."""
    given = without_none(as_dictionary(args))
    return {name: value for name, value in given.items() if name not in _ARGUMENTS_NOT_IN_SPEC}


class CustomObject(pulumi.ComponentResource):
    """A component that makes one EurekaSyncer or EurekaMirror.

    :ivar KIND: the kind of the custom resource, which is also the name of the Python component.
    :ivar ARGS: the class of the component's arguments.
    """

    TYPE: ClassVar[str]
    KIND: ClassVar[str]
    ARGS: ClassVar[type[Any]]

    name: pulumi.Output[str]
    namespace: pulumi.Output[str]

    @classmethod
    def _read_arguments(cls, name: str, args: Any, keywords: Mapping[str, Any]) -> Any:
        """Return arguments, given as class, dictionary or keywords, as the class, or raise ProgramError."""
        with ConvertToProgramError(f"{cls.KIND} {name!r}: "):
            read = as_arguments(cls.ARGS, args_or_keywords(args, keywords))
            check_text_map("annotations", read.annotations)
            check_text_map("labels", read.labels)
            refuse_reserved_labels("labels", read.labels)
        return read

    def _make_object(
        self,
        name: str,
        args: Any,
        spec: Mapping[str, Any],
        opts: Options,
        annotations: Mapping[str, str] | None = None,
        timeouts: pulumi.CustomTimeouts | None = None,
    ) -> None:
        """Register the component, its custom resource and its outputs.

        :param name: the component's name, and the object's where ``args`` gives none.
        :param annotations: further annotations, beside those of ``args``.
        :raises ProgramError: an alias names a component of the native provider.
        """
        refuse_aliases_of_native_component(self.TYPE, name, opts)
        super().__init__(self.TYPE, name, None, opts)
        CustomResource(
            name,
            api_version="eurekube.io/v1alpha1",
            kind=self.KIND,
            metadata=ObjectMetaArgs(
                name=args.name or name,
                namespace=args.namespace,
                labels={
                    **without_none(args.labels),
                    **object_labels(self.KIND.removeprefix("Eureka").lower(), name),
                },
                annotations={**without_none(args.annotations), **(annotations or {})} or None,
            ),
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self, custom_timeouts=timeouts),
        )
        self.name = pulumi.Output.from_input(args.name or name)
        self.namespace = pulumi.Output.from_input(args.namespace)
        self.register_outputs({"name": self.name, "namespace": self.namespace})
