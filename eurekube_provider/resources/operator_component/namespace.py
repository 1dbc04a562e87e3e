"""The operator's namespace: made by the component, or an existing one that is read."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
from pulumi_kubernetes.core.v1.Namespace import Namespace

from eurekube_provider.resources.new_namespace import make_new_namespace
from eurekube_provider.resources.operator_component.operator_arguments import EurekubeOperatorArgs


def make_or_read_namespace(
    title: str,
    args: EurekubeOperatorArgs,
    labels: Mapping[str, str],
    parent: pulumi.Resource,
    *,
    asked_by: str,
    argument: str,
) -> Namespace:
    """Return the namespace as a child of the component.

    An existing namespace is read under the same resource name: a namespace that this component made before
    then leaves the state without being removed.

    :param asked_by: the component, as programs name it.
    :param argument: `create_namespace`, as programs name it.
    """
    options = pulumi.ResourceOptions(parent=parent)
    if not args.create_namespace:
        return Namespace.get(title, args.namespace, opts=options)
    return make_new_namespace(
        title,
        args.namespace,
        {**labels, "pod-security.kubernetes.io/enforce": "restricted"},
        options,
        asked_by=asked_by,
        remedy=f"set {argument} to false for one that others made, which then stays on destroy",
    )
