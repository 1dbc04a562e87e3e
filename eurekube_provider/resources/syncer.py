"""The component EurekaSyncer: asks the operator to keep a Service's endpoints in Eureka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.apiextensions.CustomResource import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from eurekube_provider.resources.labels import object_labels


@dataclass(kw_only=True, slots=True)
class EurekaSyncerArgs:
    """What an EurekaSyncer is made from.

    :ivar namespace: where the syncer lives.
    :ivar app: the label ``app`` of the Service, or its name; also the application in Eureka.
    :ivar mode: ``pod``: each endpoint becomes an instance. ``service``: the Service becomes one.
    :ivar selector_namespace: the Service's namespace; default the syncer's own. Another one only where the
        operator's configuration allows it.
    :ivar name: the object's name; default the resource's name.
    """

    namespace: pulumi.Input[str]
    app: pulumi.Input[str]
    mode: pulumi.Input[Literal["pod", "service"]] | pulumi.Input[str] = "pod"
    selector_namespace: pulumi.Input[str] | None = None
    name: pulumi.Input[str] | None = None


class EurekaSyncer(pulumi.ComponentResource):
    """A syncer of the cluster.

    Give it ``depends_on=[operator]``: the operator serves its finalizer, so that the syncer must go first.
    """

    name: pulumi.Output[str]
    namespace: pulumi.Output[str]

    def __init__(self, name: str, args: EurekaSyncerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eurekube:index:EurekaSyncer", name, None, opts)
        selector: dict[str, Any] = {"app": args.app}
        if args.selector_namespace is not None:
            selector["namespace"] = args.selector_namespace
        self.name = pulumi.Output.from_input(args.name or name)
        self.namespace = pulumi.Output.from_input(args.namespace)
        CustomResource(
            name,
            api_version="eurekube.io/v1alpha1",
            kind="EurekaSyncer",
            metadata=ObjectMetaArgs(
                name=args.name or name, namespace=args.namespace, labels=object_labels("syncer", name)
            ),
            spec={"mode": args.mode, "selector": selector},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"name": self.name, "namespace": self.namespace})
