"""Roll-outs of real pods, registered in a real ensemble, while a Spring Cloud Zookeeper client calls."""

from __future__ import annotations

from typing import Any

import pytest

from lab.errors import LabError
from lab.eureka import require_java
from lab.netns import network_unavailable_reason
from lab.zookeeper import provide_zookeeper
from lab.zookeeper_proof import run_zookeeper_proof

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(1500)]

ACTS = ["rolled", "operator killed", "session lost", "member killed", "member frozen", "member split"]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Return the report of one run."""
    if reason := network_unavailable_reason():
        pytest.skip(reason)
    try:
        require_java()
        provide_zookeeper()
    except LabError as error:
        pytest.skip(str(error))
    return run_zookeeper_proof()


@pytest.mark.parametrize("name", ACTS)
def test_no_call_fails(report: dict[str, Any], name: str) -> None:
    """No call of a client with default settings fails, with or without a fault, and it calls each new pod."""
    (act,) = (one for one in report["acts"] if one["name"] == name)
    assert act["failed"] == []
    assert act["calls"] > 200
    assert act["there"] == act["ready"]
