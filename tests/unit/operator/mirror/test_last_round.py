"""The findings that a mirror's round keeps for the next one, which comes to the same without them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from eurekube_provider.core.model import Instance, Status
from tests.unit.operator.mirror.stage import Source, Stage, instance

APPLICATIONS = ("A", "A.B", "A-B", "B", "C")
"""Two of them want the same Service."""

SPECS: tuple[dict[str, Any], ...] = (
    {"pattern": "*", "allow": ["A*", "B"]},
    {"pattern": "A*", "allow": ["*A*", "*B"]},
    {"pattern": "*", "allow": ["*"]},
    {"pattern": "*", "allow": ["A*", "B"], "serviceName": "old-{application}"},
    {"pattern": "*", "allow": ["A*", "B", "C"], "maxServices": 2},
    {"application": "B"},
)


class KeptSource(Source):
    """A Eureka that gives the same object for an application's instances until they change."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, tuple[Instance, ...]] = {}

    def instances_by_application(self) -> dict[str, Any]:
        """Return the listed instances by application."""
        now = {name: tuple(those) for name, those in super().instances_by_application().items()}
        self.kept = {
            name: self.kept[name] if self.kept.get(name) == those else those for name, those in now.items()
        }
        return dict(self.kept)


instances = st.lists(
    st.builds(
        lambda number, application, status, owner: instance(
            number + 10 * APPLICATIONS.index(application),
            application,
            status=status,
            metadata={"eurekube.owner": owner} if owner else {},
        ),
        st.integers(1, 3),
        st.sampled_from(APPLICATIONS),
        st.sampled_from([Status.UP, Status.DOWN]),
        st.sampled_from(["", "", "cluster/eks/shop/own"]),
    ),
    max_size=8,
    unique_by=lambda one: one.key,
)
steps = st.lists(
    st.one_of(instances, st.sampled_from(SPECS), st.sampled_from([*APPLICATIONS])), min_size=2, max_size=8
)


@settings(deadline=None)  # of others' work on the machine
@given(steps)
def test_a_round_that_follows_another_comes_to_the_same_as_a_first_one(steps: list[Any]) -> None:
    """A reconciler that keeps what follows from the same objects makes the writes of one that has forgotten
    all, whatever Eureka lists, whatever the spec says, and whatever Services somebody takes away.
    """
    stages = [Stage(**SPECS[0]), Stage(**SPECS[0])]
    for stage in stages:
        stage.sources["default"] = stage.source = KeptSource()
    for step in steps:
        for stage in stages:
            if isinstance(step, dict):
                stage.edited(**step)
            elif isinstance(step, str):
                _take_service_away(stage, step)
            else:
                stage.source.gone |= {one.key for one in stage.source.listed}
                stage.source.gone -= {one.key for one in step}
                stage.source.listed = step
        for _ in range(2):
            stages[1].reconciler.on_leadership_lost()
            kept, first = (stage.reconcile() for stage in stages)
            assert sorted(stages[0].api.writes) == sorted(stages[1].api.writes)  # changed ones come first
            assert kept == first


def _take_service_away(stage: Stage, application: str) -> None:
    """Delete the Service of an application, and have the watch report it."""
    name = application.lower().replace(".", "-")
    item = stage.api.objects.pop(f"/api/v1/namespaces/shop/services/{name}", None)
    if item is not None:
        stage.objects.remove_deleted(stage.objects.services, item)
