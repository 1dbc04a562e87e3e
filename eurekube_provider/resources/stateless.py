"""A rendered stack applied and removed without an engine and without a state.

Objects are found again by the stack's label, registrations by their owner in Eureka. Registrations go
through the same functions as the dynamic provider's. Every step is idempotent: after a failure, the same
command goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import StackOwner, parse_owner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import plan
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.resources import registration
from eurekube_provider.resources.looks import SecondLooks
from eurekube_provider.resources.objects import Effect, Objects, describe, identity
from eurekube_provider.resources.properties import OnConflict
from eurekube_provider.resources.registration import Registration, Removal
from eurekube_provider.resources.render import KubernetesObject, Rendered

Report = Callable[[str], None]
"""Takes one line for a person."""

SYNCER = ("eurekube.io/v1alpha1", "EurekaSyncer")
NAMESPACE = ("v1", "Namespace")
_OTHERS = (
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "Secret"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "ServiceAccount"),
)
"""What the components make besides, in the order in which it is removed."""

DEFAULT_PATIENCE_SECONDS = 60.0


def apply_rendered(
    rendered: Rendered,
    access: KubeAccess,
    peers: Peers,
    report: Report,
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> None:
    """Make cluster and Eureka as the stack's program says, and remove what it no longer makes.

    What Eureka's list does not show yet, up to half a minute after its registration, is removed by the next
    call only.

    :raises EurekubeError: the first step that failed; what was done stays.
    """
    objects = Objects(access)
    for item in rendered.objects:
        effect = objects.apply(item)
        report(f"{effect.value} {describe(item)}")
    for properties in rendered.registrations.values():
        wanted = Registration.from_properties(properties)
        before = peers.read(*wanted.instance.key)
        after = registration.create(wanted, peers)
        effect = Effect.CREATED if before is None else Effect.UNCHANGED if before == after else Effect.CHANGED
        report(f"{effect.value} {wanted}")
    syncers, others = _left_over(rendered, objects)
    _remove_syncers(syncers, objects, report, patience_seconds)
    _remove_registrations(_forgotten(rendered, peers), peers, report)
    _remove_objects(others, objects, report, patience_seconds)


def preview_rendered(rendered: Rendered, access: KubeAccess, peers: Peers, report: Report) -> None:
    """Report what :func:`apply_rendered` would do, and change nothing.

    :raises EurekubeError: cluster or Eureka cannot be asked.
    """
    objects = Objects(access)
    for item in rendered.objects:
        report(f"{objects.preview(item).value} {describe(item)}")
    for properties in rendered.registrations.values():
        for line in _planned(Registration.from_properties(properties), peers):
            report(line)
    syncers, others = _left_over(rendered, objects)
    for item in (*syncers, *others):
        report(f"- {describe(item)}")
    for previous in _forgotten(rendered, peers):
        report(f"- {previous}")


def remove_rendered(
    rendered: Rendered,
    access: KubeAccess,
    peers: Peers,
    report: Report,
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> None:
    """Remove what the stack made: syncers, registrations, then the rest. CRDs are kept, as by the component.

    :param patience_seconds: how long the operator may take to serve the syncers' finalizers.
    :raises KubernetesError: a syncer does not go; nothing else was removed then, and the operator is kept.
    :raises EurekubeError: another step failed.
    """
    objects = Objects(access)
    nothing = replace(rendered, objects=[], registrations={})
    syncers, others = _left_over(nothing, objects, rendered.objects)
    _remove_syncers(syncers, objects, report, patience_seconds)
    ours = {
        previous.instance.key: previous
        for previous in (
            *_forgotten(nothing, peers),
            # These are known without Eureka's list, which may be half a minute old.
            *(Registration.from_properties(properties) for properties in rendered.registrations.values()),
        )
    }
    _remove_registrations(ours.values(), peers, report)
    _remove_objects(others, objects, report, patience_seconds)


def _left_over(
    rendered: Rendered, objects: Objects, also: Iterable[KubernetesObject] = ()
) -> tuple[list[KubernetesObject], list[KubernetesObject]]:
    """What has the stack's label and is not rendered: syncers, and the rest in the order of removal."""
    kept = {identity(item) for item in rendered.objects}
    named = {(item["apiVersion"], item["kind"]) for item in (*rendered.objects, *also)}
    unusual = sorted(named - {SYNCER, NAMESPACE, *_OTHERS, ("apiextensions.k8s.io/v1", _CRD)})

    def left(kinds: Iterable[tuple[str, str]]) -> list[KubernetesObject]:
        return [item for item in objects.of_stack(rendered.label, kinds) if identity(item) not in kept]

    return left([SYNCER]), left([*unusual, *_OTHERS, NAMESPACE])


_CRD = "CustomResourceDefinition"


def _forgotten(rendered: Rendered, peers: Peers) -> list[Registration]:
    """The stack's registrations in Eureka that are not rendered, as far as its list knows them."""
    kept = {
        Registration.from_properties(properties).instance.key
        for properties in rendered.registrations.values()
    }
    return [
        _as_registration(instance, rendered)
        for instance in peers.list_instances()
        if instance.key not in kept and _is_of(rendered, instance)
    ]


def _is_of(rendered: Rendered, instance: Instance) -> bool:
    owner = parse_owner(instance.owner)
    return isinstance(owner, StackOwner) and owner == rendered.owner(owner.name)


def _as_registration(instance: Instance, rendered: Rendered) -> Registration:
    return Registration(
        instance=instance,
        owner=instance.owner or "",
        service_urls=rendered.connection.service_urls,
        status=None,
        on_conflict=OnConflict.FAIL,
        drain_seconds=0,
    )


def _planned(wanted: Registration, peers: Peers) -> list[str]:
    have = peers.read(*wanted.instance.key)
    if have is None:
        return [change.describe() for change in plan([wanted.instance], [], wanted.owner).changes]
    want = wanted.instance if wanted.status is not None else replace(wanted.instance, status=have.status)
    owner = wanted.owner
    if wanted.on_conflict is OnConflict.ADOPT and have.owner is not None:
        owner = have.owner
    planned = plan([want], [have], owner)
    lines = [change.describe() for change in planned.changes]
    lines += [f"! {refusal.describe()}" for refusal in planned.refusals]
    return lines or [f"{Effect.UNCHANGED.value} {wanted}"]


def _remove_syncers(
    syncers: list[KubernetesObject], objects: Objects, report: Report, patience_seconds: float
) -> None:
    """Delete the syncers and wait for the operator, which first deregisters what they brought."""
    for item in syncers:
        objects.delete(item)
    stuck = _wait_until_gone(syncers, objects, report, patience_seconds)
    if stuck:
        names = ", ".join(describe(item) for item in stuck)
        raise KubernetesError(
            f"{names}: still there after {patience_seconds:.0f} s, since no operator serves the finalizer;"
            " start the operator and try again (or remove the finalizer by hand: what the syncer registered"
            " then stays in Eureka until it lapses)"
        )


def _remove_registrations(ours: Iterable[Registration], peers: Peers, report: Report) -> None:
    looks = SecondLooks()
    for previous in ours:
        removal = registration.delete(previous, peers, looks=looks)
        if removal is Removal.REMOVED:
            report(f"- {previous}")
        elif removal is Removal.LEFT:
            report(f"! {previous} belongs to somebody else by now and was left as it is")
    looks.finish()


def _remove_objects(
    others: list[KubernetesObject], objects: Objects, report: Report, patience_seconds: float
) -> None:
    for item in others:
        objects.delete(item)
    for item in _wait_until_gone(others, objects, report, patience_seconds):
        report(f"- {describe(item)} (still being removed by the cluster)")


def _wait_until_gone(
    items: list[KubernetesObject], objects: Objects, report: Report, patience_seconds: float
) -> list[KubernetesObject]:
    """Report each as it goes.

    :returns: those that are still there after ``patience_seconds``.
    """
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
