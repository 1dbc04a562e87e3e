"""The proof of a mirror: clients that know only a URL call servers that are registered only in Eureka.

A plain HTTP client in the cluster calls machines by `http://review.shop.svc.cluster.local/`, which a real
CoreDNS resolves, while a real Spring client outside calls a pod and the machines. The machines are replaced
while both call, and every call is counted. `python -m lab.mirror_proof FILE` runs it inside a network of the
lab's own (:mod:`lab.netns`) and writes its findings; :func:`run_mirror_proof` starts that.
"""

from typing import Any

from lab.eureka import require_java
from lab.eureka_package import provide_eureka
from lab.netns import run_module_in_network
from lab.programs import COREDNS, SERVER_PROGRAM_NAMES, provide_programs
from lab.spring import provide_spring_client


def run_mirror_proof() -> dict[str, Any]:
    """Run the proof in a process of its own; see `lab/mirror_proof/findings.py` for the returned report.

    Its progress goes to standard error. Raises LabError when the proof failed to run, SpringClientMissing
    when Java or Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_spring_client()
    provide_eureka(require_java(), "2025.0")
    provide_programs((*SERVER_PROGRAM_NAMES, COREDNS))
    return run_module_in_network("lab.mirror_proof")
