"""Rendering of a program without an engine: a run under the SDK's mocks collects its resources.

Only the program's own lookups ask a server. The SDK keeps its settings for the whole process, so that one
process renders one stack.
"""

from __future__ import annotations

import asyncio
import json
import logging
import runpy
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import yaml
from google.protobuf import json_format
from pulumi.runtime import mocks, set_all_config
from pulumi.runtime.stack import run_pulumi_func

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import DYNAMIC_APPLICATION_TYPE, DYNAMIC_INSTANCE_TYPE
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.objects import STACK_LABEL
from eurekube_provider.core.quoting import REDACTION_PLACEHOLDER
from eurekube_provider.core.stack_identity import DEFAULT_ORGANIZATION
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.registrations.connections import (
    CONFIG_NAMESPACE,
    configured_connection,
    connection_names,
)
from eurekube_provider.registrations.members import member_properties
from eurekube_provider.registrations.properties import ID_IS_DEFAULT_PROPERTY, Properties
from eurekube_provider.registrations.secret_values import secret_texts
from eurekube_provider.resources.labels import stack_label_value
from eurekube_provider.resources.mocked_registrations import MockedRegistrations, unwrap_mock_value
from eurekube_provider.resources.program import runs_without_engine
from eurekube_provider.stateless.project import Project
from eurekube_provider.stateless.secret_masks import (
    KubernetesObject,
    ValuePath,
    mask_paths,
    mask_secret_data,
    mask_texts,
    secret_paths,
)

_CREDENTIAL_KEYS = frozenset({f"{CONFIG_NAMESPACE}:password", f"{CONFIG_NAMESPACE}:token"})

_MIN_MASKED_LETTERS = 3
"""The least length of a secret text that is hidden elsewhere; a shorter one occurs in any text by chance."""

API_VERSION_BY_KIND = {
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Namespace": "v1",
    "ServiceAccount": "v1",
    "Secret": "v1",
    "ConfigMap": "v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Service": "v1",
    "Deployment": "apps/v1",
}
"""Kinds in the order of application, the reverse of removal. Other kinds come later, and syncers last."""


@dataclass(frozen=True, slots=True)
class RenderedStack:
    """The resources of a stack's program.

    :ivar objects: Kubernetes objects, in the order in which they can be applied.
    :ivar registrations: the checked properties of each EurekaInstance, by name.
    :ivar applications: the checked properties of each EurekaApplication, by name.
    :ivar kubeconfig: the file in ``eurekube:kubeconfig``; None for kubectl's default.
    :ivar context: the context of the kubeconfig in ``eurekube:context``; None for its current one.
    :ivar connections: the stack's connection to each Eureka that is configured or in use, by name.
    :ivar secrets: the secret texts of all registrations and applications.
    :ivar secrets_by_name: the secret texts of each registration and application, by its name.
    :ivar secret_paths_of_objects: the paths of the secrets in each object, in the order of ``objects``.
    """

    project: str
    stack: str
    organization: str
    objects: list[KubernetesObject]
    registrations: dict[str, Properties]
    applications: dict[str, Properties]
    kubeconfig: Path | None
    context: str | None
    connections: dict[str, Connection]
    secrets: frozenset[str]
    secrets_by_name: Mapping[str, frozenset[str]] = field(default_factory=lambda: EMPTY_MAPPING)
    secret_paths_of_objects: tuple[frozenset[ValuePath], ...] = ()

    def objects_yaml(self, *, show_secrets: bool = False) -> str:
        """Return the objects as YAML documents, always as the same text."""
        documents = self.objects if show_secrets else self._masked_objects
        return yaml.safe_dump_all(
            documents, sort_keys=True, default_flow_style=False, explicit_start=True, width=110
        )

    @property
    def objects_with_secrets(self) -> list[KubernetesObject]:
        """The objects of which :meth:`objects_yaml` hides a secret by default."""
        return [item for item, shown in zip(self.objects, self._masked_objects, strict=True) if item != shown]

    @property
    def _masked_objects(self) -> list[KubernetesObject]:
        pairs = zip(self.objects, self.secret_paths_of_objects, strict=True)
        return [mask_secret_data(mask_paths(item, fields)) for item, fields in pairs]

    def hide_secrets(self, line: str) -> str:
        """Return a line about a registration with all secrets of the program hidden."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            line = line.replace(secret, REDACTION_PLACEHOLDER)
        return line

    def registrations_json(self, *, show_secrets: bool = False) -> str:
        """Return the registrations as a JSON object by name, always as the same text. Instances of a
        EurekaApplication are named ``<name>/<key>``, and have its properties, too.
        """
        everything = {name: (name, properties) for name, properties in self.registrations.items()}
        for name, application in self.applications.items():
            everything |= {
                f"{name}/{key}": (name, full) for key, full in member_properties(application).items()
            }
        shown = {}
        for title, (name, properties) in everything.items():
            written = {key: value for key, value in properties.items() if key != ID_IS_DEFAULT_PROPERTY}
            shown[title] = (
                written if show_secrets else mask_texts(written, self.secrets_by_name.get(name, frozenset()))
            )
        return json.dumps(shown, indent=2, sort_keys=True) + "\n"


class _ResourceCollector(MockedRegistrations):
    """Pulumi mocks that record every resource and the secrets in it.

    :ivar secrets: the value of ``secrets_by_name`` in :class:`RenderedStack`.
    :ivar secret_paths_of_objects: the paths of secrets, by a resource's type and name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, set[str]] = defaultdict(set)
        self.secret_paths_of_objects: dict[tuple[str, str], frozenset[ValuePath]] = {}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        raise ConfigurationError(
            f"the program calls {args.token}, which needs Pulumi's engine: it cannot be rendered"
        )

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        if args.name in self.registrations.get(args.typ, ()):
            raise ConfigurationError(
                f"two registrations of the program have the name {args.name!r}: rename one of them"
            )
        answer = super().new_resource(args)
        if args.name in self.refused:
            raise ConfigurationError(self.refused[args.name])
        return answer


class _CollectingMonitor(mocks.MockMonitor):
    """A mocked engine that hands resources to the collector, and records the paths of secrets: the SDK's own
    mocks mark a whole property as secret as soon as a part of it is.
    """

    def __init__(self, collector: _ResourceCollector) -> None:
        super().__init__(collector)
        self._collector = collector

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - as the SDK calls it
        inputs = json_format.MessageToDict(request.object)  # type: ignore[no-untyped-call]
        if request.type in self._collector.registrations:
            texts = (text for text in secret_texts(inputs) if len(text) >= _MIN_MASKED_LETTERS)
            self._collector.secrets[request.name].update(texts)
        self._collector.secret_paths_of_objects[request.type, request.name] = frozenset(secret_paths(inputs))
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]


def render(
    project_directory: Path,
    stack: str,
    overrides: Mapping[str, str] | None = None,
    organization: str = DEFAULT_ORGANIZATION,
) -> RenderedStack:
    """Run the program of a project for one of its stacks, and collect its resources.

    :param overrides: configuration that wins over the stack's file, e.g. ``{"eurekube:url": ...}``.
    :param organization: the organization where ``eurekube:organization`` is not set.
    :raises ConfigurationError: the project, the stack or its configuration is wrong.
    :raises InvalidInstance: a registration is wrong.
    """
    project = Project.load(project_directory)
    configuration = project.configuration(stack, overrides or {})
    organization = configuration.get(f"{CONFIG_NAMESPACE}:organization") or organization
    kubeconfig = configuration.get(f"{CONFIG_NAMESPACE}:kubeconfig")
    directory = project.program.parent
    collector = _ResourceCollector()
    with _in_directory(directory):
        # Overrides are not in the stack's file, where they would stand in clear.
        given = [key for key in overrides or {} if key in _CREDENTIAL_KEYS]
        _run_program(project, stack, organization, configuration, given, collector)
        made = collector.registrations
        connections = _connections(
            configuration, (*made[DYNAMIC_INSTANCE_TYPE].values(), *made[DYNAMIC_APPLICATION_TYPE].values())
        )
    label = stack_label_value(project.name, stack)
    made_objects = [
        (_kubernetes_object(resource, label), collector.secret_paths_of_objects[resource.typ, resource.name])
        for resource in collector.resources
        if resource.typ.startswith("kubernetes:") and "apiVersion" in resource.inputs
    ]
    # Several operators each make the same CRDs.
    unique = [
        made
        for number, made in enumerate(made_objects)
        if made[0]["kind"] != "CustomResourceDefinition" or made not in made_objects[:number]
    ]
    objects = sorted(unique, key=lambda made: _apply_sort_key(made[0]))
    return RenderedStack(
        project=project.name,
        stack=stack,
        organization=organization,
        objects=[item for item, _ in objects],
        registrations=dict(sorted(made[DYNAMIC_INSTANCE_TYPE].items())),
        applications=dict(sorted(made[DYNAMIC_APPLICATION_TYPE].items())),
        kubeconfig=directory / Path(kubeconfig).expanduser() if kubeconfig else None,
        context=configuration.get(f"{CONFIG_NAMESPACE}:context") or None,
        connections=connections,
        secrets=frozenset[str]().union(*collector.secrets.values()),
        secrets_by_name={name: frozenset(texts) for name, texts in collector.secrets.items()},
        secret_paths_of_objects=tuple(fields for _, fields in objects),
    )


def _run_program(
    project: Project,
    stack: str,
    organization: str,
    configuration: dict[str, str],
    secret_keys: list[str],
    collector: _ResourceCollector,
) -> None:
    def program() -> None:
        runpy.run_path(str(project.program), run_name="__main__")

    if not project.program.is_file():
        raise ConfigurationError(f"the program {project.program} does not exist")
    quiet = logging.getLogger("eurekube.render")
    quiet.setLevel(logging.WARNING)
    interrupt = signal.getsignal(signal.SIGINT)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        mocks.set_mocks(
            collector,
            project=project.name,
            stack=stack,
            preview=False,
            logger=quiet,
            monitor=_CollectingMonitor(collector),
            organization=organization,
        )
        set_all_config(configuration, secret_keys)
        runs_without_engine.set(True)
        loop.run_until_complete(run_pulumi_func(program))
    except pulumi.RunError as error:
        raise ConfigurationError(str(error)) from None
    finally:
        signal.signal(signal.SIGINT, interrupt)  # the program set its own, for Pulumi's sake
        # A failure may leave tasks waiting, which would print messages above the error's sentence.
        waiting = asyncio.all_tasks(loop)
        for task in waiting:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        loop.close()
        asyncio.set_event_loop(None)


@contextmanager
def _in_directory(directory: Path) -> Iterator[None]:
    """Within the context, run as Pulumi does: in the directory of ``main``, which is imported from first."""
    with chdir(directory):
        sys.path.insert(0, str(directory))
        try:
            yield
        finally:
            sys.path.remove(str(directory))


def _kubernetes_object(resource: mocks.MockResourceArgs, label: str) -> KubernetesObject:
    """Return a mocked resource as the API's object, with whole numbers and nothing of Pulumi's."""
    made: KubernetesObject = unwrap_mock_value(resource.inputs)
    metadata = made.setdefault("metadata", {})
    if "name" not in metadata:
        raise ConfigurationError(
            f"{made.get('kind')} {resource.name!r} has no metadata.name: Pulumi's engine would make one up"
        )
    annotations = {
        key: value
        for key, value in (metadata.pop("annotations", None) or {}).items()
        if not key.startswith("pulumi.com/")
    }
    if annotations:
        metadata["annotations"] = annotations
    if made["kind"] != "CustomResourceDefinition":  # a CRD is the cluster's, and outlives the stack
        metadata["labels"] = {**(metadata.get("labels") or {}), STACK_LABEL: label}
    return made


def _apply_sort_key(item: KubernetesObject) -> tuple[int, str, str, str]:
    """Return a sort key: the kind's place in the order of application, kind, namespace and name."""
    kind = str(item["kind"])
    ordered = [*API_VERSION_BY_KIND]
    rank = ordered.index(kind) if kind in ordered else len(ordered) + (kind == "EurekaSyncer")
    return rank, kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _connections(
    configuration: Mapping[str, str], registrations: Iterable[Properties]
) -> dict[str, Connection]:
    """Return the connections in use, and those configured, at which an earlier run may have registered."""

    def setting(key: str) -> str | None:
        return configuration.get(f"{CONFIG_NAMESPACE}:{key}")

    used = {str(properties["connection"]) for properties in registrations}
    names = sorted(used.union(connection_names(setting)))
    return {name: configured_connection(setting, name=name) for name in names}
