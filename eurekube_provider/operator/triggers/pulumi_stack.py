"""Runs of a Stack by the Pulumi Kubernetes Operator, and the wait for their results.

Its protocol (``ReconcileRequestedPredicate`` in its stack_controller.go): a new value of the annotation makes
it run the Stack once; ``status.observedReconcileRequest`` shows that it has seen the value, and
``status.lastUpdate.reconcileRequest`` that a run for it has ended.

A Stack may take longer than the time-out. A second request would run it again, and the answer to the first
would be lost. So while an unanswered request of Eurekube is in the annotation, the answer to it is waited
for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.errors import EurekubeError, KubernetesError, LeadershipLost
from eurekube_provider.core.objects import conditions_of, is_being_deleted
from eurekube_provider.core.stack_refresh import StackAction
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, PULUMI_STACKS, KubeAccess
from eurekube_provider.operator.triggers.targets import (
    PulumiStack,
    StackRun,
    StackRunner,
    StackRunOutcome,
    StackRunResult,
)

REQUEST_ANNOTATION = "pulumi.com/reconciliation-request"
"""Annotation of a Stack whose new value makes the Pulumi Kubernetes Operator run it once."""

POLL_SECONDS = 2.0


def pulumi_stack_runner(
    stack: PulumiStack, access: KubeAccess, poll_seconds: float = POLL_SECONDS
) -> StackRunner:
    """Return a runner that asks the Pulumi Kubernetes Operator to run ``stack``."""
    path = PULUMI_STACKS.path(stack.namespace, stack.name)
    stack_label = f"the Stack {stack.namespace}/{stack.name}"

    def request(run: StackRun) -> StackRunResult:
        deadline = time.monotonic() + run.timeout_seconds
        try:
            found = access.get(path)
            refusal = _action_refusal_phrase(found, run.action)
            if refusal:
                return StackRunResult.failed(f"{stack_label} {refusal}")
            # A failed run is asked for again: of the same request the operator would only repeat the answer.
            value = (
                _reusable_request_value(found, run.idempotency_key, stack_label)
                or f"eurekube-{run.idempotency_key}-{run.attempt}"
            )
            annotation = {"metadata": {"annotations": {REQUEST_ANNOTATION: value}}}
            access.request("PATCH", path, body=annotation, content_type=MERGE_PATCH_TYPE)
        except LeadershipLost:
            raise
        except KubernetesError as error:
            return StackRunResult.failed(_explain_error(error, stack_label))
        trouble = "is the Pulumi Kubernetes Operator running?"
        while True:
            if run.cancelled.wait(poll_seconds):
                return StackRunResult.failed("given up, since the operator ends; the Stack goes on by itself")
            try:
                found = access.get(path)
            except EurekubeError as error:
                trouble = str(error)
            else:
                result = _request_result(found, value, stack_label)
                if result is not None:
                    return result
                if (found.get("status") or {}).get("observedReconcileRequest") == value:
                    waits_for = conditions_of(found).get("Reconciling", {}).get("message")
                    trouble = "it has seen the request, and goes on by itself"
                    trouble += f" ({waits_for})" if waits_for else ""
            if time.monotonic() >= deadline:
                message = f"{stack_label} has not ended a run within {run.timeout_seconds:g} s"
                return StackRunResult(StackRunOutcome.PENDING, f"{message}, and is waited for: {trouble}")

    return request


def _action_refusal_phrase(stack: Mapping[str, Any], action: StackAction) -> str | None:
    """Return why a request would not run the action; the Stack's own spec decides what a request does."""
    spec = stack.get("spec") or {}
    if is_being_deleted(stack):
        return "is being deleted"
    if action is StackAction.PREVIEW and not spec.get("preview"):
        return "has no spec.preview: a request would change things, and action Preview must not"
    if action is not StackAction.PREVIEW and spec.get("preview"):
        return f"has spec.preview: a request would only show what action {action} should do"
    if action is StackAction.REFRESH and not spec.get("refresh"):
        return (
            "has no spec.refresh: a request would run its program without a refresh; set it, or ask for "
            "action Up"
        )
    return None


def _reusable_request_value(stack: Mapping[str, Any], key: str, stack_label: str) -> str | None:
    """Return the Stack's present request for the same run if it is under way or has succeeded; else None."""
    value = str((stack["metadata"].get("annotations") or {}).get(REQUEST_ANNOTATION) or "")
    if not value.startswith(f"eurekube-{key}-"):
        return None
    result = _request_result(stack, value, stack_label)
    return value if result is None or result.outcome.is_success else None


def _request_result(stack: Mapping[str, Any], value: str, stack_label: str) -> StackRunResult | None:
    """Return the result of the request; None while it has none."""
    status = stack.get("status") or {}
    last = status.get("lastUpdate") or {}
    if last.get("reconcileRequest") == value:
        message = f"{stack_label} ran: {last.get('type') or 'update'} {last.get('state')}"
        if last.get("state") == "succeeded":
            return StackRunResult(StackRunOutcome.SUCCEEDED, message)
        return StackRunResult.failed(f"{message}: {last.get('message') or 'it says no reason'}")
    stalled = conditions_of(stack).get("Stalled", {})
    if status.get("observedReconcileRequest") == value and stalled.get("status") == "True":
        return StackRunResult.failed(
            f"{stack_label} is stalled ({stalled.get('reason')}): {stalled.get('message')}"
        )
    return None


def _explain_error(error: KubernetesError, stack_label: str) -> str:
    if error.status_code == 404:
        return f"{stack_label} is not there, or the cluster does not know the kind: {error}"
    if error.status_code == 403:
        return f"{error}; allow the operator to get and patch {stack_label}"
    return str(error)
