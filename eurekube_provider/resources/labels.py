"""The labels of the Kubernetes objects that a stack makes."""

from __future__ import annotations

import hashlib
import re

import pulumi

from eurekube_provider.core.objects import STACK_LABEL

SELECTOR_LABEL_KEY = "app.kubernetes.io/name"
OPERATOR_APP_NAME = "eurekube-operator"
"""Value of :data:`SELECTOR_LABEL_KEY` on the operator's pods."""

_INSTANCE_LABEL_KEY, _COMPONENT_LABEL_KEY, _PART_LABEL_KEY = (
    f"app.kubernetes.io/{name}" for name in ("instance", "component", "part-of")
)
RESERVED_LABEL_KEYS = frozenset(
    (STACK_LABEL, SELECTOR_LABEL_KEY, _INSTANCE_LABEL_KEY, _COMPONENT_LABEL_KEY, _PART_LABEL_KEY)
)
"""The keys of the labels that :func:`object_labels` gives, which no argument may set."""

_MAX_LABEL_VALUE_LENGTH = 63


def stack_label_value(project: str, stack: str) -> str:
    """Return ``<project>.<stack>`` as a label's value, with a hash if characters are replaced or cut."""
    text = f"{project}.{stack}"
    fitted = re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("._-") or "stack"
    if fitted == text and len(text) <= _MAX_LABEL_VALUE_LENGTH:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{fitted[: _MAX_LABEL_VALUE_LENGTH - len(digest) - 1].rstrip('._-')}-{digest}"


def object_labels(component: str, instance: str) -> dict[str, str]:
    """Return the labels of one object. ``app.kubernetes.io/managed-by`` is left to the tool that applies it.

    :param component: the part of Eurekube, e.g. ``operator``.
    :param instance: the name that tells several of a component apart, e.g. the operator's name.
    """
    return {
        SELECTOR_LABEL_KEY: f"eurekube-{component}",
        _INSTANCE_LABEL_KEY: instance,
        _COMPONENT_LABEL_KEY: component,
        _PART_LABEL_KEY: "eurekube",
        STACK_LABEL: stack_label_value(pulumi.get_project(), pulumi.get_stack()),
    }
