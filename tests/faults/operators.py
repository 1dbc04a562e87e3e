"""Operators as real processes, each with a proxy to the Kubernetes API and a wall clock of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.ports import HOST
from lab.processes import Process
from lab.tcp_proxy import TcpProxy

ROOT = Path(__file__).parents[2]
LEASE_NAMESPACE, LEASE_NAME = "default", "eurekube-leader"
LEASE_SECONDS, RETRY_SECONDS = 6, 1
READY_SECONDS = 240.0
"""Longest time until an operator is ready, in seconds: it may have to wait for an API server and a Eureka
on a busy machine.
"""

_READY = "operator is ready"


class Operator(Process):
    """One replica as a process outside of the cluster: ``python -m eurekube_provider.operator`` of this
    working copy.

    :param kubeconfig: of the API server on ``api_port``; the replica gets one through ``tcp_proxy``.
    :param options: environment variables of the operator's configuration.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        kubeconfig: Path,
        api_port: int,
        eureka_urls: list[str],
        options: Mapping[str, str],
    ) -> None:
        self.tcp_proxy = TcpProxy(api_port)
        self.clock = directory / f"{name}.clock"
        self.clock.write_text("0")
        own = directory / f"{name}.kubeconfig"
        config = yaml.safe_load(kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://{HOST}:{self.tcp_proxy.port}"
        own.touch(mode=0o600)
        own.write_text(yaml.safe_dump(config))
        kept = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE")
        self._ready_after = 0
        super().__init__(
            name,
            [sys.executable, "-m", "eurekube_provider.operator"],
            log=directory / "logs" / f"{name}.log",
            is_ready=self.is_at_work,
            ready_seconds=READY_SECONDS,
            directory=ROOT,
            environment={
                **{key: value for key, value in os.environ.items() if key in kept},
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "clock"), str(ROOT)]),
                "STEPPED_CLOCK": str(self.clock),
                "KUBECONFIG": str(own),
                "EUREKA_URL": ",".join(eureka_urls),
                "POD_NAME": name,
                "POD_NAMESPACE": LEASE_NAMESPACE,
                "LEASE_NAME": LEASE_NAME,
                "LEASE_DURATION_SECONDS": str(LEASE_SECONDS),
                "RENEW_DEADLINE_SECONDS": "4",
                "RETRY_PERIOD_SECONDS": str(RETRY_SECONDS),
                "LOG_FORMAT": "text",
                "RESYNC_SECONDS": "5",
                "WEB_ADDRESS": "",
                **options,
            },
        )
        self.tcp_proxy.start()

    def launch(self) -> None:
        if self.pid is None and self.log.exists():
            self._ready_after = self.log.stat().st_size
        super().launch()

    def may_take_over(self, may: bool) -> None:
        """Set whether the next process may take over the cluster name of a cluster that is gone."""
        assert self._environment is not None
        self._environment["TAKE_OVER_CLUSTER"] = str(may).lower()

    def step_clock(self, seconds: float) -> None:
        """Set the operator's wall clock so many seconds ahead of the machine's."""
        self.clock.write_text(str(seconds))

    def text(self) -> str:
        """Return everything that the operator has logged, in all its processes."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def is_at_work(self) -> bool:
        """Return whether the current process has logged that it is ready."""
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._ready_after)
            return _READY.encode() in log.read()
