"""The proof that a drain costs no call: real pods, real Spring Cloud clients, and every call counted.

`python -m lab.proof FORM FILE` runs it inside a network of the lab's own (:mod:`lab.netns`) and writes what
was found; :func:`prove` starts that. One application and its callers for each scenario and strategy, all at
once.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from lab.errors import LabError
from lab.eureka import find_java, provide_eureka
from lab.netns import command_inside
from lab.processes import Process
from lab.programs import SERVERS, provide
from lab.spring import provide_spring_client

FormName = Literal["full", "short"]

_ROOT = Path(__file__).parents[2]
_LOOK_SECONDS = 0.5


def prove(form: FormName) -> dict[str, Any]:
    """Run the proof in a process of its own; see `lab/proof/findings.py` for what comes back.

    Its progress goes to standard error. Raises LabError when it broke down, SpringClientMissing when Java or
    Maven is missing.
    """
    # Nothing can be downloaded in there.
    provide_spring_client()
    provide_eureka(find_java(), "2025.0")
    provide(SERVERS)
    with tempfile.TemporaryDirectory(prefix="eurekube-proof-") as folder:
        file, log = Path(folder) / "findings.json", Path(folder) / "log"
        command = command_inside([sys.executable, "-m", "lab.proof", form, str(file)])
        process = Process("proof", command, log=log, directory=_ROOT)
        process.launch()
        try:
            with log.open() as progress:
                while process.pid is not None:
                    time.sleep(_LOOK_SECONDS)
                    sys.stderr.write(progress.read())
            if process.wait() or not file.is_file():
                raise LabError(f"the proof broke down\n{process.tail()}")
        finally:
            process.stop()
        found: dict[str, Any] = json.loads(file.read_text())
        return found
