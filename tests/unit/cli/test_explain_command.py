"""``eurekube explain`` and similar commands against fake servers that record requests."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.cli.main import main
from eurekube_provider.core.model import Status
from eurekube_provider.runtime.clock import format_utc_time
from tests.unit.comparison.samples import (
    WELL,
    derived,
    endpoint_slice,
    instance,
    mirror,
    mirror_slice,
    mirror_status,
    syncer,
)
from tests.unit.played_servers import PlayedServers


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedServers]:
    """Yield servers with a syncer of a ready and an unready pod, a stack's registration, and a
    self-registered machine.
    """
    for name in ("EUREKA_URL", "KUBECONFIG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    with PlayedServers(tmp_path).running() as running:
        held = {
            "holderIdentity": "pod-1",
            "leaseDurationSeconds": 15,
            "renewTime": format_utc_time(time.time()),
        }
        running.objects = {
            "leases": [{"metadata": {"namespace": "ops", "name": "eurekube-leader"}, "spec": held}],
            "eurekasyncers": [syncer("rating")],
            "services": [{"metadata": {"namespace": "shop", "name": "rating"}, "spec": {}}],
            "endpointslices": [endpoint_slice("rating", True, False)],
            "pods": [
                {
                    "metadata": {"namespace": "shop", "name": "rating-1"},
                    "status": {"containerStatuses": [{"name": "main", "ready": False}]},
                }
            ],
        }
        uid = {"eurekube.cluster-uid": "uid-1"}
        running.instances = [
            instance("rating", 0, metadata=uid),
            instance("rating", 1, Status.DOWN, metadata=uid),
            instance("cart", 0, owner="stack/acme/shop/dev/cart", metadata={"eurekube.renewer": "eurekube"}),
            instance("legacy", 0, owner=None, instance_id="vm-1:legacy:8080"),
        ]
        yield running


def asked(
    servers: PlayedServers,
    capsys: pytest.CaptureFixture[str],
    *words: str,
    code: int = 0,
    kubernetes: bool = True,
) -> Any:
    """Run a command, and return its output as JSON."""
    reach = ["--eureka-url", servers.eureka_url]
    reach += ["--kubeconfig", str(servers.kubeconfig)] if kubernetes else []
    servers.asked.clear()
    assert main([*words, *reach, "--output", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_an_application_is_explained(servers: PlayedServers, capsys: pytest.CaptureFixture[str]) -> None:
    """``explain`` shows instances that are not UP first, with the reason from the pod's status."""
    servers.lease_ends = {servers.instances[0].instance_id: int(time.time() * 1000) + 80_000}
    found = asked(servers, capsys, "explain", "rating")
    first, second = found["instances"]
    assert first["facts"]["why not UP"] == (
        "Kubernetes says that its endpoint is not ready: container main is not ready, by its readinessProbe"
    )
    assert re.fullmatch(r"[1-9]\d s ago", second["facts"]["last renewed"])
    assert second["facts"]["in Kubernetes"] == "pod shop/rating-0, endpoint 10.0.0.0 is ready"
    assert found["applications"][0]["keeper"] == {"kind": "syncer", "name": "shop/rating"}


def test_two_operators_call_one_cluster_by_different_names(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each syncer the cluster name in its own instances counts, even if another operator uses another
    name.
    """
    uid = {"eurekube.cluster-uid": "uid-1"}
    servers.instances.insert(0, instance("cart", 7, owner="cluster/other/else/cart", metadata=uid))
    for target, which in (("rating", 0), (servers.instances[2].instance_id, 0)):
        found = asked(servers, capsys, "explain", target)
        assert found["instances"][which]["facts"]["kept by"].startswith("syncer shop/rating")
        assert "is not ready" in found["instances"][which]["facts"]["why not UP"]
    servers.objects["eurekasyncers"].append(syncer("cart"))
    servers.objects["services"].append({"metadata": {"namespace": "shop", "name": "cart"}, "spec": {}})
    servers.objects["endpointslices"].append(endpoint_slice("cart", True))
    servers.instances[0] = instance(
        "cart",
        owner="cluster/other/shop/cart",
        instance_id="cart-0.shop.other:cart:8080",
        metadata=uid,
    )
    for words in (("status",), ("watch", "--count", "1")):
        rows = asked(servers, capsys, *words)["applications"]
        syncers = {one["keeper"]["name"]: one["state"] for one in rows if one["keeper"]["kind"] == "syncer"}
        assert syncers == {"shop/rating": "synced", "shop/cart": "synced"}
        assert not [one for one in rows if one["keeper"]["kind"] == "other cluster"]
    planned = {one["syncer"]: one for one in asked(servers, capsys, "plan")["syncers"]}
    assert planned["shop/cart"]["owner"] == "cluster/other/shop/cart"


def test_nothing_is_left_behind_in_a_server(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands only read: the list that every client gets, and at most a few single instances."""
    for words in (("status",), ("plan",), ("instances",), ("watch", "--count", "1")):
        asked(servers, capsys, *words, code=0)
        of_eureka = [one for one in servers.asked if "eureka/" in one]
        # Whether somebody renews is read past the caches, of three instances at most.
        single = [one for one in of_eureka if one.startswith("GET /eureka/apps/")]
        assert [one for one in of_eureka if one not in single] == ["GET /eureka/apps"], words
        assert len(single) <= (3 if words[0] in ("status", "watch") else 0), words
    asked(servers, capsys, "explain", "rating")
    every = {one for one in servers.asked if one.startswith("GET /eureka/")}
    assert {one for one in every if one != "GET /eureka/apps"} == {
        f"GET /eureka/apps/RATING/{one.instance_id.replace(':', '%3A')}" for one in servers.instances[:2]
    }
    assert all(one.startswith("GET ") for one in servers.asked)


def test_an_instance_by_its_id_without_kubernetes(
    servers: PlayedServers,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Without Kubernetes, Eureka alone tells an instance's owner and renewer, and the command reports the
    gap.
    """
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    found = asked(servers, capsys, "explain", "vm-1:legacy:8080", kubernetes=False)
    (one,) = found["instances"]
    assert one["facts"]["kept by"].startswith("itself")
    assert one["facts"]["renewed by"] == "its application"
    found = asked(servers, capsys, "explain", "cart", kubernetes=False)
    assert "is called 'eurekube'" in found["instances"][0]["facts"]["renewed by"]
    assert main(["explain", "cart", "--eureka-url", servers.eureka_url]) == 0
    shown = capsys.readouterr()
    assert "kept by: stack acme/shop/dev (owner stack/acme/shop/dev/cart)" in shown.out
    assert "the stack is destroyed: it is deregistered" in shown.out
    assert "Kubernetes is not at hand" in shown.err


def test_what_eureka_does_not_hold(servers: PlayedServers, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown application ends with 1, and the message says which instances the syncer of its name
    wants.
    """
    servers.instances = servers.instances[2:]
    assert (
        main(
            ["explain", "rating", "--eureka-url", servers.eureka_url, "--kubeconfig", str(servers.kubeconfig)]
        )
        == 1
    )
    said = capsys.readouterr().err
    assert "neither an application nor an instance rating" in said
    assert "syncer shop/rating wants 1/2 there: Differs: 2 instances: not in Eureka" in said
    assert "eurekube explain: to fix it: wait half a minute" in said


def test_what_is_wrong_is_explained_with_what_fixes_it(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A remedy is printed once, whether an application or a single instance is explained."""
    servers.instances = [
        one for one in servers.instances if one.instance_id != servers.instances[1].instance_id
    ]
    reach = ["--eureka-url", servers.eureka_url, "--kubeconfig", str(servers.kubeconfig)]
    for target in ("rating", servers.instances[0].instance_id):
        assert main(["explain", target, *reach]) == 0
        assert capsys.readouterr().out.count("to fix it: wait half a minute") == 1, target


def test_without_eureka_nothing_is_explained(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Eureka, or with an unknown connection, ``explain`` ends with 2 and says what to give."""
    assert main(["explain", "rating", "--kubeconfig", str(servers.kubeconfig)]) == 2
    assert "Eureka is not at hand" in capsys.readouterr().err
    reach = ["--kubeconfig", str(servers.kubeconfig), "--eureka-url", servers.eureka_url]
    assert main(["explain", "rating", "--connection", "eu", *reach]) == 2
    assert "--connection eu: there is none; there are default" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["services", "endpointslices"])
def test_what_may_not_be_read_does_not_pass_for_what_is_not_there(
    kind: str, servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """When Services or EndpointSlices may not be read, the state comes from the operator's status, nothing is
    planned, and the exit code is 2.
    """
    servers.refused = {kind}
    found = asked(servers, capsys, "status", code=2)
    assert len(found["unread"]) == 1
    assert f"{kind} in all namespaces" in found["unread"][0]
    rating = next(one for one in found["applications"] if one["keeper"]["name"] == "shop/rating")
    assert (rating["state"], rating["kubernetes"], rating["groups"]) == ("synced", None, [])
    assert asked(servers, capsys, "plan", code=2)["syncers"] == []


def test_without_the_syncers_nothing_looks_left_behind(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """When syncers may not be read, their instances are not reported as left over by a deleted syncer."""
    servers.refused = {"eurekasyncers"}
    found = asked(servers, capsys, "status", code=2)
    assert "NoSuchSyncer" not in {one["reason"] for one in found["applications"]}
    assert "RATING" in {one["application"] for one in found["applications"]}


def test_one_namespace_that_may_not_be_read_hides_no_other(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """When one namespace may not be read, only its syncers are not compared."""
    servers.refused_namespaces = {"secret"}
    servers.instances.append(instance("safe", owner="cluster/lab/secret/safe"))
    found = asked(servers, capsys, "status", "-n", "shop,secret", code=2)
    assert len(found["unread"]) == 1
    states = {one["keeper"]["name"]: one["state"] for one in found["applications"]}
    assert (states["shop/rating"], states["secret/safe"]) == ("synced", "not compared")


def test_pods_and_nodes_that_may_not_be_read_leave_a_doubt(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """When pods or nodes may not be read, no changes are planned for a syncer that needs them."""
    servers.objects["eurekasyncers"] = [syncer("rating", metadataFromPodLabels=["team"])]
    servers.refused = {"pods"}
    found = asked(servers, capsys, "plan", code=2)
    (planned,) = found["syncers"]
    assert planned["changes"] == []
    assert "the labels of the pods have not been read" in planned["held"]
    service = syncer("rating", mode="service", advertise="NodePort")
    servers.objects["eurekasyncers"], servers.refused = [service], {"nodes"}
    (planned,) = asked(servers, capsys, "plan", code=2)["syncers"]
    assert planned["changes"] == []
    assert "nodes" in planned["held"]


def test_a_plan_with_the_address_of_an_ingress(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """``plan`` reads Ingresses where a syncer needs them, and plans nothing where they may not be read."""
    metadata = {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}
    servers.objects["services"] = [
        {"metadata": metadata, "spec": {"ports": [{"name": "http", "port": 8080}]}}
    ]
    backend = {"service": {"name": "rating", "port": {"number": 8080}}}
    rule = {
        "host": "rating.example.com",
        "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
    }
    address = {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}
    servers.objects["ingresses"] = [{"metadata": metadata, "spec": {"rules": [rule]}, "status": address}]
    servers.objects["eurekasyncers"] = [syncer("rating", mode="service", advertise="Ingress")]
    (planned,) = asked(servers, capsys, "plan", code=1)["syncers"]
    added = [one for one in planned["changes"] if one["action"] == "register"]
    assert [one["instanceId"] for one in added] == ["rating.svc.shop.lab:rating:80"]
    servers.refused = {"ingresses"}
    (planned,) = asked(servers, capsys, "plan", code=2)["syncers"]
    assert planned["changes"] == []
    assert "the Ingresses have not been read" in planned["held"]
    servers.objects["eurekasyncers"] = [syncer("rating", mode="service", advertise="Gateway")]
    servers.unknown = {"httproutes"}
    (planned,) = asked(servers, capsys, "plan", code=2)["syncers"]
    assert "the Gateways and HTTPRoutes have not been read" in planned["held"]


def test_a_kubeconfig_that_is_not_there_is_one_sentence(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kubeconfig that was given and does not exist ends the command with 2 and one sentence."""
    with pytest.raises(SystemExit) as ended:
        main(["status", "--eureka-url", servers.eureka_url, "--kubeconfig", "/nowhere"])
    assert ended.value.code == 2
    assert "could not look: the kubeconfig /nowhere does not exist" in capsys.readouterr().err


def test_an_application_says_which_mirror_brings_it_in(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """``explain`` shows the mirror of an application, its Service, and why an instance is not called through
    it; for one instance only that one.
    """
    servers.objects["eurekamirrors"] = [mirror("old", mirror_status("LEGACY", held=1), application="legacy")]
    servers.objects["endpointslices"].append(
        mirror_slice("old", ("vm-1:legacy:8080", "10.0.0.0", True), application="LEGACY")
    )
    servers.instances.append(instance("legacy", 1, Status.DOWN, owner=None, instance_id="vm-2:legacy:8080"))
    (found,) = asked(servers, capsys, "explain", "legacy")["mirrors"]
    assert (found["mirror"], found["service"], found["state"]) == ("shop/old", "legacy", "synced")
    assert [(one["instanceId"], one["shown"]) for one in found["instances"]] == [
        ("vm-2:legacy:8080", "left out"),
        ("vm-1:legacy:8080", "called"),
    ]
    (found,) = asked(servers, capsys, "explain", "vm-1:legacy:8080")["mirrors"]
    assert len(found["instances"]) == 1
    assert asked(servers, capsys, "explain", "rating")["mirrors"] == []
    reach = ["--eureka-url", servers.eureka_url, "--kubeconfig", str(servers.kubeconfig)]
    for output in ("table", "markdown", "yaml"):
        assert main(["explain", "legacy", *reach, "-o", output]) == 0
        assert "vm-2:legacy:8080" in capsys.readouterr().out
    servers.instances = servers.instances[:2]
    for target in ("legacy", "vm-1:legacy:8080"):
        assert main(["explain", target, *reach]) == 1
        said = capsys.readouterr()
        assert f"Eureka holds no instance of {target}, and mirrors show what it held before" in said.err
        assert "EurekaMirror shop/old shows it as the Service legacy; 1 of 1 instances are called" in said.err
        assert "vm-1:legacy:8080 at 10.0.0.0: held: Eureka lists it no more" in said.out
    assert main(["explain", "nobody", *reach]) == 1
    said = capsys.readouterr()
    assert "neither an application nor an instance nobody" in said.err
    assert said.out == ""


@pytest.mark.parametrize("refused", [False, True])
def test_a_cluster_without_mirrors_has_nothing_to_say_of_them(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str], refused: bool
) -> None:
    """A cluster without the kind EurekaMirror, whose API server answers 404 or 403, has no mirrors and
    nothing unread.
    """
    servers.unknown = {"eurekamirrors"}
    servers.refused = {"eurekamirrors"} if refused else set()
    found = asked(servers, capsys, "status", code=0)
    assert (found["mirrors"], found["unread"]) == ([], [])
    servers.unknown = set()
    found = asked(servers, capsys, "status", code=2 if refused else 0)
    assert any("eurekamirrors" in one for one in found["unread"]) is refused


def test_instances_that_are_alike_share_their_sentences(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sentences common to many instances are printed once, the address for each."""
    reach = ["--eureka-url", servers.eureka_url, "--kubeconfig", str(servers.kubeconfig)]
    servers.instances[1] = instance("rating", 1, metadata={"eurekube.cluster-uid": "uid-1"})
    assert main(["explain", "rating", *reach]) == 0
    shown = capsys.readouterr().out
    assert "2 instances of RATING\n  kept by: syncer shop/rating" in shown
    assert [shown.count(words) for words in ("kept by:", "its syncer is deleted:", "callers:")] == [1, 1, 2]


def test_a_syncer_is_explained_by_its_own_name(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A syncer is found by its own name, with or without its namespace, when its application has another
    name.
    """
    servers.objects["eurekasyncers"] = [syncer("stars", selector={"app": "rating"})]
    for instance_ in servers.instances[:2]:
        instance_.metadata["eurekube.owner"] = "cluster/lab/shop/stars"  # type: ignore[index]
    for target in ("shop/stars", "stars"):
        found = asked(servers, capsys, "explain", target)
        assert [one["application"] for one in found["instances"]] == ["RATING", "RATING"]
        assert found["applications"][0]["keeper"]["name"] == "shop/stars"


def test_a_derived_syncer_is_looked_at_by_its_own_name(
    servers: PlayedServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """``status``, ``explain`` and ``plan`` have a row, an explanation and a plan for each derived syncer."""
    parent = syncer("all", {**WELL, "applications": {"refused": 0}}, selector={"services": "All"})
    servers.objects["eurekasyncers"] = [parent, derived("rating"), derived("cart")]
    servers.objects["services"].append({"metadata": {"namespace": "shop", "name": "cart"}, "spec": {}})
    servers.objects["endpointslices"].append(endpoint_slice("cart", True))
    owner, uid = "cluster/lab/shop/all.rating", {"eurekube.cluster-uid": "uid-1"}
    servers.instances = [
        instance("rating", 0, owner=owner, metadata=uid),
        instance("rating", 1, Status.DOWN, owner=owner, metadata=uid),
    ]
    rows = asked(servers, capsys, "status", code=1)["applications"]
    assert [(one["keeper"]["name"], one["state"], one["reason"]) for one in rows] == [
        ("shop/all.cart", "not synced", "Differs"),
        ("shop/all.rating", "synced", ""),
    ]
    for target in ("all.rating", "shop/all.rating"):
        found = asked(servers, capsys, "explain", target)
        assert [one["keeper"]["name"] for one in found["applications"]] == ["shop/all.rating"]
        first, second = found["instances"]
        assert "is not ready" in first["facts"]["why not UP"]
        assert second["facts"]["in Kubernetes"] == "pod shop/rating-0, endpoint 10.0.0.0 is ready"
    (planned,) = asked(servers, capsys, "plan", "shop/all.cart", code=1)["syncers"]
    assert [one["action"] for one in planned["changes"]] == ["register"]
    (planned,) = asked(servers, capsys, "plan", "shop/all.rating")["syncers"]
    assert planned["changes"] == []
