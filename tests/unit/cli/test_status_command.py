"""``eurekube status``: its output, and the exit codes of ``status`` and ``plan``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from eurekube_provider.core.registry_kinds import ZOOKEEPER
from eurekube_provider.doctor.inventory_reader import Inventory
from tests.unit.cli.inventories import BLIND, ILL, NO_EUREKA_MESSAGE, SILENT, WELL, inventory
from tests.unit.comparison.samples import instance, mirror, mirror_status, syncer, world


@pytest.mark.parametrize(
    ("found", "code"), [(WELL, 0), (ILL, 1), (BLIND, 2), (SILENT, 2)], ids=["well", "ill", "blind", "silent"]
)
@pytest.mark.parametrize("command", ["status", "plan"])
def test_the_exit_code_says_what_was_found(run: Any, found: Inventory, code: int, command: str) -> None:
    """The exit code is 0 in sync, 1 with differences, and 2 with a message if this cannot be determined."""
    ended, _, said = run(found, command)
    assert ended == code
    assert bool(said) == (code == 2)


def test_status_has_the_worst_first_and_one_line_for_each(run: Any) -> None:
    """The output has the totals, the problems, one row for each application, and the differences."""
    _, shown, _ = run(ILL, "status")
    lines = shown.splitlines()
    assert lines[0] == ("1 not synced, 1 synced, 1 not compared  ·  cluster lab, Eureka default (2 servers)")
    assert lines[1:3] == ["  Differs  shop/order", "    1 instance: status: DOWN -> UP"]
    assert lines[3].startswith("    to fix it: wait half a minute")
    assert [line.split()[0] for line in lines[5:9]] == ["APPLICATION", "ORDER", "RATING", "VM"]
    row = "ORDER  syncer shop/order  1/1  0/1  not synced  Differs"
    assert lines[6].split() == row.split()
    assert lines[-2:] == [
        "ORDER, syncer shop/order",
        "    order-0.shop.lab:order:8080  UP 10.0.0.0:8080 in Kubernetes, DOWN 10.0.0.0:8080 in Eureka",
    ]
    _, shown, _ = run(ILL, "status", "--differences")
    assert "RATING" not in shown
    code, shown, _ = run(ILL, "status", "rating")
    assert (code, "ORDER" in shown) == (0, False)


@pytest.mark.parametrize("words", [(), ("--differences",)])
def test_an_application_that_is_nowhere_is_not_in_sync(run: Any, words: tuple[str, ...]) -> None:
    """A pipeline that asks for one application learns that it is misspelt, or gone from both sides."""
    code, _, said = run(WELL, "status", "rating", "ratin", *words)
    assert (code, said) == (1, "eurekube status: nothing that was read has an application RATIN\n")


def test_the_column_has_the_name_of_the_registry(run: Any) -> None:
    """The column has the kind of registry as its title, or REGISTRY with several kinds."""
    zookeeper = replace(ILL.eurekas["default"], registry_kind=ZOOKEEPER)
    _, shown, _ = run(replace(ILL, eurekas={"default": zookeeper}), "status")
    lines = shown.splitlines()
    assert lines[0].endswith("cluster lab, ZooKeeper default (2 servers)")
    assert re.split("  +", lines[5])[2:5] == ["KUBERNETES", "ZOOKEEPER", "STATE"]
    assert "KUBERNETES: endpoints, ready/all; ZOOKEEPER: instances, UP/all" in lines
    assert lines[-1].endswith("in Kubernetes, DOWN 10.0.0.0:8080 in ZooKeeper")
    _, shown, _ = run(replace(ILL, eurekas={**ILL.eurekas, "zk": zookeeper}), "status")
    assert re.search("  KUBERNETES  REGISTRY  ", shown)


def test_status_as_json_has_all_of_it(run: Any) -> None:
    """The JSON has the applications in the order of the table, with all details."""
    code, shown, _ = run(ILL, "status", "-o", "json")
    found = json.loads(shown)
    assert code == 1
    assert [one["application"] for one in found["applications"]] == ["ORDER", "RATING", "VM"]
    assert found["troubles"][0]["subjects"] == ["shop/order"]
    assert found["eurekas"] == [{"name": "default", "servers": 2, "instances": 3, "error": ""}]


def test_status_has_the_mirrors_beside_the_syncers(run: Any) -> None:
    """Mirrors are shown with the syncers: problems first, in the same words; for one application only its
    own.
    """
    read = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = inventory(
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
        "NameTaken",
    ]
    assert shown.count("it is somebody's") == 1
    assert rows[1].startswith("REVIEW")
    assert " s ago " in rows[1]
    code, shown, _ = run(found, "status", "review", "-o", "json")
    assert (code, [one["name"] for one in json.loads(shown)["mirrors"]]) == (0, ["a"])
    _, shown, _ = run(found, "status", "--differences", "-o", "markdown")
    assert ("ORDER" in shown, "REVIEW" in shown) == (True, False)
    code, shown, _ = run(found, "status", "rating")
    assert (code, "MIRROR" in shown) == (0, False)


def test_one_world_alone_is_shown_and_the_other_one_missed(run: Any) -> None:
    """When Eureka or Kubernetes cannot be read, the other one is shown, and the gap is reported on
    standard error.
    """
    _, shown, said = run(BLIND, "status")
    assert "RATING" in shown
    assert said == f"eurekube status: {NO_EUREKA_MESSAGE}\n"
    code, shown, said = run(SILENT, "status")
    assert (code, shown) == (2, "")
    assert "could not read Eureka default: no answer" in said
