"""The operator as a process of the lab, without this process's own Eureka and cluster settings."""

import os
import sys
from pathlib import Path

from lab.processes import Process


def make_operator_process(name: str, log: Path, **environment: str) -> Process:
    """Return an operator that is not started yet, and is ready once it works or stands by.

    `environment` has its settings, as variables; the web server is off unless they say otherwise.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if key != "KUBECONFIG" and not key.startswith("EUREKA_")
    }
    return Process(
        name,
        [sys.executable, "-m", "eurekube_provider.operator"],
        log=log,
        is_ready=lambda: "operator is ready" in log.read_text(),
        environment={**kept, "WEB_ADDRESS": "", **environment},
    )
