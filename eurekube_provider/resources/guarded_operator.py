"""The guard of an operator: its memory, and its questions before a deletion, without Pulumi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.runtime.extras import needing


def guard_inputs(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a guard's own properties; what is nothing is left out."""
    own = (item for item in properties.items() if not item[0].startswith("__"))
    return {key: value for key, value in own if value is not None}


def changed(olds: Mapping[str, Any], news: Mapping[str, Any]) -> list[str]:
    """The names of what is another one than before.

    What a preview does not know is not reported: of a Kubernetes provider it knows no output that the program
    did not write, and would show a change each time.
    """
    before, after = guard_inputs(olds), guard_inputs(news)
    names = sorted({*before, *after})
    return [
        name
        for name in names
        if before.get(name) != after.get(name) and not contains_unknown(after.get(name))
    ]


def guard_id(properties: Mapping[str, Any]) -> str:
    """Return a guard's id."""
    return f"{guard_inputs(properties)['namespace']}/operator"


def may_go(properties: Mapping[str, Any]) -> None:
    """Refuse while the operator of this guard is needed.

    :raises OperatorStillNeeded: it is, or nobody can tell.
    :raises MissingExtra: the client for Kubernetes is not installed.
    """
    with needing("kubernetes", "the removal of an operator"):
        from eurekube_provider.kube.syncer_guard import GuardedOperator, refuse_while_needed
    known = guard_inputs(properties)
    refuse_while_needed(
        GuardedOperator(
            namespace=str(known.get("namespace")),
            namespace_uid=known.get("namespace_uid"),
            stack_label=str(known.get("stack_label")),
            watch_namespaces=tuple(known.get("watch_namespaces") or ()),
            owns_crds=bool(known.get("owns_crds")),
            is_forced=bool(known.get("force")),
            kubeconfig=known.get("kubeconfig"),
            context=known.get("context"),
        )
    )
