"""The proof of the readiness gate: rollouts with `minReadySeconds: 0` while real Spring clients call.

`python -m lab.gate_proof VARIANT FILE` runs it inside a network of the lab's own (:mod:`lab.netns`) and
writes its findings; :func:`run_gate_proof` starts that. One application of ten pods is rolled again and
again, with a different disturbance each time, and every call of two unmodified clients is counted.
"""

import math
from typing import Any, Literal

from lab.eureka import require_java
from lab.eureka_package import provide_eureka
from lab.netns import run_module_in_network
from lab.programs import SERVER_PROGRAM_NAMES, provide_programs
from lab.spring import provide_spring_client, provide_spring_gateway

GateProofVariant = Literal["defaults", "quick", "short"]

REPLICAS, SURGE = 10, 5
POD_START_SECONDS = 10.0
"""Seconds from a rollout's step until the new pod's containers are ready, with all pods on two
processors.
"""


def run_gate_proof(variant: GateProofVariant) -> dict[str, Any]:
    """Run the proof in a process of its own; see :mod:`lab.gate_proof.__main__` for the returned report.

    Its progress goes to standard error.

    :param variant: ``defaults``: all rollouts with the caches of the field, an application that is scaled to
        zero and back, and rollouts in which calls may fail: with ``whenEurekaIsAway: Open``, and without the
        gate; ``quick``: one rollout with and one without the gate, with the caches that the doctor advises;
        ``short``: the rollouts in which no call may fail, and the scaled application, with caches tuned down.
    :raises LabError: the proof failed to run; SpringClientMissing where Java or Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_spring_client()
    provide_spring_gateway()
    provide_eureka(require_java(), "2025.0")
    provide_programs(SERVER_PROGRAM_NAMES)
    return run_module_in_network("lab.gate_proof", variant)


def longest_rollout_seconds(report: dict[str, Any], act: dict[str, Any]) -> float:
    """Return the longest time that a rollout with the gate may take until its last gate opens.

    Each step takes the time that callers need and the start of its pods. After a fault, callers come back as
    late as servers were away.
    """
    known, excused = report["drain"]["known_after_seconds"], act["excused_seconds"]
    late = known + excused if excused else 0.0
    return float(1.2 * math.ceil(REPLICAS / SURGE) * (known + POD_START_SECONDS) + late + excused)


NO_INSTANCE_STATUS_CODES = {404, 503}
"""The gateway's answers for an application without instances: no route, or a route that leads nowhere."""


def gateway_faults(report: dict[str, Any]) -> list[str]:
    """Return the faults of a gateway whose application was scaled to zero and back; an empty list for none.

    A call must succeed or find no instance, no call may reach a pod that is gone, and calls must succeed
    again as soon as callers know the new pods. The first pod's gate must open at once: it has no callers to
    wait for.
    """
    emptied, known = report["emptied"], report["drain"]["known_after_seconds"]
    found = [at for at, status in emptied["answers"] if status == 200]
    missing = [at for at, status in emptied["answers"] if status in NO_INSTANCE_STATUS_CODES]
    back = min((at for at in found if at > emptied["empty"]), default=math.inf)
    others = {status for _, status in emptied["answers"]} - {200, *NO_INSTANCE_STATUS_CODES}
    checks = {
        f"answers {sorted(others)}": bool(others),
        "nobody was found before the pods went": any(at < emptied["began"] for at in missing),
        "a pod that is gone answered": any(emptied["empty"] < at < emptied["ready"] for at in found),
        "callers learned too late": back > emptied["ready"] + known,
        "nobody was found after a call had succeeded": any(at > back for at in missing),
        "the first gate did not open at once": emptied["opened"] - emptied["ready"] >= known,
    }
    return [fault for fault, is_so in checks.items() if is_so]
