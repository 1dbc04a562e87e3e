"""The proof that a drain costs no call: real pods, real Spring Cloud clients, and every call counted.

`python -m lab.proof VARIANT FILE` runs it inside a network of the lab's own (:mod:`lab.netns`) and writes its
findings; :func:`run_proof` starts that. Each scenario and strategy has an application and callers of its own,
and all run at once.
"""

from typing import Any, Literal

from lab.eureka import require_java
from lab.eureka_package import provide_eureka
from lab.netns import run_module_in_network
from lab.programs import SERVER_PROGRAM_NAMES, provide_programs
from lab.spring import provide_spring_client

ProofVariant = Literal["full", "short"]


def run_proof(variant: ProofVariant) -> dict[str, Any]:
    """Run the proof in a process of its own; see `lab/proof/findings.py` for the returned report.

    Its progress goes to standard error. Raises LabError when the proof failed to run, SpringClientMissing
    when Java or Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_spring_client()
    provide_eureka(require_java(), "2025.0")
    provide_programs(SERVER_PROGRAM_NAMES)
    return run_module_in_network("lab.proof", variant)
