"""The transform DrainBeforeStop, applied to resources as the engine passes them."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pytest
from pulumi.runtime import rpc

from eurekube_provider import Drain, DrainBeforeStop
from eurekube_provider.resources.program import ProgramError

SHORT = Drain(client_fetch_seconds=5, load_balancer_cache_seconds=0)


pytestmark = pytest.mark.usefixtures("loop")


def spec(**container: Any) -> dict[str, Any]:
    """Return the spec of a Deployment with one container."""
    return {
        "replicas": 2.0,
        "template": {
            "metadata": {"labels": {"app": "rating"}},
            "spec": {"containers": [{"name": "app", "image": "rating", **container}]},
        },
    }


def transformed(
    transform: DrainBeforeStop, given: Any, kind: str = "kubernetes:apps/v1:Deployment"
) -> pulumi.ResourceTransformResult | None:
    """Return the transform's result for a resource with this spec."""
    props = {"apiVersion": "apps/v1", "kind": kind.rpartition(":")[2], "spec": given}
    return transform(
        pulumi.ResourceTransformArgs(
            custom=True, type_=kind, name="rating", props=props, opts=pulumi.ResourceOptions(protect=True)
        )
    )


def resolved(loop: asyncio.AbstractEventLoop, output: Any) -> tuple[Any, bool, bool]:
    """Return an output's value, whether it is known, and whether it is secret."""
    assert isinstance(output, pulumi.Output)

    async def wait() -> tuple[Any, bool, bool]:
        value = await output.future(with_unknowns=True)
        return value, await output.is_known(), await output.is_secret()

    return loop.run_until_complete(wait())


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_workloads_drain(kind: str) -> None:
    """Deployments and StatefulSets get preStop, grace period and ``minReadySeconds``; the rest is
    unchanged.
    """
    result = transformed(DrainBeforeStop(SHORT), spec(), f"kubernetes:apps/v1:{kind}")
    assert result is not None
    assert result.opts.protect
    assert (result.props["apiVersion"], result.props["kind"]) == ("apps/v1", kind)
    made: Any = result.props["spec"]
    pod = made["template"]["spec"]
    assert made["minReadySeconds"] == 60
    assert pod["terminationGracePeriodSeconds"] == 90
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 60}}}


def test_pods_wait_for_callers_where_that_is_asked_for() -> None:
    """With ``readiness_gate`` the template gets the gate in place of ``minReadySeconds``."""
    result = transformed(DrainBeforeStop(SHORT, readiness_gate=True), spec(), "kubernetes:apps/v1:Deployment")
    assert result is not None
    made: Any = result.props["spec"]
    assert "minReadySeconds" not in made
    gates = made["template"]["spec"]["readinessGates"]
    assert gates == [{"conditionType": "eurekube.io/callers-know"}]


@pytest.mark.parametrize(
    "kind", ["kubernetes:apps/v1:DaemonSet", "kubernetes:core/v1:Pod", "my:own:Component"]
)
def test_others_are_left_alone(kind: str) -> None:
    """Other kinds do not roll from pod to pod, and stay unchanged."""
    assert transformed(DrainBeforeStop(), spec(), kind) is None


def test_only_the_pods_that_are_meant() -> None:
    """``match_labels`` selects pods; the operator's own pods are never changed."""

    def is_changed(transform: DrainBeforeStop, given: dict[str, Any]) -> bool:
        result = transformed(transform, given)
        assert result is not None
        return bool(result.props["spec"] != given)

    operator = spec()
    operator["template"]["metadata"]["labels"] = {"app.kubernetes.io/name": "eurekube-operator"}
    assert is_changed(DrainBeforeStop(match_labels={"app": "rating"}), spec())
    assert not is_changed(DrainBeforeStop(match_labels={"app": "cart"}), spec())
    assert not is_changed(DrainBeforeStop(), operator)


def test_what_is_not_known_yet_hides_nothing_else(loop: asyncio.AbstractEventLoop) -> None:
    """An unknown image, grace period or template leaves the other values known."""
    image: pulumi.Output[str] = pulumi.Output.from_input(pulumi.output.UNKNOWN)  # type: ignore[arg-type]
    given = spec(image=image)
    given["template"]["spec"]["terminationGracePeriodSeconds"] = pulumi.Output.from_input(60)
    result = transformed(DrainBeforeStop(SHORT), given)
    assert result is not None
    pod: Any = result.props["spec"]["template"]["spec"]  # type: ignore[index]
    assert pod["containers"][0]["image"] is image
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 60}}}
    assert resolved(loop, pod["terminationGracePeriodSeconds"]) == (120, True, False)
    unknown = transformed(DrainBeforeStop(SHORT), {**spec(), "template": pulumi.output.UNKNOWN})
    assert unknown is not None
    made: Any = unknown.props["spec"]
    assert made["minReadySeconds"] == 60
    assert not resolved(loop, made["template"])[1]


def test_a_deadline_is_kept_or_raised_when_it_is_known(loop: asyncio.AbstractEventLoop) -> None:
    """A ``progressDeadlineSeconds`` that is another resource's output is raised if it is too short."""

    def deadline(**more: Any) -> Any:
        result = transformed(DrainBeforeStop(SHORT), {**spec(), **more})
        assert result is not None
        made: Any = result.props["spec"]
        return made["progressDeadlineSeconds"]

    short, long = (pulumi.Output.from_input(seconds) for seconds in (30.0, 90.0))
    assert resolved(loop, deadline(progressDeadlineSeconds=short)) == (60 + 600, True, False)
    assert resolved(loop, deadline(progressDeadlineSeconds=long)) == (90, True, False)
    assert resolved(loop, deadline(minReadySeconds=long)) == (600, True, False)
    both = deadline(minReadySeconds=pulumi.output.UNKNOWN, progressDeadlineSeconds=short)
    assert not resolved(loop, both)[1]


def test_what_is_secret_stays_secret(loop: asyncio.AbstractEventLoop) -> None:
    """A secret variable makes the engine wrap the whole spec as a secret, which the result stays."""
    result = transformed(DrainBeforeStop(SHORT), rpc.wrap_rpc_secret(spec()))
    assert result is not None
    value, is_known, is_secret = resolved(loop, result.props["spec"])
    assert (value["minReadySeconds"], is_known, is_secret) == (60, True, True)


def test_a_prestop_that_is_there_is_refused() -> None:
    """The error names the resource and the container."""
    there = spec(lifecycle={"preStop": {"exec": {"command": ["/drain"]}}})
    with pytest.raises(ProgramError, match="Deployment 'rating': DrainBeforeStop: the container 'app' has a"):
        transformed(DrainBeforeStop(), there)


def test_a_hook_that_there_is_not() -> None:
    """An unknown hook is refused when the transform is constructed."""
    with pytest.raises(ProgramError, match="hook must be sleep or exec, not 'nap'"):
        DrainBeforeStop(hook="nap")


def test_a_text_where_a_list_is_meant() -> None:
    """A string for ``containers`` would be iterated by letter, and is refused."""
    with pytest.raises(ProgramError, match=r"containers must be a list: write \['app'\]"):
        DrainBeforeStop(containers="app")
