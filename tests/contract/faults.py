"""What the registry's tests of faults share: an operator without Kubernetes, and a witness.

The operator reaches the servers through the proxies of :class:`~lab.peering.Peering`; the witness and the
person go straight to them.
"""

from __future__ import annotations

import logging
import math
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import requests

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.identity import OWNER_KEY, ClusterOwner
from eurekube_provider.core.identity import Cluster as Kubernetes
from eurekube_provider.core.model import EurekaLease, Instance, Port
from eurekube_provider.core.plan import plan
from eurekube_provider.eureka.apply import apply
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.runtime.logs import TextFormatter
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.peering import SERVERS, Peering
from lab.ports import HOST
from lab.waiting import wait_until

_log = logging.getLogger("eurekube_provider.tests.operator")

Key = tuple[str, str]

LEASE = EurekaLease(duration_seconds=3)
"""Lapses 6 s after the last renewal, so that a fault of 7 s would show. The promised interval stays at 30 s:
servers give up forwarding a renewal after as long."""

RENEWAL_INTERVAL_SECONDS = 1.0
RETRY_SECONDS = 0.5


def connection(urls: Iterable[str]) -> Connection:
    """The way to these servers."""
    return Connection(
        tuple(urls), EUREKA_USER, EUREKA_PASSWORD, connect_timeout_seconds=0.5, read_timeout_seconds=1.0
    )


def instances(
    owner: str, app: str, numbers: Iterable[int], lease: EurekaLease = LEASE, **metadata: str
) -> list[Instance]:
    """Instances of an owner, each with an address of its own."""
    return [
        Instance(
            app,
            f"{number:04}.{app}",
            f"10.0.{number // 250}.{number % 250}",
            f"10.0.{number // 250}.{number % 250}",
            Port(8080),
            lease=lease,
            metadata={OWNER_KEY: owner, **metadata},
        )
        for number in numbers
    ]


class Operator:
    """The operator without Kubernetes: a Registry, and a loop that brings Eureka to what is desired.

    It does what operator/controller.py does for one syncer. While ``is_leader`` is False it only renews.

    :param way: how to reach the servers, instead of plainly by ``urls``.
    :param clock: called once on each thread that writes.
    """

    def __init__(
        self,
        urls: Iterable[str],
        app: str,
        mode: BatchMode,
        *,
        way: Connection | None = None,
        interval_seconds: float = RENEWAL_INTERVAL_SECONDS,
        clock: Callable[[], None] = lambda: None,
    ) -> None:
        self.app = app
        self.mode = mode
        self.owner = str(ClusterOwner("eks", "shop", app))
        self.desired: list[Instance] = []
        self.is_leader = True
        self.errors: list[EurekubeError] = []
        """Why looks ended early; the operator logs them and shows them in the syncer's status."""
        self.peers = Peers(replace(way or connection(urls), mode=mode), waits_for_all=False)
        self.registry = EurekaRegistry(
            self.peers,
            Kubernetes("eks", "uid-eks"),
            "operator",
            1.0,
            renewal_interval_seconds=interval_seconds,
        )
        self._clock = clock
        self._look = threading.Event()
        self._stopped = threading.Event()
        self._executor = ThreadPoolExecutor(8, thread_name_prefix="apply", initializer=clock)
        self._thread = threading.Thread(target=self._run, name="operator")

    def __enter__(self) -> Self:
        self.registry.start(self)
        self.registry.renewals.resume()
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._look.set()
        self._thread.join()
        self.registry.stop()
        self._executor.shutdown()
        wait_until(
            lambda: not any(one.is_alive for one in self.registry.liveness()),
            "the registry's threads to end",
            30,
        )
        self.peers.close()

    def want(self, desired: Iterable[Instance]) -> None:
        """Have exactly these in Eureka from now on."""
        self.desired = list(desired)
        self._look.set()

    def has_nothing(self) -> bool:
        """Whether it renews nothing, and knows of nothing of its own in Eureka."""
        return not len(self.registry.renewals) and not self.registry.view.owned(self.owner)

    def knows_of_override(self) -> bool:
        """Whether it has seen that a person set a status over one of its instances."""
        return any(one.is_overridden for one in self.registry.view.owned(self.owner))

    def owner_changed(self, owner: str) -> None:
        """Look again, if it is ours."""
        if owner == self.owner:
            self._look.set()

    def condition_changed(self) -> None:
        """Look again."""
        self._look.set()

    def _run(self) -> None:
        self._clock()
        while not self.registry.reachability.was_read:
            if self._stopped.wait(0.1):
                return
        retry: float | None = None
        while not self._stopped.is_set():
            self._look.wait(retry)
            self._look.clear()
            retry = None
            try:
                self._bring_in_line()
            except EurekubeError as error:
                _log.warning("syncer not brought in line, tried again", extra={"error": str(error)})
                self.errors.append(error)
                retry = RETRY_SECONDS

    def _bring_in_line(self) -> None:
        registry, view = self.registry, self.registry.view
        if self.is_leader and not self._stopped.is_set():
            steps = plan(self.desired, [*view.application(self.app), *view.owned(self.owner)], self.owner)
            executor = self._executor if self.mode is BatchMode.REST else None
            outcome = apply(
                steps,
                self.owner,
                self.peers,
                registry.instances,
                executor,
                leases=max(len(registry.renewals), len(self.desired)),
            )
        for instance in view.owned(self.owner):
            registry.keep(instance)
        if self.is_leader and not self._stopped.is_set():
            for failure in outcome.failures:
                raise failure.error


class Witness:
    """Reads every server past its caches all along, and notes what should not have happened.

    A server that was down begins anew: what it does not hold then, it has not lost.
    """

    def __init__(self, cluster: Peering) -> None:
        self.complaints: list[str] = []
        self._cluster = cluster
        self._lock = threading.Lock()
        self._live: set[Key] = set()
        self._out_of_service: set[Key] = set()
        self._foreign: dict[Key, Instance] = {}
        self._excused: dict[tuple[str, int], tuple[int, float]] = {}
        self._seen: list[set[Key]] = [set() for _ in range(SERVERS)]
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
        """Look no more; afterwards ``complaints`` has all there is, the servers' own words included."""
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
        """These may not be missing from now on where they are or come, and those may."""
        with self._lock:
            self._live |= {one.key for one in live}
            self._live -= {one.key for one in gone}

    def expect_out_of_service(self, instance: Instance) -> None:
        """A person took it out of service: no server may show anything else."""
        with self._lock:
            self._out_of_service.add(instance.key)

    def expect_untouched(self, foreign: Instance) -> None:
        """It belongs to somebody else."""
        with self._lock:
            self._foreign[foreign.key] = foreign

    def excuse(self, app: str, number: int) -> None:
        """From now on this application's leases may lapse on this server: nobody can renew them there."""
        with self._lock:
            self._excused[app.upper(), number] = (self._logged(number), math.inf)

    def end_excuses(self) -> None:
        """The fault is over, and what lapsed is there again: no lease may lapse from now on."""
        with self._lock:
            self._excused = {
                place: (begin, min(end, self._logged(place[1])))
                for place, (begin, end) in self._excused.items()
            }

    def _logged(self, number: int) -> int:
        return self._cluster.servers[number].log.stat().st_size

    def _run(self) -> None:
        while not self._stopped.wait(0.2):
            for number in range(SERVERS):
                with self._lock:
                    before = set(self._live)
                try:
                    held = self._cluster.listed(number)
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
                if key in held and held[key].wanted() != planted.wanted():
                    self.complaints.append(f"{key[1]} of somebody else was changed on {name}")
            self._seen[number] = set(held)


@contextmanager
def everything_logged() -> Iterator[list[str]]:
    """The lines that the operator would write while the block runs."""
    lines: list[str] = []
    formatter = TextFormatter()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter.format(record))

    logger, handler = logging.getLogger("eurekube_provider"), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def pause(seconds: float) -> None:
    """Let a fault last: what must not happen meanwhile has no condition to wait for."""
    time.sleep(seconds)


class Clocks:
    """Stands in for the module ``time`` in eureka/observer.py: each thread may have a clock of its own."""

    def __init__(self) -> None:
        self._local = threading.local()

    def time(self) -> float:
        """What the calling thread takes for the time."""
        return time.time() + float(getattr(self._local, "ahead_seconds", 0.0))

    def ahead(self, seconds: float) -> Callable[[], None]:
        """What a thread calls to have its clock go so much ahead from now on."""

        def set_ahead() -> None:
            self._local.ahead_seconds = seconds

        return set_ahead


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files of one certificate that signed itself."""

    certificate: Path
    key: Path


def make_certificate(directory: Path, name: str, *, is_expired: bool = False) -> Certificate:
    """A certificate for 127.0.0.1 by openssl, for a day, or until yesterday."""
    files = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    (directory / "index.txt").touch()
    config = directory / "ca.cnf"
    config.write_text(
        f"""
        [ca]
        default_ca = us
        [us]
        database = {directory}/index.txt
        new_certs_dir = {directory}
        rand_serial = yes
        default_md = sha256
        policy = any
        unique_subject = no
        x509_extensions = server
        [any]
        commonName = supplied
        [server]
        subjectAltName = IP:{HOST}
        basicConstraints = critical, CA:TRUE
        [req]
        distinguished_name = req_name
        [req_name]
        """.replace("        ", "")
    )
    request = directory / f"{name}.csr"
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", files.key)
    _openssl("req", "-config", config, "-new", *new_key, "-subj", f"/CN={name}", "-out", request)
    now = datetime.now(UTC)
    first, last = now - timedelta(days=2), now + timedelta(days=-1 if is_expired else 1)
    dates = ("-startdate", f"{first:%Y%m%d%H%M%SZ}", "-enddate", f"{last:%Y%m%d%H%M%SZ}")
    sign = ("ca", "-config", config, "-batch", "-notext", "-selfsign", "-keyfile", files.key)
    _openssl(*sign, *dates, "-in", request, "-out", files.certificate)
    return files


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
