"""The proof of ZooKeeper as a registry: rollouts of real pods while a Spring Cloud Zookeeper client calls.

`python -m lab.zookeeper_proof FILE` runs it inside a network of the lab's own (:mod:`lab.netns`) and writes
its findings; :func:`prove_zookeeper` starts that. The client has its default settings. Real operators serve
one application, which is rolled again and again, with a different disturbance each time, and every call is
counted.
"""

from typing import Any

from lab.netns import found_inside
from lab.programs import SERVERS, provide
from lab.zookeeper import provide_zookeeper


def prove_zookeeper() -> dict[str, Any]:
    """Run the proof in a process of its own; see :mod:`lab.zookeeper_proof.__main__` for the returned report.

    Its progress goes to standard error.

    :raises LabError: it broke down, or Java or Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_zookeeper()
    provide(SERVERS)
    return found_inside("lab.zookeeper_proof")
