"""`python -m lab.mirror_proof FILE`, inside a network of the lab's own: runs the proof and writes its
findings.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lab.machine import Machine
from lab.mirror_proof.findings import Phase, RunRecord, make_report
from lab.mirror_proof.stage import DRAIN_SECONDS, HEADLESS_REVIEW, LEGACY, REVIEW, Stage
from lab.progress import say
from lab.proof.calls import tally_calls
from lab.proof.witness import Witness
from lab.workloads import wait_for

_TIMEOUT_SECONDS = 90.0
_MIN_FAILED_CALLS = 5


class DisturbanceSequence:
    """The sequence of disturbances on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.phases: list[Phase] = []

    def run(self) -> None:
        """Replace the machines, replace them again while no operator runs, and start an operator again."""
        self._run_phase("rolled", self._replace_machines)
        self._run_phase("operator gone", self._replace_machines_without_operator)
        self._stage.start_operator()
        wait_for(self._stage.are_all_calls_answered, "all to be answered again", _TIMEOUT_SECONDS)
        self._run_phase(
            "operator back",
            lambda: wait_for(self._stage.are_all_calls_answered, "all to be answered", _TIMEOUT_SECONDS),
        )

    def _run_phase(self, name: str, what: Callable[[], object]) -> None:
        began = time.time()
        what()
        self.phases.append(Phase(name, began, time.time()))
        say(f"{name}: {self.phases[-1].seconds:.1f} s")

    def _replace_machines(self) -> None:
        legacy = threading.Thread(target=self._replace_undrained_machines, name="legacy", daemon=True)
        legacy.start()
        for old, new in zip(self._running_machines(REVIEW), self._stage.start_machines(REVIEW), strict=True):
            self._stage.register(new)
            self._drain_and_stop([old])
        legacy.join()
        wait_for(self._stage.are_all_calls_answered, "all to be answered", _TIMEOUT_SECONDS)

    def _replace_undrained_machines(self) -> None:
        """Replace the undrained machines: each ends right after it was deregistered, once its successor is
        called.
        """
        for old, new in zip(self._running_machines(LEGACY), self._stage.start_machines(LEGACY), strict=True):
            self._stage.register(new)
            wait_for(partial(self._has_become_ready_endpoint, new), "the next machine", _TIMEOUT_SECONDS)
            old.deregister()
            old.stop()

    def _replace_machines_without_operator(self) -> None:
        """Replace all machines at once while no operator updates the slices, until calls fail."""
        leaving, following = self._running_machines(REVIEW), self._stage.start_machines(REVIEW)
        self._stage.operator.stop()
        began = time.time()
        for machine in following:
            self._stage.register(machine)
        self._drain_and_stop(leaving)
        ways = [(name, way) for name in (REVIEW, HEADLESS_REVIEW) for way in ("new", "open")]

        def have_failed() -> bool:
            calls = tally_calls(self._stage.call_files, began)
            failed = [
                (name, one.client) for name in (REVIEW, HEADLESS_REVIEW) for one in calls[name].failures
            ]
            return all(failed.count(way) >= _MIN_FAILED_CALLS for way in ways)

        wait_for(have_failed, "calls to fail without an operator", _TIMEOUT_SECONDS)

    def _drain_and_stop(self, machines: list[Machine]) -> None:
        """Deregister machines, let them serve on through the drain, then stop them."""
        for machine in machines:
            machine.deregister()
        time.sleep(DRAIN_SECONDS)
        for machine in machines:
            machine.stop()

    def _running_machines(self, application: str) -> list[Machine]:
        wanted = application.upper()
        return [
            one
            for one in self._stage.machines
            if one.instance.application == wanted and one.life.deleted_at is None
        ]

    def _has_become_ready_endpoint(self, machine: Machine) -> bool:
        changes = self._stage.proxy.changes
        return any(one.address == machine.life.address and one.is_ready for one in list(changes))


def main() -> None:
    """Run the proof and write its report."""
    parser = argparse.ArgumentParser(prog="python -m lab.mirror_proof", description=__doc__)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    began = time.time()
    with Stage() as stage:
        disturbances = DisturbanceSequence(stage)
        with Witness(stage.lab.eureka_urls, stage.lives) as witness:
            disturbances.run()
            stage.stop_callers()
        recorded = RunRecord(
            disturbances.phases,
            stage.call_files,
            stage.lives,
            list(stage.proxy.changes),
            witness.find_server_views,
        )
        report = make_report(recorded)
    report["seconds"] = round(time.time() - began, 1)
    arguments.file.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
