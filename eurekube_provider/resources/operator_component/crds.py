"""The CRDs that an operator's component makes, kept or owned, and their aliases for states of older releases.

Up to 0.1.0 a CRD's resource was named by the CRD alone. An old state has one such resource below each type of
parent, and does not say to which component it belongs. The engine refuses two resources with an alias for it.
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

_URN_BY_CLAIMED_ALIAS: WeakKeyDictionary[pulumi.Resource, dict[tuple[str, str, bool], pulumi.Output[str]]] = (
    WeakKeyDictionary()
)
"""By the stack of a run, per type of parent, CRD and ``keep``: the URN of what has its alias."""


def make_operator_crds(
    name: str, component: pulumi.Resource, parent: pulumi.Resource | None, *, keep: bool
) -> list[pulumi.Resource]:
    """Make the CRDs of a component below ``parent``. A kept one outlives it: another stack may patch it."""
    stack = get_root_resource()
    # Of a parent in another process only the URN is known; no former state has a component below it.
    is_known = parent is not None and parent is not stack and not isinstance(parent, DependencyResource)
    below = parent.pulumi_resource_type if parent is not None and is_known else ""
    claims = _URN_BY_CLAIMED_ALIAS.setdefault(stack or component, {})
    made: list[pulumi.Resource] = []
    for document in crd_documents():
        crd: str = document["metadata"]["name"]
        metadata: Any = document["metadata"]
        place = below, crd, keep
        opts = pulumi.ResourceOptions(
            parent=component, aliases=_crd_aliases(crd, claims.get(place), keep=keep)
        )
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


def _crd_aliases(
    crd: str, claimed: pulumi.Output[str] | None, *, keep: bool
) -> list[pulumi.Input[str | pulumi.Alias]]:
    """Return the aliases by which a CRD's resource continues the one of an old state.

    The program's first component claims the old resource. A kept CRD loses nothing if the old resource was
    another component's: its patch continues below the first component, or is forgotten without a change, and
    the other component patches the CRD again. An owned CRD would be removed, and every syncer with it. So all
    components claim an owned CRD, the first one first, and the engine refuses an ambiguous claim.

    :param claimed: the URN of the first resource that claims the old one; None if none does yet.
    """
    former = pulumi.Alias(name=crd)
    if claimed is None:
        return [former]
    return [] if keep else [claimed.apply(lambda _: former)]
