"""The example programs under a real Pulumi CLI, used as their README says."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.automation import Outcome, Target, up
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from lab import Lab
from lab.programs import find_kubectl
from lab.workloads import Cluster, wait_for
from tests.system.conftest import addresses, instances, ready, run_commands
from tests.system.stacks import ROOT, Example, endpoints_example, needs_kubectl, needs_pulumi, own_pulumi

pytestmark = [
    pytest.mark.lab,
    pytest.mark.pulumi,
    needs_pulumi,
]


def test_a_stack_follows_the_endpoints(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    eureka: Peers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After each ``up`` cluster, stack and Eureka agree; if the Service has no ready endpoint the run
    fails, and the instances stay.
    """
    service = f"{namespace}-app"
    cluster.apply_deployment(namespace, service, 2)
    cluster.apply_service(namespace, service)
    stack = endpoints_example(lab, namespace, service, tmp_path)
    for key, value in stack.environment.items():
        monkeypatch.setenv(key, value)
    target = Target("dev", stack.project)
    for replicas in (2, 5, 1):
        cluster.scale(namespace, service, replicas)
        pods = ready(cluster, namespace, service, replicas)
        run = up(target)
        assert run.outcome is Outcome.CHANGED, run
        assert addresses(eureka, service) == dict.fromkeys(pods, "UP")
        assert stack.outputs()["addresses"] == pods
    assert up(target).outcome is Outcome.UNCHANGED
    cluster.scale(namespace, service, 0)
    wait_for(lambda: not cluster.ready_addresses(namespace, service), "no endpoints")
    run = up(target)
    assert run.outcome is Outcome.FAILED
    assert f"Service {namespace}/{service} has 0 ready endpoints, fewer than" in run.message
    assert addresses(eureka, service) == dict.fromkeys(pods, "UP")
    stack.destroy()
    assert addresses(eureka, service) == {}


def test_a_team_cannot_touch_what_others_registered(lab: Lab, eureka: Peers, tmp_path: Path) -> None:
    """A team's stack cannot change others' registrations: not by their application, by adoption, or by
    their id.
    """
    environment = own_pulumi(tmp_path)
    theirs = Example("shared-eureka", tmp_path / "theirs", environment)
    program = theirs.project / "__main__.py"
    program.write_text(program.read_text().replace('["orders", "orders-admin"]', '["billing"]'))
    project = theirs.project / "Pulumi.yaml"
    project.write_text(project.read_text().replace("team-orders", "team-billing"))
    url, place = lab.eureka_urls[0], "billing-1:billing:8080"
    theirs.init({"eurekube:url": url, **registration("billing", instanceId=place)})
    theirs.up()
    (before,) = instances(eureka, "billing")

    ours = Example("shared-eureka", tmp_path / "ours", environment)
    ours.init({"eurekube:url": url, **registration("orders")})
    ours.up()
    assert list(addresses(eureka, "orders").values()) == ["UP"]

    def attempt(application: str, **more: str) -> str:
        ours.configure(registration(application, **more))
        said = ours.up(fails=True)
        assert [each.metadata for each in instances(eureka, "billing")] == [before.metadata]
        return said

    assert "may register ORDERS, ORDERS-ADMIN, not billing" in attempt("billing", instanceId=place)
    assert "may take over nothing" in attempt("orders", onConflict="adopt")
    program = ours.project / "__main__.py"
    program.write_text(program.read_text().replace('may_only_register(["orders", "orders-admin"])', ""))
    said = attempt("billing", instanceId=place)
    assert "belongs to stack/organization/team-billing/dev/billing-192.0.2.60 and was left as it is" in said
    ours.destroy()
    assert [each.host_name for each in instances(eureka, "billing")] == [before.host_name]


@needs_kubectl
def test_the_three_ways_from_a_clone(lab: Lab, cluster: Cluster, eureka: Peers, tmp_path: Path) -> None:
    """The commands of docs/start/clone.md work as written, in a copy of the files that they name."""
    kubectl = find_kubectl()
    assert kubectl is not None
    page = (ROOT / "docs" / "start" / "clone.md").read_text()
    section = page.partition("## Three ways to use it")[2].partition("\n## ")[0]
    setup, first, second, third = section.split("```")[1::2]
    assert setup == "\nmake setup\nsource .venv/bin/activate\n"  # which have been run
    for name in ("crds", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    own = own_pulumi(tmp_path)
    environment = {
        **own,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(kubectl.parent), own["PATH"]]),
        "KUBECONFIG": str(lab.kubeconfig),
        "EUREKA_URL": ",".join(lab.eureka_urls),
    }

    def run(commands: str, folder: str = ".") -> str:
        return run_commands(commands, tmp_path / folder, environment)

    cluster.create_namespace("shop")
    for service in ("rating", "cart"):
        for left in instances(eureka, service):  # by an attempt before this one
            Writer(eureka).remove(left)
        cluster.apply_deployment("shop", service, 2)
        cluster.apply_service("shop", service)
        wait_for(lambda: cluster.has_ready_pods("shop", service, 2), "endpoints")  # noqa: B023
    run(first)
    ready = dict.fromkeys(cluster.ready_addresses("shop", "rating"), "UP")
    assert addresses(eureka, "rating") == ready
    run(second)
    assert addresses(eureka, "cart") == dict.fromkeys(cluster.ready_addresses("shop", "cart"), "UP")
    said = run(third, "examples/endpoints")
    assert '"outcome": "unchanged"' in said
    assert "Nothing changes in Eureka." in said
    assert '"drifted": false' in said
    run("pulumi destroy --yes --stack dev", "examples/endpoints")
    run(
        "kubectl delete --wait=false -f examples/rating-syncer.yaml;"
        " eurekube operator --once --watch-namespace shop"
    )
    assert addresses(eureka, "cart") == {}


def registration(application: str, **more: str) -> dict[str, Any]:
    """Return the configuration of a team with one registration."""
    return {"registrations": [{"application": application, "host": "192.0.2.60", "port": 8080, **more}]}
