"""The CRDs that an operator brings: kept with every syncer, or owned, and how those of former states go on.

Up to 0.1.0 their resources were named by the CRD alone. A state has such a one once below each type of parent
and does not say of which component it is. The engine refuses two that claim it.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pulumi
from pulumi.resource import DependencyResource
from pulumi.runtime import get_root_resource
from pulumi_kubernetes.apiextensions.v1.CustomResourceDefinition import CustomResourceDefinition
from pulumi_kubernetes.apiextensions.v1.CustomResourceDefinitionPatch import CustomResourceDefinitionPatch

from eurekube_provider.resources.files import crd_documents

_CLAIMED: WeakKeyDictionary[pulumi.Resource, dict[tuple[str, str, bool], pulumi.Output[str]]] = (
    WeakKeyDictionary()
)
"""By the stack of a run: the type of parent, the CRD and whether it is kept, and the URN of who claims it."""


def operator_crds(
    name: str, component: pulumi.Resource, parent: pulumi.Resource | None, *, keep: bool
) -> list[pulumi.Resource]:
    """The CRDs of a component.

    :param parent: the component's; None for the stack.
    :param keep: True if they outlive the component. One that is kept must be taken over again by the next
        stack, which only a patch does.
    """
    stack = get_root_resource()
    # Of a parent in another process only the URN is known; no former state has a component below it.
    is_known = parent is not None and parent is not stack and not isinstance(parent, DependencyResource)
    below = parent.pulumi_resource_type if parent is not None and is_known else ""
    claims = _CLAIMED.setdefault(stack or component, {})
    made: list[pulumi.Resource] = []
    for document in crd_documents():
        crd: str = document["metadata"]["name"]
        metadata: Any = document["metadata"]
        place = below, crd, keep
        opts = pulumi.ResourceOptions(parent=component, aliases=_aliases(crd, claims.get(place), keep=keep))
        one: pulumi.Resource
        if keep:
            opts.retain_on_delete = True
            forced: Any = {**metadata, "annotations": {"pulumi.com/patchForce": "true"}}
            one = CustomResourceDefinitionPatch(
                f"{name}-{crd}", metadata=forced, spec=document["spec"], opts=opts
            )
        else:
            one = CustomResourceDefinition(
                f"{name}-{crd}", metadata=metadata, spec=document["spec"], opts=opts
            )
        claims.setdefault(place, one.urn)
        made.append(one)
    return made


def _aliases(
    crd: str, claimed: pulumi.Output[str] | None, *, keep: bool
) -> list[pulumi.Input[str | pulumi.Alias]]:
    """Return the aliases by which this resource is a former one.

    The program's first component claims it. If it was another's, a kept one loses nothing: its patch goes on
    below the first, or is forgotten without a change, and the other patches the CRD again. An owned one would
    be removed, and every syncer with it. So all claim it, the first one first, and the engine refuses what is
    not clear.

    :param claimed: the URN of the first resource that claims it; None for none.
    """
    former = pulumi.Alias(name=crd)
    if claimed is None:
        return [former]
    return [] if keep else [claimed.apply(lambda _: former)]
