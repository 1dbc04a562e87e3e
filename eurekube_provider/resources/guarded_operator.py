"""The guard of an operator: its properties, and its check before a deletion, without Pulumi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.runtime.extras import require_extra


def is_guard_changed(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether a property of a guard differs.

    A property that a preview does not know does not count: it knows no output of a Kubernetes provider that
    the program did not write, and would show a change each time.
    """
    return any(
        olds.get(name) != news.get(name) and not contains_unknown(news.get(name)) for name in {*olds, *news}
    )


def guard_id(properties: Mapping[str, Any]) -> str:
    """Return the id of a guard in Pulumi."""
    return f"{properties['namespace']}/operator"


def refuse_deletion_while_needed(properties: Mapping[str, Any]) -> None:
    """Refuse the deletion of an operator that is still needed.

    :raises OperatorStillNeeded: the operator is needed, or the cluster cannot be asked.
    :raises MissingExtra: the client for Kubernetes is not installed.
    """
    wait = CANCELLATION.begin_call(0)  # Ctrl-C ends it
    with require_extra("kubernetes", "the removal of an operator"):
        from eurekube_provider.kube.syncer_guard import GuardedOperator, refuse_removal_while_needed
    refuse_removal_while_needed(
        GuardedOperator(
            namespace=str(properties.get("namespace")),
            namespace_uid=properties.get("namespace_uid"),
            stack_label=str(properties.get("stack_label")),
            watch_namespaces=tuple(properties.get("watch_namespaces") or ()),
            owns_crds=bool(properties.get("owns_crds")),
            is_forced=bool(properties.get("force")),
            kubeconfig=properties.get("kubeconfig"),
            context=properties.get("context"),
        ),
        wait=wait,
    )
