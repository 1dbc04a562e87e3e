"""``status``, ``watch``, ``plan`` and ``instances``: what they show, and the codes that they end with."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from eurekube_provider.cli import world_options
from eurekube_provider.cli.main import main
from eurekube_provider.core.model import Status
from eurekube_provider.doctor.worlds_reader import EurekaRead, Worlds
from tests.unit.cli.worlds import NO_EUREKA, FakeReader, worlds
from tests.unit.comparison.samples import instance, mirror, mirror_status, syncer, world

WELL = worlds(world(syncer("rating")), {"default": [instance("rating")]})
ILL = worlds(
    world(syncer("rating"), syncer("order")),
    {"default": [instance("rating"), instance("order", 0, Status.DOWN), instance("vm", owner=None)]},
)
BLIND = worlds(world(syncer("rating")), {}, missing=(NO_EUREKA,))
SILENT = Worlds(None, {"default": EurekaRead(error="no answer")}, unread=("Eureka default: no answer",))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command on given worlds: its exit code, and what it printed."""

    def ran(found: Worlds, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(world_options, "WorldsReader", FakeReader(found))
        monkeypatch.delenv("COLUMNS", raising=False)
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return (code, *capsys.readouterr())

    return ran


@pytest.mark.parametrize(
    ("found", "code"), [(WELL, 0), (ILL, 1), (BLIND, 2), (SILENT, 2)], ids=["well", "ill", "blind", "silent"]
)
@pytest.mark.parametrize("command", ["status", "plan"])
def test_the_exit_code_says_what_was_found(run: Any, found: Worlds, code: int, command: str) -> None:
    """0 in sync, 1 not; 2 where that cannot be told, and what is missing."""
    ended, _, said = run(found, command)
    assert ended == code
    assert bool(said) == (code == 2)


def test_status_has_the_worst_first_and_one_line_for_each(run: Any) -> None:
    """The sum, the trouble, the rows, and what differs, grouped."""
    _, shown, _ = run(ILL, "status")
    lines = shown.splitlines()
    assert lines[0] == ("1 not synced, 1 synced, 1 not compared  ·  cluster lab, Eureka default (2 servers)")
    assert lines[1:3] == ["  Differs  shop/order", "    1 instance: status: DOWN -> UP"]
    assert lines[3].startswith("    to mend it: wait half a minute")
    assert [line.split()[0] for line in lines[5:9]] == ["APPLICATION", "ORDER", "RATING", "VM"]
    row = "ORDER  syncer shop/order  1/1  0/1  not synced  Differs: 1 instance: status: DOWN -> UP"
    assert lines[6].split() == row.split()
    assert "  1 instance: status: DOWN -> UP" in lines
    _, shown, _ = run(ILL, "status", "--differences")
    assert "RATING" not in shown
    code, shown, _ = run(ILL, "status", "rating")
    assert (code, "ORDER" in shown) == (0, False)


def test_status_as_json_has_all_of_it(run: Any) -> None:
    """The same order, and whole sentences."""
    code, shown, _ = run(ILL, "status", "-o", "json")
    found = json.loads(shown)
    assert code == 1
    assert [one["application"] for one in found["applications"]] == ["ORDER", "RATING", "VM"]
    assert found["troubles"][0]["subjects"] == ["shop/order"]
    assert found["eurekas"] == [{"name": "default", "servers": 2, "instances": 3, "error": ""}]


def test_status_has_the_mirrors_beside_the_syncers(run: Any) -> None:
    """Problems first, in the same words; a trouble like any other; of one application, its own alone."""
    read = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = worlds(
        world(syncer("rating")),
        {"default": [instance("rating")]},
        mirrors=[
            mirror("a", mirror_status(read=read), application="review"),
            mirror("b", mirror_status("ORDER", NameTaken="it is somebody's"), application="order"),
        ],
    )
    code, shown, _ = run(found, "status")
    lines = shown.splitlines()
    assert code == 1
    assert lines[0].startswith("1 synced; mirrors: 1 not synced, 1 synced  ·")
    assert lines[1] == "  NameTaken  EurekaMirror shop/b"
    rows = [line for line in lines if "shop/a" in line or line.startswith("ORDER")]
    assert re.split("  +", rows[0]) == [
        "ORDER",
        "shop/b",
        "order",
        "1/2",
        "-",
        "not synced",
        "NameTaken: it is somebody's",
    ]
    assert rows[1].startswith("REVIEW")
    assert " s ago " in rows[1]
    code, shown, _ = run(found, "status", "review", "-o", "json")
    assert (code, [one["name"] for one in json.loads(shown)["mirrors"]]) == (0, ["a"])
    _, shown, _ = run(found, "status", "--differences", "-o", "markdown")
    assert ("ORDER" in shown, "REVIEW" in shown) == (True, False)
    code, shown, _ = run(found, "status", "rating")
    assert (code, "MIRROR" in shown) == (0, False)


def test_one_world_alone_is_shown_and_the_other_one_missed(run: Any) -> None:
    """On standard error, so that the output stays what it is."""
    _, shown, said = run(BLIND, "status")
    assert "RATING" in shown
    assert said == f"eurekube status: {NO_EUREKA}\n"
    code, shown, said = run(SILENT, "status")
    assert (code, shown) == (2, "")
    assert "could not read Eureka default: no answer" in said


def test_plan_says_what_the_operator_would_do(run: Any) -> None:
    """Each change on a line of its own, as the operator's dry run has it."""
    code, shown, _ = run(ILL, "plan")
    assert code == 1
    assert "  ~ ORDER order-0.shop.lab:order:8080 status: DOWN -> UP" in shown.splitlines()
    assert shown.endswith("nothing to do for 1 syncer\n")
    code, shown, said = run(ILL, "plan", "shop/rating", "shop/none", "-o", "json")
    assert code == 2
    assert "there is no syncer shop/none" in said
    assert [one["syncer"] for one in json.loads(shown)["syncers"]] == ["shop/rating"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["order", "rating", "vm"]),
        (("rating",), ["rating"]),
        (("--status", "down"), ["order"]),
        (("--kept-by", "itself"), ["vm"]),
        (("--owner", "cluster/lab/shop/o*"), ["order"]),
        (("--address", "10.0.0.0"), ["order", "rating", "vm"]),
        (("--address", "10.0.0.9"), []),
        (("-n", "shop"), ["order", "rating"]),
        (("-n", "other"), []),
    ],
)
def test_instances_are_filtered(run: Any, words: tuple[str, ...], expected: list[str]) -> None:
    """By application, status, keeper, owner, address and namespace; 1 where nothing fits."""
    code, shown, _ = run(ILL, "instances", *words, "-o", "json")
    assert [one["application"].lower() for one in json.loads(shown)["instances"]] == expected
    assert code == (0 if expected else 1)
    _, shown, _ = run(ILL, "instances", *words)
    assert shown.splitlines()[-1] == f"{len(expected)} of 3 instances"


def test_instances_without_eureka(run: Any) -> None:
    """There is nothing to list."""
    code, shown, said = run(BLIND, "instances")
    assert (code, shown) == (2, "")
    assert NO_EUREKA in said


def test_watch_prints_what_is_new(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A look that shows the same as the one before prints nothing."""
    monkeypatch.setattr(world_options, "WorldsReader", reader := FakeReader(WELL, WELL, ILL))
    waits: list[float] = []
    monkeypatch.setattr("eurekube_provider.cli.watch_command.time.sleep", waits.append)
    assert main(["watch", "--count", "3", "-o", "json"]) == 0
    found = [json.loads(line)["headline"] for line in capsys.readouterr().out.splitlines()]
    assert found == ["1 synced", "1 not synced, 1 synced, 1 not compared"]
    assert (waits, reader.read_times) == ([15.0, 15.0], 3)
    code, _, said = run(SILENT, "watch", "--count", "1")
    assert code == 2
    assert "no answer" in said
    code, _, said = run(WELL, "watch", "--interval", "1")
    assert code == 2
    assert "--interval" in said


def test_ctrl_c_ends_a_watch_well(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is how a watch ends."""

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eurekube_provider.cli.watch_command.time.sleep", interrupted)
    assert run(WELL, "watch")[0] == 0
