"""Namespaces that a program makes, refused where there is one: Pulumi could adopt it, and then remove it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping

import pulumi
from pulumi_kubernetes.core.v1.Namespace import Namespace
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from eurekube_provider.kube.syncer_guard import GuardedOperator, refuse_existing_namespace
from eurekube_provider.resources.operator_guard import kubeconfig_inputs
from eurekube_provider.resources.program import ConvertToProgramError, runs_without_engine

_hook_numbers = itertools.count(1)
"""Numbers that make the names of hooks unique, as the engine requires."""


def make_new_namespace(
    title: str,
    name: str,
    labels: Mapping[str, str],
    options: pulumi.ResourceOptions,
    *,
    asked_by: str,
    remedy: str,
) -> Namespace:
    """Make a namespace; before its creation, a hook asks the cluster and refuses a namespace that exists.

    :param options: the options of the resource, to which the hook is added.
    :param asked_by: the beginning of the refusal, whose end is ``remedy``.
    """
    if not runs_without_engine.get():
        provider = options.provider
        if provider is None and options.parent is not None:
            provider = options.parent.get_provider("kubernetes:core/v1:Namespace")
        refuse = _make_refusal_hook(name, provider, asked_by, remedy)
        hook = pulumi.ResourceHook(f"{asked_by}-{title}-{next(_hook_numbers)}", refuse)
        options.hooks = pulumi.ResourceHookBinding(before_create=[hook])
    return Namespace(title, metadata=ObjectMetaArgs(name=name, labels=labels), opts=options)


def _make_refusal_hook(
    namespace: str, provider: pulumi.ProviderResource | None, asked_by: str, remedy: str
) -> Callable[[pulumi.ResourceHookArgs], Awaitable[None]]:
    cluster = pulumi.Output.all(**kubeconfig_inputs(provider))

    async def refuse_if_existing(_: pulumi.ResourceHookArgs) -> None:
        operator = GuardedOperator(namespace, None, "", **dict(await cluster.future() or {}))
        with ConvertToProgramError(f"{asked_by}: "):
            await asyncio.to_thread(refuse_existing_namespace, operator, remedy)

    return refuse_if_existing
