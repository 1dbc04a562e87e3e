"""``eurekube plan``: the changes that the operator would make."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.problem import Problem
from tests.unit.cli.inventories import ILL, WELL, inventory
from tests.unit.comparison.samples import instance, syncer, world


def test_plan_says_what_the_operator_would_do(run: Any) -> None:
    """Each planned change is one line, as in the operator's dry run."""
    code, shown, _ = run(ILL, "plan")
    assert code == 1
    assert "  ~ ORDER order-0.shop.lab:order:8080 status: DOWN -> UP" in shown.splitlines()
    assert shown.endswith("nothing to do for 1 syncer\n")
    code, shown, said = run(ILL, "plan", "shop/rating", "shop/none", "-o", "json")
    assert code == 2
    assert "there is no syncer shop/none" in said
    _, _, said = run(WELL, "plan", "rating")
    assert "there is no syncer rating: a syncer is named by NAMESPACE/NAME" in said
    assert [one["syncer"] for one in json.loads(shown)["syncers"]] == ["shop/rating"]


def test_a_syncer_that_cannot_be_planned_is_named(run: Any) -> None:
    """A syncer whose Eureka or namespace was not read is reported as not planned, with exit code 2."""
    seen = inventory(world(syncer("rating"), syncer("far", eureka="far")), {"default": [instance("rating")]})
    code, shown, said = run(seen, "plan")
    assert code == 2
    assert "syncer shop/far could not be planned: its Eureka 'far' was not read" in said
    assert shown.endswith("nothing to do for 1 syncer\n")
    assert WELL.kubernetes is not None
    unread = replace(WELL, kubernetes=replace(WELL.kubernetes, desired={}))
    code, shown, said = run(unread, "plan", "-o", "json")
    assert code == 2
    assert json.loads(shown)["notPlanned"] == {
        "shop/rating": "the Services and EndpointSlices of its namespace shop were not read"
    }


def test_a_syncer_without_a_service_is_not_called_well(run: Any) -> None:
    """A syncer without a Service has no planned change; the plan shows its problem and ends with 1."""
    assert WELL.kubernetes is not None
    problem = Problem(Reason.NO_MATCHING_SERVICE, "no Service has the label app=rating")
    seen = world(syncer("rating"))
    lost = replace(seen, desired={("shop", "rating"): DesiredInstances(problems=(problem,))})
    code, shown, _ = run(inventory(lost, {"default": []}), "plan")
    assert code == 1
    assert "  NoMatchingService: no Service has the label app=rating" in shown.splitlines()
