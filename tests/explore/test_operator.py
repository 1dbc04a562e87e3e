"""No order of events does harm beside an operator: some single faults of each edit of a cluster."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from eurekube_provider.core.brake import Braked
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka.connection import BatchMode
from tests.explore.operator.acts import (
    Act,
    a_server_freezes,
    a_server_restarts_empty,
    a_stack_removes_behind_a_split,
    servers_lose_each_other,
    servers_render_their_lists,
    servers_repeat_themselves,
    the_api_is_behind,
    the_operator_ends_in_peace,
    watches_break,
)
from tests.explore.operator.campaign import HAPPENINGS, SETUPS, tried
from tests.explore.operator.edits import EDITS, Edit, edit, together
from tests.explore.operator.explorer import Explored, Faults, Setup, describe_failure
from tests.explore.operator.world import Fault, owned

SINGLES_AN_EDIT = 2
"""Drawn by the edit's name, so that a failure is found again; ``make explore`` tries all, and several."""


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    """Nothing real can be reached."""
    with owned():
        yield


@pytest.mark.parametrize("changed", EDITS, ids=lambda one: one.name)
def test_single_faults(changed: Edit) -> None:
    """Lost, late and killed requests and acts of others fail no call, and the calm heals them."""
    draw = random.Random(changed.name)  # noqa: S311 - a test
    setup = draw.choice(SETUPS)
    outcome = Explored(changed, {}, setup).run()
    assert not outcome.violations, describe_failure(changed, {}, outcome, setup)
    for _ in range(SINGLES_AN_EDIT):
        faults = {draw.choice(outcome.numbers): draw.choice(HAPPENINGS)}
        failure = tried(changed, faults, setup)
        assert not failure, failure


@pytest.mark.parametrize(
    "name",
    [
        "ready just before it goes",
        "scaled down, shown until it is gone",
        "a StatefulSet's pod is replaced, shown until it is gone",
    ],
)
def test_what_is_carried_out_late_is_undone(name: str) -> None:
    """A write that a frozen server carries out when it is back neither brings back a pod that has gone nor
    takes out one that serves.
    """
    changed = edit(name)
    for setup in (Setup(1), Setup(2)):
        places = Explored(changed, {}, setup).run().places
        for at, what in enumerate(places):
            if what.startswith("POST eureka") or "/status" in what:
                failure = tried(changed, {at: Fault.LATE}, setup)
                assert not failure, failure


def test_the_end_of_one_syncer_takes_nothing_from_the_next() -> None:
    """A removal that was begun, and finds nothing more, must not hit anyone who registers it at that
    moment."""
    renamed = edit("a syncer is renamed, the old one first")
    for setup in (Setup(1), Setup(3)):
        for at in range(3, 14):
            failure = tried(renamed, {at: Fault.KILLED_AFTER}, setup)
            assert not failure, failure


def test_what_was_handed_over_is_swept_as_its_former_owner_left_it() -> None:
    """A server that was frozen while an instance passed to another syncer, and left, does not keep it."""
    passed = together(("a syncer is renamed", 0.0), ("scaled down", 3.0))
    failure = tried(passed, {0: a_server_freezes}, Setup(2))
    assert not failure, failure


def test_a_late_hand_over_does_not_bring_back_what_left() -> None:
    """A server that was frozen with it stores the heir's registration after its former owner removed it."""
    passed = together(("a syncer is renamed", 0.0), ("scaled down", 3.0))
    failure = tried(passed, {10: Fault.LATE}, Setup(1))
    assert not failure, failure


def test_our_out_of_service_ends_with_a_hand_over_at_a_frozen_server() -> None:
    """It was set for the syncer before, and stands over what the server is notified of who serves now."""
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    failure = tried(replaced, {16: a_server_freezes}, Setup(2, replicas=2))
    assert not failure, failure


def test_our_out_of_service_is_undone_at_separated_servers() -> None:
    """They lost each other after it was set for the syncer before: each is informed by itself."""
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    faults: Faults = {13: the_operator_ends_in_peace, 19: servers_lose_each_other}
    failure = tried(replaced, faults, Setup(2))
    assert not failure, failure


def test_an_out_of_service_of_ours_that_no_list_shows_yet_is_undone() -> None:
    """The next leader overwrites the OUT_OF_SERVICE that the former leader set a moment ago."""
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    failure = tried(replaced, {12: the_operator_ends_in_peace}, Setup(1))
    assert not failure, failure


def test_an_instance_found_while_heirs_are_asked_is_not_misplaced() -> None:
    """A server that was frozen shows one after the other what was handed over there."""
    moved = edit("two syncers name another Eureka in turn, and the first comes back")
    failure = tried(moved, {10: a_server_freezes}, Setup(2, replicas=2))
    assert not failure, failure


def test_the_others_learn_of_a_hand_over_at_a_frozen_server() -> None:
    """Where they show the instance as it was, its former owner gives it once more."""
    given_up = edit("a syncer that removes nothing gives up what another one wants")
    failure = tried(given_up, {12: a_server_freezes}, Setup(2))
    assert not failure, failure


def test_a_server_frozen_in_a_hand_over_does_not_keep_what_leaves() -> None:
    """It leaves the others under its former owner; its new owner deregisters it there as well."""
    passed = together(("a syncer is renamed", 0.0), ("scaled down", 3.0))
    for at in (11, 13):
        failure = tried(passed, {at: a_server_freezes}, Setup(2))
        assert not failure, failure


def test_what_is_given_up_and_wanted_by_another_syncer_passes_at_once() -> None:
    """No caller misses an instance that passes from one syncer to another."""
    for name in ("mode service", "the application is renamed", "another Service is selected"):
        for begin in (0.0, 1.0):
            both = together(("a syncer is renamed", 0.0), (name, begin))
            failure = tried(both, {}, Setup(1))
            assert not failure, failure


@pytest.mark.parametrize(
    "name", ["refused, and scaled down", "refused, and allowed again", "paused, and scaled down"]
)
def test_what_a_syncer_holds_that_registers_nothing_comes_back(name: str) -> None:
    """It is refused or paused: a Eureka that begins again with an empty memory is notified of it again."""
    for at in Explored(edit(name), {}).run().numbers:
        failure = tried(edit(name), {at: a_server_restarts_empty}, Setup(1))
        assert not failure, failure


@pytest.mark.parametrize("mode", [BatchMode.REST, BatchMode.BATCH])
def test_of_two_syncers_that_want_the_same_at_once_one_reports_it(mode: BatchMode) -> None:
    """Each finds the place empty when the operator starts, and one writes over what the other registered."""
    both = Edit(
        "two of a kind", (), begin=lambda workloads: workloads.syncer("stars", healthCheckPath="/health")
    )
    explored = Explored(both, {}, Setup(mode=mode))
    assert not explored.run().violations
    reasons = {
        condition["reason"]
        for syncer in explored.world.kube.objects["eurekasyncers"].values()
        for condition in syncer["status"]["conditions"]
        if condition["type"] == "Ready"
    }
    assert reasons == {"Synced", "Conflict"}


def test_a_refused_syncers_instance_leaves_with_its_unwatched_pod() -> None:
    """The operator ended before it did, and the next one saw it nowhere: its address may be another's."""
    ended = Edit(
        "refused, and a pod ends while nobody watches",
        (
            (0.0, lambda workloads: workloads.syncer(eureka="nowhere")),
            (1.0, lambda workloads: workloads.pod("a-2", terminating=True)),
            (0.8, lambda workloads: workloads.no_pod("a-2")),
        ),
    )
    failure = tried(ended, {1: the_operator_ends_in_peace}, Setup(1))
    assert not failure, failure


def test_a_status_at_a_frozen_server_does_not_replace_a_newer_one() -> None:
    """The others never heard of it, and show what is wanted again: they are notified of it once more."""
    failure = tried(edit("not ready for a while"), {2: a_server_freezes}, Setup(2))
    assert not failure, failure


@pytest.mark.parametrize(
    "faults", [{2: a_server_freezes}, {3: a_server_freezes, 6: Fault.KILLED_AFTER}], ids=["mark", "status"]
)
def test_the_others_take_a_frozen_servers_mark_before_the_status(faults: Faults) -> None:
    """Without it our OUT_OF_SERVICE passes for a person's, and a pod that took the name stays out."""
    replaced = edit("a StatefulSet's pod is replaced at once, shown until it is gone")
    failure = tried(replaced, faults, Setup(2))
    assert not failure, failure


@pytest.mark.parametrize("name", ["nothing changes", "paused, and scaled down"])
def test_every_fault_that_is_drawn_happens(name: str) -> None:
    """Requests in the calm have no number: nothing goes wrong there."""
    numbers = Explored(edit(name), {}).run().numbers
    assert numbers
    for at in numbers:
        trace = Explored(edit(name), {at: Fault.SLOW}).run().trace
        assert any(line.endswith(f"<- {Fault.SLOW.value}") for line in trace), at


def test_a_sequence_is_replayed() -> None:
    """The same faults give the same sequence, to the millisecond."""
    rolling = edit("rolling update")
    one, other = (Explored(rolling, {4: Fault.KILLED_AFTER}, Setup(2)).run() for _ in range(2))
    assert one.trace == other.trace
    assert any("KILLED" in line or "killed" in line for line in one.trace)


def test_a_brake_that_never_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints that vanish for some seconds would take the application with them."""
    monkeypatch.setattr("eurekube_provider.core.decision.judge", lambda *_, **__: Braked())
    outcome = Explored(edit("all endpoints vanish and come back"), {}).run()
    assert any("serves, and is gone" in line for line in outcome.violations)


def test_removals_that_nobody_looks_for_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is frozen while something is removed would show it to callers when it is back."""
    monkeypatch.setattr("eurekube_provider.eureka.table.Table.due", lambda *_: [])
    outcome = Explored(edit("scaled down"), {0: a_server_freezes}, Setup(2)).run()
    assert any("gone from the cluster, and UP" in line for line in outcome.violations)


@pytest.mark.parametrize("setup", [Setup(2), Setup(3), Setup(2, mode=BatchMode.BATCH)], ids=str)
def test_a_registration_that_a_stack_removed_does_not_come_back(setup: Setup) -> None:
    """The server that missed the removal holds it on, and a renewal finds it there."""
    steady = edit("nothing changes")
    for seed in range(3):
        failure = tried(steady, {0: a_stack_removes_behind_a_split}, setup, seed)
        assert not failure, failure


@pytest.mark.parametrize("name", ["mode service", "a syncer is renamed, the old one first"])
def test_a_removed_registration_stays_away_despite_an_old_list(name: str) -> None:
    """A list that was rendered as it was removed shows it for three minutes, and another server holds it."""
    changed = edit(name)
    removed: Faults = {7: servers_render_their_lists, 9: a_stack_removes_behind_a_split}
    failure = tried(changed, removed, Setup(2))
    assert not failure, failure


def test_a_status_that_overtakes_a_registration_is_set_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server tells its peers what changed within half a second in an order of its own: a status that was
    taken off hits the registration that came after it, at those peers only. Who sends no batches may not be
    let send one: batches are for servers, and a proxy may know that.
    """
    ask = EurekaCluster.request

    def refused(cluster: EurekaCluster, url: str, request: ServerRequest) -> ServerResponse:
        """No batch."""
        is_batch = request.path[0] == "peerreplication"
        return ServerResponse(403) if is_batch else ask(cluster, url, request)

    monkeypatch.setattr(EurekaCluster, "request", refused)
    replaced = edit("a StatefulSet's pod is replaced at once, shown until it is gone")
    for at in range(4):
        for fault in (Fault.LOST_AFTER, Fault.SLOW):
            failure = tried(replaced, {at: fault}, Setup(2))
            assert not failure, failure


@pytest.mark.parametrize("servers", [2, 3])
def test_a_status_of_ours_is_taken_off_a_server_that_was_frozen(servers: int) -> None:
    """It answered a reader that looks for what comes late, and so is asked when the others are."""
    replaced = edit("a StatefulSet's pod is replaced at once after a while, shown until it is gone")
    failure = tried(replaced, {7: a_server_freezes}, Setup(servers))
    assert not failure, failure


def test_a_new_leader_learns_which_server_holds_an_earlier_status() -> None:
    """It could not list that server at first: what is out of service there is not what the others say."""
    replaced = edit("a StatefulSet's pod is replaced at once after a while, shown until it is gone")
    failure = tried(replaced, {4: a_server_freezes, 16: Fault.KILLED_AFTER}, Setup(2))
    assert not failure, failure


def test_a_spec_that_is_changed_and_changed_back_unseen_is_reported() -> None:
    """The status names the generation that was looked at, though nothing differs from what was known."""
    changed = edit("a syncer gives up what another one wants, and wants it again")
    failure = tried(changed, {0: the_api_is_behind, 2: watches_break}, Setup(1))
    assert not failure, failure


def test_an_unlisted_instance_of_a_deleted_syncer_stays_with_its_heir() -> None:
    """The next leader looks for an instance that the former leader may have registered a moment ago."""
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    for at in (17, 18):
        failure = tried(replaced, {at: Fault.KILLED_BEFORE}, Setup(2, is_balanced=True))
        assert not failure, failure


def test_a_pod_that_ended_before_a_rename_is_not_registered_again() -> None:
    """A list shows for a while what was removed: it is neither taken over, nor renewed."""
    ended = Edit(
        "a pod ends, and the cluster is renamed",
        (
            (0.0, lambda workloads: workloads.pod("a-2", terminating=True)),
            (0.1, lambda workloads: workloads.no_pod("a-2")),
            (0.2, lambda workloads: workloads.name_cluster("east")),
        ),
    )
    for setup in (Setup(1), Setup(2)):
        explored = Explored(ended, {}, setup)
        outcome = explored.run()
        assert not outcome.violations, describe_failure(ended, {}, outcome, setup)
        removed = next(at for at, line in enumerate(outcome.trace) if "DELETE" in line)
        later = [line for line in outcome.trace[removed:] if "a-2.shop" in line]
        assert not [line for line in later if "  POST " in line or "  PUT " in line], outcome.trace


@pytest.mark.parametrize("servers", [2, 3])
def test_who_comes_back_behind_a_balancer_is_in_service(servers: int) -> None:
    """Another server than the one that removed the last pod of that name shows it as out of service: that was
    ours, and nobody's wish.
    """
    replaced = edit("a StatefulSet's pod is replaced, shown until it is gone")
    failure = tried(replaced, {}, Setup(servers, is_balanced=True))
    assert not failure, failure


@pytest.mark.parametrize(
    ("name", "at", "act", "servers"),
    [
        ("a syncer is deleted", 3, a_server_restarts_empty, 3),
        ("the namespace is deleted", 4, a_server_freezes, 2),
    ],
)
def test_what_is_removed_behind_a_balancer_is_gone_from_each_server(
    name: str, at: int, act: Act, servers: int
) -> None:
    """A server that does not hold it answers in place of one that does, or one was frozen and comes back."""
    failure = tried(edit(name), {at: act}, Setup(servers, is_balanced=True))
    assert not failure, failure


def test_one_servers_loss_behind_a_balancer_is_sent_again() -> None:
    """Another one shows it to anyone who looks, and each renewal may go to the one that does not know it."""
    forgotten = edit("refused, and allowed again")
    failure = tried(forgotten, {1: a_server_restarts_empty}, Setup(2, is_balanced=True))
    assert not failure, failure


@pytest.mark.parametrize("servers", [2, 3])
def test_what_a_server_tells_its_busy_peer_again_is_undone(servers: int) -> None:
    """Our OUT_OF_SERVICE, answered and carried out, comes once more over the next pod of that name, at those
    servers that its own did not tell of the removal in time.
    """
    replaced = Edit(
        "replaced at once, shown until it is gone",
        (
            (0.0, lambda workloads: workloads.pod("a-2", terminating=True)),
            (0.05, lambda workloads: workloads.no_pod("a-2")),
            (0.1, lambda workloads: workloads.pod("a-2", ready=False)),
            (0.2, lambda workloads: workloads.pod("a-2")),
        ),
        spec={"onTermination": "OutOfService"},
    )
    setup = Setup(servers)
    places = Explored(replaced, {}, setup).run().places
    removal = next(at for at, what in enumerate(places) if what.startswith("DELETE eureka-1"))
    failure = tried(replaced, {0: servers_repeat_themselves, removal: Fault.LOST_BEFORE}, setup)
    assert not failure, failure


def test_a_late_status_does_not_stay_over_the_new_leaders() -> None:
    """The API server may come to a PATCH when its operator is dead, and another one has said
    what is true now.
    """
    refused = edit("refused, and allowed again")
    late: Faults = {1: Fault.LATE, 2: Fault.KILLED_BEFORE}
    failure = tried(refused, late, Setup(1, 2, BatchMode.REST, 0))
    assert not failure, failure


@pytest.mark.parametrize("fault", [Fault.DRIPPED, Fault.BLOATED], ids=str)
def test_servers_that_drip_or_send_too_much(fault: Fault) -> None:
    """An answer that is given up is one that is lost: whatever it was to say, it was carried out."""
    rolling = edit("rolling update")
    for setup in (Setup(1), Setup(2)):
        for at in Explored(rolling, {}, setup).run().numbers[::3]:
            failure = tried(rolling, {at: fault, at + 1: fault}, setup)
            assert not failure, failure


class Callers:
    """Callers of each server, who note where they found an instance once and find none any more."""

    def __init__(self, explored: Explored) -> None:
        self._servers, self._look = explored.world.cluster.servers, explored.world.changed
        self._began = set[str]()
        self.without = list[str]()
        explored.world.changed = self._changed

    def _changed(self, what: str) -> None:
        for url, server in self._servers.items():
            pods = (one for name, one in server.registry.leases.get("RATING", {}).items() if ".shop." in name)
            if any(lease.holder.status == "UP" for lease in pods):
                self._began.add(url)
            elif url in self._began:
                self.without.append(f"{url} after {what}")
        self._look(what)


def test_a_cut_off_server_keeps_an_instance_until_it_is_replaced() -> None:
    """At whatever moment of an update servers lose each other, callers of each find an instance."""
    replaced = edit("all pods are replaced")
    for at in Explored(replaced, {}, Setup(2)).run().numbers:
        explored = Explored(replaced, {at: servers_lose_each_other}, Setup(2))
        callers = Callers(explored)
        assert not explored.run().violations
        assert not callers.without, (at, callers.without)
