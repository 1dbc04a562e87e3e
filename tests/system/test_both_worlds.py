"""``eurekube status``, ``plan``, ``instances`` and ``explain`` beside an operator that works."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.cli.main import main
from eurekube_provider.core.model import EurekaLease, Status
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from lab import Lab
from lab.listing import wait_until_listed
from lab.workloads import Cluster, wait_for
from tests.system.conftest import StartOperator, instances, of_a_machine, running
from tests.system.test_web import document, listening_port

pytestmark = pytest.mark.lab

WAIT_SECONDS = 60.0

CLUSTER = "named-otherwise"
"""A cluster name that is set for the operator only, not for the commands."""


def asked(capsys: pytest.CaptureFixture[str], lab: Lab, *words: str) -> tuple[int, Any]:
    """Run a command; return its exit code and its output as JSON."""
    capsys.readouterr()
    reach = ("--kubeconfig", str(lab.kubeconfig), "--eureka-url", ",".join(lab.eureka_urls))
    code = main([*words, *reach, "--output", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_both_worlds_as_they_are(
    capsys: pytest.CaptureFixture[str],
    cluster: Cluster,
    eureka: Peers,
    lab: Lab,
    namespace: str,
    start_operator: StartOperator,
) -> None:
    """Commands and web page agree on syncers that are in sync, on another owner's instance and on an
    unready pod.
    """
    good, taken = f"{namespace}-good", f"{namespace}-taken"
    for name, replicas in ((good, 2), (taken, 1)):
        running(cluster, namespace, name, replicas)
    foreign = replace(of_a_machine(cluster, namespace, taken, CLUSTER), lease=EurekaLease(30, 300))
    Writer(eureka).register(foreign)
    operator = start_operator("--cluster-name", CLUSTER, "--web-address", "127.0.0.1:0")
    port = wait_for(lambda: listening_port(operator.text()), "the web's port", WAIT_SECONDS)
    for name in (good, taken):
        cluster.apply_syncer(namespace, name)
    wait_for(lambda: len(instances(eureka, good)) == 2, "2 registered", WAIT_SECONDS)
    wait_until_listed(lab.eureka_urls[0], [*instances(eureka, good), *instances(eureka, taken)])

    def rows() -> dict[tuple[str, str], tuple[str, str]]:
        _, found = asked(capsys, lab, "status", "-n", namespace)
        return {
            (one["application"], one["keeper"]["kind"]): (one["state"], one["reason"])
            for one in found["applications"]
            if one["application"] in (good.upper(), taken.upper())
        }

    expected = {
        (taken.upper(), "syncer"): ("not ready", "Conflict"),
        (good.upper(), "syncer"): ("synced", ""),
        (taken.upper(), "itself"): ("not compared", ""),
    }
    with suppress(TimeoutError):  # what is there instead is reported below
        wait_for(lambda: rows() == expected, "both worlds to be reported", WAIT_SECONDS)
    assert list(rows().items()) == list(expected.items())
    code, status = asked(capsys, lab, "status", taken, "-n", namespace)
    assert (code, status["cluster"]) == (1, CLUSTER)  # found out from what is registered
    assert status["troubles"][0]["name"] == "Conflict"
    on_page = document(port)
    assert [(row["name"], row["state"]) for row in on_page["syncers"]] == [
        (taken, "not ready"),
        (good, "synced"),
    ]
    assert on_page["troubles"][0]["name"] == "Conflict"
    _, both = asked(capsys, lab, "status", "-n", namespace)
    assert [
        (one["keeper"]["name"], one["application"], one["state"], one["kubernetes"], one["eureka"])
        for one in both["applications"]
        if one["keeper"]["kind"] == "syncer"
    ] == [
        (
            f"{row['namespace']}/{row['name']}",
            row["application"],
            row["state"],
            {"up": row["desiredUp"], "total": row["desired"]},
            {"up": row["registeredUp"], "total": row["registered"]},
        )
        for row in on_page["syncers"]
    ]
    assert (on_page["syncers"][1]["desiredUp"], on_page["syncers"][1]["registeredUp"]) == (2, 2)
    pairs = document(port, f"?application={taken}")["application"]["syncers"][0]["pairs"]
    assert [(one["endpointState"], one["instanceId"]) for one in pairs] == [("ready", "")]

    assert asked(capsys, lab, "status", good, "-n", namespace)[0] == 0
    code, plan = asked(capsys, lab, "plan", f"{namespace}/{taken}", f"{namespace}/{good}", "-n", namespace)
    assert code == 1
    assert [(one["syncer"], len(one["changes"]), len(one["refusals"])) for one in plan["syncers"]] == [
        (f"{namespace}/{good}", 0, 0),
        (f"{namespace}/{taken}", 0, 1),
    ]
    _, listed = asked(capsys, lab, "instances", taken, "--kept-by", "itself")
    assert [one["instanceId"] for one in listed["instances"]] == [foreign.instance_id]

    pod = cluster.pods(namespace, good)[0]
    cluster.set_ready(pod, ready=False)
    wait_for(
        lambda: any(one.status is Status.DOWN for one in instances(eureka, good)), "one DOWN", WAIT_SECONDS
    )
    code, explained = asked(capsys, lab, "explain", good)
    assert code == 0
    first, second = explained["instances"]
    assert (first["status"], second["status"]) == ("DOWN", "UP")
    assert "not ready" in first["facts"]["why not UP"]
    assert pod["metadata"]["name"] in first["facts"]["in Kubernetes"]
    assert first["facts"]["kept by"].startswith(f"syncer {namespace}/{good}")
    assert "s ago" in second["facts"]["last renewed"]
    assert set(first["if"]) == {"its pod is deleted", "its syncer is deleted", "the operator stops"}


def test_one_world_alone(
    capsys: pytest.CaptureFixture[str],
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If only Kubernetes or only Eureka is reachable, each command shows what it can and says what is
    missing.
    """
    cluster.apply_syncer(namespace, "alone")
    monkeypatch.delenv("EUREKA_URL", raising=False)
    assert main(["status", "-n", namespace, "--kubeconfig", str(lab.kubeconfig)]) == 2
    shown = capsys.readouterr()
    assert "ALONE" in shown.out
    assert "Eureka is not at hand" in shown.err
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    assert main(["instances", "--eureka-url", lab.eureka_urls[0]]) in (0, 1)
    shown = capsys.readouterr()
    assert " instances" in shown.out
    assert "Kubernetes is not at hand" in shown.err


def test_who_leads_is_looked_at_first(
    capsys: pytest.CaptureFixture[str],
    cluster: Cluster,
    eureka: Peers,
    lab: Lab,
    namespace: str,
    start_operator: StartOperator,
) -> None:
    """Neither ``status`` nor ``doctor`` says that all is well while the operator is stopped, and both
    report a second operator.
    """
    app = f"{namespace}-app"
    running(cluster, namespace, app, 1)
    operator = start_operator(OPERATOR_NAME="west")
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: len(instances(eureka, app)) == 1, "1 registered", WAIT_SECONDS)
    wait_until_listed(lab.eureka_urls[0], instances(eureka, app))

    def seen() -> set[str]:
        _, status = asked(capsys, lab, "status", app, "-n", namespace)
        _, doctor = asked(capsys, lab, "doctor", "-n", namespace)
        by_status = {one["name"] for one in status["troubles"] if one["severity"] != "note"}
        by_doctor = {one["fault"] for one in doctor["findings"]}
        return by_status & by_doctor

    code, status = asked(capsys, lab, "status", app, "-n", namespace)
    (leader,) = [one for one in status["operators"] if one["lease"] == f"default/{namespace}-leader"]
    assert (code, leader["isAlive"], leader["operator"], leader["namespaces"]) == (
        0,
        True,
        "west",
        [namespace],
    )
    assert leader["servers"][0]["readAt"] is not None
    assert seen() == set()
    other = start_operator(ready=False, LEASE_NAME=f"{namespace}-other")
    wait_for(lambda: seen() == {"OperatorTwice"}, "both operators to be reported", WAIT_SECONDS)
    other.stop()
    wait_for(lambda: seen() == set(), "one of them to be gone", WAIT_SECONDS)
    operator.process.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: seen() == {"OperatorAway"}, "the end of the Lease", WAIT_SECONDS)
        assert asked(capsys, lab, "status", app, "-n", namespace)[0] == 1
        assert asked(capsys, lab, "doctor", "-n", namespace)[0] == 1
    finally:
        operator.process.send_signal(signal.SIGCONT)
    wait_for(lambda: seen() == set(), "the operator to be back", WAIT_SECONDS)
