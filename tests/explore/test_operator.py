"""No order of events makes an operator do harm: some single faults of each edit of a cluster."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from eurekube_provider.core.brake import BrakeJudgement
from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka.connection import BatchMode
from tests.explore.operator.acts import (
    FROZEN_MS,
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
from tests.explore.operator.campaign import ALL_EDITS, HAPPENINGS, SETUPS, tried
from tests.explore.operator.edits import Edit, edit, together
from tests.explore.operator.explorer import Explored, Faults, Setup, describe_failure
from tests.explore.operator.world import Fault, owned

SINGLES_AN_EDIT = 2
"""Number of single faults for each edit, drawn by the edit's name, so that a failure is found again;
``make explore`` tries all faults, and several at once.
"""


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    """Have the code reach no real server."""
    with owned():
        yield


def _numbers(changed: Edit, setup: Setup, pattern: str) -> list[int]:
    """Return the numbers of the requests that match a pattern when an edit runs without faults.

    A number that a test names goes to another request as soon as the operator asks more, or less.
    """
    places = Explored(changed, {}, setup).run().places
    return [at for at, what in enumerate(places) if re.match(pattern, what)]


@pytest.mark.parametrize("changed", ALL_EDITS, ids=lambda one: one.name)
def test_single_faults(changed: Edit) -> None:
    """Lost, late and killed requests and acts of others fail no call, and their effects end in the calm."""
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
        "a StatefulSet's pod is replaced in one event, shown until it is gone",
    ],
)
def test_what_is_carried_out_late_is_undone(name: str) -> None:
    """A write that a frozen server carries out late neither brings back an ended pod nor removes a serving
    one.
    """
    changed = edit(name)
    for setup in (Setup(1), Setup(2)):
        places = Explored(changed, {}, setup).run().places
        for at, what in enumerate(places):
            if what.startswith("POST eureka") or "/status" in what:
                failure = tried(changed, {at: Fault.LATE}, setup)
                assert not failure, failure


@pytest.mark.parametrize("mode", [BatchMode.REST, BatchMode.BATCH])
@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LATE])
def test_a_status_of_ours_that_one_server_keeps_does_not_stay_over_the_next_pod(
    fault: Fault, mode: BatchMode
) -> None:
    """If one of two servers is not reached as our OUT_OF_SERVICE is taken off, it tells the other one of it
    again, without our mark: the next pod of the name, which is there before the last one was seen to go,
    comes into service all the same.
    """
    replaced = edit("a StatefulSet's pod is replaced in one event, shown until it is gone")
    setup = Setup(2, mode=mode)
    at, _ = _numbers(replaced, setup, "DELETE eureka-[12] .*/status")
    failure = tried(replaced, {at: fault}, setup)
    assert not failure, failure


def test_the_end_of_one_syncer_takes_nothing_from_the_next() -> None:
    """A removal that begins for an old syncer does not hit a new syncer that registers the instance at
    that moment.
    """
    renamed = edit("a syncer is renamed, the old one first")
    for setup in (Setup(1), Setup(3)):
        for at in range(3, 14):
            failure = tried(renamed, {at: Fault.KILLED_AFTER}, setup)
            assert not failure, failure


def test_what_was_handed_over_is_swept_as_its_former_owner_left_it() -> None:
    """If a server was frozen while an instance passed to another syncer and was removed, the instance is
    removed there, too.
    """
    passed = together(("a syncer is renamed", 0.0), ("scaled down", 3.0))
    failure = tried(passed, {0: a_server_freezes}, Setup(2))
    assert not failure, failure


def test_a_late_hand_over_does_not_bring_back_what_left() -> None:
    """A server that stores the new syncer's registration late, after the instance left, does not keep it."""
    passed = together(("a syncer is renamed", 0.0), ("scaled down", 3.0))
    (at,) = _numbers(passed, Setup(1), "POST eureka-1 .* a-2.* of stars")
    failure = tried(passed, {at: Fault.LATE}, Setup(1))
    assert not failure, failure


def test_our_out_of_service_ends_with_a_hand_over_at_a_frozen_server() -> None:
    """An OUT_OF_SERVICE that was set for the former syncer at a frozen server is cleared for the pod that
    serves now.
    """
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    failure = tried(replaced, {16: a_server_freezes}, Setup(2, replicas=2))
    assert not failure, failure


def test_our_out_of_service_is_undone_at_separated_servers() -> None:
    """If servers lose each other after the former syncer's OUT_OF_SERVICE, it is cleared at each of them."""
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    faults: Faults = {13: the_operator_ends_in_peace, 19: servers_lose_each_other}
    failure = tried(replaced, faults, Setup(2))
    assert not failure, failure


def test_an_out_of_service_of_ours_that_no_list_shows_yet_is_undone() -> None:
    """A new leader clears an OUT_OF_SERVICE that the former leader set a moment ago, before any list shows
    it.
    """
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    failure = tried(replaced, {12: the_operator_ends_in_peace}, Setup(1))
    assert not failure, failure


def test_an_instance_found_while_heirs_are_asked_is_not_misplaced() -> None:
    """If a server that was frozen shows the handed-over instances one after the other, each stays where it
    belongs.
    """
    moved = edit("two syncers name another Eureka in turn, and the first comes back")
    failure = tried(moved, {10: a_server_freezes}, Setup(2, replicas=2))
    assert not failure, failure


def test_the_others_learn_of_a_hand_over_at_a_frozen_server() -> None:
    """If only a frozen server got a hand-over, the former owner passes the instance on again at the
    others, before the frozen server can tell them.
    """
    given_up, setup = edit("a syncer that removes nothing gives up what another one wants"), Setup(2)
    handed_over = _numbers(given_up, setup, "POST eureka-1 .* of stars")
    assert len(handed_over) == 3
    for at in handed_over:
        owners: list[str] = []
        faults: Faults = {at + 1: _freeze_and_read_other_owners(owners)}
        outcome = Explored(given_up, faults, setup).run()
        assert not outcome.violations, describe_failure(given_up, {at + 1: a_server_freezes}, outcome, setup)
        assert owners == ["stars"] * 3, at


def _freeze_and_read_other_owners(owners: list[str]) -> Act:
    """Return an act that freezes the first server; just before that one goes on, the names of the syncers
    that own the pods' instances at the other server are added to ``owners``.
    """

    def freeze(explored: Explored) -> None:
        a_server_freezes(explored)
        cluster = explored.world.cluster
        leases = cluster.servers[cluster.urls[1]].registry.leases["RATING"]

        def read_owners() -> None:
            pods = (lease.holder for name, lease in leases.items() if name.startswith("a-"))
            owners.extend(str(one.fields["metadata"][OWNER_KEY]).rpartition("/")[2] for one in pods)

        cluster.clock.run_after(FROZEN_MS - 1000, read_owners)

    return freeze


def test_a_server_frozen_in_a_hand_over_does_not_keep_what_leaves() -> None:
    """If only a frozen server got a hand-over, the new owner deregisters there an instance that left the
    others under its former owner.
    """
    passed = together(("a syncer is renamed", 0.0), ("scaled down", 3.0))
    for at in (11, 13):
        failure = tried(passed, {at: a_server_freezes}, Setup(2))
        assert not failure, failure


def test_no_gate_opens_while_a_separated_server_lacks_the_pod() -> None:
    """If servers lose each other, a gate opens only when each of them shows the pod."""
    for name in ("gated pods replace others", "gated pods of a namespace's Service replace others"):
        failure = tried(edit(name), {0: servers_lose_each_other}, Setup(2))
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
    """If Eureka loses its memory it gets a refused or paused syncer's instances again."""
    for at in Explored(edit(name), {}).run().numbers:
        failure = tried(edit(name), {at: a_server_restarts_empty}, Setup(1))
        assert not failure, failure


@pytest.mark.parametrize("mode", [BatchMode.REST, BatchMode.BATCH])
def test_of_two_syncers_that_want_the_same_at_once_one_reports_it(mode: BatchMode) -> None:
    """If two syncers register the same instances when the operator starts, one of them gets the instances,
    and the other reports the conflict.
    """
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
    """A refused syncer's instance is removed if its pod ended while no operator ran, since another pod may
    have its address.
    """
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
    """The other servers, which never got a frozen server's old status, are sent the newer status again, so
    that the old one does not replace it.
    """
    failure = tried(edit("not ready for a while"), {2: a_server_freezes}, Setup(2))
    assert not failure, failure


@pytest.mark.parametrize(
    "faults", [{2: a_server_freezes}, {3: a_server_freezes, 6: Fault.KILLED_AFTER}], ids=["mark", "status"]
)
def test_the_others_take_a_frozen_servers_mark_before_the_status(faults: Faults) -> None:
    """The others get our mark before the status; without the mark our OUT_OF_SERVICE would pass for a
    person's, and keep the next pod of that name out.
    """
    replaced = edit("a StatefulSet's pod is replaced at once, shown until it is gone")
    failure = tried(replaced, faults, Setup(2))
    assert not failure, failure


@pytest.mark.parametrize("name", ["nothing changes", "paused, and scaled down"])
def test_every_fault_that_is_drawn_happens(name: str) -> None:
    """Faults are drawn only at numbered requests; those of the final calm have no number."""
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
    """The explorer finds the harm if the brake never holds: endpoints that vanish for seconds take the
    application with them.
    """
    monkeypatch.setattr("eurekube_provider.core.decision.judge_removals", lambda *_, **__: BrakeJudgement())
    outcome = Explored(edit("all endpoints vanish and come back"), {}).run()
    assert any("serves, and is gone" in line for line in outcome.violations)


def test_removals_that_nobody_looks_for_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explorer finds the harm if removals are not checked later: a frozen server shows a removed
    instance to callers.
    """
    monkeypatch.setattr("eurekube_provider.eureka.table.InstanceTable.due_checks", lambda *_: [])
    outcome = Explored(edit("scaled down"), {0: a_server_freezes}, Setup(2)).run()
    assert any("gone from the cluster, and UP" in line for line in outcome.violations)


@pytest.mark.parametrize("setup", [Setup(2), Setup(3), Setup(2, mode=BatchMode.BATCH)], ids=str)
def test_a_registration_that_a_stack_removed_does_not_come_back(setup: Setup) -> None:
    """A server that missed a stack's removal still holds the registration, but the operator does not renew
    it back.
    """
    steady = edit("nothing changes")
    for seed in range(3):
        failure = tried(steady, {0: a_stack_removes_behind_a_split}, setup, seed)
        assert not failure, failure


@pytest.mark.parametrize("name", ["mode service", "a syncer is renamed, the old one first"])
def test_a_removed_registration_stays_away_despite_an_old_list(name: str) -> None:
    """A list that was rendered during the removal shows the instance for three minutes, and a server still
    holds it: it is not renewed.
    """
    changed = edit(name)
    removed: Faults = {7: servers_render_their_lists, 9: a_stack_removes_behind_a_split}
    failure = tried(changed, removed, Setup(2))
    assert not failure, failure


def test_a_status_that_overtakes_a_registration_is_set_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleared status that overtakes the next registration at some peers is repaired there.

    A server sends its changes of half a second in an order of its own. The operator may not send batches
    here, which only servers may send and a proxy may refuse.
    """
    ask = EurekaCluster.request

    def refused(cluster: EurekaCluster, url: str, request: ServerRequest) -> ServerResponse:
        """Refuse batches, and answer other requests."""
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
    """Our old status at a server that was frozen is cleared, even if that server has already answered a
    reader again.
    """
    replaced = edit("a StatefulSet's pod is replaced at once after a while, shown until it is gone")
    failure = tried(replaced, {7: a_server_freezes}, Setup(servers))
    assert not failure, failure


def test_a_new_leader_learns_which_server_holds_an_earlier_status() -> None:
    """A new leader that could not list one server at first learns that only that server has an old
    OUT_OF_SERVICE.
    """
    replaced = edit("a StatefulSet's pod is replaced at once after a while, shown until it is gone")
    failure = tried(replaced, {4: a_server_freezes, 16: Fault.KILLED_AFTER}, Setup(2))
    assert not failure, failure


@pytest.mark.parametrize("at", [17, 20, 21])
def test_a_new_leader_takes_off_our_status_over_the_next_pod(at: int) -> None:
    """An OUT_OF_SERVICE that came to one server over the next pod of a name is taken off by the next leader,
    since a person's would be at all servers.
    """
    replaced = edit("a StatefulSet's pod is replaced at once, shown until it is gone")
    failure = tried(replaced, {at: Fault.KILLED_AFTER}, Setup(2, mode=BatchMode.BATCH))
    assert not failure, failure


def test_what_a_server_missed_of_a_hand_over_is_removed() -> None:
    """A pod leaves servers that disagree about which of two syncers has it, and nobody knows of a hand-over;
    the syncers do not have each other look for ever.
    """
    moved = together(
        ("the cluster is renamed", 0.0),
        ("a syncer gives up what another one wants", 0.0),
        ("the cluster is renamed while pods are replaced", 5.0),
    )
    failure = tried(moved, {51: servers_lose_each_other}, Setup(2))
    assert not failure, failure


def test_a_spec_that_is_changed_and_changed_back_unseen_is_reported() -> None:
    """The status names the latest generation, even if the spec was changed and changed back while no watch
    worked.
    """
    changed = edit("a syncer gives up what another one wants, and wants it again")
    failure = tried(changed, {0: the_api_is_behind, 2: watches_break}, Setup(1))
    assert not failure, failure


def test_an_unlisted_instance_of_a_deleted_syncer_stays_with_its_heir() -> None:
    """The next leader looks for an instance that the former leader registered a moment ago for a syncer
    that is now deleted: it stays with the new syncer.
    """
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    for at in (17, 18):
        failure = tried(replaced, {at: Fault.KILLED_BEFORE}, Setup(2, is_balanced=True))
        assert not failure, failure


def test_a_pod_that_ended_before_a_rename_is_not_registered_again() -> None:
    """An old list still shows a removed instance, which the operator under a new cluster name neither
    takes over nor renews.
    """
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
    """A new pod is UP even if another server behind the balancer still shows our OUT_OF_SERVICE for the
    last pod of that name.
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
    """Behind a balancer a removal reaches each server, even if the server that answers does not hold the
    instance or one was frozen.
    """
    failure = tried(edit(name), {at: act}, Setup(servers, is_balanced=True))
    assert not failure, failure


def test_one_servers_loss_behind_a_balancer_is_sent_again() -> None:
    """An instance that one server behind a balancer forgot is registered again, although other servers
    show it and answer renewals.
    """
    forgotten = edit("refused, and allowed again")
    failure = tried(forgotten, {1: a_server_restarts_empty}, Setup(2, is_balanced=True))
    assert not failure, failure


@pytest.mark.parametrize("servers", [2, 3])
def test_what_a_server_tells_its_busy_peer_again_is_undone(servers: int) -> None:
    """If a server repeats our old OUT_OF_SERVICE to a busy peer, it is cleared for the next pod of that
    name.
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
    """A status PATCH that the API server carries out after its operator died is replaced by the new
    leader's status.
    """
    refused = edit("refused, and allowed again")
    late: Faults = {1: Fault.LATE, 2: Fault.KILLED_BEFORE}
    failure = tried(refused, late, Setup(1, 2, BatchMode.REST, 0))
    assert not failure, failure


@pytest.mark.parametrize("fault", [Fault.DRIPPED, Fault.BLOATED], ids=str)
def test_servers_that_drip_or_send_too_much(fault: Fault) -> None:
    """A request whose slow or oversized answer is given up was still carried out, and the operator copes
    with either.
    """
    rolling = edit("rolling update")
    for setup in (Setup(1), Setup(2)):
        for at in Explored(rolling, {}, setup).run().numbers[::3]:
            failure = tried(rolling, {at: fault, at + 1: fault}, setup)
            assert not failure, failure


class Callers:
    """Callers of each server, who record if they found an instance before and find none now."""

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
    """If servers lose each other at any moment of an update, callers of each server still find an
    instance.
    """
    replaced = edit("all pods are replaced")
    for at in Explored(replaced, {}, Setup(2)).run().numbers:
        explored = Explored(replaced, {at: servers_lose_each_other}, Setup(2))
        callers = Callers(explored)
        assert not explored.run().violations
        assert not callers.without, (at, callers.without)
