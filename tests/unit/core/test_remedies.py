"""Each condition or reason of a fault has a remedy."""

from __future__ import annotations

from eurekube_provider.core.condition_types import (
    PROGRESS_CONDITION_TYPES,
    MirrorReason,
    Reason,
    RefreshCondition,
    RefreshReason,
    SyncerCondition,
)
from eurekube_provider.core.mirror_conditions import MIRROR_REMEDIES, MirrorCondition
from eurekube_provider.core.remedies import REFRESH_REMEDIES, SYNCER_REMEDIES


def test_nothing_wrong_is_without_a_remedy() -> None:
    """Each fault of a syncer has a remedy, and no remedy names an unknown reason."""
    names = {*map(str, SyncerCondition), *map(str, Reason)}
    assert set(map(str, SYNCER_REMEDIES)) == names - {
        "Ready",
        "Synced",
        "InstancesUp",
        *PROGRESS_CONDITION_TYPES,
    }


def test_nobody_looks_for_the_rights_of_the_operator_with_rights_of_their_own() -> None:
    """``operator --check`` from a terminal finds an administrator's rights, all of which are there."""
    texts = [*SYNCER_REMEDIES.values(), *MIRROR_REMEDIES.values(), *REFRESH_REMEDIES.values()]
    of_rights = [one for one in texts if "each right" in one]
    assert of_rights
    assert all("the operator's log" in one and "--check" not in one for one in of_rights)


def test_nothing_wrong_with_a_mirror_is_without_a_remedy() -> None:
    """The reasons that a mirror shares with syncers have remedies, too."""
    names = {*map(str, MirrorCondition), *map(str, MirrorReason), "UnknownEureka", "KubernetesError"}
    fine = {"Ready", "Synced", "InSync", "EndpointsReady", *PROGRESS_CONDITION_TYPES}
    assert set(map(str, MIRROR_REMEDIES)) == names - fine


def test_each_obstacle_of_a_stack_refresh_has_a_remedy() -> None:
    """States that pass by themselves and failed runs, whose own message says more, have none."""
    names = {*map(str, RefreshCondition), *map(str, RefreshReason)}
    passing = {"Ready", "Synced", "Served", "Pending", "Running", "Succeeded", *PROGRESS_CONDITION_TYPES}
    assert set(map(str, REFRESH_REMEDIES)) == names - passing
