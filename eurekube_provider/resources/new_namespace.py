"""Namespaces that a program makes, refused where the cluster already has one of that name.

Pulumi's Kubernetes plugin could adopt an existing namespace, and would then remove it with everything in it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping

import pulumi
from pulumi_kubernetes.core.v1.Namespace import Namespace
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from eurekube_provider.kube.syncer_guard import GuardedOperator, refuse_taken_namespace
from eurekube_provider.resources.operator_guard import cluster_inputs
from eurekube_provider.resources.program import AsProgramError, is_rendered

_hooks = itertools.count(1)
"""Numbers that make the names of hooks unique, as the engine requires."""


def new_namespace(
    title: str,
    name: str,
    labels: Mapping[str, str],
    options: pulumi.ResourceOptions,
    *,
    asked_by: str,
    way_out: str,
) -> Namespace:
    """Return a new namespace; before its creation, a hook asks the cluster and refuses an existing one.

    :param options: the options of the resource, to which the hook is added.
    :param asked_by: the beginning of the refusal.
    :param way_out: the remedy where others made the namespace.
    """
    if not is_rendered.get():
        provider = options.provider
        if provider is None and options.parent is not None:
            provider = options.parent.get_provider("kubernetes:core/v1:Namespace")
        refuse = _refusal(name, provider, asked_by, way_out)
        hook = pulumi.ResourceHook(f"{asked_by}-{title}-{next(_hooks)}", refuse)
        options.hooks = pulumi.ResourceHookBinding(before_create=[hook])
    return Namespace(title, metadata=ObjectMetaArgs(name=name, labels=labels), opts=options)


def _refusal(
    namespace: str, provider: pulumi.ProviderResource | None, asked_by: str, way_out: str
) -> Callable[[pulumi.ResourceHookArgs], Awaitable[None]]:
    cluster = pulumi.Output.all(**cluster_inputs(provider))

    async def refuse_taken(_: pulumi.ResourceHookArgs) -> None:
        operator = GuardedOperator(namespace, None, "", **dict(await cluster.future() or {}))
        with AsProgramError(f"{asked_by}: "):
            await asyncio.to_thread(refuse_taken_namespace, operator, way_out)

    return refuse_taken
