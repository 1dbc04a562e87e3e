"""Applying and removing a rendered stack without an engine and without a state.

Objects are found again by the stack's label, registrations by their owner in Eureka. Registrations use the
same functions as the dynamic provider. Every step is idempotent: after a failure, the same command goes on
where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.stateless.render import Rendered
from eurekube_provider.stateless.secret_masks import KubernetesObject
from eurekube_provider.stateless.server_side_apply import Effect, Objects, describe, identity
from eurekube_provider.stateless.stack_registrations import Report, StackRegistrations

SYNCER = ("eurekube.io/v1alpha1", "EurekaSyncer")
MIRROR = ("eurekube.io/v1alpha1", "EurekaMirror")
NAMESPACE = ("v1", "Namespace")
_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_OTHERS = (
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "Secret"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "ServiceAccount"),
)
"""Further kinds of objects that the components make, in the order of their removal."""

DEFAULT_PATIENCE_SECONDS = 60.0


def apply_rendered(rendered: Rendered, access: KubeAccess | None, report: Report) -> None:
    """Write the stack's objects and registrations, and remove those that its program no longer has.

    :param access: the cluster; None for a stack without objects.
    :raises EurekubeError: the error of the first step that failed; finished steps stay.
    """
    registries = StackRegistrations(rendered, report)
    if access is None:
        registries.register()
        registries.remove_forgotten()
        return
    objects = Objects(access)
    for item in rendered.objects:
        report(_line(objects.apply(item), item))
    registries.register()
    syncers, others = _left_over(rendered, objects)
    _remove_syncers(syncers, objects, report, DEFAULT_PATIENCE_SECONDS)
    registries.remove_forgotten()
    _remove_objects(others, objects, report, DEFAULT_PATIENCE_SECONDS)


def preview_rendered(rendered: Rendered, access: KubeAccess | None, report: Report) -> None:
    """Report the changes that :func:`apply_rendered` would make, and make none.

    :raises EurekubeError: cluster or Eureka cannot be asked.
    """
    registries = StackRegistrations(rendered, report)
    if access is None:
        registries.preview()
        return
    objects = Objects(access)
    for item in rendered.objects:
        report(_line(objects.preview(item), item))
    registries.preview()
    syncers, others = _left_over(rendered, objects)
    for item in (*syncers, *others):
        report(f"- {describe(item)}")


def remove_rendered(
    rendered: Rendered,
    access: KubeAccess | None,
    report: Report,
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> None:
    """Remove a stack: its syncers, its registrations, then its other objects. CRDs are kept, as by the
    component.

    :param patience_seconds: how long the operator may take to serve the syncers' finalizers.
    :raises KubernetesError: a syncer could not be deleted; nothing else was removed, and the operator is
        kept.
    :raises EurekubeError: another step failed.
    """
    registries = StackRegistrations(rendered, report)
    if access is None:
        registries.remove_all()
        return
    objects = Objects(access)
    syncers, others = _left_over(replace(rendered, objects=[]), objects, rendered.objects)
    _remove_syncers(syncers, objects, report, patience_seconds)
    registries.remove_all()
    _remove_objects(others, objects, report, patience_seconds)


def _line(effect: Effect, item: KubernetesObject) -> str:
    left = " is there already, of somebody else, and is left as it is" if effect is Effect.LEFT else ""
    return f"{effect.value} {describe(item)}{left}"


def _left_over(
    rendered: Rendered, objects: Objects, also: Iterable[KubernetesObject] = ()
) -> tuple[list[KubernetesObject], list[KubernetesObject]]:
    """Return the objects that have the stack's label and are not rendered: syncers and mirrors, then the
    rest in the order of removal.
    """
    kept = {identity(item) for item in rendered.objects}
    named = {(item["apiVersion"], item["kind"]) for item in (*rendered.objects, *also)}
    unusual = sorted(named - {SYNCER, MIRROR, NAMESPACE, _CRD, *_OTHERS})

    def left(kinds: Iterable[tuple[str, str]]) -> list[KubernetesObject]:
        return [item for item in objects.of_stack(rendered.label, kinds) if identity(item) not in kept]

    return left([SYNCER, MIRROR]), left([*unusual, *_OTHERS, NAMESPACE])


def _remove_syncers(
    syncers: list[KubernetesObject], objects: Objects, report: Report, patience_seconds: float
) -> None:
    """Delete the syncers, and wait until the operator has deregistered their instances."""
    stuck = _delete(syncers, objects, report, patience_seconds)
    if stuck:
        names = ", ".join(describe(item) for item in stuck)
        raise KubernetesError(
            f"{names}: still there after {patience_seconds:.0f} s, since no operator serves the finalizer;"
            " start the operator and try again; without one, `eurekube operator --once` takes out of Eureka"
            " what they registered and lets them go (a finalizer that is removed by hand leaves it there"
            " until it lapses)"
        )


def _remove_objects(
    others: list[KubernetesObject], objects: Objects, report: Report, patience_seconds: float
) -> None:
    for item in _delete(others, objects, report, patience_seconds):
        report(f"- {describe(item)} (still being removed by the cluster)")


def _delete(
    items: list[KubernetesObject], objects: Objects, report: Report, patience_seconds: float
) -> list[KubernetesObject]:
    """Delete objects, and report each that is gone; return those that still exist after
    ``patience_seconds``.
    """
    for item in items:
        objects.delete(item)
    deadline = time.monotonic() + patience_seconds
    left = list(items)
    while left:
        for item in [each for each in left if objects.is_gone(each)]:
            report(f"- {describe(item)}")
            left.remove(item)
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(0.2)
    return left
