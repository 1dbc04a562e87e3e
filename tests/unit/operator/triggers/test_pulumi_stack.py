"""The pulumiStack target: requests to a Stack of the Pulumi Kubernetes Operator, and the reading of its
status.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.stack_refresh import StackAction
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.triggers.pulumi_stack import pulumi_stack_runner
from eurekube_provider.operator.triggers.targets import PulumiStack, StackRun, StackRunOutcome, StackRunResult

Object = dict[str, Any]
VALUE = "eurekube-abc-2"


class Stack(KubeAccess):
    """An API server with one Stack, whose status becomes the next of ``acts`` at each read after the
    request.
    """

    def __init__(self, *acts: Object | KubernetesError, **spec: Any) -> None:
        super().__init__(client.Configuration(host="http://127.0.0.1:1"))
        self.item: Object = {"metadata": {"name": "prod"}, "spec": spec}
        self.acts = list(acts)
        self.requested: list[str] = []

    def request(self, method: str, path: str, *_: Any, **more: Any) -> Object:
        """Read the Stack, or annotate it."""
        assert path == "/apis/pulumi.com/v1/namespaces/pulumi/stacks/prod"
        if method == "PATCH":
            annotations = more["body"]["metadata"]["annotations"]
            value = annotations["pulumi.com/reconciliation-request"]
            if value != self.item["metadata"].get("annotations", {}).get("pulumi.com/reconciliation-request"):
                self.requested.append(value)
            self.item["metadata"]["annotations"] = annotations
        elif self.item["metadata"].get("annotations") and self.acts:
            act = self.acts.pop(0)
            if isinstance(act, KubernetesError):
                raise act
            self.item["status"] = act
        return self.item


def asked(
    stack: KubeAccess, action: StackAction = StackAction.UP, timeout_seconds: float = 30.0, **more: Any
) -> StackRunResult:
    """Request a run from the Stack, and return the result."""
    run = StackRun("shop", "rating", action, "eks", {}, "abc", 2, timeout_seconds, threading.Event())
    if more.get("cancelled"):
        run.cancelled.set()
    return pulumi_stack_runner(PulumiStack("pulumi", "prod"), stack, poll_seconds=0.01)(run)


def test_a_request_is_seen_and_served() -> None:
    """The run ends when the status names this request as updated; an older request's update does not end
    it.
    """
    old = {"reconcileRequest": "eurekube-abc-1", "state": "succeeded"}
    stack = Stack(
        {"lastUpdate": old},
        KubernetesError("no answer"),
        {"observedReconcileRequest": VALUE, "lastUpdate": old},
        {
            "observedReconcileRequest": VALUE,
            "lastUpdate": {"reconcileRequest": VALUE, "state": "succeeded", "type": "up"},
        },
    )
    assert asked(stack) == StackRunResult(
        StackRunOutcome.SUCCEEDED, "the Stack pulumi/prod ran: up succeeded"
    )
    assert stack.requested == [VALUE]


def test_a_run_that_fails_says_why() -> None:
    """The result contains the message of the Pulumi Kubernetes Operator."""
    last = {"reconcileRequest": VALUE, "state": "failed", "type": "up", "message": "exit status 255"}
    result = asked(Stack({"observedReconcileRequest": VALUE, "lastUpdate": last}))
    assert result == StackRunResult(
        StackRunOutcome.FAILED, "the Stack pulumi/prod ran: up failed: exit status 255"
    )


def test_a_stack_that_is_stalled() -> None:
    """The condition Stalled counts once the request was observed; an earlier one may be outdated."""
    stalled = {"type": "Stalled", "status": "True", "reason": "SpecInvalid", "message": "no source"}
    stack = Stack({"conditions": [stalled]}, {"observedReconcileRequest": VALUE, "conditions": [stalled]})
    assert asked(stack).message == "the Stack pulumi/prod is stalled (SpecInvalid): no source"
    assert stack.acts == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "is the Pulumi Kubernetes Operator running?"),
        ({"observedReconcileRequest": VALUE}, "it has seen the request, and goes on by itself"),
        (
            {
                "observedReconcileRequest": VALUE,
                "conditions": [{"type": "Reconciling", "message": "prerequisite failed"}],
            },
            "goes on by itself (prerequisite failed)",
        ),
    ],
)
def test_the_deadline(status: Object, words: str) -> None:
    """At its deadline the run is pending, and the message says how far the request came."""
    result = asked(Stack(status), timeout_seconds=0.2)
    assert result.outcome is StackRunOutcome.PENDING
    assert result.message.endswith(words)


def test_a_stack_that_is_slow_is_asked_once() -> None:
    """Later runs wait for the same pending request, and report its late success."""
    running = {"observedReconcileRequest": VALUE}
    stack = Stack(running)
    assert asked(stack, timeout_seconds=0.1).outcome is StackRunOutcome.PENDING
    assert asked(stack, timeout_seconds=0.1).outcome is StackRunOutcome.PENDING
    stack.item["status"] = {**running, "lastUpdate": {"reconcileRequest": VALUE, "state": "succeeded"}}
    assert asked(stack).outcome is StackRunOutcome.SUCCEEDED
    assert stack.requested == [VALUE]


def test_another_try_waits_for_what_an_earlier_one_asked() -> None:
    """The API server may have taken a request that it answered with an error; a new request follows only
    after a failure.
    """
    earlier = "eurekube-abc-1"
    for state, requested in (("", []), ("succeeded", []), ("failed", [VALUE])):
        stack = Stack()
        stack.item["metadata"]["annotations"] = {"pulumi.com/reconciliation-request": earlier}
        if state:
            stack.item["status"] = {"lastUpdate": {"reconcileRequest": earlier, "state": state}}
        expected = StackRunOutcome.SUCCEEDED if state == "succeeded" else StackRunOutcome.PENDING
        assert asked(stack, timeout_seconds=0.1).outcome is expected
        assert stack.requested == requested
    stack = Stack()
    stack.item["metadata"]["annotations"] = {"pulumi.com/reconciliation-request": "eurekube-another-1"}
    asked(stack, timeout_seconds=0.1)
    assert stack.requested == [VALUE]


def test_an_operator_that_ends_waits_no_longer() -> None:
    """The message says that the Stack's run continues without the operator."""
    assert "the Stack goes on by itself" in asked(Stack(), cancelled=True).message


@pytest.mark.parametrize(
    ("spec", "action", "words"),
    [
        ({}, StackAction.PREVIEW, "has no spec.preview: a request would change things"),
        ({"preview": True}, StackAction.UP, "has spec.preview: a request would only show"),
        ({"preview": True, "refresh": True}, StackAction.REFRESH, "has spec.preview"),
        ({}, StackAction.REFRESH, "has no spec.refresh"),
    ],
)
def test_a_request_that_would_do_something_else(spec: Object, action: StackAction, words: str) -> None:
    """The Stack's spec decides what a request does; an action that it would not carry out is refused."""
    stack = Stack(**spec)
    result = asked(stack, action)
    assert result.outcome is StackRunOutcome.FAILED
    assert words in result.message
    assert stack.requested == []


@pytest.mark.parametrize(
    ("spec", "action"),
    [({"preview": True}, StackAction.PREVIEW), ({"refresh": True}, StackAction.REFRESH)],
)
def test_a_request_that_does_what_is_meant(spec: Object, action: StackAction) -> None:
    """A Stack with ``spec.preview`` serves Preview, one with ``spec.refresh`` serves Refresh."""
    done = {"lastUpdate": {"reconcileRequest": VALUE, "state": "succeeded"}}
    assert asked(Stack(done, **spec), action).outcome is StackRunOutcome.SUCCEEDED


def test_a_stack_that_is_being_deleted() -> None:
    """A Stack that is being deleted gets no request."""
    stack = Stack()
    stack.item["metadata"]["deletionTimestamp"] = "now"
    assert asked(stack).message == "the Stack pulumi/prod is being deleted"


def refusing(status_code: int) -> Callable[..., Object]:
    """Return a request function that raises this HTTP status."""

    def request(*_: Any, **__: Any) -> Object:
        raise KubernetesError(f"GET: answered {status_code}", status_code=status_code)

    return request


@pytest.mark.parametrize(
    ("status_code", "words"),
    [
        (404, "is not there, or the cluster does not know the kind"),
        (403, "allow the operator to get and patch the Stack pulumi/prod"),
        (500, "answered 500"),
    ],
)
def test_a_stack_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, status_code: int, words: str) -> None:
    """The message names what is missing, such as the Stack, its kind or a right."""
    stack = Stack()
    monkeypatch.setattr(stack, "request", refusing(status_code))
    result = asked(stack)
    assert result.outcome is StackRunOutcome.FAILED
    assert words in result.message


_TARGETED = {"stack": "dev", "programRef": {"name": "targets"}, "targets": ["urn:pulumi:dev::targets::x"]}
_CURRENT = {"programRef": {"name": "nginx"}, "refresh": True, "continueResyncOnCommitMatch": False}
_NEXT = {**_CURRENT, "preview": True, "resyncFrequencySeconds": 300, "prerequisites": [{"name": "current"}]}


@pytest.mark.parametrize(
    ("spec", "served"),
    [
        (_TARGETED, {StackAction.UP}),
        (_CURRENT, {StackAction.UP, StackAction.REFRESH}),
        (_NEXT, {StackAction.PREVIEW}),
    ],
    ids=["with targets", "with a refresh", "that only previews"],
)
def test_stacks_as_the_operators_own_tests_have_them(spec: Object, served: set[StackAction]) -> None:
    """Specs from the Pulumi operator's tests serve exactly their actions, and stay unchanged."""
    for action in StackAction:
        done = {"reconcileRequest": VALUE, "state": "succeeded", "type": "up"}
        stack = Stack({"observedReconcileRequest": VALUE, "lastUpdate": done}, **spec)
        result = asked(stack, action)
        assert (result.outcome is StackRunOutcome.SUCCEEDED) == (action in served), result
        assert bool(stack.requested) == (action in served)
        assert stack.item["spec"] == spec
