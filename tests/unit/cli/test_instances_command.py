"""``eurekube instances``: its list and its filters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.inventories import BLIND, ILL, NO_EUREKA_MESSAGE


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
    """Instances are filtered by application, status, keeper, owner, address and namespace; an empty result
    ends with 1.
    """
    code, shown, _ = run(ILL, "instances", *words, "-o", "json")
    assert [one["application"].lower() for one in json.loads(shown)["instances"]] == expected
    assert code == (0 if expected else 1)
    _, shown, _ = run(ILL, "instances", *words)
    assert shown.splitlines()[-1] == f"{len(expected)} of 3 instances"


def test_instances_without_eureka(run: Any) -> None:
    """Without Eureka the command prints no list and ends with 2."""
    code, shown, said = run(BLIND, "instances")
    assert (code, shown) == (2, "")
    assert NO_EUREKA_MESSAGE in said
