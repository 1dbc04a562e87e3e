"""The real commands ``eurekube drain`` and ``undrain``, with a fault or an act of others at each request."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable
from typing import Any

from eurekube_provider.cli import drain_command, undrain_command
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.instance_registry import UNKNOWN
from tests.explore.engine import Engine
from tests.explore.programs import SECOND_URL, URL, Edit, at_two_servers, instance
from tests.explore.world import Faults, Killed, World, owned
from tests.model.commands import DATA_CENTER

PLACE = ("BILLING", "vm-1")
_EDIT = Edit("drained", {"i": instance(instance_id="vm-1")}, {"i": instance(instance_id="vm-1")})

Command = Callable[[argparse.Namespace], int]


class Drained:
    """An instance that a person drains and puts back into service, with faults.

    :param is_back: True if the undrain is disturbed, False if the drain is.
    :param registered_out: nobody drains it: it registered itself as OUT_OF_SERVICE, and is put into service.
    :param interrupted_at: the number of the request after which somebody presses Ctrl-C.
    :ivar died: called as the command is killed or interrupted.
    """

    def __init__(
        self,
        faults: Faults,
        servers: int = 1,
        *,
        is_back: bool = False,
        registered_out: bool = False,
        interrupted_at: int | None = None,
    ) -> None:
        self._urls = [URL, SECOND_URL][:servers]
        self._faults, self._is_back = faults, is_back or registered_out
        self._registered_out, self._interrupted_at = registered_out, interrupted_at
        self.died: Callable[[], None] = lambda: None
        self.places: list[str] = []
        self.cluster = EurekaCluster(self._urls)
        self.world = World(self.cluster)
        self.violations: list[str] = []
        self.requests = 0

    def run(self) -> list[str]:
        """Run the commands; return the violations."""
        edit = _EDIT if len(self._urls) == 1 else at_two_servers(_EDIT)
        with owned(self.world):
            if self._registered_out:
                self._register_out()
            else:
                assert Engine(self.world).up(edit.first).ended_well
            self.cluster.clock.advance(40_000)
            if self._is_back and not self._registered_out:
                self._command(drain_command)
            self.world.trace.clear()
            self.world.faults, self.world.watch = self._faults, self._interrupt
            code = self._command(undrain_command if self._is_back else drain_command)
            self.requests, self.places = len(self.world.trace), list(self.world.trace)
            self.world.faults, self.world.watch = {}, lambda _: None
            self.cluster.clock.advance(2_000)
            self._must_hold("UP" if self._is_back else "OUT_OF_SERVICE", code)
            again = self._command(undrain_command)
            self.cluster.clock.advance(2_000)
            if again != 0:
                self.violations.append(f"what nothing disturbs ends with {again}")
            self._must_hold("UP", again)
        return self.violations

    tried = run

    def _register_out(self) -> None:
        document: dict[str, Any] = {
            "instanceId": PLACE[1],
            "app": PLACE[0],
            "hostName": "vm",
            "ipAddr": "192.0.2.1",
        }
        document |= {"status": "OUT_OF_SERVICE", "vipAddress": "billing", "dataCenterInfo": DATA_CENTER}
        request = ServerRequest("POST", ("apps", PLACE[0]), body={"instance": document})
        assert self.cluster.request(URL, request).status_code == 204

    def _interrupt(self, _: str) -> None:
        if len(self.world.trace) - 1 == self._interrupted_at:
            raise KeyboardInterrupt

    def _must_hold(self, status: str, code: int | None) -> None:
        """Check that a command which exits with 0 has set the status at every server."""
        for url, server in self.cluster.servers.items():
            info = server.registry.get(*PLACE)
            if info is None:
                self.violations.append(f"it is gone at {url}")
            elif code == 0 and info.status != status:
                self.violations.append(f"it is {info.status} and not {status} at {url}, and nothing was said")
            elif code == 0 and status == "UP" and info.overridden != UNKNOWN:
                self.violations.append(f"{info.overridden} is left over it at {url}")

    def _command(self, command: object) -> int | None:
        """Run a command; return its exit code, or None if it was killed."""
        self.world.new_process()
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)  # type: ignore[attr-defined]
        options = parser.parse_args(["vm-1", "--eureka-url", ",".join(self._urls)])
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                return int(command.run(options) or 0)  # type: ignore[attr-defined]
        except Killed:
            self.died()
            return None
        except KeyboardInterrupt:
            self.died()
            return 1
        except EurekubeError:
            return 1
