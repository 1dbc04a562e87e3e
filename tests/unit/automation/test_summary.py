"""Summaries of a preview's effect on discovery, for reviewers and programs.

A real Pulumi CLI printed the previews in ``summaries`` for stacks in a real Eureka and cluster; source
positions and providers were trimmed. After an intended change, EUREKUBE_WRITE_GOLDEN=1 writes the expected
texts again; read them then.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from pulumi.runtime.rpc import UNKNOWN

from eurekube_provider.automation.markdown import (
    MAX_COMMENT_CHARACTERS,
    code_span,
    format_comment,
    format_drift_report,
)
from eurekube_provider.automation.steps import MASKED_VALUE, StepLog, read_event_log
from eurekube_provider.automation.summary import (
    ChangeKind,
    DiscoveryChange,
    DiscoverySummary,
    WarningConcern,
    summarise,
)
from eurekube_provider.cli.main import main
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import (
    DYNAMIC_APPLICATION_TYPE,
    DYNAMIC_INSTANCE_TYPE,
    DYNAMIC_OPERATOR_GUARD_TYPE,
    NATIVE_APPLICATION_TYPE,
    NATIVE_INSTANCE_TYPE,
    NATIVE_OPERATOR_GUARD_TYPE,
)
from eurekube_provider.registrations.names import rename_properties, to_camel_case

FOLDER = Path(__file__).parent / "summaries"
KINDS = [
    "first",
    "nothing",
    "gain-and-loss",
    "change",
    "replacement",
    "removal",
    "refused",
    "renewer",
    "foreign-owner",
    "brake",
    "after-drift",
    "offline",
    "untold",
    "syncers",
    "thousand",
]


def previewed(name: str) -> DiscoverySummary:
    """Return the summary of a stored preview."""
    return summarise(read_event_log((FOLDER / name).read_text()))


def golden(name: str, text: str) -> str:
    """Return the expected text, after writing it if EUREKUBE_WRITE_GOLDEN is set."""
    path = FOLDER / name
    if os.environ.get("EUREKUBE_WRITE_GOLDEN"):
        path.write_text(text)
    return path.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_comment_tells_what_would_happen(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``summary`` prints the expected comment, shorter than 2000 characters."""
    assert main(["summary", str(FOLDER / f"{kind}.json")]) == 0
    text = capsys.readouterr().out
    assert text == golden(f"{kind}.md", text)
    assert len(text) < 2_000


def by_the_native_provider(preview: str) -> str:
    """Return a preview rewritten as the native provider's, with its types and property names."""
    for ours, native in (
        (DYNAMIC_INSTANCE_TYPE, NATIVE_INSTANCE_TYPE),
        (DYNAMIC_APPLICATION_TYPE, NATIVE_APPLICATION_TYPE),
    ):
        preview = preview.replace(f"{ours}::", f"{native}::").replace(f'"{ours}"', f'"{native}"')
    document = json.loads(preview)
    states = (step.get(when) for step in document["steps"] for when in ("oldState", "newState"))
    for state in states:
        if state and state["type"] in (NATIVE_INSTANCE_TYPE, NATIVE_APPLICATION_TYPE):
            for what in state.keys() & {"inputs", "outputs"}:
                state[what] = rename_properties(state[what], to_camel_case)
    return json.dumps(document)


@pytest.mark.parametrize("kind", KINDS)
def test_registrations_of_the_native_provider_are_reported_alike(kind: str) -> None:
    """A preview of the native provider has the same summary as that of the dynamic one."""
    text = (FOLDER / f"{kind}.json").read_text()
    native = by_the_native_provider(text)
    assert f"{DYNAMIC_INSTANCE_TYPE}::" not in native
    assert summarise(read_event_log(native)) == previewed(f"{kind}.json")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "thousand"])
def test_a_machine_reads_the_same_as_json(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``summary --format json`` prints the expected summary, complete."""
    assert main(["summary", "--format", "json", str(FOLDER / f"{kind}.json")]) == 0
    text = capsys.readouterr().out
    assert text == golden(f"{kind}.summary.json", text)


def test_a_thousand_instances_are_listed_one_by_one_for_a_machine() -> None:
    """The JSON of a large preview lists each of 500 new, 200 leaving and 300 changed instances."""
    (application,) = previewed("thousand.json").applications
    assert (application.before, application.after) == (700, 1000)
    assert [len(application.changes_of_kind(kind)) for kind in ChangeKind] == [500, 200, 0, 300]
    assert {tuple(each.details.items()) for each in application.changes_of_kind(ChangeKind.CHANGES)} == {
        (("zone", ("", "zone-b")),)
    }
    last = application.changes_of_kind(ChangeKind.REGISTERS)[-1]
    assert (last.name, last.address) == ("i1199", "192.0.6.199:8080")


def test_an_event_log_says_the_same_and_how_many_there_are() -> None:
    """An event log gives the same summary as a preview document, and the counts of instances, as it has
    unchanged resources.
    """
    document, log = previewed("replacement.json"), previewed("replacement.events")
    (moved,) = log.applications
    assert (moved.before, moved.after) == (1, 1)
    assert replace(log, applications=(replace(moved, before=None, after=None),)) == document


def test_drift_is_reported_from_the_stacks_side() -> None:
    """The drift report shows the state as the old side and Eureka as the new side."""
    found = summarise(read_event_log((FOLDER / "drift.events").read_text()), is_drift=True)
    text = format_drift_report(found)
    assert text == golden("drift.md", text)


def previewed_application(old: dict[str, Any] | None, new: dict[str, Any] | None) -> DiscoverySummary:
    """Return the summary of a change of the EurekaApplication ``billing``."""
    urn = f"urn:pulumi:dev::shop::{DYNAMIC_APPLICATION_TYPE}::billing"
    shared = {
        "application": "BILLING",
        "port": 8080,
        "id_base": "billing.dev.shop",
        "service_url": "http://e",
    }
    step: dict[str, Any] = {
        "op": "delete" if new is None else "create" if old is None else "update",
        "urn": urn,
    }
    for state, given in (("oldState", old), ("newState", new)):
        if given is not None:
            properties = {**shared, **given}
            step[state] = {
                "type": DYNAMIC_APPLICATION_TYPE,
                "inputs": properties,
                "outputs": properties,
            }
    return summarise(read_event_log(json.dumps({"steps": [step], "changeSummary": {step["op"]: 1}})))


OPERATORS = [
    ("eurekube:index:EurekubeOperator", DYNAMIC_OPERATOR_GUARD_TYPE),
    ("eurekube:index:Operator", NATIVE_OPERATOR_GUARD_TYPE),
]
"""Types of the operator component and of its guard, for Python and for the native provider."""


def transcript_of_an_operator(operation: str, operator: str, guard: str) -> StepLog:
    """Return the CLI's output for the creation, update or deletion of an operator and its contents."""
    inside = ("kubernetes:apps/v1:Deployment", "kubernetes:eurekube.io/v1alpha1:EurekaSyncer", guard)
    state = {"inputs": {"metadata": {"namespace": "shop", "name": "rating"}}, "outputs": {}}
    steps = []
    for type_ in (operator, *(f"{operator}${each}" for each in inside)):
        step: dict[str, Any] = {"op": operation, "urn": f"urn:pulumi:dev::shop::{type_}::eurekube"}
        for when, without in (("oldState", "create"), ("newState", "delete")):
            if operation != without:
                step[when] = {"type": type_.rpartition("$")[2], **state}
        steps.append(step)
    return read_event_log(json.dumps({"steps": steps, "changeSummary": {operation: len(steps)}}))


@pytest.mark.parametrize("is_drift", [False, True])
@pytest.mark.parametrize("operation", ["create", "update", "delete"])
def test_an_operator_for_every_language_is_described_as_pythons(operation: str, is_drift: bool) -> None:
    """The native operator has the same summary as Python's; its deletion gives a warning, and neither
    operator nor guard counts as a Kubernetes object.
    """
    logs = (transcript_of_an_operator(operation, *each) for each in OPERATORS)
    python, native = (summarise(log, is_drift=is_drift) for log in logs)
    assert native == python
    warned = [("eurekube", "the operator goes")] if operation == "delete" else []
    assert [(each.about, each.text.partition(":")[0]) for each in native.warnings] == warned
    assert native.other_changes == {operation: 1}
    assert [each.name for each in native.syncers] == ["shop/rating"]


def unknowns(summary: DiscoverySummary) -> list[str]:
    """Return the texts of the summary's warnings about unknown values."""
    assert {each.concern for each in summary.warnings} <= {WarningConcern.UNKNOWN}
    return [each.text for each in summary.warnings]


A, B = {"host_name": "192.0.2.1"}, {"host_name": "192.0.2.2"}


def test_an_instance_that_is_not_known_yet_is_one_all_the_same() -> None:
    """An instance whose values are unknown in the preview is counted and named; changes of it are not
    claimed.
    """
    summary = previewed_application(
        {"instances": {"a": A, "b": B}}, {"instances": {"a": UNKNOWN, "c": UNKNOWN}}
    )
    assert unknowns(summary) == ["known in the update only: instances.a, instances.c"]
    (application,) = summary.applications
    assert (application.before, application.after) == (2, 2)
    assert [(each.kind, each.name, each.address) for each in application.changes] == [
        (ChangeKind.REGISTERS, "c", "(known in the update only)"),
        (ChangeKind.LEAVES, "b", "192.0.2.2:8080"),
    ]
    elsewhere = {"instances": {"a": UNKNOWN}, "service_url": "http://f"}
    (application,) = previewed_application({"instances": {"a": A}}, elsewhere).applications
    (change,) = application.changes
    assert (change.kind, change.details) == (ChangeKind.MOVES, {"service_url": ("http://e", "http://f")})


def test_what_only_a_state_has_is_no_change_of_an_instance() -> None:
    """Properties that only a state has cause no change of instances that stay."""
    written = {"created": "2026-11-23T03:56:42+00:00", "incarnation": "0920f666"}
    found: dict[str, Any] = {"statuses": {}, "held_by_others": {}}
    old = {"instances": {"a": A}, "still_enforced": True, **written, **found}
    (application,) = previewed_application(old, {"instances": {"a": A, "b": B}}).applications
    assert [(each.kind, each.name) for each in application.changes] == [(ChangeKind.REGISTERS, "b")]


def test_what_callers_of_an_old_url_may_lose_is_counted() -> None:
    """A move to another Eureka URL warns that callers of the old one lose the UP instances; URL lists that
    share a URL count as the same Eureka.
    """
    old = {"instances": {"a": A, "b": B}, "statuses": {"b": "DOWN"}, "drain_seconds": 9}
    summary = previewed_application(old, {"instances": {"a": A, "b": B}, "service_url": "http://f"})
    (warned,) = summary.warnings
    assert (warned.concern, warned.about) == (WarningConcern.BRAKE, "BILLING")
    assert warned.text == (
        "callers that ask http://e lose all 1 instances, out of service for 9 s before, unless it leads to"
        " the same Eureka as http://f: then nothing goes"
    )
    one_more = previewed_application(
        {**old, "service_url": "http://e,http://d"},
        {"instances": {"a": A, "b": B}, "service_url": "http://d,http://c"},
    )
    assert one_more.warnings == ()
    (application,) = one_more.applications
    assert (application.before, application.after) == (2, 2)
    assert {each.kind for each in application.changes} == {ChangeKind.CHANGES}
    one_way, the_other = ({**old, "service_url": urls} for urls in ("http://e,http://d", "http://d,http://e"))
    assert not previewed_application(one_way, the_other).applications


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (UNKNOWN, "known in the update only: metadata, instances.b.metadata"),
        (MASKED_VALUE, "secret, and so not shown: metadata, instances.b.metadata"),
    ],
)
def test_metadata_that_is_not_shown_is_not_taken_for_none(mark: str, expected: str) -> None:
    """Unknown or secret metadata is shown as such, and not as removed."""
    old = {"metadata": {"tier": "gold"}, "instances": {"a": A, "b": {**B, "metadata": {"rack": "7"}}}}
    new = {"metadata": mark, "instances": {"a": A, "b": {**B, "metadata": mark}}}
    summary = previewed_application(old, new)
    assert unknowns(summary) == [expected]
    (application,) = summary.applications
    shown = "(known in the update only)" if mark == UNKNOWN else mark
    assert {each.name: each.details for each in application.changes} == {
        "a": {"metadata": ("tier=gold", shown)},
        "b": {"metadata": ("tier=gold, rack=7", shown)},
    }


@pytest.mark.parametrize("is_there", ["before", "after", "before and after"])
def test_secret_instances_are_not_shown(is_there: str) -> None:
    """Secret instances are reported only as secret, not as coming, leaving or unchanged."""
    old = {"instances": MASKED_VALUE} if "before" in is_there else None
    new = {"instances": MASKED_VALUE} if "after" in is_there else None
    summary = previewed_application(old, new)
    assert (unknowns(summary), summary.applications) == (["secret, and so not shown: instances"], ())
    assert "Nothing changes" not in format_comment(summary)


def test_a_drain_that_is_not_known_yet_is_none() -> None:
    """An unknown or secret drain time is reported as 0, a known one as its number."""
    changes: list[DiscoveryChange] = []
    for drain_seconds in (100.0, UNKNOWN, MASKED_VALUE):
        (application,) = previewed_application(
            {"drain_seconds": drain_seconds, "instances": {"a": A}}, None
        ).applications
        changes += application.changes
    assert [each.drain_seconds for each in changes] == [100, 0, 0]


def test_a_secret_is_the_same_in_a_document_and_in_events() -> None:
    """Secrets of an event log, which are objects there, are hidden as those of a preview document."""
    assert '"ciphertext"' in (FOLDER / "untold.events").read_text()
    assert previewed("untold.events") == previewed("untold.json")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "thousand"])
@pytest.mark.parametrize("mark", [UNKNOWN, MASKED_VALUE])
def test_every_property_may_be_left_out(kind: str, mark: str) -> None:
    """Any one property may be unknown or secret: a summary is still made, without Pulumi's mark in it."""
    document = json.loads((FOLDER / f"{kind}.json").read_text())
    states = [step[name] for step in document["steps"] for name in ("oldState", "newState") if name in step]
    maps = [state[name] for state in states for name in ("inputs", "outputs") if name in state]
    while maps:
        properties = maps.pop()
        for name, value in properties.items():
            maps += [value] if isinstance(value, dict) else []
            properties[name] = mark
            summary = summarise(read_event_log(json.dumps(document)))
            assert UNKNOWN not in format_comment(summary)
            assert UNKNOWN not in json.dumps(summary.to_json())
            properties[name] = value


def test_what_a_program_writes_is_never_markup() -> None:
    """Values from a program are escaped in a comment, so that they make no markup, links or mentions."""
    (application,) = previewed("gain-and-loss.json").applications
    nasty = "`</details>\n\n| @everyone #7 GH-8 a/b#9 **safe** www.x.y http://z <img src=x> [x](http://y)\x1b\u202e"
    change = DiscoveryChange(ChangeKind.CHANGES, nasty, nasty, details={nasty: (nasty, nasty)})
    changed = replace(application, application=nasty, changes=(change,))
    summary = replace(previewed("brake.json"), applications=(changed,))
    text = format_comment(
        replace(summary, warnings=tuple(replace(each, text=nasty) for each in summary.warnings))
    )
    shown = "`'</details> ¦ @everyone #7 GH-8 a/b#9 **safe** www.x.y http://z <img src=x> [x](http://y)`"
    assert code_span(nasty) == shown
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert page.count("<details>") == page.count("</details>") == page.count("<table>") == 1
    assert "<img" not in page
    assert "<a " not in page
    outside = re.sub("<code>.*?</code>", "", page)
    for sign in ("@everyone", "#7", "GH-8", "b#9", "safe", "www", "http:"):
        assert sign not in outside
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_comment_never_grows_beyond_what_a_forge_takes() -> None:
    """A comment that would be too long loses its details first and keeps the counts; whole lines are cut."""
    summary = previewed("gain-and-loss.json")
    (application,) = summary.applications
    changes = tuple(
        DiscoveryChange(ChangeKind.CHANGES, f"i{n}", details={"x": ("y" * 500, str(n))}) for n in range(30)
    )
    many = [replace(application, application=f"A{n}", changes=changes) for n in range(40)]
    text = format_comment(replace(summary, applications=tuple(many)))
    assert len(text) <= MAX_COMMENT_CHARACTERS
    assert "| `A39` |  |  |  | 30 | 2 → 2 |" in text
    text = format_comment(replace(summary, applications=tuple(many) * 100))
    assert len(text) <= MAX_COMMENT_CHARACTERS + 10
    # What is left out is left out by whole lines: a code span that was cut open would be markup.
    evil = replace(application, application="@everyone " * 29, changes=())
    for length in range(7):
        text = format_comment(replace(summary, stack="x" * length, applications=(evil,) * 5000))
        page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
        assert "@everyone" not in re.sub("<code>.*?</code>", "", page)
        assert text.count("<details>") == text.count("</details>")


def test_what_is_too_long_is_not_written_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the table alone exceeds the limit, no details are rendered."""
    reported: list[str] = []

    def escaped(text: str) -> str:
        reported.append(text)
        return text

    monkeypatch.setattr("eurekube_provider.automation.markdown.escape", escaped)
    summary = previewed("gain-and-loss.json")
    format_comment(summary)
    assert len(reported) == 1
    reported.clear()
    many = [replace(summary.applications[0], application=f"A{n}") for n in range(4000)]
    assert len(format_comment(replace(summary, applications=tuple(many)))) <= MAX_COMMENT_CHARACTERS + 10
    assert reported == []


def test_a_value_that_is_long_is_cut() -> None:
    """A value is cut to 300 characters."""
    assert code_span("x" * 10_000) == f"`{'x' * 300}…`"


def test_drift_elsewhere_is_drift() -> None:
    """The report does not say "nothing was changed" if resources other than registrations drifted."""
    found = summarise(read_event_log((FOLDER / "drift.events").read_text()), is_drift=True)
    nothing = replace(found, applications=(), syncers=(), refused=(), warnings=(), other_changes={})
    assert "Nothing was changed behind the stack's back." in format_drift_report(nothing)
    text = format_drift_report(replace(nothing, other_changes={"update": 2}))
    assert "Nothing was changed" not in text
    assert "No registration and no syncer was changed behind the stack's back; other resources were." in text
    assert "Other resources: 2 update." in text
    assert "changed" not in format_drift_report(replace(nothing, has_failed=True))


def drifted(
    new: dict[str, Any], old: dict[str, Any] | None = None, operation: str = "update"
) -> DiscoverySummary:
    """Return the drift report on the EurekaApplication ``billing`` when a refresh finds ``new``."""
    urn = f"urn:pulumi:dev::shop::{DYNAMIC_APPLICATION_TYPE}::billing"
    own = {
        "application": "BILLING",
        "port": 8080,
        "id_base": "billing.dev.shop",
        "service_url": "http://e",
        "renewer": "eurekube",
        "owner": "stack/organization/shop/dev/billing",
        "incarnation": "0920f666",
        "instances": {"a": A, "b": B},
    }
    before, after = {**own, **(old or {})}, {**own, **new}
    step = {"op": operation, "urn": urn}
    for state, given in (("oldState", before), ("newState", after)):
        step[state] = {  # type: ignore[assignment]
            "type": DYNAMIC_APPLICATION_TYPE,
            "inputs": given,
            "outputs": given,
        }
    return summarise(
        read_event_log(json.dumps({"steps": [step], "changeSummary": {operation: 1}})), is_drift=True
    )


@pytest.mark.parametrize(
    ("incarnation", "new", "concerns", "refused"),
    [
        ("0920f666", {}, ["owner"], []),
        ("0920f666", {"instances": {"a": {"host_name": "192.0.2.9"}}}, [], ["a"]),
        ("0920f666", {"renewer": "eurekube"}, ["renewer"], ["a"]),
        ("", {}, [], ["a"]),
    ],
    ids=["at its address", "at another one", "renewed by an operator", "only imported"],
)
def test_a_self_renewed_application_that_came_back_is_not_refused(
    incarnation: str, new: dict[str, Any], concerns: list[str], refused: list[str]
) -> None:
    """An application that renews itself and is registered again at its address is taken back with a warning;
    at another address, renewed by an operator, or only imported, it is refused.
    """
    old = {"instances": {"a": A}, "renewer": "self", "held_by_others": {"a": ""}, "incarnation": incarnation}
    summary = previewed_application(old, {"instances": {"a": A}, "renewer": "self", **new})
    assert [each.concern for each in summary.warnings] == concerns
    assert [each.name for each in summary.refused] == refused


TAKEN = {"held_by_others": {"a": "stack/acme/legacy/prod/x"}}


@pytest.mark.parametrize(
    ("new", "details"),
    [
        (TAKEN, {"owner": ("stack/organization/shop/dev/billing", "stack/acme/legacy/prod/x")}),
        (
            {"held_by_others": {"a": ""}},
            {"owner": ("stack/organization/shop/dev/billing", "nobody that Eurekube knows")},
        ),
        ({"instances": {"a": {**A, "renewer": "theirs"}, "b": B}}, {"renewer": ("eurekube", "theirs")}),
        ({"seen_incarnation": {"a": "beef"}}, {"incarnation": ("0920f666", "beef")}),
        ({"still_enforced": {"a": "DOWN"}}, {"enforced status": ("", "DOWN")}),
        ({"leaving": {"a": True}}, {"leaving": ("", "true")}),
    ],
)
def test_drift_names_whose_an_instance_is_and_who_renews_it(
    new: dict[str, Any], details: dict[str, tuple[str, str]]
) -> None:
    """Drift in owner, renewer, incarnation or enforced status is reported for the instance concerned."""
    found = drifted(new)
    (application,) = found.applications
    assert [(each.name, each.details) for each in application.changes] == [("a", details)]
    assert "Nothing" not in format_drift_report(found)


def test_drift_that_an_earlier_refresh_has_reported_is_reported_again() -> None:
    """Drift that stands in the state already is reported again, because no update removes it."""
    (application,) = drifted(TAKEN, TAKEN, "same").applications
    assert [(each.name, list(each.details)) for each in application.changes] == [("a", ["owner"])]
    assert not drifted({}, operation="same").applications


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({"half_done": True}, "its state differs in half_done"),
        ({}, "Pulumi finds a difference, and names none"),
    ],
)
def test_a_difference_that_is_of_no_instance_is_reported(new: dict[str, Any], expected: str) -> None:
    """A difference that concerns no instance is reported, so that report and exit code agree."""
    found = drifted(new)
    assert [(each.about, each.text) for each in found.warnings] == [("billing", expected)]
    report = format_drift_report(found)
    assert "There is a difference" in report
    assert "Nothing" not in report


def test_a_difference_of_what_stands_nowhere_else_is_reported() -> None:
    """A difference of a component or provider, which exists only in the state, is reported."""
    step = {"op": "update", "urn": "urn:pulumi:dev::shop::pulumi:providers:eurekube::default"}
    state = {"type": "pulumi:providers:eurekube", "inputs": {}, "outputs": {}}
    document = {"steps": [{**step, "oldState": state, "newState": state}], "changeSummary": {"update": 1}}
    found = summarise(read_event_log(json.dumps(document)), is_drift=True)
    assert found.other_changes == {"update": 1}
    assert "Nothing" not in format_drift_report(found)


@pytest.mark.parametrize(
    "text", ["", "Previewing update (dev):", "[]", '{"steps": [{}]}', "{}", '{"x": 1}\n{']
)
def test_something_else_is_refused_with_a_sentence(text: str, tmp_path: Path) -> None:
    """Input that is neither a preview nor an event log is refused with one sentence."""
    with pytest.raises(ConfigurationError, match="neither"):
        read_event_log(text)
    (tmp_path / "it").write_text(text)
    assert main(["summary", str(tmp_path / "it")]) == 1
    assert main(["summary", str(tmp_path / "missing")]) == 1


def test_the_summary_is_json_all_through() -> None:
    """A summary can be written as JSON; one without changes is empty."""
    summary = previewed("foreign-owner.json")
    assert json.loads(json.dumps(summary.to_json()))["refused"][0]["name"] == "billing"
    nothing = previewed("nothing.json")
    assert nothing.applications + nothing.syncers + nothing.refused + nothing.warnings == ()
