"""Each condition that tells of something wrong says what mends it."""

from __future__ import annotations

from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.remedies import REMEDIES


def test_nothing_wrong_is_without_a_remedy() -> None:
    """And no remedy is for what there is not."""
    names = {*map(str, ConditionType), *map(str, Reason)}
    assert set(map(str, REMEDIES)) == names - {"Ready", "Synced", "InstancesUp"}
