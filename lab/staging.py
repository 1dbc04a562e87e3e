"""A stage: servers and clients started in steps by a ``with`` statement, and all ended where a step fails."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from lab.lab import Lab
from lab.spring import SpringClient
from lab.workloads import Cluster

CRD_FOLDER = Path(__file__).parents[1] / "crds"


class ProofStage(ABC):
    """A stage that is prepared when its ``with`` block begins, and ended with it.

    :ivar lab: the servers, and ``cluster`` their Kubernetes: for :meth:`prepare` to set.
    :ivar call_files: the files into which callers write their calls.
    """

    lab: Lab
    cluster: Cluster

    def __init__(self) -> None:
        self.call_files: list[Path] = []
        self.cleanups = ExitStack()

    @abstractmethod
    def prepare(self) -> None:
        """Start all parts, and put the cleanup of each on :attr:`cleanups` as soon as the part is started."""

    def __enter__(self) -> Self:
        try:
            self.prepare()
        except BaseException:
            self.cleanups.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cleanups.__exit__(error_type, error, traceback)

    def install_crds(self) -> None:
        """Install Eurekube's CRDs in the cluster."""
        for path in CRD_FOLDER.glob("*.yaml"):
            self.cluster.install_crd(yaml.safe_load(path.read_text()))

    def launch_caller(self, eureka: Lab, name: str, **settings: str) -> SpringClient:
        """Launch a Spring client that registers nothing; the caller must wait until it is ready."""
        client = SpringClient(
            eureka.eureka_urls,
            name=name,
            log_directory=self.lab.directory / "logs",
            settings={"eureka.client.register-with-eureka": "false", **settings},
        )
        self.cleanups.callback(client.close)
        client.launch()
        return client
