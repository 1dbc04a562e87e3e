"""`python -m lab.mirror_proof FILE`, inside a network of the lab's own: runs the proof and writes its
findings.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lab.machine import Machine
from lab.mirror_proof.findings import Phase, Recorded, document
from lab.mirror_proof.stage import DIRECT, DRAIN_SECONDS, LEGACY, REVIEW, Stage
from lab.progress import say
from lab.proof.calls import tally
from lab.proof.witness import Witness
from lab.workloads import wait_for

_PATIENCE_SECONDS = 90.0
_FAILED_CALLS = 5


class Play:
    """The sequence of disturbances on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.phases: list[Phase] = []

    def run(self) -> None:
        """Replace the machines, replace them again while no operator runs, and start an operator again."""
        self._phase("rolled", self._roll)
        self._phase("operator gone", self._roll_unseen)
        self._stage.start_operator()
        wait_for(self._stage.is_calm, "all to be answered again", _PATIENCE_SECONDS)
        self._phase("operator back", lambda: wait_for(self._stage.is_calm, "calm", _PATIENCE_SECONDS))

    def _phase(self, name: str, what: Callable[[], object]) -> None:
        began = time.time()
        what()
        self.phases.append(Phase(name, began, time.time()))
        say(f"{name}: {self.phases[-1].seconds:.1f} s")

    def _roll(self) -> None:
        legacy = threading.Thread(target=self._roll_without_drain, name="legacy", daemon=True)
        legacy.start()
        for old, new in zip(self._running(REVIEW), self._stage.machines_for(REVIEW), strict=True):
            self._stage.register(new)
            self._leave([old])
        legacy.join()
        wait_for(self._stage.is_calm, "all to be answered", _PATIENCE_SECONDS)

    def _roll_without_drain(self) -> None:
        """Replace the undrained machines: each ends right after it was deregistered, once its successor is
        called.
        """
        for old, new in zip(self._running(LEGACY), self._stage.machines_for(LEGACY), strict=True):
            self._stage.register(new)
            wait_for(lambda new=new: self._is_called(new), "the next machine", _PATIENCE_SECONDS)  # type: ignore[misc]
            old.deregister()
            old.stop()

    def _roll_unseen(self) -> None:
        """Replace all machines at once while no operator updates the slices, until calls fail."""
        leaving, following = self._running(REVIEW), self._stage.machines_for(REVIEW)
        self._stage.operator.stop()
        began = time.time()
        for machine in following:
            self._stage.register(machine)
        self._leave(leaving)
        ways = [(name, way) for name in (REVIEW, DIRECT) for way in ("new", "open")]

        def have_failed() -> bool:
            calls = tally(self._stage.call_files, began)
            failed = [(name, one.client) for name in (REVIEW, DIRECT) for one in calls[name].failures]
            return all(failed.count(way) >= _FAILED_CALLS for way in ways)

        wait_for(have_failed, "calls to fail without an operator", _PATIENCE_SECONDS)

    def _leave(self, machines: list[Machine]) -> None:
        """Deregister machines, let them serve on through the drain, then stop them."""
        for machine in machines:
            machine.deregister()
        time.sleep(DRAIN_SECONDS)
        for machine in machines:
            machine.stop()

    def _running(self, application: str) -> list[Machine]:
        wanted = application.upper()
        return [
            one
            for one in self._stage.machines
            if one.instance.application == wanted and one.life.deleted_at is None
        ]

    def _is_called(self, machine: Machine) -> bool:
        changes = self._stage.proxy.changes
        return any(one.address == machine.life.address and one.is_ready for one in list(changes))


def main() -> None:
    """Run the proof and write its report."""
    parser = argparse.ArgumentParser(prog="python -m lab.mirror_proof", description=__doc__)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    began = time.time()
    with Stage() as stage:
        play = Play(stage)
        with Witness(stage.lab.eureka_urls, stage.lives) as witness:
            play.run()
            stage.stop_callers()
        recorded = Recorded(
            play.phases, stage.call_files, stage.lives, list(stage.proxy.changes), witness.seen
        )
        report = document(recorded)
    report["seconds"] = round(time.time() - began, 1)
    arguments.file.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
