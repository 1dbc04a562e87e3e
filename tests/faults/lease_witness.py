"""Reads the servers past their caches, and records Eureka leases that lapsed without an excuse.

Tests say which instances must be there, where the storm's witness reads that from clusters: so each server,
lease and log line can be judged without patience for a cluster's changes.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import requests

from eurekube_provider.core.model import Instance
from lab.peering import SERVER_COUNT, PeeredEurekas
from tests.faults.expected import Key
from tests.server_fields import without_server_fields


class LeaseWitness:
    """A thread that reads every server past its caches, and records what should not have happened.

    A server that was restarted is empty: instances that it held before are not counted as lost.
    """

    def __init__(self, cluster: PeeredEurekas) -> None:
        self.complaints: list[str] = []
        self._cluster = cluster
        self._lock = threading.Lock()
        self._live: set[Key] = set()
        self._out_of_service: set[Key] = set()
        self._foreign: dict[Key, Instance] = {}
        self._excused: dict[tuple[str, int], tuple[int, float]] = {}
        self._seen: list[set[Key]] = [set() for _ in range(SERVER_COUNT)]
        self._log_offsets = [server.log.stat().st_size for server in cluster.servers]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop reading, and add what the servers' logs show to ``complaints``."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        for number, server in enumerate(self._cluster.servers):
            with server.log.open("rb") as log:
                log.seek(self._log_offsets[number])
                text = log.read().decode(errors="replace")
            for said in re.finditer(r"expired lease for (\S+)/(\S+)", text):
                app, instance_id = said.groups()
                at = self._log_offsets[number] + len(text[: said.start()].encode())
                begin, end = self._excused.get((app, number), (0, 0.0))
                if (app, instance_id) in self._live and not begin <= at < end:
                    self.complaints.append(f"{server.name} logged that the lease of {instance_id} expired")

    def expect(self, live: Sequence[Instance], gone: Sequence[Instance] = ()) -> None:
        """Require from now on that servers keep the ``live`` instances once they hold them, and no longer
        the ``gone`` ones.
        """
        with self._lock:
            self._live |= {one.key for one in live}
            self._live -= {one.key for one in gone}

    def expect_out_of_service(self, instance: Instance) -> None:
        """Require that every server shows an instance OUT_OF_SERVICE, as a person set it."""
        with self._lock:
            self._out_of_service.add(instance.key)

    def expect_untouched(self, foreign: Instance) -> None:
        """Require that an instance of another owner stays unchanged."""
        with self._lock:
            self._foreign[foreign.key] = foreign

    def excuse(self, app: str, number: int) -> None:
        """Allow from now on that this application's leases lapse at this server, where nobody can renew
        them.
        """
        with self._lock:
            self._excused[app.upper(), number] = (self._logged(number), math.inf)

    def end_excuses(self) -> None:
        """End all excuses: from now on no lease may lapse."""
        with self._lock:
            self._excused = {
                place: (begin, min(end, self._logged(place[1])))
                for place, (begin, end) in self._excused.items()
            }

    def _logged(self, number: int) -> int:
        return self._cluster.servers[number].log.stat().st_size

    def _run(self) -> None:
        while not self._stopped.wait(0.2):
            for number in range(SERVER_COUNT):
                with self._lock:
                    before = set(self._live)
                try:
                    held = self._cluster.list_instances(number)
                except requests.exceptions.RequestException:
                    self._seen[number].clear()
                else:
                    self._judge(number, before, held)

    def _judge(self, number: int, before: set[Key], held: dict[Key, Instance]) -> None:
        name = self._cluster.servers[number].name
        with self._lock:
            for key in (before & self._live & self._seen[number]) - held.keys():
                if self._excused.get((key[0], number), (0, 0.0))[1] != math.inf:
                    self.complaints.append(f"{key[1]} was gone from {name}")
            for key in self._out_of_service & held.keys():
                if held[key].status != "OUT_OF_SERVICE":
                    self.complaints.append(f"{key[1]} was {held[key].status} on {name}")
            for key, planted in self._foreign.items():
                if key in held and without_server_fields(held[key]) != without_server_fields(planted):
                    self.complaints.append(f"{key[1]} of somebody else was changed on {name}")
            self._seen[number] = set(held)
