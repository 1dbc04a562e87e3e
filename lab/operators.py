"""The operator as a process of the lab, with nothing of this process's own Eureka or cluster."""

import os
import sys
from pathlib import Path

from lab.processes import Process


def operator_process(name: str, log: Path, **environment: str) -> Process:
    """An operator that is not started yet, and is ready once it works or stands by.

    `environment` is the form of its input, as variables; the web server is off unless that says otherwise.
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
