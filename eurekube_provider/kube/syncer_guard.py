"""Refusals to remove an operator that others' syncers or mirrors need, or to take over a namespace.

Without the operator the syncers' instances leave Eureka within minutes, the mirrors' Services become
outdated, and finalizers keep both for ever. A stack asks here before it removes the operator that it made;
the chart asks the operator itself before it is uninstalled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError, KubernetesError, OperatorStillNeeded
from eurekube_provider.core.gate import declares_gate
from eurekube_provider.core.objects import STACK_LABEL, Object, qualified_name
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.core.wording import format_list
from eurekube_provider.kube.access import (
    MIRRORS,
    NAMESPACES,
    PODS,
    SYNCERS,
    WORKLOADS_BY_KIND,
    ApiResource,
    KubeAccess,
)

FORCE_DESTROY_VARIABLE = "EUREKUBE_FORCE_DESTROY"
DELETE_UNREACHABLE_VARIABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
"""With this variable Pulumi's Kubernetes provider forgets objects that it can no longer delete."""

_RESOURCE_BY_KIND = {"EurekaSyncers": SYNCERS, "EurekaMirrors": MIRRORS}
_OUTCOME_WITHOUT_OPERATOR_BY_KIND = {
    "EurekaSyncers": "their instances would leave Eureka",
    "EurekaMirrors": "their Services would be gone, or show for ever what Eureka held last",
}
_MAX_LISTED_NAMES = 5
_REQUEST_TIMEOUT_SECONDS = 10.0
_OWN_CHECKS = 30
"""How often the stack's own syncers and mirrors are looked for: the engine may be deleting them."""

_OWN_CHECK_INTERVAL_SECONDS = 2.0
_FORCE_UNINSTALL_HINT = "`helm uninstall --no-hooks` goes on all the same"
_FORCE_DESTROY_HINT = (
    f"set {FORCE_DESTROY_VARIABLE}=true for this run, or force_destroy on the operator and run up before"
)


@dataclass(frozen=True, slots=True)
class GuardedOperator:
    """An operator, as its stack's state describes it.

    :ivar namespace_uid: the UID of that namespace, which tells its cluster from others; None where no engine
        has reported it.
    :ivar watch_namespaces: the namespaces that it serves; empty for all.
    :ivar stack_label: the value of :data:`STACK_LABEL` on the syncers and mirrors of its own stack, for whose
        removal the operator waits.
    :ivar owns_crds: True if the CRDs are removed with it, and with them every syncer and mirror of the
        cluster.
    :ivar kubeconfig: the path of a file, or the text of one; None for kubectl's own rules.
    """

    namespace: str
    namespace_uid: str | None
    stack_label: str
    watch_namespaces: tuple[str, ...] = ()
    owns_crds: bool = False
    is_forced: bool = False
    kubeconfig: str | None = field(default=None, repr=False)
    context: str | None = None


def cluster_access(operator: GuardedOperator) -> KubeAccess:
    """Return the access to an operator's cluster, or raise ConfigurationError."""
    return KubeAccess.load(_read_kubeconfig(operator), operator.context)


def refuse_removal_while_needed(
    operator: GuardedOperator,
    access: Callable[[GuardedOperator], KubeAccess] = cluster_access,
    environment: Mapping[str, str] = os.environ,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Raise if an operator serves syncers or mirrors that stay, or if that is not known.

    Those of its own stack have a minute to go: a program may keep them without the operator. An operator
    whose namespace is gone serves nobody. Each request has a time-out of 10 s.

    :raises OperatorStillNeeded: one sentence that names the syncers and mirrors, and says how to go on.
    """
    if operator.is_forced or _is_variable_true(environment, FORCE_DESTROY_VARIABLE):
        return
    try:
        reached = access(operator)
        is_needed = _namespace_exists(operator, reached) or operator.owns_crds
        foreign = _served_names_by_kind(operator, reached, is_own=False) if is_needed else {}
        own = _wait_for_own_and_find_rest(operator, reached, wait) if is_needed and not foreign else {}
    except (KubernetesError, ConfigurationError) as error:
        has_no_answer = isinstance(error, KubernetesError) and error.status_code is None
        if has_no_answer and _is_variable_true(environment, DELETE_UNREACHABLE_VARIABLE):
            return
        raise OperatorStillNeeded(
            f"whether the operator in the namespace {operator.namespace} still serves EurekaSyncers or"
            f" EurekaMirrors of others is not known: {error}. Nothing of the operator was removed. Make the"
            " cluster reachable as the stack's Kubernetes provider has it; where the cluster is gone for"
            f" good, set {DELETE_UNREACHABLE_VARIABLE}=true; else {_FORCE_DESTROY_HINT}"
        ) from None
    if found := foreign or own:
        whose = "that this stack does not own" if foreign else "of this stack, which it still has,"
        what = "would be deleted with their CRD" if operator.owns_crds else "would be served by nobody"
        details = " ".join(
            f"{len(names)} {kind} {whose} {what}, and"
            f" {_OUTCOME_WITHOUT_OPERATOR_BY_KIND[kind]}: {format_list(names, _MAX_LISTED_NAMES)}."
            for kind, names in found.items()
        )
        raise OperatorStillNeeded(
            f"the operator in the namespace {operator.namespace} is still needed: {details} Nothing of the"
            f" operator was removed. Delete them first, or {_FORCE_DESTROY_HINT}"
        )


def refuse_existing_namespace(
    operator: GuardedOperator,
    remedy: str,
    access: Callable[[GuardedOperator], KubeAccess] = cluster_access,
) -> None:
    """Raise if the namespace that is to be created exists already, or if that cannot be determined.

    Pulumi's Kubernetes plugin may take an existing namespace over, and later removes it with all that others
    have in it.
    """
    try:
        if not _namespace_exists(operator, access(operator)):
            return
    except (KubernetesError, ConfigurationError) as error:
        raise ConfigurationError(
            f"whether the namespace {operator.namespace} already exists is not known: {error}. Nothing was"
            f" made. Make the cluster reachable as the stack's Kubernetes provider has it; {remedy}"
        ) from None
    raise ConfigurationError(f"the namespace {operator.namespace} already exists: {remedy}")


def uninstall_refusal(
    access: KubeAccess, namespaces: Collection[str], gate_namespaces: Collection[str | None] = ()
) -> str | None:
    """Return why this operator must not be uninstalled, or None. Each request has a time-out of 10 s.

    :param namespaces: the namespaces that it watches; empty for all.
    :param gate_namespaces: the namespaces where it serves the readiness gate; None among them for all.
    :returns: one sentence that names the syncers, mirrors and templates with the gate that need the operator,
        or says that this cannot be determined, and what to do.
    """
    try:
        if waiting := _list_objects_declaring_gate(access, gate_namespaces):
            return (
                f"the operator is still needed by {format_list(waiting, _MAX_LISTED_NAMES)}, which declare "
                f"the readiness gate {READINESS_GATE}. Nobody would open it, so that no new pod of theirs "
                "would become ready. Take the gate out of the templates first, or the label off the "
                f"namespace where a policy puts it in, and have the pods replaced; {_FORCE_UNINSTALL_HINT}"
            )
        # One that serves no mirrors may not list them: these have no finalizers of this operator.
        found = _names_by_kind(access, namespaces, lambda kind: kind is MIRRORS)
    except KubernetesError as error:
        return f"nobody can tell whether the operator is still needed: {error}. {_FORCE_UNINSTALL_HINT}"
    if not found:
        return None
    needing = [f"{kind[:-1]} {format_list(names, _MAX_LISTED_NAMES)}" for kind, names in found.items()]
    return (
        f"the operator is still needed by {' and '.join(needing)}. Nobody would renew the instances, which"
        " would leave Eureka within minutes, and what is deleted would wait for ever. Delete them first,"
        f" while the operator runs; {_FORCE_UNINSTALL_HINT}"
    )


def _list_objects_declaring_gate(access: KubeAccess, namespaces: Collection[str | None]) -> list[str]:
    """Return kind, namespace and name of each template, or else of each pod, that declares the gate.

    A pod may declare the gate without a known template: it is of another kind, or a policy changed it.
    """
    found: list[str] = []
    for namespace in namespaces:
        kinds = {**WORKLOADS_BY_KIND, "Pod": PODS}
        here = {
            kind: [
                f"{kind} {qualified_name(item)}"
                for page in access.pages(resource.path(namespace), timeout_seconds=_REQUEST_TIMEOUT_SECONDS)
                for item in page.get("items") or ()
                if declares_gate((item if kind == "Pod" else item["spec"]["template"]).get("spec") or {})
            ]
            for kind, resource in kinds.items()
        }
        templates = [one for kind, names in here.items() if kind != "Pod" for one in names]
        found += sorted(templates) or sorted(here["Pod"])
    return found


def _namespace_exists(operator: GuardedOperator, access: KubeAccess) -> bool:
    """Return whether the operator's namespace exists.

    :raises ConfigurationError: the namespace is another one of that name: in another cluster that the same
        program may reach, or created since.
    """
    path = NAMESPACES.path(name=operator.namespace)
    try:
        found = access.request("GET", path, timeout_seconds=_REQUEST_TIMEOUT_SECONDS)
    except KubernetesError as error:
        if error.status_code == 404:
            return False
        raise
    if operator.namespace_uid not in (None, found["metadata"]["uid"]):
        raise ConfigurationError(
            f"the namespace {operator.namespace} of the cluster at {access.server} is another one than the"
            f" operator's, which has the UID {operator.namespace_uid}"
        )
    return True


def _wait_for_own_and_find_rest(
    operator: GuardedOperator, access: KubeAccess, wait: Callable[[float], None]
) -> dict[str, list[str]]:
    """Wait until the stack's own syncers and mirrors are gone; return those that stay, by kind."""
    for _ in range(_OWN_CHECKS):
        if not _served_names_by_kind(operator, access, is_own=True):
            return {}
        wait(_OWN_CHECK_INTERVAL_SECONDS)
    return _served_names_by_kind(operator, access, is_own=True)


def _served_names_by_kind(
    operator: GuardedOperator, access: KubeAccess, *, is_own: bool
) -> dict[str, list[str]]:
    """Return the objects of an operator's own stack, or those of others, as :func:`_names_by_kind`."""
    return _names_by_kind(
        access,
        () if operator.owns_crds else operator.watch_namespaces,
        lambda kind: not access.serves_kind(kind, timeout_seconds=_REQUEST_TIMEOUT_SECONDS),
        lambda item: (
            ((item["metadata"].get("labels") or {}).get(STACK_LABEL) == operator.stack_label) is is_own
        ),
    )


def _names_by_kind(
    access: KubeAccess,
    namespaces: Collection[str],
    forbidden_means_none: Callable[[ApiResource], bool],
    is_meant: Callable[[Object], bool] = lambda _: True,
) -> dict[str, list[str]]:
    """Return, by kind, ``namespace/name`` of each syncer and mirror, also of deleted objects that still have
    a finalizer; leave out kinds without such objects.

    :param namespaces: empty for all.
    :param forbidden_means_none: called where listing is forbidden; returns True if that means that there are
        none.
    """
    found: dict[str, list[str]] = {}
    for kind, resource in _RESOURCE_BY_KIND.items():
        for path in [resource.path(namespace) for namespace in namespaces] or [resource.path()]:
            try:
                pages = list(
                    access.with_metadata_only().pages(path, timeout_seconds=_REQUEST_TIMEOUT_SECONDS)
                )
            except KubernetesError as error:
                if error.status_code == 404 or (error.status_code == 403 and forbidden_means_none(resource)):
                    continue
                raise
            items = (item for page in pages for item in page.get("items") or ())
            found.setdefault(kind, []).extend(map(qualified_name, filter(is_meant, items)))
    return {kind: sorted(names) for kind, names in found.items() if names}


def _read_kubeconfig(operator: GuardedOperator) -> str | Mapping[str, Any] | None:
    """Return a kubeconfig by the rules of Pulumi's Kubernetes provider: a file's path, or its content."""
    text = operator.kubeconfig
    if not text:
        return None
    if "\n" not in text and not text.lstrip().startswith("{"):
        return str(Path(text).expanduser())
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError:
        read = None
    if not isinstance(read, Mapping):
        raise ConfigurationError("the kubeconfig is neither a file nor the text of one")
    return read


def _is_variable_true(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in ("true", "1")
