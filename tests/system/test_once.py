"""``operator --once``, ``--dry-run`` and ``--check`` on real servers: their output and their effects."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import EVENTS, LEASES, SYNCERS, ApiResource
from eurekube_provider.kube.rights import CLUSTER_RULES, NAMESPACE_RULES, Rule, election_rules
from lab import Lab
from lab.workloads import Cluster, wait_for
from tests.system.conftest import ROOT, StartOperator, addresses, ready, running

pytestmark = pytest.mark.lab

ACCOUNTS = ApiResource("", "v1", "serviceaccounts")
ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = ApiResource("rbac.authorization.k8s.io", "v1", "rolebindings")

OperatorCommand = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def operator(lab: Lab, namespace: str) -> OperatorCommand:
    """Return a function that runs ``eurekube operator`` for the test's namespace, with the kubeconfig's
    current context.
    """

    def run(*arguments: str, expected: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "eurekube_provider.cli.main", "operator", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "EUREKA_URL": ",".join(lab.eureka_urls),
                "KUBECONFIG": str(lab.kubeconfig),
                "WATCH_NAMESPACE": namespace,
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == expected, done.stdout + done.stderr
        return done

    return run


def published(cluster: Cluster, namespace: str, app: str, replicas: int) -> list[str]:
    """Create a Deployment, its Service and its syncer; return the ready addresses."""
    found = running(cluster, namespace, app, replicas)
    cluster.apply_syncer(namespace, app)
    return found


def touched(cluster: Cluster, namespace: str, app: str) -> tuple[Any, Any, list[Any]]:
    """Return what the operator wrote about a syncer: finalizers, a status other than the CRD's default,
    and Events.
    """
    syncer = cluster.get(SYNCERS, app, namespace) or {}
    events = [
        event
        for event in cluster.items(EVENTS, namespace)
        if event["regarding"].get("kind") == "EurekaSyncer"
    ]
    status = syncer.get("status")
    is_default = [one["reason"] for one in (status or {}).get("conditions", ())] == ["AwaitingOperator"]
    return syncer["metadata"].get("finalizers"), None if is_default else status, events


def test_a_dry_run_changes_nothing_and_the_real_one_does_what_it_said(
    cluster: Cluster, eureka: Peers, namespace: str, operator: OperatorCommand
) -> None:
    """The dry run and the real run print the same plan; only the real run registers, and writes to the
    syncer.
    """
    app = f"{namespace}-app"
    pods = published(cluster, namespace, app, 2)
    planned = operator("--once", "--dry-run").stdout
    assert planned.count("\n  + ") == 2
    assert all(f" UP {address}:8080" in planned for address in pods)
    assert "2 to register" in planned
    assert addresses(eureka, app) == {}
    assert touched(cluster, namespace, app) == (None, None, [])

    assert operator("--once").stdout == planned
    assert addresses(eureka, app) == dict.fromkeys(pods, "UP")
    finalizers, status, events = touched(cluster, namespace, app)
    assert finalizers == ["eurekube.io/deregister"]
    assert (status["instances"], [event["reason"] for event in events]) == ("2/2", ["Registered"])

    again = json.loads(operator("--once", "--output", "json").stdout)
    (syncer,) = again["syncers"]
    assert syncer["owner"].endswith(f"/{namespace}/{app}")
    assert syncer["plans"] == [{"changes": [], "refusals": []}]
    assert (again["dryRun"], syncer["problem"], syncer["failures"]) == (False, None, [])


def test_removals_in_one_pass(
    cluster: Cluster, eureka: Peers, namespace: str, operator: OperatorCommand
) -> None:
    """One pass deregisters the instances of a deleted syncer, and keeps those of a Service that suddenly
    has no endpoints.
    """
    kept, gone = f"{namespace}-kept", f"{namespace}-gone"
    pods = published(cluster, namespace, kept, 2)
    published(cluster, namespace, gone, 1)
    operator("--once")
    cluster.delete(ApiResource("", "v1", "services"), kept, namespace)
    cluster.delete(SYNCERS, gone, namespace)
    planned = operator("--once", "--dry-run").stdout
    assert f"- {gone.upper()} " in planned
    assert len(addresses(eureka, gone)) == 1
    assert cluster.get(SYNCERS, gone, namespace) is not None
    done = operator("--once").stdout
    assert "! Braked: all 2 instances would go" in done
    assert addresses(eureka, gone) == {}
    assert addresses(eureka, kept) == dict.fromkeys(pods, "UP")
    wait_for(lambda: cluster.get(SYNCERS, gone, namespace) is None, "the finalizer to be released")


def is_gone(cluster: Cluster, namespace: str, name: str) -> bool:
    """Return whether a syncer no longer exists."""
    return cluster.get(SYNCERS, name, namespace) is None


def test_one_pass_lets_syncers_go_whose_operator_is_gone(
    cluster: Cluster, eureka: Peers, namespace: str, operator: OperatorCommand
) -> None:
    """One pass finishes deleted syncers whose operator is gone; its dry run says so before."""
    app, empty = f"{namespace}-app", f"{namespace}-empty"
    published(cluster, namespace, app, 1)
    cluster.apply_syncer(namespace, empty)
    operator("--once")
    for name in (app, empty):
        cluster.delete(SYNCERS, name, namespace)
        assert cluster.get(SYNCERS, name, namespace) is not None
    planned = operator("--once", "--dry-run").stdout
    assert planned.count("would be released: it was deleted, and waits for an operator") == 2
    assert "no changes" not in planned
    assert len(addresses(eureka, app)) == 1
    done = json.loads(operator("--once", "--output", "json").stdout)
    assert [(one["owner"].rpartition("/")[2], one["released"]) for one in done["syncers"]] == [
        (app, True),
        (empty, True),
    ]
    assert addresses(eureka, app) == {}
    for name in (app, empty):
        wait_for(partial(is_gone, cluster, namespace, name), f"{name} to go")


def test_a_pass_that_fails(namespace: str, cluster: Cluster, operator: OperatorCommand) -> None:
    """A pass without Eureka plans nothing, exits with 1, and says why in its last line."""
    published(cluster, namespace, f"{namespace}-app", 1)
    done = operator("--once", EUREKA_URL="http://127.0.0.1:9/eureka", expected=1)
    assert done.stdout == ""
    last = json.loads(done.stderr.splitlines()[-1])
    assert "Eureka 'default' (list the registry: no connection to http://127.0.0.1:9/eureka" in last["error"]


def test_a_dry_run_that_goes_on_tells_of_each_new_plan(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """A continuous dry run follows the cluster, logs each new plan, and changes nothing."""
    app = f"{namespace}-app"
    published(cluster, namespace, app, 1)
    operator = start_operator("--dry-run")
    wait_for(lambda: "1 to register" in operator.text(), "the first plan")
    cluster.scale(namespace, app, 3)
    wait_for(lambda: "3 to register" in operator.text(), "a new plan")
    assert addresses(eureka, app) == {}
    assert touched(cluster, namespace, app) == (None, None, [])
    assert operator.stop() == 0


def test_a_check_with_all_rights(operator: OperatorCommand, lab: Lab) -> None:
    """For an administrator the check reports no missing right, and exits with 0."""
    text = operator("--check", WATCH_NAMESPACE="").stdout  # or it would name other tests' syncers
    assert "all is well" in text.splitlines()[-1]
    assert f"eureka      default {lab.eureka_urls[0]}: answers" in text
    assert "patch eurekasyncers/status: allowed" in text
    assert "list, watch services in all namespaces" in text
    assert "note     name        " in text


def written(rule: Rule) -> dict[str, Any]:
    """Return a rule in the form of a Role."""
    return {
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
        "verbs": list(rule.verbs),
        **({"resourceNames": list(rule.resource_names)} if rule.resource_names else {}),
    }


def test_a_check_names_missing_rights_and_unreachable_servers(
    cluster: Cluster,
    lab: Lab,
    namespace: str,
    operator: OperatorCommand,
    start_operator: StartOperator,
    tmp_path: Path,
) -> None:
    """The check of a ServiceAccount that may not write Events names that right and its effect; the
    operator still works.
    """
    metadata = {"name": "limited", "namespace": namespace}
    cluster.apply(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    local = (*NAMESPACE_RULES, *election_rules("eurekube-leader"), *election_rules(f"{namespace}-leader"))
    rules = [written(rule) for rule in local if rule.resources != ("events",)]
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", **metadata}]
    cluster.apply(ROLES, {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    binding = {"apiVersion": f"{group}/v1", "metadata": metadata, "subjects": subjects}
    cluster.apply(
        BINDINGS,
        {**binding, "kind": "RoleBinding", "roleRef": {"apiGroup": group, "kind": "Role", "name": "limited"}},
    )
    whole: dict[str, Any] = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": namespace},
        "rules": [written(rule) for rule in CLUSTER_RULES],
    }
    cluster.apply(ApiResource(group, "v1", "clusterroles"), whole)
    cluster_binding = {**binding, "metadata": {"name": namespace}, "kind": "ClusterRoleBinding"}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": namespace}
    cluster.apply(ApiResource(group, "v1", "clusterrolebindings"), {**cluster_binding, "roleRef": role})
    kubeconfig = lab.service_account_kubeconfig(namespace, "limited", tmp_path / "limited")

    dead = "http://127.0.0.1:9/eureka"
    urls = f"{lab.eureka_urls[0]},{dead}"
    findings = json.loads(
        operator(
            *("--check", "--output", "json", "--kubeconfig", str(kubeconfig)),
            EUREKA_URL=urls,
            LEASE_NAMESPACE=namespace,
            expected=1,
        ).stdout
    )
    warnings = {
        finding["subject"]: finding["detail"] for finding in findings if finding["verdict"] == "warning"
    }
    events, server = f"create events in namespace {namespace}", f"default {dead}"
    # Other tests leave syncers that nobody serves.
    assert {one for one in warnings if not one.startswith("EurekaSyncer ")} == {events, server}
    assert "no Events are written; everything else works" in warnings[events]
    assert "no connection" in warnings[server]

    running = start_operator("--kubeconfig", str(kubeconfig), EUREKA_URL=urls, LEASE_NAMESPACE=namespace)
    said = wait_for(
        lambda: [line for line in running.text().splitlines() if '"self-check ' in line and events in line],
        "the finding in the log",
    )
    line = json.loads(said[0])
    assert (line["level"], line["check"], line["verdict"]) == ("warning", "permission", "warning")


def test_one_pass_waits_for_the_lease_as_any_replica(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator, operator: OperatorCommand
) -> None:
    """A pass waits while a living leader holds the Lease; a pass that was paused finds the Lease taken, and
    writes nothing more.

    Pass and leader would change the same instances, which only the Lease's holder may.
    """
    app = f"{namespace}-app"
    leader = start_operator()
    pods = published(cluster, namespace, app, 1)
    wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "the leader's registration")
    lease = {"LEASE_NAME": f"{namespace}-leader"}
    refused = operator("--once", expected=1, **lease)
    assert "leads and renews the Lease default/" in refused.stdout + refused.stderr
    leader.process.send_signal(signal.SIGSTOP)
    try:
        cluster.apply_deployment(namespace, app, 2)
        both = ready(cluster, namespace, app, 2)
        done = operator("--once", **lease)
        assert "1 to register" in done.stdout
        assert addresses(eureka, app) == dict.fromkeys(both, "UP")
        holder = (cluster.get(LEASES, lease["LEASE_NAME"], "default") or {})["spec"]
        assert (holder["holderIdentity"], holder["leaseTransitions"]) == ("", 1)
        cluster.delete(ApiResource("", "v1", "services"), app, namespace)
        without = operator("--once", "--without-lease", "--dry-run", **lease)
        assert "Braked" in without.stdout
    finally:
        leader.process.send_signal(signal.SIGCONT)
    wait_for(
        lambda: "lost the Lease to another replica" in leader.text(),
        "the leader to read that it lost the Lease",
    )
    wait_for(lambda: leader.text().count("became the leader") == 2, "the leader to take it again")
