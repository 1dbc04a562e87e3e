"""What follows from a record: each fault that a rule is for is a row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.identity import INCARNATION_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.record import Record, Sent
from eurekube_provider.eureka.rules import Listed
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
ANEW = replace(ONE, metadata={**ONE.metadata, INCARNATION_KEY: "b"})
OLDER = replace(ONE, last_dirty_timestamp_ms=500)
MOVED = replace(ONE, ip_address="10.0.0.2")
DOWN = replace(ONE, status=Status.DOWN)
THEIRS = replace(ONE, metadata={"eurekube.owner": "stack/o/p/s/n"})
OUT = replace(ONE, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
MARKED = rules.as_ours(OUT)


def written(held: Instance | None = ONE) -> Record:
    """Something that was written or read some time ago."""
    return Record(ONE.key, held=held, is_firm=held is not None)


def lately(held: Instance | None = ONE) -> Record:
    """Something that was written, read or removed a moment ago."""
    return Record(ONE.key, held=held, is_firm=held is not None, touched_at=NOW)


def by_lists(held: Instance | None = ONE) -> Record:
    """Something that only lists have shown."""
    return Record(ONE.key, held=held)


@pytest.mark.parametrize(
    ("fault", "record", "listed", "said"),
    [
        ("a list of before a write lacks it", lately(), None, Listed.NOTHING),
        ("a list of before an update shows what was", lately(MOVED), ONE, Listed.NOTHING),
        ("a list of before a removal still has it", lately(None), ONE, Listed.NOTHING),
        ("nobody knew better", by_lists(None), ONE, Listed.NEWS),
        ("somebody changed what only lists have shown", by_lists(), MOVED, Listed.NEWS),
        ("somebody took over what only lists have shown", by_lists(), THEIRS, Listed.NEWS),
        ("what only lists have shown is listed no more", by_lists(), None, Listed.NEWS),
        ("a list goes on to lack what was written", written(), None, Listed.DOUBT),
        ("a list goes on to show other contents", written(), MOVED, Listed.DOUBT),
        ("a list goes on to show another status", written(), DOWN, Listed.DOUBT),
        ("a list goes on to show another owner", written(), THEIRS, Listed.DOUBT),
        ("a list shows what was written", written(), replace(ONE), Listed.SAME),
        ("a list shows it as written before, with the same contents", written(NEWER), ONE, Listed.NOTHING),
    ],
)
def test_a_list_only_suggests(fault: str, record: Record, listed: Instance | None, said: Listed) -> None:
    """Whatever was written, read or removed meanwhile counts more; after a while it is a reason to look."""
    assert rules.judge_listed(record, listed) is said, fault


@given(strategies.instances, st.none() | strategies.instances, st.booleans(), st.booleans())
def test_no_list_takes_away_what_was_written(
    held: Instance, listed: Instance | None, is_firm: bool, is_touched: bool
) -> None:
    """It is believed only against other lists, and never about the last moments."""
    record = Record(held.key, held=held, is_firm=is_firm, touched_at=NOW if is_touched else None)
    said = rules.judge_listed(record, listed)
    assert said is not Listed.NEWS or not (is_firm or is_touched)
    assert said is Listed.NOTHING or not is_touched
    if said is Listed.NEWS and listed is not None:
        record.held = listed
        assert rules.judge_listed(record, listed) is Listed.NOTHING  # a second look finds nothing


@pytest.mark.parametrize(
    ("fault", "record", "seconds", "is_ours"),
    [
        ("a status of ours without an answer", Record(ONE.key, status_sent=Sent(OUT, NOW)), 0.0, True),
        ("a registration as leaving without one", Record(ONE.key, sent=Sent(MARKED, NOW)), 0.0, True),
        ("another registration without one", Record(ONE.key, sent=Sent(ONE, NOW)), 0.0, False),
        ("a status so long ago that it has come", Record(ONE.key, status_sent=Sent(OUT, NOW)), 91.0, False),
        ("nothing was sent", written(), 0.0, False),
    ],
)
def test_an_out_of_service_that_comes_late_is_ours(
    fault: str, record: Record, seconds: float, is_ours: bool
) -> None:
    """Where one was sent and not answered; what a person sets has no mark."""
    assert rules.is_out_by_us(record, NOW + seconds) is is_ours, fault


@pytest.mark.parametrize(
    ("fault", "found", "seconds", "is_just_set", "may_be_told_again"),
    [
        ("ours goes to every server after the next pod came", OUT, 9.0, True, True),
        ("a busy server is told again of what was taken off", OUT, 59.0, False, True),
        ("a person sets one a minute later", OUT, 60.0, False, False),
        ("it carries our mark and is known as ours", MARKED, 1.0, False, False),
        ("it is in service", ONE, 1.0, False, False),
    ],
)
def test_a_status_that_passes_for_a_persons(
    fault: str, found: Instance, seconds: float, is_just_set: bool, may_be_told_again: bool
) -> None:
    """Just after ours it is none; for a minute only where it stands tells whose it is."""
    record = Record(ONE.key, overridden_at=NOW)
    assert rules.is_just_set(record, found, NOW + seconds) is is_just_set, fault
    assert rules.may_be_told_again(record, found, NOW + seconds) is may_be_told_again, fault
    assert not rules.may_be_told_again(Record(ONE.key), found, NOW)


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
    """It is newer than what was removed, and would stay."""
    record = Record(ONE.key, sent=Sent(sent, NOW) if sent else None)
    assert rules.newest_sent(record, ONE, NOW + seconds) == newest, fault


@pytest.mark.parametrize(
    ("fault", "held", "ours", "urls"),
    [
        ("a status of before went ahead of its registration", {"a": DOWN, "b": ONE}, ONE, ("a",)),
        ("no other server answers", {"a": DOWN, "b": None}, ONE, ()),
        ("another one holds it as it was before", {"a": DOWN, "b": OLDER}, ONE, ()),
        ("a person set it out of service", {"a": OUT, "b": ONE}, ONE, ()),
        ("a person set it down", {"a": replace(DOWN, overridden_status=Status.DOWN), "b": ONE}, ONE, ()),
        ("it was written anew", {"a": replace(DOWN, last_dirty_timestamp_ms=2000), "b": ONE}, ONE, ()),
        ("it is somebody else's", {"a": replace(THEIRS, status=Status.DOWN), "b": ONE}, ONE, ()),
        ("we wrote it as out of service", {"a": DOWN, "b": OUT}, OUT, ()),
    ],
)
def test_a_status_is_told_again_only_where_another_server_holds_it_as_written(
    fault: str, held: dict[str, Instance | None], ours: Instance, urls: tuple[str, ...]
) -> None:
    """What a person set over it, what is newer, and what somebody else holds is not ours to set right."""
    assert rules.overtaken(held, ours) == urls, fault


def test_what_is_too_old_is_forgotten() -> None:
    """A record of which nothing is left is none."""
    record = Record(
        ONE.key, touched_at=NOW, sent=Sent(ONE, NOW), status_sent=Sent(OUT, NOW), overridden_at=NOW
    )
    assert (record.expire(NOW + windows.STATUS_TOLD_AGAIN), record.overridden_at) == (True, None)
    assert not record.is_blank()
    assert (record.expire(NOW + windows.UNLISTED), record.touched_at) == (True, None)
    assert (record.expire(NOW + windows.UNLISTED + 0.1), record.is_blank()) == (False, True)


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
    """What it does not hold any more was removed there."""
    record = Record(ONE.key, accepted_at={"near": NOW})
    assert rules.accepted_lately(record, url, ONE, NOW + seconds) is is_lately, fault


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
    """Nobody but whoever renews tells it."""
    record = Record(ONE.key, lacking_since={"far": NOW})
    assert rules.is_cut_off(record, "far", instance, NOW + seconds) is is_cut_off, fault
    assert not rules.is_cut_off(record, "near", instance, NOW + seconds)


@pytest.mark.parametrize(
    ("fault", "held", "lacking", "may_be"),
    [
        ("nothing stands there", ONE, None, True),
        ("older contents stand there", ONE, OLDER, True),
        ("it is out of service where it stands", OUT, None, False),
        ("it is out of service there", ONE, OUT, False),
    ],
)
def test_what_is_out_of_service_is_not_told_to_who_is_cut_off(
    fault: str, held: Instance, lacking: Instance | None, may_be: bool
) -> None:
    """Nobody would lift it again at the far side."""
    assert rules.may_be_copied(held, lacking) is may_be, fault


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
    """It is newer than what any server holds, and undoes no person's status."""
    sent = rules.next_write(want, have, known, now_ms=5000)
    assert (sent.last_dirty_timestamp_ms if sent else None) == timestamp_ms, fault
    assert sent is None or (sent.overridden_status, sent.ip_address) == (override, want.ip_address), fault


@given(strategies.instances, st.none() | strategies.instances, st.none() | strategies.instances)
def test_a_second_write_finds_nothing_to_do(
    want: Instance, have: Instance | None, known: Instance | None
) -> None:
    """What was sent is newer than what stands and what was known, and is as wanted."""
    sent = rules.next_write(want, have, known, now_ms=5000)
    if sent is None:
        assert have is not None
        assert rules.next_write(want, have, known, now_ms=9000) is None
        return
    assert all(one is None or sent.written_at_ms > one.written_at_ms for one in (have, known))
    assert rules.next_write(want, sent, known, now_ms=9000) is None


@pytest.mark.parametrize(
    ("fault", "held", "is_it"),
    [
        ("a renewal that was forwarded brought it back", ONE, True),
        ("somebody else registered it meanwhile", THEIRS, False),
        ("it was registered anew by another run", ANEW, False),
    ],
)
def test_what_was_removed_is_told_from_what_came_in_its_place(
    fault: str, held: Instance, is_it: bool
) -> None:
    """Only the first is removed again."""
    assert rules.came_back(held, ONE) is is_it, fault


def test_an_override_counts_unless_the_instance_says_that_it_is_not_up() -> None:
    """As a server has it: DownOrStartingRule comes before the override."""
    over = replace(ONE, overridden_status=Status.OUT_OF_SERVICE)
    assert rules.overridden(over).status is Status.OUT_OF_SERVICE
    assert rules.overridden(replace(over, status=Status.DOWN)).status is Status.DOWN
    assert rules.overridden(ONE) is ONE
