"""Table of the known registry: lists suggest changes, and never overrule recent writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, InstanceKey, Port, Status
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka import table as module
from eurekube_provider.eureka.listing import Listing
from eurekube_provider.eureka.record import DroppedStackRegistration
from eurekube_provider.eureka.table import InstanceTable
from tests.unit import held, strategies
from tests.unit.strategies import OURS, THEIRS

RATING = Instance("rating", "a", "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": OURS})
ORDER = replace(RATING, application="order", instance_id="b")
NEAR, FAR = URLS = ("http://near", "http://far")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_first_list_is_believed() -> None:
    """A listed instance that the table does not know is stored and reported as news."""
    table = InstanceTable()
    assert table.merge_list([RATING, ORDER]) == ([RATING, ORDER], [])
    assert table.get(RATING.key) == RATING
    assert table.merge_list([RATING, ORDER]) == ([], [])


def test_a_list_that_agrees_is_kept_instead() -> None:
    """A listed instance equal to the written one replaces its object; a later contradiction is a doubt."""
    clock = Clock()
    table = InstanceTable(clock)
    table.store_written_and_return_previous(RATING)
    clock.now += windows.LONGEST_LIST_LAG_SECONDS
    listed = replace(RATING)
    assert table.merge_list([listed]) == ([], [])
    assert table.get(RATING.key) is listed
    assert table.merge_list([listed]) == ([], [])
    assert table.merge_list([]) == ([], [RATING.key])


def test_an_old_list_does_not_hide_a_write() -> None:
    """A list without a just registered instance changes nothing and raises no doubt."""
    table = InstanceTable()
    table.store_written_and_return_previous(RATING)
    assert table.merge_list([]) == ([], [])
    assert table.get(RATING.key) == RATING


def test_an_old_list_does_not_bring_back_what_was_removed() -> None:
    """A list with a just removed instance does not restore the instance in the table."""
    table = InstanceTable()
    table.store_written_and_return_previous(RATING)
    table.store_confirmed_absence(RATING.key)
    assert table.merge_list([RATING]) == ([], [])
    assert table.get(RATING.key) is None


def test_what_no_answering_server_holds_is_believed_of_the_next_list() -> None:
    """An instance of which only the absence at some servers is known is news as soon as a list shows it."""
    table = InstanceTable()
    table.store_written_and_return_previous(RATING)
    table.store_unconfirmed_absence(RATING.key)
    assert table.get(RATING.key) is None
    assert table.merge_list([RATING]) == ([RATING], [])


def test_an_old_list_does_not_undo_an_update() -> None:
    """A list with an instance's contents of before an update is ignored."""
    table = InstanceTable()
    newer = replace(RATING, ip_address="10.0.0.2")
    table.store_written_and_return_previous(newer)
    assert table.merge_list([RATING]) == ([], [])
    assert table.get(RATING.key) == newer


def test_a_list_that_goes_on_to_contradict_raises_a_doubt() -> None:
    """After the caches' delay a list that contradicts the table raises a doubt, but is not believed."""
    clock = Clock()
    table = InstanceTable(clock)
    table.store_written_and_return_previous(RATING)
    table.store_written_and_return_previous(ORDER)
    clock.now += windows.LONGEST_LIST_LAG_SECONDS
    assert table.merge_list([replace(RATING, ip_address="10.0.0.2")]) == ([], [RATING.key, ORDER.key])
    assert table.get(RATING.key) == RATING
    assert table.get(ORDER.key) == ORDER


def test_what_may_be_others_by_now_is_believed_as_listed() -> None:
    """After ``doubt``, as when another replica wrote meanwhile, the next list is believed over own writes
    and reads.
    """
    table = InstanceTable()
    for one in (RATING, ORDER):
        table.store_written_and_return_previous(one)
    table.believe_next_list()
    moved = replace(ORDER, ip_address="10.0.0.9")
    assert table.merge_list([moved]) == ([moved], [])
    assert (table.get(RATING.key), table.get(ORDER.key)) == (None, moved)


def test_a_settled_doubt_is_knowledge() -> None:
    """An uncached read that settles a doubt is not overruled by a list for a while."""
    clock = Clock()
    table = InstanceTable(clock)
    table.store_written_and_return_previous(RATING)
    clock.now += windows.LONGEST_LIST_LAG_SECONDS
    assert table.merge_list([]) == ([], [RATING.key])
    table.store_confirmed_absence(RATING.key)
    assert table.merge_list([RATING]) == ([], [])


def test_a_change_of_owner_or_status_is_news() -> None:
    """An instance known from lists alone follows them, and a change is reported."""
    table = InstanceTable()
    table.merge_list([RATING, ORDER])
    taken = replace(RATING, metadata={"eurekube.owner": THEIRS})
    down = replace(ORDER, status=Status.DOWN)
    assert table.merge_list([taken, down]) == ([taken, down], [])
    assert table.instances_of_owner(OURS) == [down]
    assert table.instances_of_owner(THEIRS) == [taken]
    assert table.owners() == {OURS, THEIRS}


def test_what_is_only_listed_goes_with_its_list() -> None:
    """An instance known from lists alone is dropped when a complete list lacks it."""
    table = InstanceTable()
    table.merge_list([RATING])
    assert table.merge_list([], is_complete=False) == ([], [])
    assert table.instances_of_owner(OURS) == [RATING]
    assert table.merge_list([]) == ([], [])
    assert table.known_instances() == []
    assert table.owners() == set()


def test_applications_are_found_in_any_case() -> None:
    """Instances of an application are found by its name in upper or lower case."""
    table = InstanceTable()
    table.merge_list([RATING, ORDER])
    assert table.instances_of_application("Rating") == [RATING]
    assert table.instances_of_application("none") == []


def test_instances_of_an_unchanged_application_are_one_object() -> None:
    """While nothing changes in an application, all its instances are the same object; a list that is equal
    changes nothing.
    """
    table = InstanceTable()
    table.merge_list([RATING, ORDER])
    before = table.instances_by_application()
    assert before == {"RATING": (RATING,), "ORDER": (ORDER,)}
    table.merge_list([RATING, replace(ORDER, status=Status.DOWN)])
    after = table.instances_by_application()
    assert after["RATING"] is before["RATING"]
    assert [one.status for one in after["ORDER"]] == [Status.DOWN]
    table.merge_list([RATING])
    assert table.instances_by_application() == {"RATING": (RATING,)}


_changes = st.lists(
    st.tuples(
        st.sampled_from(["registered", "gone", "delta", "list", "part", "wait", "believe"]),
        strategies.registries(),
    ),
    max_size=12,
)


@given(_changes)
def test_a_list_made_by_changes_is_merged_as_a_whole_one(events: list[tuple[str, list[Instance]]]) -> None:
    """A table that looks only at what changed in a list comes to the same as one that looks at all of it,
    whatever was written, read or listed in between.
    """
    clock = Clock()
    tables = InstanceTable(clock), InstanceTable(clock)
    listing = Listing()
    for kind, instances in events:
        if kind == "wait":
            clock.now += windows.LONGEST_LIST_LAG_SECONDS
        if kind == "delta":
            gone = {one.key: None for one in listing if one.key not in {each.key for each in instances}}
            some = dict(list(gone.items())[:1])
            listing = listing.with_changes({**some, **{one.key: one for one in instances}})
        elif kind == "list":
            listing = Listing.of(instances)
        for table in tables:
            for instance in instances:
                if kind == "registered":
                    table.store_written_and_return_previous(instance)
                elif kind == "gone":
                    table.store_confirmed_absence(instance.key)
            if kind == "part":
                table.merge_list(instances, is_complete=False)
            elif kind == "believe":
                table.believe_next_list()
        by_changes, whole = tables
        (news, doubts), (all_news, all_doubts) = by_changes.merge_list(listing), whole.merge_list([*listing])
        assert {one.key: one for one in news} == {one.key: one for one in all_news}
        assert sorted(doubts) == sorted(all_doubts)
        for one in (*news, *listing):
            assert by_changes.get(one.key) is whole.get(one.key)
        assert held_by_key(by_changes) == held_by_key(whole)


def held_by_key(table: InstanceTable) -> dict[InstanceKey, Instance]:
    """Return all instances of a table by their keys."""
    return {one.key: one for one in table.known_instances()}


def test_what_a_list_shows_again_is_found_though_nothing_changed_in_it() -> None:
    """A written instance that the list does not show is doubted once the write is old, though the list stays
    the same object.
    """
    clock = Clock()
    table = InstanceTable(clock)
    listing = Listing.of([ORDER])
    table.merge_list(listing)
    table.store_written_and_return_previous(RATING)
    assert table.merge_list(listing) == ([], [])
    clock.now += windows.LONGEST_LIST_LAG_SECONDS
    assert table.merge_list(listing) == ([], [RATING.key])


def test_a_list_made_of_another_than_the_last_is_merged_as_a_whole() -> None:
    """A list that was made by changes of a list that the table has not merged is looked at as a whole."""
    table = InstanceTable()
    table.merge_list([RATING])
    unseen = Listing.of([ORDER])
    found = unseen.with_changes({ORDER.key: replace(ORDER, status=Status.DOWN)})
    assert table.merge_list(found) == ([*found], [])
    assert table.known_instances() == [*found]


_events = st.lists(
    st.tuples(st.sampled_from(["registered", "gone", "list", "wait"]), strategies.registries()), max_size=8
)


@given(_events)
def test_indexes_agree_with_what_is_held(events: list[tuple[str, list[Instance]]]) -> None:
    """After any sequence of calls, owners and applications lead to exactly the stored instances."""
    clock = Clock()
    table = InstanceTable(clock)
    for kind, instances in events:
        if kind == "list":
            table.merge_list(instances)
        elif kind == "wait":
            clock.now += windows.LONGEST_LIST_LAG_SECONDS
        else:
            for instance in instances:
                if kind == "registered":
                    table.store_written_and_return_previous(instance)
                else:
                    table.store_confirmed_absence(instance.key)
        table.instances_by_application()  # is remembered until something changes
    all_by_application = table.instances_by_application()
    keys = {(app, f"pod-{number}") for app in ("RATING", "ORDER") for number in range(1, 5)}
    held = {key: found for key in keys if (found := table.get(key)) is not None}
    by_application = [one for app in ("RATING", "ORDER") for one in table.instances_of_application(app)]
    assert {one.key: one for one in by_application} == held
    assert [one for app in ("RATING", "ORDER") for one in all_by_application.get(app, ())] == by_application
    assert all(all_by_application.values())
    assert len(by_application) == len(held) == len(table.known_instances())
    assert table.owners() == {one.owner for one in held.values() if one.owner}
    for owner in table.owners():
        assert {one.key for one in table.instances_of_owner(owner)} == {
            k for k, one in held.items() if one.owner == owner
        }
        assert table.count_up_instances(owner=owner) == sum(
            one.status is Status.UP for one in table.instances_of_owner(owner)
        )
    of_syncers = [one for one in held.values() if (one.owner or "").startswith("cluster/eks/")]
    assert table.count_up_instances(cluster="eks") == sum(one.status is Status.UP for one in of_syncers)


def test_what_was_known_lately_is_not_new() -> None:
    """An id is new only if no list shows it and it was neither written nor removed lately."""
    clock = Clock()
    table = InstanceTable(clock)
    assert table.is_key_unused(RATING.key)
    table.store_written_and_return_previous(RATING)
    assert not table.is_key_unused(RATING.key)
    table.store_confirmed_absence(RATING.key)
    assert not table.is_key_unused(RATING.key)
    clock.now += windows.LONGEST_LIST_LAG_SECONDS
    table.merge_list([])
    assert table.is_key_unused(RATING.key)
    table.merge_list([RATING])
    assert not table.is_key_unused(RATING.key)


def test_owners_by_the_names_that_callers_use() -> None:
    """Owners are found by application and VIP address, also after instances change either, change owner,
    or go.
    """
    table = InstanceTable()

    def put(instance_id: str, vip: str, owner: str) -> None:
        metadata = {OWNER_KEY: owner}
        table.store_written_and_return_previous(
            Instance("RATING", instance_id, "h", "i", Port(1), vip_address=vip, metadata=metadata)
        )

    put("a", "stars", "one")
    put("b", "stars,Best", "one")
    put("b", "stars,Best", "one")
    assert (table.owners_found_under_name("RATING"), table.owners_found_under_name("best")) == (
        ["one"],
        ["one"],
    )
    put("b", "other", "one")
    assert (table.owners_found_under_name("best"), table.owners_found_under_name("stars")) == ([], ["one"])
    put("a", "stars", "two")
    assert (table.owners_found_under_name("stars"), sorted(table.owners_found_under_name("rating"))) == (
        ["two"],
        ["one", "two"],
    )
    for key in ("a", "b"):
        table.store_confirmed_absence(("RATING", key))
    assert {"rating", "stars", "best", "other"}.isdisjoint(text for text, _ in held.texts(table))


def test_removals_that_no_list_follows_are_forgotten() -> None:
    """Records of removals expire even if Eureka never gives a list."""
    now = 0.0
    table = InstanceTable(lambda: now)
    for number in range(20_000):
        now += 1.0
        table.store_confirmed_absence(("RATING", f"pod-{number}"))
    assert sum(text.startswith("pod-") for text, _ in held.texts(table)) < 3000


def test_a_loss_is_forgotten_by_owner_and_on_registration() -> None:
    """A lost instance is forgotten when its owner gives it up, and for all owners when an instance is found
    or removed under its id.
    """
    table = InstanceTable()
    theirs = replace(RATING, metadata={"eurekube.owner": THEIRS})
    other = replace(RATING, instance_id="other")
    for each in (RATING, other, theirs):
        table.remember_lost_instance(each)
    table.store_read_instance(RATING)
    assert [*table.instances_lost_by_registry(OURS), *table.instances_lost_by_registry(THEIRS)] == [other]
    table.store_confirmed_absence(RATING.key)
    table.remember_lost_instance(theirs)
    table.stop_tracking_lost_instances(THEIRS, ())
    assert (table.instances_lost_by_registry(THEIRS), table.instances_lost_by_registry(OURS)) == ([], [other])
    table.store_removal_and_plan_checks(other)
    assert table.instances_lost_by_registry(OURS) == []


def test_a_persons_status_comes_back_with_what_servers_forgot() -> None:
    """A person's status of an instance that servers forgot is remembered until the instance is registered or
    given up; the operator's is not.
    """
    table = InstanceTable()
    out = replace(RATING, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    ours = rules.add_leaving_mark(replace(out, instance_id="leaving"))
    for one in (out, ours):
        table.store_written_and_return_previous(one)
        table.store_confirmed_absence(one.key, may_be_forgotten=True)
    assert table.lost_override(ours.key) is Status.UNKNOWN
    assert table.lost_override(out.key) is Status.OUT_OF_SERVICE
    table.stop_tracking_lost_instances(OURS, {out.key})
    assert table.lost_override(out.key) is Status.OUT_OF_SERVICE
    table.stop_tracking_lost_instances(OURS, ())
    assert table.lost_override(out.key) is Status.UNKNOWN
    table.believe_next_list()
    table.merge_list([out])
    table.merge_list([], may_be_forgotten=True)
    assert table.lost_override(out.key) is Status.OUT_OF_SERVICE
    table.store_written_and_return_previous(RATING)
    assert table.lost_override(out.key) is Status.UNKNOWN


def test_who_leads_no_more_believes_the_next_list() -> None:
    """A replica that no longer leads drops losses and former owners, and believes the next list."""
    clock = Clock()
    table = InstanceTable(clock, URLS)
    table.store_written_and_return_previous(replace(RATING, metadata={"eurekube.owner": THEIRS}))
    table.store_written_and_return_previous(RATING)
    table.remember_lost_instance(ORDER)
    table.stand_by()
    assert table.instances_lost_by_registry(ORDER.owner or "") == []
    assert table.merge_list([]) == ([], [])
    assert table.known_instances() == []
    table.store_removal_and_plan_checks(RATING)
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[0]
    assert [(look.instance, look.former_owners) for look in table.due_checks(NEAR)] == [(RATING, frozenset())]


def test_a_removal_says_whose_it_was_and_what_may_come_late() -> None:
    """A removal is later checked with its former owner and its unanswered version: a server that was away may
    know either.
    """
    clock = Clock()
    table = InstanceTable(clock, URLS)
    theirs = replace(RATING, metadata={"eurekube.owner": THEIRS})
    table.store_written_and_return_previous(theirs)
    table.store_read_instance(RATING, former_owner=THEIRS)
    newer = replace(RATING, last_dirty_timestamp_ms=2)
    table.remember_unanswered_write(newer)
    table.store_removal_and_plan_checks(rules.add_leaving_mark(RATING))
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[0]
    for url in URLS:
        (look,) = table.due_checks(url)
        assert (look.instance, look.former_owners, look.is_removed) == (newer, frozenset({THEIRS}), True)
    out = replace(RATING, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    assert rules.looks_manual_soon_after_ours(
        table.copy_record(RATING.key), out, clock.now, windows.SENT_STATUS_ARRIVAL_SECONDS
    )


@pytest.mark.parametrize("is_late", [False, True], ids=["all was answered", "a write got no answer"])
def test_what_is_certain_to_be_gone_is_not_looked_for(is_late: bool) -> None:
    """A removal that is certain needs no later check, unless a write of ours got no answer."""
    table = InstanceTable(Clock(), urls=["a"])
    table.store_written_and_return_previous(RATING)
    if is_late:
        table.remember_unanswered_registrations([RATING])
    table.store_removal_and_plan_checks(RATING, is_certain=True)
    assert (table.copy_record(RATING.key).checks_by_url is not None) is is_late


def test_late_arrivals_are_looked_for_if_no_check_is_planned() -> None:
    """An unanswered write is checked later; for an instance removed as well, the check of the removal
    stays.
    """
    clock = Clock()
    table = InstanceTable(clock, URLS)
    table.remember_unanswered_write(ORDER)
    table.store_removal_and_plan_checks(RATING)
    table.remember_unanswered_write(RATING)
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[0]
    assert [(look.instance, look.is_removed) for look in table.due_checks(NEAR)] == [
        (ORDER, False),
        (RATING, True),
    ]


def test_each_server_is_looked_at_again_in_its_time() -> None:
    """Each server is checked at its planned times, and from the beginning again when another server that was
    away answers.
    """
    clock = Clock()
    table = InstanceTable(clock, URLS)
    table.store_removal_and_plan_checks(RATING)
    assert table.due_checks(NEAR) == []
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[0]
    table.plan_next_checks(NEAR, table.due_checks(NEAR), windows.REMOVAL_CHECKS_AFTER_SECONDS)
    assert (len(table.due_checks(NEAR)), len(table.due_checks(FAR))) == (0, 1)
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[1]
    table.plan_next_checks(NEAR, table.due_checks(NEAR), windows.REMOVAL_CHECKS_AFTER_SECONDS)
    table.plan_next_checks(FAR, table.due_checks(FAR), windows.REMOVAL_CHECKS_AFTER_SECONDS, was_away=True)
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[0]
    assert [look.checks_before for url in URLS for look in table.due_checks(url)] == [0, 1]
    for _ in windows.REMOVAL_CHECKS_AFTER_SECONDS:
        clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[1]
        for url in URLS:
            table.plan_next_checks(url, table.due_checks(url), windows.REMOVAL_CHECKS_AFTER_SECONDS)
    clock.now += windows.LONGEST_LIST_LAG_SECONDS
    table.merge_list([])
    assert RATING.instance_id not in {text for text, _ in held.texts(table)}


def test_the_oldest_looks_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a maximum the oldest planned checks are dropped; later ones are kept."""
    monkeypatch.setattr(module, "MOST_PENDING_CHECKS", 2)
    clock = Clock()
    table = InstanceTable(clock, URLS)
    many = [replace(RATING, instance_id=name) for name in "abc"]
    for one in many:
        table.store_removal_and_plan_checks(one)
    table.remember_unanswered_write(ORDER)
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[0]
    assert [look.instance for look in table.due_checks(NEAR)] == [many[2], ORDER]


def test_what_was_dropped_is_remembered_until_it_is_renewed_again() -> None:
    """A dropped instance is remembered with all servers that lacked it, until it is renewed again or for
    two minutes.
    """
    clock = Clock()
    table = InstanceTable(clock, URLS)
    table.store_dropped_registration(RATING, {NEAR})
    table.store_dropped_registration(RATING, {FAR})
    assert table.copy_record(RATING.key).dropped == DroppedStackRegistration(RATING, clock.now, {NEAR, FAR})
    newer = replace(RATING, last_dirty_timestamp_ms=2)
    table.store_dropped_registration(newer)
    assert table.copy_record(RATING.key).dropped == DroppedStackRegistration(newer, clock.now)
    table.forget_dropped_registration(RATING.key)
    assert table.copy_record(RATING.key).dropped is None
    table.store_dropped_registration(RATING)
    clock.now += windows.MEMORY_LOSS_SECONDS
    table.merge_list([])
    assert table.copy_record(RATING.key).dropped is None


def test_what_was_dropped_is_remembered_for_as_long_as_it_is_listed() -> None:
    """A dropped instance is remembered as long as lists show it: a server that was cut off may still hold
    it.
    """
    clock = Clock()
    table = InstanceTable(clock, URLS)
    table.merge_list([RATING])
    table.store_dropped_registration(RATING)
    clock.now += 2 * windows.MEMORY_LOSS_SECONDS
    table.merge_list([RATING])
    assert table.copy_record(RATING.key).dropped is not None


def test_a_persons_status_in_a_batch_stays_a_persons() -> None:
    """A registration in a batch with a person's OUT_OF_SERVICE does not count as the operator's; one with the
    operator's mark does.
    """
    table = InstanceTable()
    out = replace(RATING, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    table.remember_unanswered_registrations([out])
    assert table.add_leaving_marks_to_late_overrides([out]) == [out]
    table.remember_unanswered_registrations([rules.add_leaving_mark(out)])
    other = replace(out, instance_id="another")
    assert table.add_leaving_marks_to_late_overrides([out, RATING, other]) == [
        rules.add_leaving_mark(out),
        RATING,
        other,
    ]


def test_our_status_is_remembered_while_servers_may_send_it_again() -> None:
    """A status that the operator set is remembered while servers may replicate it late; afterwards
    OUT_OF_SERVICE is a person's.
    """
    clock = Clock()
    table = InstanceTable(clock, URLS)
    out = replace(RATING, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    assert not rules.looks_manual_soon_after_ours(
        table.copy_record(out.key), out, clock.now, windows.STATUS_MAY_RETURN_SECONDS
    )
    table.note_override_change(RATING)
    assert rules.looks_manual_soon_after_ours(
        table.copy_record(out.key), out, clock.now, windows.STATUS_MAY_RETURN_SECONDS
    )
    clock.now += windows.STATUS_MAY_RETURN_SECONDS
    assert not rules.looks_manual_soon_after_ours(
        table.copy_record(out.key), out, clock.now, windows.STATUS_MAY_RETURN_SECONDS
    )


def test_checks_begin_again_with_each_status_of_ours() -> None:
    """The first check after each status that the operator sets or clears is soon, whatever was planned for
    the one before; a check for a removal remains one.
    """
    clock = Clock()
    table = InstanceTable(clock, URLS)
    table.note_override_change(RATING)
    table.store_removal_and_plan_checks(ORDER)
    clock.now += windows.REMOVAL_CHECKS_AFTER_SECONDS[0]
    for url in URLS:
        table.plan_next_checks(url, table.due_checks(url), windows.REMOVAL_CHECKS_AFTER_SECONDS)
    table.note_override_change(RATING)
    table.note_override_change(ORDER)
    assert not table.due_checks(NEAR)
    for seconds in (
        windows.REMOVAL_CHECKS_AFTER_SECONDS[0],
        windows.REMOVAL_CHECKS_AFTER_SECONDS[1] - windows.REMOVAL_CHECKS_AFTER_SECONDS[0],
    ):
        clock.now += seconds
        for url in URLS:
            due = table.due_checks(url)
            assert [(look.instance, look.is_removed) for look in due] == [(RATING, False), (ORDER, True)]
            table.plan_next_checks(url, due, windows.REMOVAL_CHECKS_AFTER_SECONDS)


def test_a_server_is_cut_off_once_it_lacked_an_instance_for_long() -> None:
    """A server counts as cut off when it lacks an instance for a while without a break."""
    clock = Clock()
    table = InstanceTable(clock)
    assert not table.note_missing_and_check_cut_off("http://far", RATING)
    clock.now += windows.CUT_OFF_AFTER_SECONDS
    table.note_held_at("http://far", RATING.key)
    assert not table.note_missing_and_check_cut_off("http://far", RATING)
    clock.now += windows.CUT_OFF_AFTER_SECONDS
    assert table.note_missing_and_check_cut_off("http://far", RATING)
    assert not table.note_missing_and_check_cut_off("http://another", RATING)


def test_what_servers_answered_to_renewals_is_forgotten() -> None:
    """Accepted renewals of stacks' instances are remembered for ten minutes."""
    clock = Clock()
    table = InstanceTable(clock)
    stacks = replace(RATING, metadata={OWNER_KEY: "stack/o/p/s/billing"})
    table.note_accepted_renewals("http://near", [stacks, ORDER])
    table.note_missing_and_check_cut_off("http://far", ORDER)
    assert table.has_accepted_renewal_lately("http://near", stacks)
    assert not table.has_accepted_renewal_lately("http://far", stacks)
    assert not table.has_accepted_renewal_lately("http://near", ORDER)  # a syncer's
    clock.now += windows.REMEMBER_RENEWAL_SECONDS
    table.merge_list([])
    assert "billing" not in {text for text, _ in held.texts(table)}
    assert RATING.instance_id not in {text for text, _ in held.texts(table)}
