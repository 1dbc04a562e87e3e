"""A rehearsal sends no write, and the ledger tells what was planned, done and not done."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, Failure, Outcome, Plan
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator import dry_run
from eurekube_provider.operator.conditions import Report
from eurekube_provider.operator.dry_run import Ledger
from eurekube_provider.operator.dry_run_clients import DryAccess, DryPeer, DryPeers

RATING = Instance("RATING", "a", "10.0.0.1", "10.0.0.1", Port(8080))
OWNER = "cluster/c/shop/rating"
CONNECTION = Connection(("http://a/e",))
REGISTER = Plan((Change(Action.REGISTER, RATING),))
NOTHING = Outcome((), ())


def test_a_dry_server_is_asked_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a server's methods may be called; only reads leave the process."""
    sent: list[str] = []

    def request(self: Peer, method: str, *_: Any, **__: Any) -> None:  # noqa: ARG001
        sent.append(method)
        raise RegistryUnreachable("asked")

    monkeypatch.setattr(Peer, "_request", request)
    (peer,) = DryPeers(CONNECTION).peers
    assert isinstance(peer, DryPeer)
    assert isinstance(peer.in_haste(1.0), DryPeer)
    values = {
        "instance": RATING,
        "status": Status.UP,
        "application": "A",
        "instance_id": "a",
        "anew": False,
        "fingerprint": b"",
        "items": [b"", b""],
    }
    called = []
    for name, method in inspect.getmembers(peer, inspect.ismethod):
        if name.startswith("_") or name in ("close", "figures", "in_haste"):
            continue
        parameters = inspect.signature(method).parameters
        try:
            answer = method(**{key: values[key] for key in parameters})
        except RegistryUnreachable:
            continue
        called.append(name)
        assert answer in (None, True) or len(answer) == 2
    assert {"batch", "clear_status", "deregister", "register", "renew", "set_status"} <= set(called)
    assert set(sent) == {"GET"}


def test_a_dry_cluster_is_asked_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads go through; anything else is answered with what was sent."""

    def request(self: KubeAccess, method: str, *_: Any) -> dict[str, Any]:  # noqa: ARG001
        raise KubernetesError(f"sent {method}")

    monkeypatch.setattr(KubeAccess, "request", request)
    access = DryAccess(client.ApiClient(client.Configuration(host="http://127.0.0.1:1")))
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert access.request(method, "/x", body={"a": 1}) == {"a": 1}
    with pytest.raises(KubernetesError, match="sent GET"):
        access.get("/x")


def report(reason: str) -> Report:
    """What a look found."""
    is_well = reason == "Synced"
    return Report(is_well, reason, "said so", is_synced=is_well, sync_reason=reason, sync_message="said so")


def told(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed of one syncer."""
    ledger.print({("shop", "rating"): OWNER})
    return capsys.readouterr().out


def test_a_dry_plan_is_kept_and_not_carried_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last look counts, since nothing has changed by the one before."""
    monkeypatch.setattr(dry_run, "apply", lambda *_, **__: pytest.fail("carried out"))
    ledger = Ledger(is_once=True, is_dry=True)
    peers = Peers(CONNECTION)
    for _ in range(2):
        assert ledger.carry_out(REGISTER, OWNER, peers) == NOTHING
    ledger.note(("shop", "rating"), report("Synced"))
    assert told(ledger, capsys) == f"{OWNER}:\n  + RATING a UP 10.0.0.1:8080\n  1 to register\n"
    assert not ledger.has_failed


def test_connections_with_the_same_urls_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """They may differ in what a server lets them see: the plan of one says nothing of the other's."""
    ledger = Ledger(is_once=True, is_dry=True, output="json")
    for plan in (REGISTER, Plan()):
        ledger.carry_out(plan, OWNER, Peers(CONNECTION))
    (syncer,) = json.loads(told(ledger, capsys))["syncers"]
    assert [len(plan["changes"]) for plan in syncer["plans"]] == [1, 0]


def test_two_looks_in_one_pass_add_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A syncer may be looked at again before the pass ends: what the first look did is still told."""
    monkeypatch.setattr(dry_run, "apply", lambda plan, *_, **__: Outcome(plan.changes, ()))
    ledger = Ledger(is_once=True, is_dry=False, output="json")
    peers = Peers(CONNECTION)
    ledger.carry_out(REGISTER, OWNER, peers)
    ledger.carry_out(Plan(), OWNER, peers)
    ledger.note(("shop", "rating"), report("Synced"))
    (syncer,) = json.loads(told(ledger, capsys))["syncers"]
    assert [change["action"] for change in syncer["plans"][0]["changes"]] == ["register"]
    assert not ledger.has_failed


@pytest.mark.parametrize(
    ("reason", "failed"),
    [
        ("Synced", False),
        ("NoMatchingService", False),
        ("Braked", False),
        ("EurekaDenied", True),
        ("Failed", True),
    ],
)
def test_which_problems_are_failures(reason: str, failed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with a syncer is told; what could not be carried out ends with 1 as well."""
    ledger = Ledger(is_once=True, is_dry=False)
    ledger.note(("shop", "rating"), report(reason))
    assert (f"! {reason}: said so" in told(ledger, capsys)) is (reason != "Synced")
    assert ledger.has_failed is failed


def test_what_was_not_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A change that failed is told with its error."""
    failure = Failure(REGISTER.changes[0], RegistryUnreachable("no connection to http://a/e"))
    monkeypatch.setattr(dry_run, "apply", lambda *_, **__: Outcome((), (failure,)))
    ledger = Ledger(is_once=True, is_dry=False)
    ledger.carry_out(REGISTER, OWNER, Peers(CONNECTION))
    ledger.note(("shop", "rating"), report("Synced"))
    assert "failed: no connection to http://a/e" in told(ledger, capsys)
    assert ledger.has_failed


def test_a_syncer_that_was_not_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """Silence is no success, and neither is a pass that was interrupted."""
    ledger = Ledger(is_once=True, is_dry=False)
    assert ledger.has_failed
    assert "! NotLookedAt" in told(ledger, capsys)
    assert ledger.has_failed


def test_a_syncer_on_its_way_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A deleted syncer has no status any more: its plan is all that there is to tell."""
    monkeypatch.setattr(dry_run, "apply", lambda plan, *_, **__: Outcome(plan.changes, ()))
    ledger = Ledger(is_once=True, is_dry=False)
    ledger.carry_out(Plan((Change(Action.DEREGISTER, RATING, RATING),)), OWNER, Peers(CONNECTION))
    assert told(ledger, capsys) == f"{OWNER}:\n  - RATING a\n  1 to deregister\n"
    assert not ledger.has_failed


def test_no_syncer_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to do is said, and is no failure."""
    ledger = Ledger(is_once=True, is_dry=False)
    ledger.print({})
    assert capsys.readouterr().out == "there are no syncers, and nothing is left of one\n"
    assert not ledger.has_failed
