"""Arguments for an operator's pods: where they run, and the annotations and labels of its objects."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import pulumi

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.objects import is_object_name
from eurekube_provider.resources.arguments import as_arguments, as_dictionary
from eurekube_provider.resources.labels import RESERVED_LABEL_KEYS

TextMap = Mapping[str, pulumi.Input[str]]


@dataclass(kw_only=True, slots=True)
class PodTolerationArgs:
    """A taint of nodes that the pods stand, as Kubernetes' Toleration.

    :ivar key: the taint's key; none for every key, with the operator ``Exists``.
    :ivar operator: ``Exists`` or ``Equal``, which is the default.
    :ivar value: the taint's value, with ``Equal``.
    :ivar effect: ``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``; none for every effect.
    :ivar toleration_seconds: how long a pod stays on a node with a taint ``NoExecute``; default for ever.
    """

    key: pulumi.Input[str] | None = None
    operator: pulumi.Input[str] | None = None
    value: pulumi.Input[str] | None = None
    effect: pulumi.Input[str] | None = None
    toleration_seconds: pulumi.Input[int] | None = None


class PodTolerationArgsDict(TypedDict):
    """A dictionary with the keys of :class:`PodTolerationArgs`."""

    key: NotRequired[pulumi.Input[str] | None]
    operator: NotRequired[pulumi.Input[str] | None]
    value: NotRequired[pulumi.Input[str] | None]
    effect: NotRequired[pulumi.Input[str] | None]
    toleration_seconds: NotRequired[pulumi.Input[int] | None]


@dataclass(kw_only=True, slots=True)
class PodArgs:
    """Where the operator's pods run, and what its objects have written on them.

    :ivar image_pull_secrets: names of Secrets in the operator's namespace with which its image is pulled.
    :ivar node_selector: labels that a node must have to run a pod.
    :ivar tolerations: taints of nodes that the pods stand.
    :ivar priority_class_name: the PriorityClass of the pods.
    :ivar pod_annotations: annotations of the pods. A change replaces the pods.
    :ivar pod_labels: labels of the pods. A change replaces the pods.
    :ivar deployment_annotations: annotations of the Deployment.
    :ivar deployment_labels: labels of the Deployment.
    :ivar service_account_annotations: annotations of the ServiceAccount, e.g. of a cloud's identity.
    :ivar service_account_labels: labels of the ServiceAccount.
    """

    image_pull_secrets: Sequence[pulumi.Input[str]] = ()
    node_selector: TextMap = field(default_factory=dict)
    tolerations: Sequence[PodTolerationArgs | PodTolerationArgsDict] = ()
    priority_class_name: pulumi.Input[str] | None = None
    pod_annotations: TextMap = field(default_factory=dict)
    pod_labels: TextMap = field(default_factory=dict)
    deployment_annotations: TextMap = field(default_factory=dict)
    deployment_labels: TextMap = field(default_factory=dict)
    service_account_annotations: TextMap = field(default_factory=dict)
    service_account_labels: TextMap = field(default_factory=dict)

    def check_pod_arguments(self) -> None:
        """Refuse what the Kubernetes API refuses, or what replaces the operator's labels."""
        for name in _TEXT_MAP_ARGUMENTS:
            check_text_map(name, getattr(self, name))
        for name in _LABEL_ARGUMENTS:
            refuse_reserved_labels(name, getattr(self, name))
        check_list("image_pull_secrets", self.image_pull_secrets, "['registry-credentials']")
        for secret in self.image_pull_secrets:
            if not is_output_or_awaitable(secret) and not (
                isinstance(secret, str) and is_object_name(secret)
            ):
                raise ConfigurationError(f"image_pull_secrets: {secret!r} must be the name of a Secret")
        check_list("tolerations", self.tolerations, "[{'key': 'dedicated', 'operator': 'Exists'}]")
        toleration_fields(self.tolerations)


class PodArgsDict(TypedDict):
    """A dictionary with the keys of :class:`PodArgs`."""

    image_pull_secrets: NotRequired[Sequence[pulumi.Input[str]]]
    node_selector: NotRequired[TextMap]
    tolerations: NotRequired[Sequence[PodTolerationArgs | PodTolerationArgsDict]]
    priority_class_name: NotRequired[pulumi.Input[str] | None]
    pod_annotations: NotRequired[TextMap]
    pod_labels: NotRequired[TextMap]
    deployment_annotations: NotRequired[TextMap]
    deployment_labels: NotRequired[TextMap]
    service_account_annotations: NotRequired[TextMap]
    service_account_labels: NotRequired[TextMap]


_LABEL_ARGUMENTS = ("pod_labels", "deployment_labels", "service_account_labels")
_TEXT_MAP_ARGUMENTS = (
    "node_selector",
    *_LABEL_ARGUMENTS,
    "pod_annotations",
    "deployment_annotations",
    "service_account_annotations",
)


def toleration_fields(
    tolerations: Sequence[PodTolerationArgs | PodTolerationArgsDict],
) -> list[dict[str, pulumi.Input[Any]]]:
    """Return the fields of each toleration that are set; raise ConfigurationError for an unknown key."""
    return [
        without_none(as_dictionary(as_arguments(PodTolerationArgs, each, f"tolerations[{number}]: ")))
        for number, each in enumerate(tolerations)
    ]


def without_none(texts: TextMap) -> dict[str, pulumi.Input[str]]:
    """Return a map of texts without the entries whose value is None."""
    return {key: value for key, value in texts.items() if value is not None}


def is_output_or_awaitable(value: Any) -> bool:
    """Return whether a value is an output or awaitable, and so known later only."""
    return isinstance(value, pulumi.Output | Awaitable)


def check_list(name: str, value: Any, example: str) -> None:
    """Refuse, without its value, an argument that is no list: a text would be read letter by letter."""
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        raise ConfigurationError(
            f"{name} must be a list, not {type(value).__name__}: write it as {example}, also where it has "
            "one entry"
        )


def check_text_map(name: str, texts: Any) -> None:
    """Refuse an argument that is no map of texts, or has a value that is no text."""
    if not isinstance(texts, Mapping):
        raise ConfigurationError(
            f"{name} must be a map of texts, e.g. {{'name': 'value'}}, not {type(texts).__name__}"
        )
    for key, value in texts.items():
        if not isinstance(value, str | None) and not is_output_or_awaitable(value):
            raise ConfigurationError(f"{name}: {key} must be text: put its value in quotes")


def refuse_reserved_labels(name: str, labels: Mapping[str, Any]) -> None:
    """Refuse labels that the component sets itself and finds its objects by."""
    for key in labels:
        if key in RESERVED_LABEL_KEYS:
            raise ConfigurationError(
                f"{name} must not set {key}, by which this component's objects are found"
            )
