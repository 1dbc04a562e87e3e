"""A stage: what is started in steps for a ``with`` statement, and ended where one of the steps fails."""

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

CRDS = Path(__file__).parents[1] / "crds"


class Staged(ABC):
    """Everything that stands ready before something happens: ``with`` one of these.

    :ivar lab: the servers, and ``cluster`` their Kubernetes: for :meth:`prepare` to set.
    :ivar call_files: the files into which callers write their calls.
    """

    lab: Lab
    cluster: Cluster

    def __init__(self) -> None:
        self.call_files: list[Path] = []
        self.ends = ExitStack()

    @abstractmethod
    def prepare(self) -> None:
        """Start everything; what must be ended is put on :attr:`ends` as soon as it is there."""

    def __enter__(self) -> Self:
        try:
            self.prepare()
        except BaseException:
            self.ends.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.ends.__exit__(error_type, error, traceback)

    def install_crds(self) -> None:
        """Have the cluster know our kinds."""
        for path in CRDS.glob("*.yaml"):
            self.cluster.install_crd(yaml.safe_load(path.read_text()))

    def caller(self, eureka: Lab, name: str, **settings: str) -> SpringClient:
        """A Spring client that registers nothing, launched; wait until it is ready."""
        client = SpringClient(
            eureka.eureka_urls,
            name=name,
            log_directory=self.lab.directory / "logs",
            settings={"eureka.client.register-with-eureka": "false", **settings},
        )
        self.ends.callback(client.close)
        client.launch()
        return client
