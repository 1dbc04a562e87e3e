"""The proof of the readiness gate: rollouts with `minReadySeconds: 0` while real Spring clients call.

`python -m lab.gate_proof FORM FILE` runs it inside a network of the lab's own (:mod:`lab.netns`) and writes
its findings; :func:`prove_gate` starts that. One application of ten pods is rolled again and again, with a
different disturbance each time, and every call of two unmodified clients is counted.
"""

import math
from typing import Any, Literal

from lab.eureka import find_java
from lab.eureka_package import provide_eureka
from lab.netns import found_inside
from lab.programs import SERVERS, provide
from lab.spring import provide_spring_client, provide_spring_gateway

GateFormName = Literal["defaults", "quick", "short"]

REPLICAS, SURGE = 10, 5
START_SECONDS = 10.0
"""Seconds from a rollout's step until the new pod's containers are ready, with all pods on two
processors.
"""


def prove_gate(form: GateFormName) -> dict[str, Any]:
    """Run the proof in a process of its own; see :mod:`lab.gate_proof.__main__` for the returned report.

    Its progress goes to standard error.

    :param form: ``defaults``: all rollouts with the caches of the field, and those in which calls may fail:
        with ``whenEurekaIsAway: Open``, and without the gate; ``quick``: one rollout with and one without the
        gate, with the caches that the doctor advises; ``short``: all rollouts in which no call may fail, with
        caches tuned down.
    :raises LabError: it broke down; SpringClientMissing where Java or Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_spring_client()
    provide_spring_gateway()
    provide_eureka(find_java(), "2025.0")
    provide(SERVERS)
    return found_inside("lab.gate_proof", form)


def allowed_seconds(report: dict[str, Any], act: dict[str, Any]) -> float:
    """Return the longest time that a rollout with the gate may take until its last gate opens.

    Each step takes the time that callers need and the start of its pods. After a fault, callers come back as
    late as servers were away.
    """
    known, excused = report["drain"]["known_after_seconds"], act["excused_seconds"]
    late = known + excused if excused else 0.0
    return float(1.2 * math.ceil(REPLICAS / SURGE) * (known + START_SECONDS) + late + excused)
