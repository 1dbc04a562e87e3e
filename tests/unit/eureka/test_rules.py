"""Rules that judge the record of an instance; each row of a table is one fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.identity import CLUSTER_UID_KEY, INCARNATION_KEY, Cluster
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.record import (
    DroppedStackRegistration,
    InstanceRecord,
    PlannedCheck,
    SpreadingRegistration,
    UnansweredWrite,
)
from eurekube_provider.eureka.rules import InstanceVerdict, ListVerdict, Ownership, ServerAnswers
from tests.unit import strategies

NOW = 1000.0
ONE = Instance(
    "rating",
    "one",
    "10.0.0.1",
    "10.0.0.1",
    Port(8080),
    metadata={"eurekube.owner": "cluster/lab/shop/rating"},
    last_dirty_timestamp_ms=1000,
)
NEWER = replace(ONE, last_dirty_timestamp_ms=2000)
AHEAD = replace(ONE, last_dirty_timestamp_ms=9000)
LOST = replace(ONE, overridden_status=Status.OUT_OF_SERVICE)
REGISTERED_AGAIN = replace(ONE, metadata={**ONE.metadata, INCARNATION_KEY: "b"})
OLDER = replace(ONE, last_dirty_timestamp_ms=500)
MOVED = replace(ONE, ip_address="10.0.0.2")
DOWN = replace(ONE, status=Status.DOWN)
THEIRS = replace(ONE, metadata={"eurekube.owner": "stack/o/p/s/n"})
OUT = replace(ONE, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
MARKED = rules.add_leaving_mark(OUT)
UNDATED = replace(ONE, last_dirty_timestamp_ms=None)
NOBODYS = replace(ONE, metadata={})
FORMER = frozenset({"stack/o/p/s/n"})
NAMED = replace(ONE, metadata={"eurekube.owner": "cluster/east/shop/rating", CLUSTER_UID_KEY: "u"})
FORMERLY_NAMED = replace(NAMED, metadata={**NAMED.metadata, "eurekube.owner": "cluster/eks/shop/rating"})
MAY_COME = PlannedCheck(ONE, NOW, is_removed=False)


def written(held: Instance | None = ONE) -> InstanceRecord:
    """Return the record of an instance that was written or read some time ago."""
    return InstanceRecord(ONE.key, instance=held, is_confirmed=held is not None)


def lately(held: Instance | None = ONE) -> InstanceRecord:
    """Return the record of an instance that was written, read or removed a moment ago."""
    return InstanceRecord(ONE.key, instance=held, is_confirmed=held is not None, confirmed_at=NOW)


def by_lists(held: Instance | None = ONE) -> InstanceRecord:
    """Return the record of an instance that only lists have shown."""
    return InstanceRecord(ONE.key, instance=held)


@pytest.mark.parametrize(
    ("fault", "record", "listed", "said"),
    [
        ("a list of before a write lacks it", lately(), None, ListVerdict.IGNORED),
        ("a list of before an update shows what was", lately(MOVED), ONE, ListVerdict.IGNORED),
        ("a list of before a removal still has it", lately(None), ONE, ListVerdict.IGNORED),
        ("nobody knew better", by_lists(None), ONE, ListVerdict.CHANGED),
        ("somebody changed what only lists have shown", by_lists(), MOVED, ListVerdict.CHANGED),
        ("somebody took over what only lists have shown", by_lists(), THEIRS, ListVerdict.CHANGED),
        ("what only lists have shown is listed no more", by_lists(), None, ListVerdict.CHANGED),
        ("a list goes on to lack what was written", written(), None, ListVerdict.NEEDS_UNCACHED_READ),
        ("a list goes on to show other contents", written(), MOVED, ListVerdict.NEEDS_UNCACHED_READ),
        ("a list goes on to show another status", written(), DOWN, ListVerdict.NEEDS_UNCACHED_READ),
        ("a list goes on to show another owner", written(), THEIRS, ListVerdict.NEEDS_UNCACHED_READ),
        ("a list shows what was written", written(), replace(ONE), ListVerdict.UNCHANGED),
        (
            "a list shows it as written before, with the same contents",
            written(NEWER),
            ONE,
            ListVerdict.IGNORED,
        ),
    ],
)
def test_a_list_only_suggests(
    fault: str, record: InstanceRecord, listed: Instance | None, said: ListVerdict
) -> None:
    """A recent write, read or removal counts more than a list; later a list that differs is a reason to read
    the instance.
    """
    assert rules.judge_list_entry(record, listed) is said, fault


@given(strategies.instances, st.none() | strategies.instances, st.booleans(), st.booleans())
def test_no_list_takes_away_what_was_written(
    held: Instance, listed: Instance | None, is_firm: bool, is_touched: bool
) -> None:
    """A list overrules only records known from lists alone, and none that was touched in the last moments."""
    record = InstanceRecord(
        held.key, instance=held, is_confirmed=is_firm, confirmed_at=NOW if is_touched else None
    )
    said = rules.judge_list_entry(record, listed)
    assert said is not ListVerdict.CHANGED or not (is_firm or is_touched)
    assert said is ListVerdict.IGNORED or not is_touched
    if said is ListVerdict.CHANGED and listed is not None:
        record.instance = listed
        assert rules.judge_list_entry(record, listed) is ListVerdict.IGNORED  # a second look finds nothing


@pytest.mark.parametrize(
    ("fault", "record", "seconds", "is_ours"),
    [
        (
            "a status of ours without an answer",
            InstanceRecord(ONE.key, unanswered_override=UnansweredWrite(OUT, NOW)),
            0.0,
            True,
        ),
        (
            "a registration as leaving without one",
            InstanceRecord(ONE.key, unanswered_registration=UnansweredWrite(MARKED, NOW)),
            0.0,
            True,
        ),
        (
            "another registration without one",
            InstanceRecord(ONE.key, unanswered_registration=UnansweredWrite(ONE, NOW)),
            0.0,
            False,
        ),
        (
            "a status so long ago that it has come",
            InstanceRecord(ONE.key, unanswered_override=UnansweredWrite(OUT, NOW)),
            91.0,
            False,
        ),
        ("nothing was sent", written(), 0.0, False),
    ],
)
def test_an_out_of_service_that_comes_late_is_ours(
    fault: str, record: InstanceRecord, seconds: float, is_ours: bool
) -> None:
    """An OUT_OF_SERVICE is the operator's if it sent one within 90 s without an answer."""
    assert rules.has_unanswered_out_of_service(record, NOW + seconds) is is_ours, fault


@pytest.mark.parametrize(
    ("fault", "found", "seconds", "is_just_set", "may_be_sent_again"),
    [
        ("ours goes to every server after the next pod came", OUT, 9.0, True, True),
        ("a busy server is informed again of what was taken off", OUT, 59.0, False, True),
        ("a person sets one a minute later", OUT, 60.0, False, False),
        ("it carries our mark and is known as ours", MARKED, 1.0, False, False),
        ("it is in service", ONE, 1.0, False, False),
    ],
)
def test_a_status_that_passes_for_a_persons(
    fault: str, found: Instance, seconds: float, is_just_set: bool, may_be_sent_again: bool
) -> None:
    """Just after the operator set OUT_OF_SERVICE, it is the operator's; for a minute it may be a late copy,
    which the servers that hold it tell.
    """
    record = InstanceRecord(ONE.key, override_changed_at=NOW)
    assert (
        rules.looks_manual_soon_after_ours(record, found, NOW + seconds, windows.SENT_STATUS_ARRIVAL_SECONDS)
        is is_just_set
    ), fault
    may_be = rules.looks_manual_soon_after_ours(
        record, found, NOW + seconds, windows.STATUS_MAY_RETURN_SECONDS
    )
    assert may_be is may_be_sent_again, fault
    assert not rules.looks_manual_soon_after_ours(
        InstanceRecord(ONE.key), found, NOW, windows.STATUS_MAY_RETURN_SECONDS
    )


@pytest.mark.parametrize(
    ("fault", "sent", "seconds", "newest"),
    [
        ("a registration without an answer comes after the removal", NEWER, 0.0, NEWER),
        ("one that is older than what was removed", OLDER, 0.0, ONE),
        ("somebody else's", replace(THEIRS, last_dirty_timestamp_ms=2000), 0.0, ONE),
        ("so long ago that it has come", NEWER, 91.0, ONE),
        ("nothing was sent", None, 0.0, ONE),
    ],
)
def test_what_was_removed_is_swept_as_it_may_come_late(
    fault: str, sent: Instance | None, seconds: float, newest: Instance
) -> None:
    """Later removals look for the newest version that was sent without an answer, as it would survive an
    older removal.
    """
    record = InstanceRecord(ONE.key, unanswered_registration=UnansweredWrite(sent, NOW) if sent else None)
    assert rules.newest_version_that_may_come(record, ONE, NOW + seconds) == newest, fault


@pytest.mark.parametrize(
    ("fault", "held", "ours", "urls"),
    [
        ("a status of before went ahead of its registration", {"a": DOWN, "b": ONE}, ONE, ("a",)),
        ("no other server answers", {"a": DOWN, "b": None}, ONE, ()),
        ("another one holds it as it was before", {"a": DOWN, "b": OLDER}, ONE, ()),
        ("a person set it out of service", {"a": OUT, "b": ONE}, ONE, ()),
        ("a person set it down", {"a": replace(DOWN, overridden_status=Status.DOWN), "b": ONE}, ONE, ()),
        ("it was written again", {"a": replace(DOWN, last_dirty_timestamp_ms=2000), "b": ONE}, ONE, ()),
        ("it is somebody else's", {"a": replace(THEIRS, status=Status.DOWN), "b": ONE}, ONE, ()),
        ("we wrote it as out of service", {"a": DOWN, "b": OUT}, OUT, ()),
    ],
)
def test_a_status_is_sent_again_only_where_another_server_holds_it(
    fault: str, held: dict[str, Instance | None], ours: Instance, urls: tuple[str, ...]
) -> None:
    """A status is sent again to the servers that lack it if another one holds it; a person's status, a newer
    version and another owner's instance are left alone.
    """
    assert rules.urls_with_other_status_than_written(held, ours) == urls, fault


@pytest.mark.parametrize(
    ("fault", "held", "ours", "is_overtaken"),
    [
        ("a status of before came over it before it was sent", {"a": DOWN, "b": DOWN, "c": None}, ONE, True),
        ("a server holds it as written", {"a": DOWN, "b": ONE}, ONE, False),
        ("nobody holds it", {"a": None}, ONE, False),
        ("a person set it out of service", {"a": OUT, "b": DOWN}, ONE, False),
        ("a person's status has gone", {"a": DOWN}, replace(ONE, overridden_status=Status.DOWN), False),
        ("it was written again", {"a": replace(DOWN, last_dirty_timestamp_ms=2000)}, ONE, False),
        ("it is somebody else's", {"a": replace(THEIRS, status=Status.DOWN)}, ONE, False),
    ],
)
def test_the_owner_writes_a_status_that_all_servers_have_otherwise(
    fault: str, held: dict[str, Instance | None], ours: Instance, *, is_overtaken: bool
) -> None:
    """A status that no server holds as we wrote it is written again, but only over our last registration and
    without an override.
    """
    assert rules.is_status_other_than_written_everywhere(held, ours) is is_overtaken, fault


@pytest.mark.parametrize(
    ("owner", "uid", "is_ours"),
    [
        ("cluster/lab/shop/rating", "uid-1", True),
        ("cluster/lab/shop/rating", "", True),
        ("cluster/earlier/shop/rating", "uid-1", True),
        ("cluster/earlier/shop/rating", "uid-2", False),
        ("cluster/earlier/shop/rating", "", False),
        ("stack/o/p/s/rating", "uid-1", False),
    ],
)
def test_a_cluster_knows_its_own_by_whatever_name(owner: str, uid: str, *, is_ours: bool) -> None:
    """A syncer's instance belongs to this cluster by the cluster's UID, also under an earlier cluster
    name.
    """
    ownership = rules.Ownership(Cluster("lab", "uid-1"), "eurekube")
    metadata = {"eurekube.owner": owner, **({"eurekube.cluster-uid": uid} if uid else {})}
    assert ownership.is_owned_under_any_name_of_this_cluster(replace(ONE, metadata=metadata)) is is_ours


@pytest.mark.parametrize(
    ("fault", "record", "gives_way"),
    [
        ("written a moment ago", lately(), True),
        ("nothing stands there", lately(None), False),
        ("only a list shows it", by_lists(), False),
        (
            "it was written longer ago than any list can be behind",
            replace(lately(), confirmed_at=NOW - 90.0),
            False,
        ),
        ("nobody knows when", written(), False),
        (
            "a registration may come late",
            replace(lately(), unanswered_registration=UnansweredWrite(NEWER, NOW)),
            False,
        ),
        ("a status may come late", replace(lately(), unanswered_override=UnansweredWrite(OUT, NOW)), False),
        ("a status of ours may be reported again", replace(lately(), override_changed_at=NOW), False),
        ("a person has put it out of service", lately(OUT), False),
        ("the servers forgot it", replace(lately(), lost_by_owner={"cluster/lab/shop/rating": ONE}), False),
        ("with a person's status", replace(lately(), lost_overridden_instance=LOST), False),
        ("it is looked for", replace(lately(), checks_by_url={"a": MAY_COME}), False),
        ("a server may know its former owner", replace(lately(), former_owners=FORMER), False),
    ],
)
def test_what_is_written_over_without_another_read(
    fault: str, record: InstanceRecord, gives_way: bool
) -> None:
    """An instance is updated without a read only if it was written a moment ago and nothing about it is in
    doubt.
    """
    assert rules.can_update_without_read(record, NOW) is gives_way, fault


OWNER = "cluster/lab/shop/rating"
FORGOTTEN = replace(written(None), lost_by_owner={OWNER: NEWER})


@pytest.mark.parametrize(
    ("fault", "record", "gives_way"),
    [
        ("the server forgot it", FORGOTTEN, True),
        ("nobody forgot it", written(None), False),
        (
            "another owner's was forgotten",
            replace(FORGOTTEN, lost_by_owner={"cluster/lab/a/b": NEWER}),
            False,
        ),
        (
            "nobody knows how old it was",
            replace(FORGOTTEN, lost_by_owner={OWNER: replace(NEWER, last_dirty_timestamp_ms=None)}),
            False,
        ),
        ("it stands again", replace(FORGOTTEN, instance=ONE), False),
        ("a person had put it out of service", replace(FORGOTTEN, lost_by_owner={OWNER: OUT}), False),
        ("with a person's status", replace(FORGOTTEN, lost_overridden_instance=LOST), False),
        (
            "a registration may come late",
            replace(FORGOTTEN, unanswered_registration=UnansweredWrite(NEWER, NOW)),
            False,
        ),
        ("a status may come late", replace(FORGOTTEN, unanswered_override=UnansweredWrite(OUT, NOW)), False),
        ("a status of ours may be reported again", replace(FORGOTTEN, override_changed_at=NOW), False),
        ("it is looked for", replace(FORGOTTEN, checks_by_url={"a": MAY_COME}), False),
        ("a server may know its former owner", replace(FORGOTTEN, former_owners=FORMER), False),
    ],
)
def test_what_is_registered_again_without_a_read(fault: str, record: InstanceRecord, gives_way: bool) -> None:
    """A forgotten instance is registered without a read only if nothing about it is in doubt."""
    assert (rules.lost_version_if_certain(record, OWNER) is not None) is gives_way, fault


def test_what_is_too_old_is_forgotten() -> None:
    """Each note of a record expires after its own time, and an empty record is dropped."""
    asked = InstanceRecord(
        ONE.key,
        left_at=NOW,
        evicted_at=NOW,
        departure_asked_at=NOW,
        departure_deferred_at=NOW,
        dropped=DroppedStackRegistration(ONE, NOW),
    )
    assert (
        asked.forget_expired_and_check_any_left(NOW + windows.DEFERRED_QUESTION_TURN_SECONDS),
        asked.departure_deferred_at,
    ) == (True, None)
    assert (asked.forget_expired_and_check_any_left(NOW + windows.MEMORY_LOSS_SECONDS), asked.dropped) == (
        True,
        None,
    )
    assert (
        asked.forget_expired_and_check_any_left(NOW + windows.KEEP_DEPARTURE_PROOF_SECONDS - 0.1),
        asked.is_empty(),
    ) == (True, False)
    assert (
        asked.forget_expired_and_check_any_left(NOW + windows.KEEP_DEPARTURE_PROOF_SECONDS),
        asked.is_empty(),
    ) == (False, True)
    record = InstanceRecord(
        ONE.key,
        confirmed_at=NOW,
        unanswered_registration=UnansweredWrite(ONE, NOW),
        unanswered_override=UnansweredWrite(OUT, NOW),
        override_changed_at=NOW,
    )
    assert (
        record.forget_expired_and_check_any_left(NOW + windows.STATUS_MAY_RETURN_SECONDS),
        record.override_changed_at,
    ) == (True, None)
    new = recent_registration(0, "near")
    new.forget_expired_and_check_any_left(NOW + windows.SUCCESSORS_SPREAD_SECONDS)
    assert new.spreading is None
    assert not record.is_empty()
    assert (
        record.forget_expired_and_check_any_left(NOW + windows.LONGEST_LIST_LAG_SECONDS),
        record.confirmed_at,
    ) == (True, None)
    assert (
        record.forget_expired_and_check_any_left(NOW + windows.LONGEST_LIST_LAG_SECONDS + 0.1),
        record.is_empty(),
    ) == (False, True)


@pytest.mark.parametrize(
    ("fault", "url", "seconds", "is_lately"),
    [
        ("it was removed there a moment ago", "near", 20.0, True),
        ("it may have been evicted there", "near", 90.0, False),
        ("another server accepted it", "far", 20.0, False),
    ],
)
def test_what_a_server_accepted_lately_it_has_not_evicted(
    fault: str, url: str, seconds: float, is_lately: bool
) -> None:
    """A server that renewed an instance less than a lease ago cannot have evicted it: if missing, it was
    removed there.
    """
    record = InstanceRecord(ONE.key, renewed_at_by_url={"near": NOW})
    assert rules.has_accepted_renewal_lately(record, url, ONE, NOW + seconds) is is_lately, fault


@pytest.mark.parametrize(
    ("fault", "instance", "seconds", "is_cut_off"),
    [
        ("servers cannot reach each other for long", ONE, 20.0, True),
        ("a server was restarted, and others tell it soon", ONE, 19.0, False),
        ("a stack's registration may have been removed there", THEIRS, 20.0, False),
    ],
)
def test_who_is_cut_off_from_the_other_servers(
    fault: str, instance: Instance, seconds: float, is_cut_off: bool
) -> None:
    """A server that lacks a syncer's instance for 20 s is cut off from its peers, so that only the renewer
    can register the instance there.
    """
    record = InstanceRecord(ONE.key, lacking_since_by_url={"far": NOW})
    assert rules.is_server_cut_off(record, "far", instance, NOW + seconds) is is_cut_off, fault
    assert not rules.is_server_cut_off(record, "near", instance, NOW + seconds)


def recent_registration(seconds_ago: float, *seen: str, held: Instance = ONE) -> InstanceRecord:
    """Return the record of a recent registration, with the servers that were seen to hold it."""
    return InstanceRecord(
        held.key, instance=held, spreading=SpreadingRegistration(NOW - seconds_ago, frozenset(seen))
    )


def marked_leaving(record: InstanceRecord) -> InstanceRecord:
    """Mark a record as one that another thread is about to remove, and return it."""
    assert record.spreading is not None
    record.spreading = replace(record.spreading, is_leaving=True)
    return record


OLD = replace(ONE, instance_id="old")
STACKS_OLD = replace(OLD, metadata=THEIRS.metadata)


@pytest.mark.parametrize(
    ("fault", "records", "leaving", "unseen"),
    [
        ("it was taken by another server a moment ago", [recent_registration(5, "near")], OLD, [ONE]),
        ("it was taken by another server, and the time is over", [recent_registration(90, "near")], OLD, []),
        ("it was seen there", [recent_registration(5, "near", "far")], OLD, []),
        ("another one was seen there", [recent_registration(5, "near"), written(MOVED)], OLD, []),
        ("a machine cannot take all calls", [recent_registration(5, "near"), written(NOBODYS)], OLD, [ONE]),
        ("it is older than what leaves", [recent_registration(70, "near")], OLD, []),
        ("it is what leaves", [recent_registration(5, "near")], ONE, []),
        ("it leaves as well", [marked_leaving(recent_registration(5, "near"))], OLD, []),
        (
            "it is not UP",
            [recent_registration(5, "near", held=DOWN), recent_registration(5, "near", held=OUT)],
            OLD,
            [],
        ),
        ("nothing replaces it", [], OLD, []),
        ("a stack's may have been removed there", [recent_registration(5, "near", held=THEIRS)], OLD, []),
        (
            "its own run knows that it was not",
            [recent_registration(5, "near", held=THEIRS)],
            STACKS_OLD,
            [THEIRS],
        ),
        (
            "the first one is the surest",
            [recent_registration(5, "near"), recent_registration(9, "near", held=MOVED)],
            OLD,
            [MOVED, ONE],
        ),
    ],
)
def test_a_server_not_seen_to_hold_a_successor(
    fault: str, records: list[InstanceRecord], leaving: Instance, unseen: list[Instance]
) -> None:
    """Successors not seen at a server are returned, so that it is asked for them before the old instance
    is removed.
    """
    found = rules.successors_not_seen_at(records, "far", [leaving], NOW - 60, NOW)
    assert found == unseen, fault


@pytest.mark.parametrize(
    ("fault", "held", "lacking", "may_be"),
    [
        ("nothing stands there", ONE, None, True),
        ("older contents stand there", ONE, OLDER, True),
        ("it is out of service where it stands", OUT, None, False),
        ("it is out of service there", ONE, OUT, False),
    ],
)
def test_an_out_of_service_is_not_sent_to_a_cut_off_server(
    fault: str, held: Instance, lacking: Instance | None, may_be: bool
) -> None:
    """An instance that is OUT_OF_SERVICE at either side is not copied to a server that is cut off, as nobody
    would clear the status there.
    """
    assert rules.may_copy_between_servers(held, lacking) is may_be, fault


@pytest.mark.parametrize(
    ("fault", "want", "have", "known", "timestamp_ms", "override"),
    [
        ("nothing stands there", ONE, None, None, 5000, Status.UNKNOWN),
        ("the servers forgot a person's status", LOST, None, None, 5000, Status.OUT_OF_SERVICE),
        ("a person's status stands over it", MOVED, OUT, None, 5000, Status.OUT_OF_SERVICE),
        ("it was written by a clock ahead of ours", MOVED, AHEAD, None, 9001, Status.UNKNOWN),
        ("a frozen server alone knows what was written last", ONE, OLDER, AHEAD, 9001, Status.UNKNOWN),
        ("it stands as wanted", ONE, NEWER, None, None, Status.UNKNOWN),
        ("it stands as wanted, and what was known is older", ONE, NEWER, OLDER, None, Status.UNKNOWN),
    ],
)
def test_what_is_written_next(
    fault: str,
    want: Instance,
    have: Instance | None,
    known: Instance | None,
    timestamp_ms: int | None,
    override: Status,
) -> None:
    """The next registration has a newer timestamp than any server's version, and keeps a person's status."""
    sent = rules.registration_to_send(want, have, known, now_ms=5000)
    assert (sent.last_dirty_timestamp_ms if sent else None) == timestamp_ms, fault
    assert sent is None or (sent.overridden_status, sent.ip_address) == (override, want.ip_address), fault


@given(strategies.instances, st.none() | strategies.instances, st.none() | strategies.instances)
def test_a_second_write_finds_nothing_to_do(
    want: Instance, have: Instance | None, known: Instance | None
) -> None:
    """After one write a second one with the same wish sends nothing, whatever stood there before."""
    sent = rules.registration_to_send(want, have, known, now_ms=5000)
    if sent is None:
        assert have is not None
        assert rules.registration_to_send(want, have, known, now_ms=9000) is None
        return
    assert all(one is None or sent.written_at_ms > one.written_at_ms for one in (have, known))
    assert rules.registration_to_send(want, sent, known, now_ms=9000) is None


@pytest.mark.parametrize(
    ("fault", "held", "is_it"),
    [
        ("a renewal that was forwarded brought it back", ONE, True),
        ("somebody else registered it meanwhile", THEIRS, False),
        ("it was registered again by another run", REGISTERED_AGAIN, False),
    ],
)
def test_a_removed_one_is_distinguished_from_its_replacement(fault: str, held: Instance, is_it: bool) -> None:
    """A removed instance that a renewal brought back is removed again; another owner's or another run's is
    not.
    """
    assert rules.is_same_registration(held, ONE) is is_it, fault


def test_an_override_counts_unless_the_instance_is_not_up() -> None:
    """An override replaces the status of an UP instance only, as the server's DownOrStartingRule does."""
    over = replace(ONE, overridden_status=Status.OUT_OF_SERVICE)
    assert rules.apply_override(over).status is Status.OUT_OF_SERVICE
    assert rules.apply_override(replace(over, status=Status.DOWN)).status is Status.DOWN
    assert rules.apply_override(ONE) is ONE


@pytest.mark.parametrize(
    ("fault", "look", "record", "found", "verdict"),
    [
        ("nothing came back", PlannedCheck(ONE, NOW), by_lists(None), None, InstanceVerdict.GONE),
        (
            "a server was away and holds it still",
            PlannedCheck(ONE, NOW),
            lately(None),
            ONE,
            InstanceVerdict.LEFT_OVER,
        ),
        (
            "a renewal brought back what nobody dated",
            PlannedCheck(UNDATED, NOW),
            lately(None),
            ONE,
            InstanceVerdict.LEFT_OVER,
        ),
        ("it was registered again since", PlannedCheck(ONE, NOW), lately(), ONE, InstanceVerdict.LATE_WRITE),
        (
            "another replica registered it since",
            PlannedCheck(ONE, NOW),
            lately(None),
            NEWER,
            InstanceVerdict.LATE_WRITE,
        ),
        (
            "somebody took the place over",
            PlannedCheck(ONE, NOW),
            lately(None),
            THEIRS,
            InstanceVerdict.LATE_WRITE,
        ),
        (
            "an application registered itself there",
            PlannedCheck(ONE, NOW),
            lately(None),
            NOBODYS,
            InstanceVerdict.FOREIGN,
        ),
        (
            "a frozen server knows its former owner",
            PlannedCheck(ONE, NOW, former_owners=FORMER),
            lately(None),
            THEIRS,
            InstanceVerdict.LEFT_OVER,
        ),
        (
            "a frozen server knows its syncer under a former name of the cluster",
            PlannedCheck(NAMED, NOW),
            lately(None),
            FORMERLY_NAMED,
            InstanceVerdict.LEFT_OVER,
        ),
        (
            "another cluster has a syncer of this name",
            PlannedCheck(NAMED, NOW),
            lately(None),
            replace(FORMERLY_NAMED, metadata={**FORMERLY_NAMED.metadata, CLUSTER_UID_KEY: "other"}),
            InstanceVerdict.LATE_WRITE,
        ),
        (
            "a registration without an answer came late",
            MAY_COME,
            lately(None),
            ONE,
            InstanceVerdict.LATE_WRITE,
        ),
    ],
)
def test_what_a_look_for_what_was_removed_finds(
    fault: str, look: PlannedCheck, record: InstanceRecord, found: Instance | None, verdict: InstanceVerdict
) -> None:
    """A later check removes only the removed instance itself; a later registration is reported to its
    owner.
    """
    assert rules.judge_checked_instance(look, record, found, now_ms=5000) is verdict, fault


@given(strategies.instances, strategies.instances, st.booleans(), st.booleans())
def test_a_look_removes_nothing_of_others_and_nothing_in_doubt(
    removed: Instance, found: Instance, is_removed: bool, is_registered: bool
) -> None:
    """A later check removes no instance that is registered again, newer, another owner's, or merely expected
    to come late.
    """
    look = PlannedCheck(removed, NOW, is_removed=is_removed)
    record = InstanceRecord(found.key, instance=found if is_registered else None)
    if rules.judge_checked_instance(look, record, found, now_ms=5000) is InstanceVerdict.LEFT_OVER:
        assert (is_removed, is_registered, found.owner) == (True, False, removed.owner)
        assert found.written_at_ms <= (removed.written_at_ms or 5000)


@pytest.mark.parametrize(
    ("fault", "record", "found", "verdict"),
    [
        ("a registration of ours came after the removal", lately(None), ONE, InstanceVerdict.LATE_WRITE),
        ("a status of ours came after it was taken off", lately(), MARKED, InstanceVerdict.LATE_WRITE),
        ("a status of ours is known", lately(MARKED), MARKED, InstanceVerdict.REGISTERED),
        ("a person's status stands", lately(), OUT, InstanceVerdict.REGISTERED),
    ],
)
def test_what_came_when_nobody_expected_it(
    fault: str, record: InstanceRecord, found: Instance, verdict: InstanceVerdict
) -> None:
    """A registration or status of ours that arrives late and that the record lacks is reported to its owner;
    a known status, and a person's, is not.
    """
    assert rules.judge_late_instance(record, found) is verdict, fault


@pytest.mark.parametrize(
    ("fault", "held", "are_all", "is_sent_again"),
    [
        ("a busy server was informed again of what was taken off", {"a": OUT, "b": ONE}, True, True),
        ("a person set it", {"a": OUT, "b": OUT}, True, False),
        ("it was taken off", {"a": ONE, "b": ONE}, True, False),
        ("a server does not answer", {"a": OUT, "b": ONE}, False, False),
    ],
)
def test_a_status_at_some_servers_only_was_sent_again(
    fault: str, held: dict[str, Instance | None], are_all: bool, is_sent_again: bool
) -> None:
    """An OUT_OF_SERVICE at some of all answering servers is a late copy; a person's goes to every server."""
    assert (
        rules.are_only_some_out_of_service(ServerAnswers(held, have_all_answered=are_all)) is is_sent_again
    ), fault


def test_what_is_out_of_service_at_some_servers_alone_is_found() -> None:
    """An instance that looks taken out at one server and not at another is found; one that is out at
    all servers, or that carries Eurekube's mark, is not.
    """
    out = replace(ONE, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    other = replace(out, instance_id="other")
    assert rules.instances_out_of_service_at_some([[ONE], [out, other]]) == [out]
    assert rules.instances_out_of_service_at_some([[out, ONE]]) == [out]
    assert rules.instances_out_of_service_at_some([[out], [out]]) == []
    assert rules.instances_out_of_service_at_some([[ONE], [rules.add_leaving_mark(out)]]) == []


@pytest.mark.parametrize(
    ("fault", "held", "are_all", "have_servers_warmed_up", "verdict"),
    [
        ("a list has a gap", {"a": ONE, "b": None}, True, True, InstanceVerdict.REGISTERED),
        ("it left", {"a": None, "b": None}, True, True, InstanceVerdict.GONE),
        ("a server does not answer", {"a": None}, False, True, InstanceVerdict.UNDECIDED),
        ("a server has not heard of it yet", {"a": None, "b": None}, True, False, InstanceVerdict.UNDECIDED),
    ],
)
def test_what_is_listed_no_more(
    fault: str,
    held: dict[str, Instance | None],
    are_all: bool,
    have_servers_warmed_up: bool,
    verdict: InstanceVerdict,
) -> None:
    """An unlisted instance is gone only if every server answers, lacks it, and has run long enough to have
    heard of it.
    """
    assert (
        rules.judge_unlisted_instance(
            ServerAnswers(held, have_all_answered=are_all), have_servers_warmed_up=have_servers_warmed_up
        )
        is verdict
    ), fault


STACKS = replace(
    ONE,
    metadata={"eurekube.owner": "stack/o/p/s/n", "eurekube.renewer": "operator"},
    last_dirty_timestamp_ms=500_000,
    lease_ends_ms=2_000_000,
)
LAPSED = replace(STACKS, lease_ends_ms=900_000)
FRESH = replace(STACKS, last_dirty_timestamp_ms=950_000)
LATER = replace(STACKS, last_dirty_timestamp_ms=600_000)
ANOTHER = replace(STACKS, metadata={**STACKS.metadata, INCARNATION_KEY: "b"}, last_dirty_timestamp_ms=100)
ANOTHERS = replace(STACKS, metadata={**STACKS.metadata, "eurekube.renewer": "another"})
LONG_UP = {"a": 1000, "b": 1000}
"""Start times of two servers, long before the stack's instance was written."""


def dropped(instance: Instance = STACKS, *lacking: str) -> InstanceRecord:
    """Return the record of an instance that is no longer renewed because it was found removed."""
    return InstanceRecord(STACKS.key, dropped=DroppedStackRegistration(instance, NOW, frozenset(lacking)))


NEW = InstanceRecord(STACKS.key)
SPLIT = {"a": None, "b": STACKS}
"""Answers of two servers, one of which holds the instance."""


@pytest.mark.parametrize(
    ("fault", "record", "servers", "shares", "verdict"),
    [
        (
            "an old list shows what was removed",
            NEW,
            ServerAnswers({"a": None}),
            True,
            InstanceVerdict.REMOVED,
        ),
        (
            "who may hold it does not answer",
            NEW,
            ServerAnswers({"a": None}, have_all_answered=False),
            True,
            InstanceVerdict.UNDECIDED,
        ),
        (
            "it asks another operator by now",
            NEW,
            ServerAnswers({"a": ANOTHERS}),
            True,
            InstanceVerdict.REMOVED,
        ),
        (
            "it stands",
            NEW,
            ServerAnswers({"a": STACKS, "b": STACKS}, started_ms_by_url=LONG_UP),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "a server missed its removal",
            NEW,
            ServerAnswers(SPLIT, started_ms_by_url=LONG_UP),
            True,
            InstanceVerdict.REMOVED,
        ),
        (
            "servers do not tell each other",
            NEW,
            ServerAnswers(SPLIT, started_ms_by_url=LONG_UP),
            False,
            InstanceVerdict.REGISTERED,
        ),
        (
            "it is on its way",
            NEW,
            ServerAnswers({**SPLIT, "b": FRESH}, started_ms_by_url=LONG_UP),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "nobody renewed it for long",
            NEW,
            ServerAnswers({**SPLIT, "b": LAPSED}, started_ms_by_url=LONG_UP),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "a server does not say its start",
            NEW,
            ServerAnswers(SPLIT, started_ms_by_url={"b": 1000}),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "a server was started since",
            NEW,
            ServerAnswers(SPLIT, started_ms_by_url={"a": 600_000}),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "a server lost its memory",
            NEW,
            ServerAnswers(SPLIT, started_ms_by_url=LONG_UP, may_have_lost_memory=True),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "it is another server's answer",
            NEW,
            ServerAnswers(SPLIT, started_ms_by_url=LONG_UP, most_servers_at_one_url=2),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "the server that missed the removal is listed",
            dropped(),
            ServerAnswers(SPLIT, started_ms_by_url=LONG_UP),
            False,
            InstanceVerdict.REMOVED,
        ),
        (
            "it alone answers",
            dropped(),
            ServerAnswers({"b": STACKS}, have_all_answered=False),
            True,
            InstanceVerdict.REMOVED,
        ),
        (
            "a renewal had found it missing",
            dropped(STACKS, "a"),
            ServerAnswers({**SPLIT, "b": LAPSED}),
            True,
            InstanceVerdict.REMOVED,
        ),
        (
            "another server was restarted since",
            dropped(),
            ServerAnswers(
                SPLIT, started_ms_by_url=LONG_UP, may_have_lost_memory=True, urls_with_kept_memory={"a"}
            ),
            False,
            InstanceVerdict.REMOVED,
        ),
        (
            "it stands again as it was",
            dropped(),
            ServerAnswers({"a": STACKS, "b": STACKS}),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "its stack registered it again",
            dropped(),
            ServerAnswers({"a": None, "b": LATER}),
            True,
            InstanceVerdict.REGISTERED,
        ),
        (
            "by a clock that is behind",
            dropped(STACKS, "a"),
            ServerAnswers({"a": ANOTHER, "b": None}, started_ms_by_url=LONG_UP),
            True,
            InstanceVerdict.REGISTERED,
        ),
    ],
)
def test_what_a_list_suggests_to_renew_for_a_stack(
    fault: str, record: InstanceRecord, servers: ServerAnswers, shares: bool, verdict: InstanceVerdict
) -> None:
    """A listed stack's instance that was removed at one server is not renewed at another one: a renewal would
    restore it everywhere.
    """
    ours = Ownership(Cluster("lab", "u"), "operator")
    assert rules.judge_listed_stack_registration(record, servers, ours, 1000.0, lambda: shares) is verdict, (
        fault
    )


@pytest.mark.parametrize(
    ("fault", "servers", "lately", "removed_from", "answered", "verdict"),
    [
        (
            "a server was restarted",
            ServerAnswers({"a": None}, may_have_lost_memory=True),
            set(),
            set(),
            {"a"},
            InstanceVerdict.FORGOTTEN,
        ),
        (
            "a person removed it",
            ServerAnswers({"a": None}, started_ms_by_url=LONG_UP),
            set(),
            set(),
            {"a"},
            InstanceVerdict.REMOVED,
        ),
        (
            "no server says its start any more",
            ServerAnswers({"a": None}, started_ms_by_url=LONG_UP),
            set(),
            set(),
            set(),
            InstanceVerdict.UNDECIDED,
        ),
        (
            "no server has ever said its start",
            ServerAnswers({"a": None}),
            set(),
            set(),
            set(),
            InstanceVerdict.REMOVED,
        ),
        (
            "a server missed its removal",
            ServerAnswers(SPLIT),
            {"a"},
            set(),
            {"a", "b"},
            InstanceVerdict.REMOVED,
        ),
        (
            "who removed it beside a restart",
            ServerAnswers(SPLIT, may_have_lost_memory=True),
            {"a"},
            {"a"},
            {"a"},
            InstanceVerdict.REMOVED,
        ),
        (
            "who lacks it may have forgotten it",
            ServerAnswers(SPLIT, started_ms_by_url={"b": 1}),
            {"a"},
            set(),
            {"b"},
            InstanceVerdict.FORGOTTEN,
        ),
        (
            "who lacks it has run all the time",
            ServerAnswers(SPLIT, started_ms_by_url=LONG_UP),
            set(),
            set(),
            {"a"},
            InstanceVerdict.REMOVED,
        ),
        (
            "who lacks it was started since",
            ServerAnswers(SPLIT, started_ms_by_url={"a": 600_000}),
            set(),
            set(),
            {"a"},
            InstanceVerdict.FORGOTTEN,
        ),
        (
            "another server answers for it",
            ServerAnswers(SPLIT, most_servers_at_one_url=2),
            {"a"},
            set(),
            {"a"},
            InstanceVerdict.FORGOTTEN,
        ),
    ],
)
def test_what_a_renewal_misses_of_a_stack(
    fault: str,
    servers: ServerAnswers,
    lately: set[str],
    removed_from: set[str],
    answered: set[str],
    verdict: InstanceVerdict,
) -> None:
    """A stack's instance that a renewal misses is restored if servers forgot it, dropped if it was removed,
    and read again if unknown.
    """

    def judged(*, is_restoring: bool) -> InstanceVerdict:
        return rules.judge_missing_stack_registration(
            servers, lately, removed_from, answered, 1000.0, lambda: True, is_restoring=is_restoring
        )

    assert judged(is_restoring=False) is verdict, fault
    assert judged(is_restoring=True) is (
        InstanceVerdict.REMOVED if removed_from else InstanceVerdict.FORGOTTEN
    ), fault


@pytest.mark.parametrize(
    ("fault", "record", "listed", "seconds", "is_suggested"),
    [
        ("nobody knows it", NEW, STACKS, 0.0, True),
        ("the list is older than its removal", dropped(), STACKS, 35.0, False),
        ("the list shows it still", dropped(), STACKS, 35.1, True),
        ("it was registered again", dropped(), LATER, 0.0, True),
    ],
)
def test_whether_a_list_suggests_what_was_removed(
    fault: str, record: InstanceRecord, listed: Instance, seconds: float, is_suggested: bool
) -> None:
    """A listed instance that was removed is looked at only once every list would show the removal."""
    assert rules.does_list_suggest_renewal(record, listed, NOW + seconds) is is_suggested, fault
