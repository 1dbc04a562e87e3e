"""Applying and removing a rendered stack without an engine and without a state.

Objects are found again by the stack's label, registrations by their owner in Eureka. Every step is
idempotent: after a failure, the same command goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.resources.labels import stack_label_value
from eurekube_provider.stateless.render import API_VERSION_BY_KIND, RenderedStack
from eurekube_provider.stateless.secret_masks import KubernetesObject
from eurekube_provider.stateless.server_side_apply import (
    ApplyEffect,
    ClusterObjects,
    describe_object,
    object_identity,
)
from eurekube_provider.stateless.stack_registrations import LineReporter, RenderedRegistrations

_SERVED_BY_OPERATOR = [("eurekube.io/v1alpha1", "EurekaSyncer"), ("eurekube.io/v1alpha1", "EurekaMirror")]
_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_OTHERS_IN_REMOVAL_ORDER = [
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
    ("policy/v1", "PodDisruptionBudget"),
    *((version, kind) for kind, version in reversed(API_VERSION_BY_KIND.items()) if kind != _CRD[1]),
]
"""Further kinds of objects that the components make, as apiVersion and kind."""

DEFAULT_REMOVAL_WAIT_SECONDS = 60.0


def apply_rendered(rendered: RenderedStack, access: KubeAccess | None, report: LineReporter) -> None:
    """Write the stack's objects and registrations, and remove those that its program no longer has.

    :param access: the cluster; None for a stack without objects.
    :raises EurekubeError: the error of the first step that failed; finished steps stay.
    """
    registries = RenderedRegistrations(rendered, report)
    if access is None:
        registries.register()
        registries.remove_unrendered()
        return
    objects = ClusterObjects(access)
    for item in rendered.objects:
        report(_format_effect(objects.apply(item), item))
    registries.register()
    unrendered = _find_unrendered(rendered, objects)
    _remove_in_order(*unrendered, registries.remove_unrendered, objects, report, DEFAULT_REMOVAL_WAIT_SECONDS)


def preview_rendered(rendered: RenderedStack, access: KubeAccess | None, report: LineReporter) -> None:
    """Report the changes that :func:`apply_rendered` would make; raise EurekubeError where nobody answers."""
    registries = RenderedRegistrations(rendered, report)
    if access is None:
        registries.preview()
        return
    objects = ClusterObjects(access)
    for item in rendered.objects:
        report(_format_effect(objects.preview(item), item))
    registries.preview()
    syncers, others = _find_unrendered(rendered, objects)
    for item in (*syncers, *others):
        report(f"- {describe_object(item)}")


def remove_rendered(
    rendered: RenderedStack,
    access: KubeAccess | None,
    report: LineReporter,
    patience_seconds: float = DEFAULT_REMOVAL_WAIT_SECONDS,
) -> None:
    """Remove a stack: its syncers, its registrations, then its other objects, but for CRDs.

    :param patience_seconds: how long the operator may take to serve the syncers' finalizers.
    :raises KubernetesError: a syncer could not be deleted; nothing else was removed.
    :raises EurekubeError: another step failed.
    """
    registries = RenderedRegistrations(rendered, report)
    if access is None:
        registries.remove_all()
        return
    objects = ClusterObjects(access)
    unrendered = _find_unrendered(replace(rendered, objects=[]), objects, rendered.objects)
    _remove_in_order(*unrendered, registries.remove_all, objects, report, patience_seconds)


def _format_effect(effect: ApplyEffect, item: KubernetesObject) -> str:
    said = f"{effect.value} {describe_object(item)}"
    is_foreign = effect is ApplyEffect.NOT_OWNED
    return f"{said} is there already, of somebody else, and is left as it is" if is_foreign else said


def _find_unrendered(
    rendered: RenderedStack, objects: ClusterObjects, more_objects: Iterable[KubernetesObject] = ()
) -> tuple[list[KubernetesObject], list[KubernetesObject]]:
    """Return the cluster's objects with the stack's label that are not rendered: syncers and mirrors, then
    the rest in the order of removal; also of the kinds of ``more_objects``.
    """
    kept = {object_identity(item) for item in rendered.objects}
    named = {(item["apiVersion"], item["kind"]) for item in (*rendered.objects, *more_objects)}
    unusual = sorted(named - {*_SERVED_BY_OPERATOR, _CRD, *_OTHERS_IN_REMOVAL_ORDER})
    label = stack_label_value(rendered.project, rendered.stack)

    def unrendered_of_kinds(kinds: Iterable[tuple[str, str]]) -> list[KubernetesObject]:
        return [
            item for item in objects.list_objects_of_stack(label, kinds) if object_identity(item) not in kept
        ]

    others = unrendered_of_kinds([*unusual, *_OTHERS_IN_REMOVAL_ORDER])
    return unrendered_of_kinds(_SERVED_BY_OPERATOR), others


def _remove_in_order(
    syncers: list[KubernetesObject],
    others: list[KubernetesObject],
    remove_registrations: Callable[[], None],
    objects: ClusterObjects,
    report: LineReporter,
    patience_seconds: float,
) -> None:
    """Delete syncers, and wait until the operator has deregistered their instances; then remove the rest."""
    stuck = _delete_and_wait(syncers, objects, report, patience_seconds)
    if stuck:
        names = ", ".join(describe_object(item) for item in stuck)
        raise KubernetesError(
            f"{names}: still there after {patience_seconds:.0f} s, since no operator serves the finalizer; "
            "start the operator and try again; without one, `eurekube operator --once` takes out of Eureka "
            "what they registered and lets them go (a finalizer that is removed by hand leaves it there "
            "until it lapses)"
        )
    remove_registrations()
    for item in _delete_and_wait(others, objects, report, patience_seconds):
        report(f"- {describe_object(item)} (still being removed by the cluster)")


def _delete_and_wait(
    items: list[KubernetesObject], objects: ClusterObjects, report: LineReporter, patience_seconds: float
) -> list[KubernetesObject]:
    """Delete objects, and report each that is gone; return what is left after ``patience_seconds``."""
    for item in items:
        objects.delete(item)
    deadline = time.monotonic() + patience_seconds
    left = list(items)
    while left:
        for item in [each for each in left if objects.is_gone(each)]:
            report(f"- {describe_object(item)}")
            left.remove(item)
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(0.2)
    return left
