"""The proof of ZooKeeper as a registry: rollouts of real pods while a Spring Cloud Zookeeper client calls.

`python -m lab.zookeeper_proof FILE` runs it inside a network of the lab's own (:mod:`lab.netns`) and writes
its findings; :func:`run_zookeeper_proof` starts that. The client has its default settings. Real operators
serve one application, which is rolled again and again, with a different disturbance each time, and every call
is counted.
"""

from typing import Any

from lab.netns import run_module_in_network
from lab.programs import SERVER_PROGRAM_NAMES, provide_programs
from lab.zookeeper import provide_zookeeper


def run_zookeeper_proof() -> dict[str, Any]:
    """Run the proof in a process of its own; see :mod:`lab.zookeeper_proof.__main__` for the returned report.

    Its progress goes to standard error.

    :raises LabError: the proof failed to run, or Java or Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_zookeeper()
    provide_programs(SERVER_PROGRAM_NAMES)
    return run_module_in_network("lab.zookeeper_proof")
