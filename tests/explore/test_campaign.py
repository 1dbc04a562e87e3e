"""Tests of long explorations: their sequences, and their reports."""

from __future__ import annotations

import random
import re
import shlex

import pytest

from eurekube_provider.dev.eureka.cluster import EurekaCluster
from tests.explore import campaign, generated, part, programs, sides
from tests.explore.campaign import SHELLS
from tests.explore.explorer import Explored, tried
from tests.explore.fleet import Fleet, News, Order
from tests.explore.operator import campaign as of_clusters
from tests.explore.operator import keepalive
from tests.explore.operator.acts import a_server_freezes
from tests.explore.operator.edits import together
from tests.explore.operator.explorer import Setup
from tests.explore.operator.world import owned
from tests.explore.others import Others
from tests.explore.part import Part, guarded
from tests.explore.settled import Settled, state_of
from tests.explore.world import Fault


def test_processes_share_what_comes_once() -> None:
    """Each single fault is tried by exactly one process."""
    dealt = [one for number in range(3) for one in Part(number, 3).dealt(5, list(range(100)))]
    assert sorted(dealt) == list(range(100))
    assert Part(0, 2).draw(5).random() != Part(1, 2).draw(5).random()
    assert Part(1, 2).draw(5).random() == Part(1, 2).draw(5).random()


def test_each_kind_of_violation_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A kind of violation is printed once, even if several processes meet it at different requests."""
    fleet = Fleet(Order(1, 1.0, 2, None, None, 0.5))
    for number in (3, 4):
        fleet.heard(News(0, "stacks", 10, 1.0, f"moved: vm-1 is gone, after request {number}\n  more"))
    fleet.heard(News(1, "stacks", 10, 1.0, "moved: vm-1 is DOWN\n  more"))
    said = capsys.readouterr().out
    assert said.count("is gone") == 1
    assert said.count("is DOWN") == 1
    assert fleet.found.total() == 3


def test_all_sides_take_turns() -> None:
    """Every second process explores the sides in reverse order, so that all sides are explored from the
    start.
    """
    order = Order(1, 1.0, 2, None, None, 0.75)
    assert [name for name, _ in order.turns(0)] == ["stacks", "clusters", "mirrors", "keepalive"]
    assert order.turns(1) == order.turns(0)[::-1]
    assert sum(seconds for _, seconds in order.turns(1)) == pytest.approx(60.0)
    assert dict(order.turns(0))["stacks"] == 45.0
    assert Order(1, 1.0, 2, None, "moved, and back", 0.75).turns(1) == [("stacks", 60.0)]


def test_the_end_is_gone_to_once_from_each_state() -> None:
    """After a fault that leaves a known state the end of the edit is not run again."""
    changed, settled = programs.edit("another id"), Settled()
    for servers in (1, 2):
        assert not tried(changed, {}, servers, settled=settled)
        assert settled.skipped == servers - 1
        Explored(changed, {}, servers, settled=settled).run()
        assert settled.skipped == servers
    lost = Explored(changed, {0: Fault.LOST_BEFORE}, settled=settled).run()
    assert not lost.violations


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("name", ["another id", "application: one more, one less", "status enforced"])
def test_a_start_that_is_gone_on_from_is_the_one_that_is_run(name: str, servers: int) -> None:
    """A sequence that continues from a kept start has the same requests, answers and violations as a full
    one, and leaves the kept copy unchanged.
    """
    changed, settled = programs.edit(name), Settled()
    for tool in SHELLS:
        for faults in ({}, {0: Fault.SLOW}, {2: Fault.KILLED_AFTER}, {2: Fault.KILLED_AFTER}):
            again = Explored(changed, faults, servers, tool).run()
            going_on = Explored(changed, faults, servers, tool, settled).run()
            shown = len(going_on.trace)  # the end of one is gone to once
            assert shown >= again.requests
            assert going_on.trace == again.trace[:shown]
            assert going_on.violations == again.violations


def test_states_differ_by_more_than_times_and_incarnations() -> None:
    """Two states differ if anything but times and incarnations differs at any server."""

    def held(**changed: str) -> tuple[EurekaCluster, Others]:
        cluster = EurekaCluster([programs.URL, programs.SECOND_URL])
        cluster.clock.advance(int(changed.pop("later", "0")))
        others = Others(cluster, [("BILLING", "vm-1")])
        others.register(others.places[0], "10.0.0.1")
        others.theirs.clear()
        cluster.clock.advance(40_000)
        info = cluster.servers[programs.SECOND_URL].registry.leases["BILLING"]["vm-1"].holder
        info.fields["metadata"]["eurekube.incarnation"] = changed.pop("incarnation", "be6f9f62")
        info.status = changed.get("status", info.status)
        info.dirty_ms -= int(changed.get("older", 0))
        info.fields["hostName"] = changed.get("host", "10.0.0.1")
        others.out |= {others.places[0]} if "out" in changed else set()
        if "override" in changed:
            cluster.servers[programs.URL].registry.set_override("vm-1", "DOWN")
        return cluster, others

    one = state_of(*held(), ["another id"])
    assert state_of(*held(later="60000", incarnation="0a1b2c3d"), ["another id"]) == one
    other = [
        state_of(*held(**{name: value}), ["another id"])
        for name, value in {
            "status": "DOWN",
            "older": "1",
            "host": "10.0.0.2",
            "out": "",
            "override": "",
        }.items()
    ]
    assert len({one, *other, state_of(*held(), ["moved"])}) == 2 + len(other)


def test_a_sequence_that_raises_is_a_violation() -> None:
    """An exception in a sequence is reported as a violation, and other sequences go on."""

    def raises() -> str:
        raise KeyError("never")

    failure = guarded(raises, lambda: "replay me")
    assert failure.startswith("replay me")
    assert "KeyError" in failure


def test_what_fails_is_replayed_by_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay command that a failure names shows the same failure."""
    monkeypatch.setattr("tests.explore.explorer.Explored.compare", lambda self: self._violated("never right"))
    edit = programs.edit("moved without an alias")
    failure = tried(edit, {2: Fault.LOST_AFTER}, 2)
    assert sides.replayed(_command(failure)) == failure
    assert _command(failure) == "stacks.tried(edit('moved without an alias'), {}, 1)", (
        "what is not needed is left out"
    )


def test_what_fails_in_a_cluster_is_shrunk_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shrunk sequence contains no harmless event and no replica that is not needed, and its replay
    fails, too.
    """
    monkeypatch.setattr("eurekube_provider.eureka.table.InstanceTable.due_checks", lambda *_: [])
    edit = together(("scaled down", 0.0), ("scaled up", 5.0))
    with owned():
        failure = of_clusters.tried(edit, {0: a_server_freezes}, Setup(2, replicas=2))
    sequence = _command(failure)
    assert sequence == (
        "clusters.tried(together(('scaled down', 0.0)), {0: a_server_freezes}, Setup(2, 1, Mode.REST, 0))"
    )
    assert sides.replayed(sequence) == failure


def test_what_is_renewed_beside_edits_of_its_stack_stands() -> None:
    """If stack or keepalive loses an answer or is killed no lease lapses, and a removed instance is not
    renewed.
    """
    draw = random.Random(7)  # noqa: S311 - a test
    with keepalive.kept():
        for name in ("remove", "application: one more, one less", "another id, with a drain"):
            servers = draw.choice((1, 2))
            calm = keepalive.Kept(name, {}, servers).run()
            assert not calm.violations
            for _ in range(4):
                faults = {draw.choice(calm.numbers): draw.choice(keepalive.HAPPENINGS)}
                assert not (failure := keepalive.tried(name, faults, servers)), failure


def test_the_others_get_what_a_frozen_server_did_not_send() -> None:
    """A moved resource takes over its registration; the removal of the old resource spares it, even at a
    server that was frozen.
    """
    with keepalive.kept():
        for name, places in (
            ("moved without an alias", (5, 6)),
            ("application: moved without an alias", (8, 9)),
        ):
            for at in places:
                failure = keepalive.tried(name, {at: keepalive.a_server_freezes}, 2)
                assert not failure, failure


def test_what_was_removed_stays_away_where_nothing_else_is_registered() -> None:
    """A removed instance stays away even if a frozen server still holds it afterwards, and shares no other
    instance with its peer.
    """
    with keepalive.kept():
        failure = keepalive.tried("remove", {2: keepalive.a_server_freezes}, 2)
        assert not failure, failure


def test_a_keepalive_finds_elsewhere_what_a_server_forgot() -> None:
    """If the keepalive and the first server restart together, the new keepalive finds the instances at
    another server.
    """
    with keepalive.kept():
        kept = keepalive.Kept("change metadata", {}, 2)
        try:
            kept.start()
            assert kept.up(kept.edit.first)
            kept.go_on(keepalive.STEADY_SECONDS)
            cluster = kept.world.cluster
            cluster.restart(cluster.urls[0])
            kept.kill_keeper()
            kept.go_on(keepalive.CALM_SECONDS)
        finally:
            for process in kept.world.processes:
                if not process.is_dead:
                    kept.world.scheduler.kill(process)
        now_ms = kept.world.now_ms
        for server in cluster.servers.values():
            assert [lease.is_expired(now_ms) for lease in server.registry.all_leases()] == [False]


def test_a_keepalive_that_renews_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explorer finds the harm if keepalive renews nothing: registrations lapse after the stack's run."""
    monkeypatch.setattr(
        "eurekube_provider.eureka.registry.stacks.RenewedStackRegistrations.process_list", lambda *_: None
    )
    with keepalive.kept():
        failure = keepalive.tried("change metadata", {})
    assert "nobody renews it" in failure
    assert sides.replayed(_command(failure)) == failure


def test_an_edit_that_fails_is_left_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first failure an edit is tried no more, so that its other sequences are neither shrunk nor
    reported.
    """
    edits = [programs.edit("create"), programs.edit("remove")]
    seen: list[str] = []

    def fails(edit: programs.Edit, *_: object) -> str:
        seen.append(edit.name)
        return "create: wrong" if edit.name == "create" else ""

    monkeypatch.setattr(campaign, "tried", fails)
    monkeypatch.setattr(generated, "tried", lambda *_, **__: "")
    found = campaign.sequences(1, float("inf"), edits)
    failures = [failure for _, failure in zip(range(40), found, strict=False) if failure]
    assert len(failures) == 1
    assert seen.count("create") == 1
    assert seen.count("remove") > 10


def _command(failure: str) -> str:
    """Return the replay argument that a failure names."""
    found = re.search("^replay: (.*)$", failure, re.MULTILINE)
    assert found
    assert part.kind(failure)
    return shlex.split(found[1])[-1]
