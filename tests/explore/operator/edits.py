"""Changes to a cluster that are explored while its operator works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.explore.operator.rules import CLUSTER
from tests.explore.operator.workloads import APP, NAMESPACES, Workloads

Step = Callable[[Workloads], None]


def NOTHING(_: Workloads) -> None:  # noqa: N802 - a constant
    """A step that adds no object."""


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """One change of a cluster, in steps.

    :param steps: each with the seconds that pass before it.
    :param spec: of the syncer that exists before.
    :param begin: the objects that exist before, besides or instead of three pods and their syncer.
    :param is_braked: True if something leaves that was not seen terminating, and may stay for a minute.
    :param keeps: pods that serve throughout, though the cluster does not say so for a while.
    :param names_another: True if there is a second Eureka, called ``other``.
    :param unobserved: True if the watches report the end only, not the states in between.
    :param is_gated: True if the operator serves readiness gates, and kubelets see them open.
    :param parts: names and starting seconds of the edits that are combined in this one.
    """

    name: str
    steps: tuple[tuple[float, Step], ...]
    spec: Mapping[str, Any] = field(default_factory=dict)
    begin: Step = NOTHING
    is_braked: bool = False
    keeps: tuple[str, ...] = ()
    unobserved: bool = False
    names_another: bool = False
    is_gated: bool = False
    parts: tuple[tuple[str, float], ...] = ()


def _pod(name: str, *, ready: bool = True, terminating: bool = False) -> Step:
    return lambda workloads: workloads.pod(name, ready=ready, terminating=terminating)


def _gone(*names: str) -> Step:
    return lambda workloads: workloads.no_pod(*names)


def _syncer(name: str = APP, **spec: Any) -> Step:
    return lambda workloads: workloads.syncer(name, **spec)


def _several(*steps: Step) -> Step:
    def all_of_them(workloads: Workloads) -> None:
        for step in steps:
            step(workloads)

    return all_of_them


def _named(name: str) -> Step:
    return lambda workloads: workloads.name_cluster(name)


def _annotated(name: str = APP, **annotations: str) -> Step:
    return lambda workloads: workloads.annotate_service(name, **annotations)


def _namespaces(services: str = "All", **spec: Any) -> Step:
    """In place of the syncer of the Service alone."""
    return _several(
        lambda workloads: workloads.no_syncer(),
        lambda workloads: workloads.namespace_syncer(services, **spec),
    )


def _gated(name: str) -> Step:
    return lambda workloads: workloads.gated_pod(name)


def _replaced(old: str, new: str) -> Step:
    """End a pod as a Deployment does, if the next one is ready."""

    def ended(workloads: Workloads) -> None:
        if workloads.pods[new].is_open:
            workloads.pod(old, terminating=True)

    return ended


_GATE: dict[str, Any] = {"readinessGate": {"callersSeconds": 8}}
_ROLLED = (
    (0.0, _gated("b-0")),
    (14.0, _replaced("a-0", "b-0")),
    (0.5, _gated("b-1")),
    (14.0, _replaced("a-1", "b-1")),
)

_LEAVES = ((0.0, _pod("a-2", terminating=True)), (4.0, _gone("a-2")))

EDITS = (
    Edit("nothing changes", ()),
    Edit("a syncer is created", ((0.0, _syncer()),), begin=lambda workloads: workloads.no_syncer()),
    Edit("scaled up", ((0.0, _pod("a-3", ready=False)), (2.0, _pod("a-3")))),
    Edit("scaled down", _LEAVES),
    Edit(
        "ready just before it goes",
        ((0.0, _pod("a-3")), (0.4, _pod("a-3", terminating=True)), (1.0, _gone("a-3"))),
    ),
    Edit("scaled down, shown until it is gone", _LEAVES, spec={"onTermination": "OutOfService"}),
    Edit(
        "rolling update",
        (
            (0.0, _pod("b-0", ready=False)),
            (1.0, _pod("b-0")),
            (0.2, _pod("a-0", terminating=True)),
            (1.0, _pod("b-1")),
            (0.1, _pod("a-1", terminating=True)),
            (0.5, _gone("a-0", "a-1")),
        ),
    ),
    Edit(
        "all pods are replaced",
        (
            (0.0, _pod("b-0")),
            (0.2, _pod("b-1")),
            *((3.0, _pod(name, terminating=True)) for name in ("a-0", "a-1", "a-2")),
            (0.5, _gone("a-0", "a-1", "a-2")),
        ),
    ),
    Edit(
        "a StatefulSet's pod is replaced",
        (
            (0.0, _pod("a-2", terminating=True)),
            (2.0, _gone("a-2")),
            (0.5, _pod("a-2", ready=False)),
            (2.0, _pod("a-2")),
        ),
    ),
    Edit(
        "a StatefulSet's pod is replaced, shown until it is gone",
        (
            (0.0, _pod("a-2", terminating=True)),
            (2.0, _gone("a-2")),
            (0.5, _pod("a-2", ready=False)),
            (2.0, _pod("a-2")),
        ),
        spec={"onTermination": "OutOfService"},
    ),
    Edit(
        "a StatefulSet's pod is replaced in one event, shown until it is gone",
        (
            (0.0, _pod("a-2", terminating=True)),
            (2.0, _several(_gone("a-2"), _pod("a-2", ready=False))),
            (1.0, _pod("a-2")),
        ),
        spec={"onTermination": "OutOfService"},
    ),
    Edit(
        "a StatefulSet's pod is replaced at once, shown until it is gone",
        (
            (0.0, _pod("a-2", terminating=True)),
            (0.05, _gone("a-2")),
            (0.1, _pod("a-2", ready=False)),
            (0.5, _pod("a-2")),
        ),
        spec={"onTermination": "OutOfService"},
    ),
    Edit(
        "a StatefulSet's pod is replaced at once after a while, shown until it is gone",
        (
            (0.0, _pod("a-2", terminating=True)),
            (9.5, _gone("a-2")),
            (0.1, _pod("a-2", ready=False)),
            (0.1, _pod("a-2")),
        ),
        spec={"onTermination": "OutOfService"},
    ),
    Edit("not ready for a while", ((0.0, _pod("a-1", ready=False)), (3.0, _pod("a-1")))),
    Edit(
        "not ready for a while, and removed",
        ((0.0, _pod("a-1", ready=False)), (3.0, _pod("a-1"))),
        spec={"notReady": "Remove"},
    ),
    Edit("gone without being seen terminating", ((0.0, _gone("a-1")),), is_braked=True),
    Edit(
        "a node is lost",
        ((0.0, _several(_pod("a-0", ready=False), _pod("a-1", ready=False))), (6.0, _gone("a-0", "a-1"))),
        is_braked=True,
    ),
    Edit(
        "all endpoints vanish and come back",
        (
            (0.0, lambda workloads: workloads.no_service()),
            (20.0, lambda workloads: workloads.service()),
        ),
        is_braked=True,
        keeps=("a-0", "a-1", "a-2"),
    ),
    Edit("the Service is deleted", ((0.0, lambda workloads: workloads.no_service()),), is_braked=True),
    Edit(
        "the Service is renamed",
        (
            (0.0, lambda workloads: workloads.service("stars", app=APP)),
            (1.0, lambda workloads: workloads.no_service()),
        ),
    ),
    Edit(
        "gone and back, unobserved",
        ((0.0, _gone("a-1")), (0.5, _pod("a-1"))),
        unobserved=True,
    ),
    Edit(
        "ended and replaced, unobserved",
        ((0.0, _pod("a-1", terminating=True)), (0.5, _gone("a-1")), (0.5, _pod("a-1"))),
        unobserved=True,
    ),
    Edit("the slice is replaced", ((0.0, lambda workloads: workloads.another_slice()),)),
    Edit(
        "the slice is replaced, unobserved",
        ((0.0, lambda workloads: workloads.another_slice()),),
        unobserved=True,
    ),
    Edit("a syncer is deleted", ((0.0, lambda workloads: workloads.no_syncer()),)),
    Edit(
        "a syncer is deleted and created again",
        ((0.0, lambda workloads: workloads.no_syncer()), (3.0, _syncer())),
    ),
    Edit(
        "a syncer is renamed",
        ((0.0, _syncer("stars")), (2.0, lambda workloads: workloads.no_syncer())),
    ),
    Edit(
        "a syncer is renamed, the old one first",
        ((0.0, lambda workloads: workloads.no_syncer()), (0.05, _syncer("stars"))),
    ),
    Edit("metadata change", ((0.0, _syncer(metadata={"a": "b"})),)),
    Edit("the application is renamed", ((0.0, _syncer(application="stars")),), is_braked=True),
    Edit(
        "another Service is selected",
        ((0.0, lambda workloads: workloads.service("stars")), (1.0, _syncer(selector={"app": "stars"}))),
        is_braked=True,
    ),
    Edit(
        "refused, and scaled down",
        ((0.0, _syncer(application="billing")), (2.0, _pod("a-2", terminating=True)), (2.0, _gone("a-2"))),
    ),
    Edit(
        "refused, and allowed again",
        ((0.0, _syncer(eureka="nowhere")), (3.0, _syncer())),
    ),
    Edit("another Eureka is named", ((0.0, _syncer(eureka="other")),), is_braked=True, names_another=True),
    Edit(
        "another Eureka is named, and the first again",
        ((0.0, _syncer(eureka="other")), (1.0, _syncer())),
        is_braked=True,
        names_another=True,
    ),
    Edit(
        "a syncer gives up what another one wants",
        ((0.0, _syncer("stars")), (2.0, _syncer(application="stars")), (3.0, _pod("a-3"))),
        is_braked=True,
    ),
    Edit(
        "a syncer gives up what another one wants, and wants it again",
        ((0.0, _syncer("stars")), (0.5, _syncer(mode="service")), (0.01, _syncer())),
        is_braked=True,
    ),
    Edit(
        "a syncer that removes nothing gives up what another one wants",
        ((0.0, _syncer("stars")), (0.5, _syncer(mode="service", policy="UpsertOnly"))),
        spec={"policy": "UpsertOnly"},
    ),
    Edit(
        "another Eureka is named, and another syncer stays",
        ((0.0, _syncer("stars")), (0.5, _syncer(eureka="other"))),
        is_braked=True,
        names_another=True,
    ),
    Edit(
        "a StatefulSet's pod is replaced while its syncer is renamed",
        (
            (0.0, _syncer("stars", onTermination="OutOfService")),
            (0.5, _pod("a-2", terminating=True)),
            (0.01, lambda workloads: workloads.no_syncer()),
            (1.0, _gone("a-2")),
            (0.2, _pod("a-2", ready=False)),
            (0.5, _pod("a-2")),
        ),
        spec={"onTermination": "OutOfService"},
    ),
    Edit(
        "two syncers name another Eureka in turn, and the first comes back",
        (
            (0.0, _syncer("stars")),
            (0.3, _syncer(eureka="other")),
            (0.5, _syncer("stars", eureka="other")),
            (0.3, _syncer()),
        ),
        is_braked=True,
        names_another=True,
    ),
    Edit("removes nothing", _LEAVES, spec={"policy": "UpsertOnly"}),
    Edit(
        "paused, scaled down, and on again",
        (
            (0.0, _syncer(paused=True)),
            (1.0, _pod("a-2", terminating=True)),
            (2.0, _gone("a-2")),
            (5.0, _syncer()),
        ),
        is_braked=True,
    ),
    Edit("paused, and scaled down", ((0.0, _syncer(paused=True)), *_LEAVES)),
    Edit("mode service", ((0.0, _syncer(mode="service")),), is_braked=True),
    Edit(
        "pods that registered themselves are gone",
        ((0.0, _gone("c-0", "c-1")), (90.0, NOTHING)),
        spec={"removeDeadSelfRegistered": True},
        begin=_several(
            lambda workloads: workloads.pod_with_client("c-0"),
            lambda workloads: workloads.pod_with_client("c-1"),
        ),
        is_braked=True,
    ),
    Edit("the cluster is renamed", ((0.0, _named("east")),)),
    Edit(
        "the cluster is renamed, and called as before again",
        ((0.0, _named("east")), (4.0, _named(CLUSTER.name))),
    ),
    Edit(
        "the cluster is renamed while pods are replaced",
        (
            (0.0, _pod("b-0")),
            (0.5, _named("east")),
            (0.5, _pod("b-1")),
            (0.1, _pod("a-0", terminating=True)),
            (4.0, _pod("a-1", terminating=True)),
            (1.0, _gone("a-0", "a-1")),
        ),
    ),
    Edit(
        "the cluster is renamed while its syncer is",
        (
            (0.0, _syncer("stars")),
            (0.5, _named("east")),
            (3.0, lambda workloads: workloads.no_syncer()),
        ),
    ),
    Edit("a Service joins", ((0.0, _annotated(sync="true")),), begin=_namespaces("Annotated")),
    Edit("a Service leaves", ((0.0, _annotated(sync="false")),), begin=_namespaces()),
    Edit(
        "a Service leaves and joins again",
        ((0.0, _annotated(sync="false")), (2.0, _annotated(sync="true"))),
        begin=_namespaces(),
    ),
    Edit(
        "a Service loses its annotation and gets it back",
        ((0.0, _annotated()), (20.0, _annotated(sync="true"))),
        begin=_several(_namespaces("Annotated"), _annotated(sync="true")),
    ),
    Edit(
        "a Service loses its annotation",
        ((0.0, _annotated()),),
        begin=_several(_namespaces("Annotated"), _annotated(sync="true")),
        is_braked=True,
    ),
    Edit(
        "a bad annotation, and scaled down",
        ((0.0, _annotated(port="")), *_LEAVES, (1.0, _pod("a-3"))),
        begin=_namespaces(),
    ),
    Edit(
        "all endpoints of a namespace's Service vanish and come back",
        (
            (0.0, lambda workloads: workloads.no_service()),
            (20.0, lambda workloads: workloads.service()),
        ),
        begin=_namespaces(),
        is_braked=True,
        keeps=("a-0", "a-1", "a-2"),
    ),
    Edit(
        "a namespace's Service is deleted",
        ((0.0, lambda workloads: workloads.no_service()),),
        begin=_namespaces(),
        is_braked=True,
    ),
    Edit(
        "a namespace's syncer is deleted",
        ((0.0, lambda workloads: workloads.no_syncer(NAMESPACES)),),
        begin=_namespaces(),
    ),
    Edit(
        "a namespace's syncer is deleted and created again",
        (
            (0.0, lambda workloads: workloads.no_syncer(NAMESPACES)),
            (3.0, lambda workloads: workloads.namespace_syncer("All")),
        ),
        begin=_namespaces(),
    ),
    Edit(
        "a namespace's syncer changes",
        ((0.0, lambda workloads: workloads.namespace_syncer("All", metadata={"a": "b"})),),
        begin=_namespaces(),
    ),
    Edit(
        "a Service's own syncer gives way to its namespace's",
        ((0.0, lambda workloads: workloads.namespace_syncer("All")), (2.0, lambda one: one.no_syncer())),
    ),
    Edit(
        "a namespace's syncer gives way to a Service's own",
        ((0.0, _syncer()), (2.0, _annotated(sync="false"))),
        begin=_namespaces(),
    ),
    Edit(
        "a namespace's syncer gives way to another one",
        (
            (0.0, lambda workloads: workloads.namespace_syncer("Annotated", "others")),
            (4.0, lambda workloads: workloads.no_syncer(NAMESPACES)),
        ),
        begin=_several(_namespaces("All"), _annotated(sync="true")),
    ),
    Edit(
        "a namespace's syncer is deleted while a pod is replaced",
        (
            (0.0, _syncer()),
            (0.5, _pod("b-0")),
            (0.1, lambda workloads: workloads.no_syncer(NAMESPACES)),
            (0.1, _pod("a-0", terminating=True)),
            (1.0, _gone("a-0")),
        ),
        begin=_namespaces(),
    ),
    Edit(
        "the namespace is deleted",
        (
            (
                0.0,
                _several(
                    *(_pod(f"a-{number}", terminating=True) for number in range(3)),
                    lambda workloads: workloads.no_syncer(),
                ),
            ),
            (2.0, _gone("a-0", "a-1", "a-2")),
            (0.1, lambda workloads: workloads.no_service()),
        ),
    ),
)


GATED_EDITS = (
    Edit("gated pods replace others", _ROLLED, spec=_GATE, is_gated=True),
    Edit(
        "gated pods of a namespace's Service replace others",
        _ROLLED,
        begin=_namespaces(**_GATE),
        is_gated=True,
    ),
    Edit(
        "a gated pod comes as its Service joins",
        ((0.0, _gated("b-0")), (2.0, _annotated(sync="true")), (8.0, _gated("b-1")), (8.0, NOTHING)),
        begin=_namespaces("Annotated", **_GATE),
        is_gated=True,
    ),
    Edit(
        "a gated pod waits as its Service leaves and joins again",
        (
            (0.0, _gated("b-0")),
            (4.0, _annotated(sync="false")),
            (1.0, _gated("b-1")),
            (1.0, _annotated(sync="true")),
            (10.0, NOTHING),
        ),
        begin=_namespaces(**_GATE),
        is_gated=True,
    ),
    Edit(
        "a gated pod waits as its Service's own syncer gives way to its namespace's",
        (
            (0.0, lambda workloads: workloads.namespace_syncer("All", **_GATE)),
            (2.0, _gated("b-0")),
            (3.0, lambda workloads: workloads.no_syncer()),
            (10.0, NOTHING),
        ),
        spec=_GATE,
        is_gated=True,
    ),
)
"""Edits with the readiness gate, which the Reconciler alone does not serve."""


def edit(name: str) -> Edit:
    """Return the edit with this name."""
    return next(one for one in (*EDITS, *GATED_EDITS) if one.name == name)


MIXED = tuple(
    one.name
    for one in EDITS
    if one.steps
    # Those keep what they had, whatever else happens, and register nothing more.
    and not one.name.startswith(("refused", "paused, and scaled"))
    and one.begin is NOTHING
    and not (one.spec or one.keeps or one.unobserved or one.names_another)
)
"""Edits that may be combined with others."""


def together(*parts: tuple[str, float]) -> Edit:
    """Combine several edits, each of which begins after so many seconds."""
    timed: list[tuple[float, Step]] = []
    for name, begin in parts:
        at = begin
        for wait, step in edit(name).steps:
            at += wait
            timed.append((at, step))
    timed.sort(key=lambda one: one[0])
    befores = [0.0, *(at for at, _ in timed)]
    steps = tuple((at - before, step) for before, (at, step) in zip(befores, timed, strict=False))
    return Edit(
        f"together({', '.join(map(repr, parts))})",
        steps,
        # With another edit at once, what leaves with its Service may be all that is left.
        is_braked=any(edit(name).is_braked or "Service" in name for name, _ in parts),
        parts=parts,
    )
