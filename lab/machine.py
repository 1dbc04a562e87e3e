"""A machine outside of the cluster: a server at an address of its own, which registers itself in Eureka.

Like a Spring application, it leaves Eureka before it ends. It runs only inside a network of the lab's own
(:mod:`lab.netns`).
"""

import itertools
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from eurekube_provider.core.model import EurekaLease, Instance, Port
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from lab.pod import PodLife
from lab.processes import Process
from lab.sandbox import Sandbox

PORT = 8080
_ADDRESS_TEMPLATE = "10.20.{}.{}"  # of lab.netns.MACHINE_NETWORK
_WEB_SERVER_SCRIPT = Path(__file__).parent / "web.py"
_CONNECT_TIMEOUT_SECONDS = 1.0
_LEASE_DURATION_SECONDS = 900
"""Seconds of a machine's Eureka lease: longer than any machine lives, so that none has to renew."""

_machine_numbers = itertools.count(1)


class Machine:
    """A server that runs from :meth:`start` to :meth:`stop`; its address stays until :meth:`close`.

    :ivar life: its events and their times; its deletion begins when it leaves Eureka.
    """

    def __init__(self, application: str, eureka: Peers, log_directory: Path) -> None:
        number = next(_machine_numbers)
        address = _ADDRESS_TEMPLATE.format(*divmod(number, 250))
        self.life = PodLife("", f"{application}-{number}", _labels(application), "", address)
        self.instance = Instance(
            application,
            self.life.name,
            address,
            address,
            Port(PORT),
            lease=EurekaLease(duration_seconds=_LEASE_DURATION_SECONDS),
        )
        self._writer = Writer(eureka)
        self._log = log_directory / f"{self.life.name}.log"
        self._sandbox = Sandbox(address)
        self._process: Process | None = None

    def start(self) -> None:
        """Start the server and wait until it answers; it is not registered yet."""
        self._sandbox.__enter__()
        environment = {"PATH": os.environ.get("PATH", ""), "PORT": str(PORT), "SAYS": self.life.address}
        self._process = Process(
            self.life.name,
            self._sandbox.wrap_command([sys.executable, "-I", "-S", str(_WEB_SERVER_SCRIPT)]),
            log=self._log,
            is_ready=self._answers,
            environment=environment,
        )
        self._process.start()

    def register(self) -> None:
        """Register the machine in Eureka."""
        self._writer.register(self.instance)
        self.life.ready_at = time.time()

    def deregister(self) -> None:
        """Deregister the machine from Eureka; it goes on serving."""
        self.life.deleted_at = time.time()
        self._writer.remove(self.instance)

    def stop(self) -> None:
        """End the server and wait for its end; its address then refuses connections."""
        self.life.reported_at = time.time()
        if self._process is not None:
            self._process.stop()

    def close(self) -> None:
        """Kill the server, if it still runs, and remove its address."""
        if self._process is not None:
            self._process.kill()
            self._process = None
            self._sandbox.__exit__(None, None, None)

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.life.address, PORT), _CONNECT_TIMEOUT_SECONDS).close()
        except OSError:
            return False
        return True


def _labels(application: str) -> Mapping[str, str]:
    return {"app": application}
