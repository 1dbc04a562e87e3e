"""The status page and its JSON document; no name from outside can become markup."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from eurekube_provider.core.condition_types import RefreshReason
from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import FailedChange, PlanOutcome, plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import REFRESH_REMEDIES
from eurekube_provider.eureka.registry.front_pages import FrontPages
from eurekube_provider.eureka.self_preservation import FrontPage
from eurekube_provider.operator.history import MOST_KEPT_DIFFERENCES, MOST_RECENT_CHANGES
from eurekube_provider.operator.triggers.trigger_state import (
    StackRefreshState,
    stack_refresh_status_patch,
)
from eurekube_provider.operator.web.overview import JsonObject, PageRequest, build_status_document
from eurekube_provider.operator.web.status_page import (
    PAGE_SECURITY_POLICY,
    html_without_data,
    status_page_html,
    timeline_entries,
)
from eurekube_provider.runtime.clock import format_utc_time
from tests.unit.operator.parts import URL, PlayedOperator, saying

HOSTILE = "<script>alert('1')</script>\"'&<img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """A parsed page: elements, attributes and visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.text = " ".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "input", "option"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def run_status(reason: str, **more: Any) -> dict[str, Any]:
    """Return the status of a StackRefresh whose last run, ten minutes ago, failed for this reason."""
    begun = format_utc_time((datetime.now(UTC) - timedelta(minutes=10)).timestamp())
    condition = {"status": "False", "reason": reason, "message": f"{reason}: exit status 255"}
    return {
        "conditions": [{"type": "Ready", **condition}, {"type": "Synced", **condition}],
        "lastRun": {"outcome": reason, "startTime": begun},
        "failures": 3,
        **more,
    }


def seen(played: PlayedOperator, syncer: str = "", application: str = "") -> JsonObject:
    """Return the page's document, without figures of the servers' front pages."""
    return build_status_document(played.parts, PageRequest(syncer, application))


def test_hostile_names_stay_text() -> None:
    """A name with markup appears as text, and adds no element, attribute or script."""
    played = PlayedOperator()
    played.conflict(played.syncer("rating"), HOSTILE)
    played.syncer("order", HOSTILE, status={"conditions": [{"type": "Ready", "status": HOSTILE}]})
    evil = Instance("A", "b", HOSTILE, HOSTILE, Port(1), metadata={"eurekube.owner": f"stack/{HOSTILE}"})
    played.registry.renewals.add(evil, just_registered=True)
    played.registry.peers.peers[0].traffic.note_usability(HOSTILE)
    played.refresh(HOSTILE, HOSTILE, HOSTILE, status=run_status(HOSTILE))
    harmless = PlayedOperator()
    harmless.refresh("rating", status=run_status("Failed"))
    harmless.conflict(harmless.syncer("rating"))
    harmless.syncer("order", "shop")
    plain = replace(evil, ip_address="10.0.0.1", metadata={"eurekube.owner": "stack/x"})
    harmless.registry.renewals.add(plain, just_registered=True)
    harmless.registry.peers.peers[0].traffic.note_usability("away")
    document = seen(played, application=HOSTILE)
    assert HOSTILE in Page(status_page_html(seen(played))).text
    expected = Page(status_page_html(seen(harmless)))
    for page in (
        Page(status_page_html(seen(played))),
        Page(status_page_html({**seen(played), "filter": document["filter"]})),
    ):
        assert page.open == []
        assert (page.tags - {"a"}, page.attributes) == (expected.tags - {"a"}, expected.attributes)
    assert "<script" not in status_page_html(seen(played)) + html_without_data(HOSTILE)


def test_hostile_names_stay_text_on_the_page_of_an_application() -> None:
    """A name with markup stays text in the picture, the tables and the time line."""
    played = PlayedOperator()
    played.conflict(played.syncer("rating"), HOSTILE)
    played.slice("rating", "10.0.0.1", HOSTILE)
    evil = Instance("RATING", HOSTILE.replace("/", ""), "h", HOSTILE, Port(1))
    played.registry.table.store_written_and_return_previous(evil)
    played.registry.table.store_written_and_return_previous(
        replace(evil, instance_id="b", ip_address="x", metadata={"eurekube.owner": HOSTILE})
    )
    page = Page(status_page_html(seen(played, application="rating")))
    assert page.open == []
    assert {"svg", "rect", "line"} <= page.tags
    assert not page.tags & {"script", "img"}
    assert not {one for one in page.attributes if one.startswith("on")}
    assert HOSTILE in page.text


def test_the_pages_own_style_is_the_only_one_allowed() -> None:
    """The Content-Security-Policy contains the hash of the page's style."""
    style = status_page_html(seen(PlayedOperator())).partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in PAGE_SECURITY_POLICY
    assert "prefers-color-scheme" in style


def test_who_does_not_look_at_the_page_does_not_pay_for_it() -> None:
    """The operator loads the template engine, which takes memory, only when the page is opened."""
    program = "import sys, eurekube_provider.operator.__main__; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_conflict_is_shown_with_both_sides() -> None:
    """The page shows the instance with its values in Kubernetes and in Eureka, and the owner."""
    played = PlayedOperator()
    played.conflict(played.syncer("rating"))
    (row,) = seen(played)["syncers"]
    assert (row["synced"], row["syncReason"], row["desired"], row["registered"], row["refused"]) == (
        False,
        "Conflict",
        2,
        1,
        1,
    )
    (difference,) = row["differences"]
    assert (difference["kubernetes"], difference["eureka"]) == ("UP 10.0.0.2:8080", "DOWN 10.0.0.2:8080")
    assert "belongs to stack/o/p/s/n" in difference["why"]
    text = Page(status_page_html(seen(played))).text
    assert "What differs, and why" in text
    assert "DOWN 10.0.0.2:8080" in text


def test_what_differs_is_reported_a_syncer_that_is_ready() -> None:
    """A syncer that is ready but not synced shows its problem, and comes before synced ones."""
    played = PlayedOperator()
    key = played.syncer("rating")
    played.syncer("absent")
    well, braked = saying(True, Problem("Synced", "")), Problem("Braked", "3 would go")
    played.controller.history.record_reconcile(key, saying(True, Problem("InstancesUp", "2 UP"), braked))
    played.controller.history.record_reconcile(played.syncer("alright"), well)
    rows = seen(played)["syncers"]
    assert [row["name"] for row in rows] == ["absent", "rating", "alright"]
    assert [row["synced"] for row in rows] == [None, False, True]
    assert (rows[1]["ready"], rows[1]["syncReason"], rows[1]["syncMessage"]) == (True, "Braked", "3 would go")
    text = Page(status_page_html(seen(played))).text
    assert "Braked" in text
    assert "3 would go" in text


def test_what_eureka_lost_is_not_called_synced_while_no_replica_leads() -> None:
    """A syncer whose instances Eureka lost is not ready, or not synced where some stand, whatever the last
    reconcile found: without a leader there is no other one.
    """
    played = PlayedOperator()
    for name, number_of_lost in (("rating", 3), ("order", 1), ("alright", 0)):
        key = played.syncer(name)
        played.synced(key, 3)
        for one in played.instances(key, number_of_lost, registered=False):
            played.registry.table.remember_lost_instance(one)
            played.registry.table.store_confirmed_absence(one.key, may_be_forgotten=True)
    document = build_status_document(played.leads(False))
    states = {row["name"]: (row["ready"], row["synced"]) for row in document["syncers"]}
    assert states == {"rating": (False, False), "order": (True, False), "alright": (True, True)}
    assert document["headline"] == "1 not ready, 1 not synced, 1 synced"
    faults = [one["message"] for one in document["troubles"] if one["severity"] == "fault"]
    assert any("Eureka has lost 3 instances" in one for one in faults)
    # Who leads has reconciled since, and found what can be restored.
    assert build_status_document(played.leads(True))["headline"] == "3 synced"


def test_a_refusal_is_reported_once() -> None:
    """Repeated reconciles of a refused instance make one entry in the recent changes."""
    played = PlayedOperator()
    key = played.syncer("rating")
    played.conflict(key)
    played.conflict(key)
    assert [row["action"] for row in seen(played)["changes"]] == ["refused"]


def test_removals_that_wait_say_since_when() -> None:
    """The row shows the age of the brake's hold and the instances that Eureka still holds."""
    played = PlayedOperator()
    played.braked(played.syncer("rating"), 3, 42.0)
    (row,) = seen(played)["syncers"]
    assert row["heldSince"]
    assert (row["registered"], row["desired"], row["differing"]) == (3, 0, 3)
    assert {one["kubernetes"] for one in row["differences"]} == {""}
    assert "braked for" in Page(status_page_html(seen(played))).text


def test_a_failed_change_says_what_failed() -> None:
    """A change that could not be sent stays a difference, with the error as its reason."""
    played = PlayedOperator()
    key = played.syncer("rating")
    have = played.instances(key, 1)[0]
    want = replace(have, status=Status.DOWN)
    steps = plan([want], [have], have.owner or "")
    failed = PlanOutcome((), (FailedChange(steps.changes[0], RegistryUnreachable("nobody answers")),))
    played.controller.history.record_reconcile(
        key, saying(False, Problem("EurekaUnreachable", "x")), steps, failed
    )
    (difference,) = seen(played)["syncers"][0]["differences"]
    assert difference["why"] == "status: UP -> DOWN; nobody answers"


def test_many_differences_are_counted_and_the_first_shown() -> None:
    """Of 10,000 differences the page lists a few, and counts the rest."""
    played = PlayedOperator()
    played.braked(played.syncer("rating"), 10_000, 1.0)
    (row,) = seen(played)["syncers"]
    assert (row["differing"], len(row["differences"])) == (10_000, MOST_KEPT_DIFFERENCES)
    page = status_page_html(seen(played))
    assert f"and {10_000 - MOST_KEPT_DIFFERENCES} more" in Page(page).text
    assert len(page) < 100_000


def test_recent_changes_are_the_newest() -> None:
    """A bounded number of changes is kept, newest first."""
    played = PlayedOperator()
    key = played.syncer("rating")
    there = played.instances(key, 150, registered=False)
    steps = plan(there, [], there[0].owner or "")
    played.controller.history.record_reconcile(
        key, saying(True, Problem("Synced", "")), steps, PlanOutcome(steps.changes, ())
    )
    changes = seen(played)["changes"]
    assert len(changes) == MOST_RECENT_CHANGES
    assert changes[0]["instanceId"] == there[-1].instance_id
    assert {(row["action"], row["syncer"]) for row in changes} == {("registered", "shop/rating")}


@pytest.mark.parametrize(
    ("syncer", "application", "expected"),
    [
        ("", "", ["order", "rating"]),
        ("shop/rating", "", ["rating"]),
        ("rating", "", []),
        ("", "Order", ["order"]),
        ("shop/rating", "order", []),
    ],
)
def test_the_filter_names_a_syncer_or_an_application(
    syncer: str, application: str, expected: list[str]
) -> None:
    """The filter selects syncers with their differences and changes."""
    played = PlayedOperator()
    for name in ("rating", "order"):
        played.conflict(played.syncer(name))
    data = seen(played, syncer, application)
    assert [row["name"] for row in data["syncers"]] == expected
    assert sorted(row["syncer"] for row in data["changes"]) == [f"shop/{name}" for name in expected]
    assert data["syncerCount"] == 2


def test_a_standby_shows_what_the_leader_wrote() -> None:
    """A standby shows the statuses in the syncers' objects."""
    played = PlayedOperator()
    conditions = [{"type": "Ready", "status": "False", "reason": "Conflict", "message": "taken"}]
    played.syncer("rating", status={"conditions": conditions, "desired": 3, "application": "RATING"})
    played.syncer("order")
    data = build_status_document(played.leads(False))
    assert data["operator"]["role"] == "standby"
    rating = next(row for row in data["syncers"] if row["name"] == "rating")
    order = next(row for row in data["syncers"] if row["name"] == "order")
    assert (rating["ready"], rating["reason"], rating["desired"]) == (False, "Conflict", 3)
    assert (order["ready"], order["reason"]) == (None, "NotLookedAt")


def test_a_stack_refresh_shows_how_its_last_run_went() -> None:
    """Every replica shows the status' last run; a syncer's page has no StackRefresh, an application's page
    its own.
    """
    played = PlayedOperator()
    played.refresh("rating", status=run_status("Failed", addresses=3))
    played.refresh("order", target="ci")
    data = seen(played)
    order, rating = data["stackRefreshes"]
    assert (order["name"], order["target"], order["ready"], order["lastRunAt"]) == ("order", "ci", None, None)
    assert (rating["ready"], rating["synced"], rating["outcome"]) == (False, False, "Failed")
    assert (rating["failures"], rating["addresses"], rating["nextRunAt"]) == (3, 3, None)
    text = Page(status_page_html(data)).text
    assert "Stack refreshes (2)" in text
    assert "10 min ago" in text
    assert "3 failed in a row: Failed: exit status 255" in text
    assert [row["name"] for row in seen(played, application="Rating")["stackRefreshes"]] == ["rating"]
    assert seen(played, syncer="shop/rating")["stackRefreshCount"] == 0
    assert "Stack refreshes" not in Page(status_page_html(seen(PlayedOperator()))).text


def test_a_mirror_shows_how_it_stands() -> None:
    """Every replica shows mirrors by their statuses, those that are not in sync first."""
    played = PlayedOperator()
    well = [{"type": kind, "status": "True", "reason": "Fine", "message": ""} for kind in ("Ready", "Synced")]
    held = [{"type": "Synced", "status": "False", "reason": "RemovalsHeld", "message": "1 of ORDER"}]
    played.mirror("a", conditions=well, mirrored=1, endpoints=2, ready=2, held=0)
    played.mirror("b", "order", conditions=held, mirrored=1, endpoints=2, ready=2, held=1)
    data = seen(played)
    assert [row["name"] for row in data["mirrors"]] == ["b", "a"]
    assert (data["mirrors"][0]["ready"], data["mirrors"][0]["synced"]) == (None, None)
    assert [row["state"] for row in data["mirrors"]] == ["not known", "synced"]
    assert data["headline"].endswith("mirrors: 1 not known, 1 synced")
    assert data["troubles"][-1]["subjects"] == ["EurekaMirror shop/b"]
    text = Page(status_page_html(data)).text
    assert "Mirrors (2)" in text
    assert "2/2" in text
    assert "1 held" in text
    assert (text.count("NotLookedAt"), text.count("no operator has looked at it")) == (2, 1)
    assert [row["name"] for row in seen(played, application="Order")["mirrors"]] == ["b"]
    assert "Mirrors" not in Page(status_page_html(seen(PlayedOperator()))).text


def test_a_next_run_says_in_what_time() -> None:
    """A run whose time has come is shown as due, since its target may be busy."""
    played = PlayedOperator()
    played.refresh("rating")
    data = seen(played)
    now = datetime.fromisoformat(data["now"])
    for seconds, expected in ((90, "in 90 s"), (180, "in 3 min"), (0, "due")):
        (row,) = data["stackRefreshes"]
        row["nextRunAt"] = format_utc_time((now + timedelta(seconds=seconds)).timestamp())
        assert expected in Page(status_page_html(data)).words


def test_servers_show_their_own_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server is up, or away with the reason, and has the renewals of its front page."""
    played = PlayedOperator()
    (peer,) = played.registry.peers.peers
    peer.traffic.note_usability("no connection")
    pages = {URL: FrontPage(renewals_threshold=10, renewals_last_minute=9)}
    monkeypatch.setattr(FrontPages, "latest", lambda _, url: pages.get(url))
    data = build_status_document(played.parts)
    (server,) = data["eurekas"][0]["servers"]
    assert (server["up"], server["error"], server["selfPreservation"]) == (False, "no connection", True)
    text = Page(status_page_html(data)).text
    assert "9 in the last minute, threshold 10" in text
    assert "away" in text


def test_the_document_is_plain_json() -> None:
    """The document survives being written as JSON and read back."""
    played = PlayedOperator()
    played.conflict(played.syncer("rating"))
    played.refresh("rating", status=run_status("Failed"))
    document = seen(played)
    assert json.loads(json.dumps(document)) == document


def test_refreshing_can_be_switched_off() -> None:
    """The page's links and form keep the choice not to reload, and the filter."""
    played = PlayedOperator()
    played.syncer("rating")
    assert 'http-equiv="refresh"' in status_page_html(seen(played))
    still = status_page_html(seen(played, "shop/rating"), refreshes=False)
    assert 'http-equiv="refresh"' not in still
    assert 'href="./?syncer=shop%2Frating"' in still


def test_the_header_says_whether_something_is_wrong() -> None:
    """The title has a mark, the line below it counts states, and the first box has the worst fault."""
    played = PlayedOperator()
    played.synced(played.syncer("alright"), 1)
    for group in (played.sources.services, played.sources.slices):
        group.reflectors[0].replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": []}])
    (reflector,) = played.sources.syncers.reflectors
    reflector.replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": reflector.objects()}])
    played.registry.reachability.note_read_and_check_first()
    well = status_page_html(seen(played))
    assert "all is well" in Page(well).text
    assert "1 synced" in Page(well).words
    assert "note first" not in well
    played.conflict(played.syncer("rating"))
    played.controller.history.record_reconcile(
        played.syncer("order"), saying(False, Problem("NoMatchingService", "there is none"))
    )
    data = seen(played)
    assert (data["worst"], data["headline"]) == ("fault", "1 not ready, 1 not synced, 1 synced")
    first, second = data["troubles"]
    assert (first["name"], second["name"]) == ("NoMatchingService", "Conflict")
    page = status_page_html(data)
    assert "trouble" in Page(page).words
    assert page.index("there is none") < page.index("belongs to somebody else")


def test_what_has_one_cause_is_reported_once() -> None:
    """Thirty syncers with the same problem share one box."""
    played = PlayedOperator()
    for number in range(30):
        key = played.syncer(f"app-{number}")
        played.controller.history.record_reconcile(
            key, saying(False, Problem("EurekaUnreachable", "nobody answers at all"))
        )
    text = Page(status_page_html(seen(played))).text
    assert text.count("nobody answers at all") == 1  # in the box
    assert "and 25 more" in text


def test_many_syncers_are_several_pages() -> None:
    """A page has fifty syncers, worst first; a number too high shows the last page; the JSON has all by
    default.
    """
    played = PlayedOperator()
    for number in range(120):
        played.synced(played.syncer(f"app-{number:03}"), 1)
    played.conflict(played.syncer("zebra"))
    first = build_status_document(played.parts, PageRequest(page=1))
    assert (len(first["syncers"]), first["pages"], first["listedCount"]) == (50, 3, 121)
    assert first["syncers"][0]["name"] == "zebra"
    last = build_status_document(played.parts, PageRequest(page=9))
    assert (last["page"], len(last["syncers"])) == (3, 21)
    assert len(build_status_document(played.parts)["syncers"]) == 121
    assert 'href="./?page=2"' in status_page_html(first)
    assert "next" not in status_page_html(last)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"find": "ORD"}, ["order"]),
        ({"find": "shop/"}, ["rating", "order"]),
        ({"state": "synced"}, ["order"]),
        ({"state": "not synced", "find": "order"}, []),
        ({"state": "unheard of", "page": "x"}, ["rating", "order"]),
    ],
)
def test_rows_are_found_by_state_and_by_a_part_of_a_name(query: dict[str, str], expected: list[str]) -> None:
    """The headline and the troubles cover all syncers, whatever the filter selects."""
    played = PlayedOperator()
    played.conflict(played.syncer("rating"))
    played.synced(played.syncer("order"), 1)
    data = build_status_document(played.parts, PageRequest.from_query(query, is_paged=True))
    assert [row["name"] for row in data["syncers"]] == expected
    assert data["headline"] == "1 not synced, 1 synced"
    assert "Conflict" in {one["name"] for one in data["troubles"]}


def test_an_application_has_a_page_with_both_sides_and_a_time_line() -> None:
    """The page pairs each endpoint with its instance, names other owners, and joins changes of one moment."""
    played = PlayedOperator()
    key = played.syncer("rating")
    there = played.instances(key, 2)
    played.slice("rating", *(one.ip_address for one in there), "10.0.0.9")
    played.registry.table.store_written_and_return_previous(
        replace(there[0], instance_id="vm", ip_address="10.0.0.9", metadata={})
    )
    steps = plan(there, [], there[0].owner or "")
    played.controller.history.record_reconcile(
        key, saying(True, Problem("Synced", "")), steps, PlanOutcome(steps.changes, ())
    )
    data = seen(played, application="rating")
    (part,) = data["application"]["syncers"]
    assert [(one["endpoint"], one["instanceId"], one["keeper"], one["agrees"]) for one in part["pairs"]] == [
        ("rating-2", "vm", "itself", False),
        ("rating-0", there[0].instance_id, "", True),
        ("rating-1", there[1].instance_id, "", True),
    ]
    assert [(one["keeper"], one["up"], one["total"]) for one in data["application"]["others"]] == [
        ("itself", 1, 1)
    ]
    (entry,) = timeline_entries(data["changes"])
    assert (entry["action"], len(entry["instances"]), entry["why"]) == ("registered", 2, "was not in Eureka")
    row = data["syncers"][0]
    assert (row["desiredUp"], row["registeredUp"], row["registered"]) == (0, 2, 2)
    assert "UP, kept by itself" in Page(status_page_html(data)).text


def test_an_application_that_nobody_has() -> None:
    """The page says that neither a syncer nor an instance has this name."""
    assert (
        "neither a syncer nor an instance has this name"
        in Page(status_page_html(seen(PlayedOperator(), application="x"))).text
    )


def test_cause_and_remedy_stand_in_the_box_and_in_no_row() -> None:
    """A row has the reason only, so that many syncers do not repeat the same sentences."""
    played = PlayedOperator()
    for name in ("rating", "order"):
        problem = Problem("NoMatchingService", "no Service", "make the Service")
        report = saying(False, problem, problem, application=name)
        played.controller.history.record_reconcile(played.syncer(name), report)
    text = Page(status_page_html(seen(played))).text
    assert text.count("make the Service") == text.count("To fix it: make the Service") == 1
    assert (text.count("NoMatchingService"), text.count("no Service")) == (3, 1)


def test_a_command_that_fixes_it_is_shown_as_code() -> None:
    """Text between backticks becomes code and stays escaped; a single backtick is text."""
    played = PlayedOperator()
    for name, remedy in (("rating", "run `eurekube <b>`, and wait"), ("order", "wait ` <b>")):
        report = saying(False, Problem(name, "why", remedy), application=name)
        played.controller.history.record_reconcile(played.syncer(name), report)
    page = status_page_html(seen(played))
    assert "run <code>eurekube &lt;b&gt;</code>, and wait" in page
    assert "wait ` &lt;b&gt;" in page


def test_a_fault_of_several_is_reported_by_the_one_that_is_shown() -> None:
    """On an application's page a shared fault is explained by that application's syncer, named first."""
    played = PlayedOperator()
    played.conflict(played.syncer("order"), "belongs to a stack")
    played.conflict(played.syncer("rating"), "belongs to a machine")
    boxes = status_page_html(seen(played)).partition("<h2>")[0]
    assert "e.g. shop/order: belongs to a stack" in boxes
    boxes = status_page_html(seen(played, application="rating")).partition("<h2>")[0]
    assert "e.g. shop/rating: belongs to a machine" in boxes
    assert boxes.index("shop/rating") < boxes.index("shop/order")


def test_the_page_of_an_application_has_no_trouble_of_another_one() -> None:
    """Faults of other applications' mirrors and StackRefreshes are left out; faults of Eureka are shown."""
    played = PlayedOperator()
    played.syncer("rating")
    played.refresh("rating", status=run_status("Failed"))
    played.refresh("order", status=run_status("Locked"))
    held = [{"type": "Ready", "status": "False", "reason": "SourceUnreachable", "message": "no answer"}]
    played.mirror("a", "order", conditions=held)
    boxes = status_page_html(seen(played, application="rating")).partition("<h2>")[0]
    assert "StackRefresh shop/rating" in boxes
    assert "shop/order" not in boxes
    assert "EurekaMirror" not in boxes
    assert "OperatorNotReady" in boxes


def test_faults_of_the_operator_itself_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that ended and objects that were not read are faults; objects that may be old are a warning."""
    played = PlayedOperator()
    monkeypatch.setattr(played.registry, "liveness", lambda: [Liveness("renewals", is_alive=False)])
    failures = {"pods": KubernetesError("no answer")}
    monkeypatch.setattr(type(played.parts.sources), "failures", property(lambda _: failures))
    found = {(one["severity"], one["name"]): one["message"] for one in seen(played)["troubles"]}
    assert found["fault", "OperatorStuck"].startswith("renewals: its thread has ended; to fix it: read")
    assert "was not read yet; to fix it:" in found["fault", "OperatorNotReady"]
    assert found["warning", "KubernetesUnread"].startswith("pods may be old: no answer; to fix it:")


def test_what_fixes_a_stack_refresh_that_is_refused_stands_in_the_box() -> None:
    """The remedy from the StackRefresh's condition appears once, in the box."""
    played = PlayedOperator()
    refused = StackRefreshState().as_refused(RefreshReason.UNKNOWN_TARGET, "there is no target prod")
    status = stack_refresh_status_patch({"metadata": {}}, refused, datetime.now(UTC))
    played.refresh("rating", status=status)
    data = seen(played)
    assert data["stackRefreshes"][0]["message"] == status["conditions"][0]["message"]
    text = Page(status_page_html(data)).text
    remedy = REFRESH_REMEDIES[RefreshReason.UNKNOWN_TARGET]
    assert text.count(remedy) == text.count(f"To fix it: {remedy}") == 1
    assert text.count("there is no target prod") == 2  # in the box, and in the row
