"""``eurekube plan``: what the operator would do."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.cli.worlds import ILL


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
