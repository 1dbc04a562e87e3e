"""The proof of the readiness gate: rollouts with `minReadySeconds: 0` while real Spring clients call.

`python -m lab.gate_proof FORM FILE` runs it inside a network of the lab's own (:mod:`lab.netns`) and writes
its findings; :func:`prove_gate` starts that. One application of ten pods is rolled again and again, with a
different disturbance each time, and every call of two unmodified clients is counted.
"""

from typing import Any, Literal

from lab.eureka import find_java
from lab.eureka_package import provide_eureka
from lab.netns import found_inside
from lab.programs import SERVERS, provide
from lab.spring import provide_spring_client

GateFormName = Literal["defaults", "quick", "short"]


def prove_gate(form: GateFormName) -> dict[str, Any]:
    """Run the proof in a process of its own; see :mod:`lab.gate_proof.__main__` for the returned report.

    Its progress goes to standard error.

    :param form: ``defaults``: one rollout with the caches of the field; ``quick``: with those that the
        doctor advises; ``short``: all rollouts, with caches tuned down.
    :raises LabError: it broke down; SpringClientMissing where Java or Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_spring_client()
    provide_eureka(find_java(), "2025.0")
    provide(SERVERS)
    return found_inside("lab.gate_proof", form)
