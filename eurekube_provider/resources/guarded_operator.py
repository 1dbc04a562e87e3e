"""The guard of an operator: its properties, and its check before a deletion, without Pulumi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.runtime.extras import require_extra


def clean_guard_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a guard without Pulumi's own keys and without None."""
    own = (item for item in properties.items() if not item[0].startswith("__"))
    return {key: value for key, value in own if value is not None}


def changed_guard_property_names(olds: Mapping[str, Any], news: Mapping[str, Any]) -> list[str]:
    """Return the names of the properties that differ.

    Properties that a preview does not know are not reported: it knows no output of a Kubernetes provider that
    the program did not write, and would show a change each time.
    """
    before, after = clean_guard_properties(olds), clean_guard_properties(news)
    names = sorted({*before, *after})
    return [
        name
        for name in names
        if before.get(name) != after.get(name) and not contains_unknown(after.get(name))
    ]


def guard_id(properties: Mapping[str, Any]) -> str:
    """Return the id of a guard in Pulumi."""
    return f"{clean_guard_properties(properties)['namespace']}/operator"


def refuse_deletion_while_needed(properties: Mapping[str, Any]) -> None:
    """Refuse the deletion of an operator that is still needed.

    :raises OperatorStillNeeded: the operator is needed, or the cluster cannot be asked.
    :raises MissingExtra: the client for Kubernetes is not installed.
    """
    with require_extra("kubernetes", "the removal of an operator"):
        from eurekube_provider.kube.syncer_guard import GuardedOperator, refuse_removal_while_needed
    known = clean_guard_properties(properties)
    refuse_removal_while_needed(
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
