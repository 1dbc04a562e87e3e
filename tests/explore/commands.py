"""``eurekube drain`` and ``undrain``, the real commands, with a fault or an act at each request."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable

from eurekube_provider.cli import drain_command, undrain_command
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.instance_registry import UNKNOWN
from tests.explore.engine import Engine
from tests.explore.programs import SECOND_URL, URL, Edit, at_two_servers, instance
from tests.explore.world import Faults, Killed, World, owned

PLACE = ("BILLING", "vm-1")
_EDIT = Edit("drained", {"i": instance(instance_id="vm-1")}, {"i": instance(instance_id="vm-1")})

Command = Callable[[argparse.Namespace], int]


class Drained:
    """An instance that a person drains, and puts back.

    :param is_back: whether putting back is what is disturbed, or else the drain.
    """

    def __init__(self, faults: Faults, servers: int = 1, *, is_back: bool = False) -> None:
        self._urls = [URL, SECOND_URL][:servers]
        self._faults, self._is_back = faults, is_back
        self.cluster = EurekaCluster(self._urls)
        self.world = World(self.cluster)
        self.violations: list[str] = []
        self.requests = 0

    def run(self) -> list[str]:
        """Run it; what did not hold."""
        edit = _EDIT if len(self._urls) == 1 else at_two_servers(_EDIT)
        with owned(self.world):
            assert Engine(self.world).up(edit.first).ended_well
            self.cluster.clock.advance(40_000)
            if self._is_back:
                self._command(drain_command)
            self.world.trace.clear()
            self.world.faults = self._faults
            code = self._command(undrain_command if self._is_back else drain_command)
            self.requests = len(self.world.trace)
            self.world.faults = {}
            self.cluster.clock.advance(2_000)
            self._must_hold("UP" if self._is_back else "OUT_OF_SERVICE", code)
            again = self._command(undrain_command)
            self.cluster.clock.advance(2_000)
            if again != 0:
                self.violations.append(f"what nothing disturbs ends with {again}")
            self._must_hold("UP", again)
        return self.violations

    def _must_hold(self, status: str, code: int | None) -> None:
        """A command that says that all is well has done it at every server."""
        for url, server in self.cluster.servers.items():
            info = server.registry.get(*PLACE)
            if info is None:
                self.violations.append(f"it is gone at {url}")
            elif code == 0 and info.status != status:
                self.violations.append(f"it is {info.status} and not {status} at {url}, and nothing was said")
            elif code == 0 and status == "UP" and info.overridden != UNKNOWN:
                self.violations.append(f"{info.overridden} is left over it at {url}")

    def _command(self, command: object) -> int | None:
        """The exit code; None for one that was killed."""
        self.world.new_process()
        parser = argparse.ArgumentParser()
        command.add_to(parser)  # type: ignore[attr-defined]
        options = parser.parse_args(["vm-1", "--eureka-url", ",".join(self._urls)])
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                return int(command.run(options) or 0)  # type: ignore[attr-defined]
        except Killed:
            return None
        except EurekubeError:
            return 1
