"""Each condition that tells of something wrong says what fixes it, but for those that repeat another one."""

from __future__ import annotations

from eurekube_provider.core.condition_types import (
    PROGRESS,
    ConditionType,
    MirrorReason,
    Reason,
    RefreshCondition,
    RefreshReason,
)
from eurekube_provider.core.mirror_conditions import MIRROR_REMEDIES, MirrorCondition
from eurekube_provider.core.remedies import REFRESH_REMEDIES, REMEDIES


def test_nothing_wrong_is_without_a_remedy() -> None:
    """And no remedy is for what there is not."""
    names = {*map(str, ConditionType), *map(str, Reason)}
    assert set(map(str, REMEDIES)) == names - {"Ready", "Synced", "InstancesUp", *PROGRESS}


def test_nothing_wrong_with_a_mirror_is_without_a_remedy() -> None:
    """Nor is one of the two reasons that a mirror shares with syncers."""
    names = {*map(str, MirrorCondition), *map(str, MirrorReason), "UnknownEureka", "KubernetesError"}
    fine = {"Ready", "Synced", "InSync", "EndpointsReady", *PROGRESS}
    assert set(map(str, MIRROR_REMEDIES)) == names - fine


def test_each_obstacle_of_a_stack_refresh_has_a_remedy() -> None:
    """A state that passes by itself has none, nor has a run that failed: its own message says more."""
    names = {*map(str, RefreshCondition), *map(str, RefreshReason)}
    passing = {"Ready", "Synced", "Served", "Pending", "Running", "Succeeded", *PROGRESS}
    assert set(map(str, REFRESH_REMEDIES)) == names - passing
