"""The labels of the Kubernetes objects that a stack makes."""

from __future__ import annotations

import hashlib
import re

import pulumi

from eurekube_provider.core.objects import STACK_LABEL

SELECTOR_LABEL = "app.kubernetes.io/name"
OPERATOR_APP_NAME = "eurekube-operator"
"""Value of :data:`SELECTOR_LABEL` on the operator's pods."""

_INSTANCE_LABEL, _COMPONENT_LABEL, _PART_LABEL = (
    f"app.kubernetes.io/{name}" for name in ("instance", "component", "part-of")
)
RESERVED_LABELS = frozenset((STACK_LABEL, SELECTOR_LABEL, _INSTANCE_LABEL, _COMPONENT_LABEL, _PART_LABEL))
"""The keys of the labels that :func:`object_labels` gives, which no argument may set."""

_LONGEST_LABEL = 63


def stack_label(project: str, stack: str) -> str:
    """Return ``<project>.<stack>`` as the value of a label.

    Where characters must be replaced or cut, a hash at the end keeps two similar stacks apart.
    """
    text = f"{project}.{stack}"
    fitted = re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("._-") or "stack"
    if fitted == text and len(text) <= _LONGEST_LABEL:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{fitted[: _LONGEST_LABEL - len(digest) - 1].rstrip('._-')}-{digest}"


def object_labels(component: str, instance: str) -> dict[str, str]:
    """Return the labels of one object. ``app.kubernetes.io/managed-by`` is left to the tool that applies it.

    :param component: the part of Eurekube, e.g. ``operator``.
    :param instance: the name that tells several of a component apart, e.g. the operator's name.
    """
    return {
        SELECTOR_LABEL: f"eurekube-{component}",
        _INSTANCE_LABEL: instance,
        _COMPONENT_LABEL: component,
        _PART_LABEL: "eurekube",
        STACK_LABEL: stack_label(pulumi.get_project(), pulumi.get_stack()),
    }
