"""Namespaces that a program makes, and that are refused where one of that name is there already.

Pulumi's Kubernetes plugin may take such a one over, and then removes it with all that others have in it.
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
"""Part of the hooks' names, of which the engine takes each once."""


def new_namespace(
    title: str,
    name: str,
    labels: Mapping[str, str],
    options: pulumi.ResourceOptions,
    *,
    asked_by: str,
    way_out: str,
) -> Namespace:
    """Return a namespace; the engine asks the cluster before it is made, and not where the state has it.

    :param options: of the resource; the hook is added to them.
    :param asked_by: the beginning of the refusal.
    :param way_out: the remedy where others made it.
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
