"""The simulated world of an operator, which reaches nothing else: Eureka, the Kubernetes API, time, chance
and its own death.

The operator's code is not changed for it: its modules get other threads and clocks, and its connections
another transport.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import queue
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.dev.eureka.cluster import EurekaCluster, NoAnswer
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.dev.eureka.instance_registry import Document
from eurekube_provider.dev.eureka.virtual_clock import Clock
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol import peer, transport
from eurekube_provider.eureka.registry import renewals
from eurekube_provider.kube import elector, events
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator import (
    controller,
    leadership,
    run,
    selfcheck,
    status,
    unresponsive,
)
from eurekube_provider.operator.settings import Settings
from tests.explore.operator import threads
from tests.explore.operator.kube import Kube, Path, Refused
from tests.explore.operator.threads import Killed, Process, Scheduler
from tests.model.played_transport import PlayedTransport

URLS = tuple(f"http://eureka-{number}:8761/eureka" for number in (1, 2, 3))

OTHER_URL = "http://other:8761/eureka"
"""The URL of a second Eureka, which has a connection of its own."""

BALANCER_URL = "http://balancer:8761/eureka"
"""The URL of a balancer behind which all servers answer in turn."""

WIRE_SECONDS = 0.001
"""Seconds that a request takes to the server, and its answer back."""

_NAMESPACE = "eurekube-system"
_API = "https://kubernetes"


class Fault(Enum):
    """The faults of one request."""

    LOST_BEFORE = "lost before it arrived"
    LOST_AFTER = "carried out, and the answer lost"
    LATE = "carried out when nobody waits for the answer any more"
    SLOW = "answered after three seconds"
    DRIPPED = "carried out, and the answer comes byte by byte"
    BLOATED = "carried out, and the answer is larger than what is read"
    KILLED_BEFORE = "the process killed before it was sent"
    KILLED_AFTER = "the process killed when it was carried out"

    @property
    def kills(self) -> bool:
        """True if the process dies."""
        return self in (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


Happening = Fault | Callable[[Any], None]
"""A fault of a request, or an act of others just before the request is carried out."""


class Servers(EurekaCluster):
    """One Eureka cluster that reports the batches between its servers.

    :ivar on_batch: called after each batch from one server to another.
    """

    def __init__(self, urls: Sequence[str], clock: Clock | None = None) -> None:
        self.on_batch: Callable[[str], None] = lambda _: None
        self._balanced = 0
        super().__init__(urls, clock)

    def balanced(self, request: ServerRequest) -> ServerResponse:
        """Send a request through a balancer, which takes the running servers in turn.

        :raises NoAnswer: no server runs.
        """
        for _ in self.urls:
            url = self.urls[self._balanced % len(self.urls)]
            self._balanced += 1
            if url not in self.down:
                return self.request(url, request)
        raise NoAnswer("balancer")

    def _deliver_batch(self, sender: str, to: str, items: list[Document]) -> ServerResponse | None:
        answer = super()._deliver_batch(sender, to, items)
        if answer is not None:
            actions = " ".join(f"{item['action']}:{item['id']}" for item in items)
            self.on_batch(f"{_host(sender)} sent {_host(to)} {actions}")
        return answer


@dataclass(slots=True)
class World:
    """The servers, the cluster, and the replicas of one operator.

    :ivar other: a second Eureka.
    :ivar faults: the fault at a request, by its number.
    :ivar is_counting: True if requests are numbered and traced now.
    :ivar is_calm: True if nothing goes wrong any more: requests get no number then.
    :ivar trace: the requests since numbering began, and the events.
    :ivar places: the request of each number.
    :ivar changed: called after each request that may have changed something in Eureka.
    :ivar disturbed_ms: until when something was not as it should be.
    :ivar was_silent: True if an answer was lost or late, or servers did not reach each other.
    :ivar wait_share: the share of each wait for an answer that really passes: less than 1 where one loop
        waits in turn for answers for which threads would wait side by side.
    """

    cluster: Servers
    other: Servers
    scheduler: Scheduler
    kube: Kube
    seed: int = 0
    faults: Mapping[int, Happening] = field(default_factory=dict)
    is_counting: bool = False
    is_calm: bool = False
    trace: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    changed: Callable[[str], None] = lambda _: None
    disturbed_ms: int = 0
    was_silent: bool = False
    wait_share: float = 1.0
    killed: Callable[[Process], None] = lambda _: None
    act: Callable[[Callable[[Any], None]], None] = lambda _: None
    processes: list[Process] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, servers: int, seed: int = 0, scheduler_type: type[Scheduler] = Scheduler) -> World:
        """Make a new world, in which nothing has happened."""
        cluster = Servers(URLS[:servers])
        other = Servers([OTHER_URL], cluster.clock)
        scheduler = scheduler_type(cluster.clock)
        threads.use(scheduler)
        world = cls(cluster, other, scheduler, Kube(scheduler), seed)
        _Wire.world = world
        return world

    @property
    def now_ms(self) -> int:
        """The model's time in milliseconds."""
        return self.cluster.clock.now_ms

    def note(self, what: str) -> None:
        """Add a line to the trace, once requests are numbered."""
        if self.is_counting:
            self.trace.append(f"{self.now_ms - self._began_ms:>7} ms  {what}")

    @property
    def _began_ms(self) -> int:
        return 1_800_000_000_000

    def begin_faults(self, faults: Mapping[int, Happening]) -> None:
        """Number the requests from now on, and let the faults happen."""
        self.faults, self.is_counting = faults, True

    def end_faults(self) -> None:
        """Let nothing go wrong from now on."""
        self.faults, self.is_calm = {}, True

    def disturb(self, until_ms: int = 0) -> None:
        """Note a disturbance, for which the operator needs time."""
        self.disturbed_ms = max(self.disturbed_ms, self.now_ms, until_ms)

    def begin_process(self) -> Process:
        """Begin the process of another replica."""
        process = Process(f"replica-{len(self.processes)}", self.seed)
        self.processes.append(process)
        return process

    def start(self, settings: Settings) -> tuple[Process, Any]:
        """Start a replica; return its process, and the event that stops it in order."""
        process = self.begin_process()
        stop = threads.Event()
        self.scheduler.spawn(process, "main", lambda: run.run(settings, stop))  # type: ignore[arg-type]
        return process, stop

    def exchange(
        self, process: Process, url: str, request: ServerRequest, timeout_seconds: float
    ) -> ServerResponse:
        """Send one request to a Eureka server.

        :raises TimedOut: no answer came.
        """
        timeout_seconds *= self.wait_share
        what = f"{request.method} {_host(url)} /{'/'.join(request.path)} {shown(request)}"
        is_dull = request.path == ("status",)
        happening = self.happening_at(process, what, is_dull=is_dull)
        self.scheduler.sleep(WIRE_SECONDS)
        if isinstance(happening, Fault):
            self._before(process, happening, timeout_seconds, lambda: self._carry_out(url, request, what))
        elif happening is not None:
            self.act(happening)
        behind = set(self.cluster.urls) if url == BALANCER_URL else {url}
        if behind <= self.cluster.down:
            self.disturb(self.now_ms + round(timeout_seconds * 1000))
            self.scheduler.sleep(timeout_seconds)
            raise transport.TimedOut("no answer")
        answer = self._carry_out(url, request, what)
        if isinstance(happening, Fault):
            self._after(process, happening, timeout_seconds)
        self.scheduler.sleep(WIRE_SECONDS)
        return answer

    def ask_kube(
        self, process: Process, method: str, path: str, query: Mapping[str, str], body: Any, seconds: float
    ) -> Any:
        """Send one request to the API server.

        :raises KubernetesError: no answer came.
        :raises Refused: the answer is not a success.
        """
        seconds *= self.wait_share
        place = Path.parse(path)
        what = f"{method} {place.kind} {place.namespace}/{place.name} {place.subresource}".rstrip(" /")
        if method in ("PATCH", "POST") and place.kind != "events":
            what += f" {json.dumps((body.get('metadata') or {}).get('finalizers'))}"
        happening = self.happening_at(process, what, is_dull=place.kind in ("leases", "events"))
        self.scheduler.sleep(WIRE_SECONDS)

        def carry_out() -> Any:
            return self.kube.handle(method, path, query, body)

        try:
            if isinstance(happening, Fault):
                self._before(process, happening, seconds, carry_out)
            elif happening is not None:
                self.act(happening)
            answer = carry_out()
            if isinstance(happening, Fault):
                self._after(process, happening, seconds)
        except (transport.TimedOut, transport.ResponseNotEnded, transport.ResponseTooLarge):
            raise KubernetesError(f"{method} {path}: no answer from the Kubernetes API") from None
        self.scheduler.sleep(WIRE_SECONDS)
        return json.loads(json.dumps(answer))

    def kill(self, process: Process) -> None:
        """Kill a process now.

        :raises Killed: the caller belongs to it.
        """
        self.note(f"!! {process.name} is killed")
        self.disturb()
        self.killed(process)
        self.scheduler.kill(process)

    def kill_later(self, process: Process) -> None:
        """Kill a process as soon as the running task waits."""
        self.cluster.clock.run_after(0, lambda: None if process.is_dead else self.kill(process))

    def happening_at(self, process: Process, what: str, *, is_dull: bool) -> Happening | None:
        """Count a request of a process; return the event that this sequence has for it, or None.

        :raises Killed: the process is dead.
        """
        if process.is_dead:
            raise Killed
        if not self.is_counting:
            return None
        if self.is_calm:
            if not is_dull:
                self.note(f"      {what}")
            return None
        number = len(self.places)
        happening = self.faults.get(number)
        self.was_silent |= isinstance(happening, Fault) and not happening.kills
        self.places.append("" if is_dull else what)
        if not is_dull or happening:
            named = ""
            if happening is not None:
                named = f"  <- {happening.value if isinstance(happening, Fault) else happening.__name__}"
            self.note(f"{number:>4}  {what}{named}")
        return happening

    def _before(self, process: Process, fault: Fault, seconds: float, carry_out: Callable[[], Any]) -> None:
        if fault is Fault.KILLED_BEFORE:
            self.kill(process)
        if fault in (Fault.LOST_BEFORE, Fault.LATE):
            self.disturb(self.now_ms + round(seconds * 1000))
            if fault is Fault.LATE:
                late_ms = round(seconds * 1000) + 1500
                self.disturb(self.now_ms + late_ms)
                self.cluster.clock.run_after(late_ms, lambda: self._late(carry_out))
            self.scheduler.sleep(seconds)
            raise transport.TimedOut("no answer")

    def _late(self, carry_out: Callable[[], Any]) -> None:
        with contextlib.suppress(NoAnswer, Refused):
            carry_out()

    def _after(self, process: Process, fault: Fault, seconds: float) -> None:
        if fault is Fault.KILLED_AFTER:
            self.kill(process)
        if fault is Fault.LOST_AFTER:
            self.disturb(self.now_ms + round(seconds * 1000))
            self.scheduler.sleep(seconds)
            raise transport.TimedOut("no answer")
        if fault is Fault.DRIPPED:
            self.disturb(self.now_ms + round(seconds * 1000))
            self.scheduler.sleep(seconds)
            raise transport.ResponseNotEnded("the answer did not end in time")
        if fault is Fault.BLOATED:
            self.disturb()
            raise transport.ResponseTooLarge("more than 128 MiB")
        if fault is Fault.SLOW:
            wait = min(3.0 * self.wait_share, seconds)
            self.disturb(self.now_ms + round(wait * 1000))
            self.scheduler.sleep(wait)
            if wait == seconds:
                raise transport.TimedOut("no answer")

    def _carry_out(self, url: str, request: ServerRequest, what: str) -> ServerResponse:
        if url == BALANCER_URL:
            answer = self.cluster.balanced(request)
        else:
            answer = (self.other if url == OTHER_URL else self.cluster).request(url, request)
        if request.method != "GET":
            self.changed(what)
        return answer


def shown(request: ServerRequest) -> str:
    """Return a request in words for a person."""
    body = request.body
    if isinstance(body, dict) and "instance" in body:
        sent = body["instance"]
        leaving = " leaving" if "eurekube.leaving" in (sent.get("metadata") or {}) else ""
        owner = (sent.get("metadata") or {}).get("eurekube.owner", "").rpartition("/")[2]
        return (
            f"{sent['instanceId']} {sent.get('status')} of {owner}{leaving} at {sent['lastDirtyTimestamp']}"
        )
    if isinstance(body, dict) and "replicationList" in body:
        return " ".join(f"{item['action']}:{item['id']}" for item in body["replicationList"])
    return " ".join(f"{key}={value}" for key, value in request.query.items())


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


class _Wire(PlayedTransport):
    """A replacement of the transport that sends requests to the simulated world."""

    world: World

    def __init__(self, url: str, connection: Connection) -> None:
        super().__init__(url, connection)
        assert self.world.scheduler.current is not None
        self._process = self.world.scheduler.current.process

    def answer(self, request: ServerRequest, timeout_seconds: float) -> ServerResponse:
        return self.world.exchange(self._process, self._url, request, timeout_seconds)


class _Reply:
    """A replacement of urllib3's response."""

    def __init__(self, status_code: int, data: bytes = b"", lines: Iterator[bytes] | None = None) -> None:
        self.status, self.data, self._lines = status_code, data, lines or iter(())

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """Return the lines of a watch."""
        return self._lines

    def close(self) -> None:
        """End the watch: nobody reads on."""
        if hasattr(self._lines, "close"):
            self._lines.close()


def _send(
    self: KubeAccess,
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    body: Any,
    _content_type: str,
    timeout: Any,
) -> _Reply:
    world, process = _Wire.world, self._configuration.process  # type: ignore[attr-defined]
    try:
        if query is not None and "watch" in query:

            def may_go_on() -> None:
                if process.is_dead:
                    raise Killed

            world.scheduler.sleep(WIRE_SECONDS)
            return _Reply(200, lines=world.kube.watch(path, query, may_go_on))
        seconds = timeout.total or timeout.read_timeout
        sent = None if body is None else json.loads(json.dumps(body))
        answer = world.ask_kube(process, method, path, query or {}, sent, float(seconds))
        return _Reply(200, json.dumps(answer).encode())
    except Refused as refused:
        return _Reply(refused.status, json.dumps(refused.body).encode())


def _load(*_: object, **__: object) -> KubeAccess:
    assert _Wire.world.scheduler.current is not None
    configuration = mock.Mock(host=_API, process=_Wire.world.scheduler.current.process)
    access = KubeAccess(configuration, _NAMESPACE, pool=mock.Mock())
    access.is_in_cluster = True
    return access


class _Nothing:
    """A replacement of parts that are not explored: triggers of stacks, and the self-check."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _Uuids:
    """A replacement of the module ``uuid``."""

    @staticmethod
    def uuid4() -> uuid.UUID:
        """Return a UUID from the random numbers of the sequence."""
        return uuid.UUID(int=threads.process_of_task().random.getrandbits(128))


class _Errors(logging.Handler):
    """A log handler that records unexpected exceptions, which our code logs with their traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        """Record the exception of a log line."""
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            _Wire.world.logged.append(f"{record.getMessage()}: {type(error).__name__}: {error}")


_PACKAGES = tuple(f"eurekube_provider.{name}." for name in ("core", "runtime", "eureka", "kube", "operator"))
INSTEAD = {
    threading: threads.Threading,
    time: threads.Time,
    random: threads.Randomness,
    queue: threads.Queue,
    ThreadPoolExecutor: threads.Pool,
}
"""Modules that the code under test imports, each with its replacement."""


@contextlib.contextmanager
def owned() -> Iterator[None]:
    """Have the operator's code reach nothing but a :class:`World` while the block runs."""
    with contextlib.ExitStack() as stack:

        def replace(thing: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(thing, name, value))

        for name, module in list(sys.modules.items()):
            if name.startswith(_PACKAGES):
                for word, thing in list(vars(module).items()):
                    with contextlib.suppress(TypeError):  # what cannot be hashed is none of them
                        if isinstance(thing, threading.local):
                            replace(module, word, threads.Local())
                        elif thing in INSTEAD:
                            replace(module, word, INSTEAD[thing])
                own_defaults(module, replace)
        for one in (status, events, elector):
            replace(one, "datetime", threads.Datetime)
        replace(peer, "Transport", _Wire)
        replace(KubeAccess, "_send", _send)
        replace(KubeAccess, "load", _load)
        replace(run, "StackRefreshController", _Nothing)
        replace(run, "freeze_objects_and_collect_rarely", _Nothing)
        replace(run, "uuid", _Uuids)
        replace(selfcheck, "BackgroundSelfCheck", _Nothing)
        # Fewer of what is alike, and longer between looks that find nothing: the same, faster.
        replace(controller, "WORKERS_PER_EUREKA", 3)
        replace(renewals, "PLAIN_THREADS", 2)
        replace(leadership, "POLL_SECONDS", 0.5)
        replace(windows, "RESTART_CHECK_INTERVAL_SECONDS", 4.0)
        replace(windows, "OUTAGE_RETRY_SECONDS", 4.0)
        replace(unresponsive, "CHECK_INTERVAL_SECONDS", 1.0)
        replace(windows, "RENEWAL_TICK_SECONDS", 1.0)
        log = logging.getLogger("eurekube_provider")
        handler = _Errors()
        before = log.level, log.propagate
        log.addHandler(handler)
        log.propagate = False
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.propagate = before[1]
            log.setLevel(before[0])
            gc.collect()


def own_defaults(module: Any, replace: Callable[[Any, str, Any], None]) -> None:
    """Replace default arguments of a module's functions that are functions of the module ``time``.

    :raises AssertionError: a dataclass makes a real lock or event, for which all simulated threads wait.
    """
    for thing in list(vars(module).values()):
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        for one in getattr(thing, "__dataclass_fields__", {}).values():
            is_real = getattr(one.default_factory, "__module__", "") == threading.__name__
            assert not is_real, f"{thing.__qualname__}.{one.name} is made by the real module threading"
        for function in list(vars(thing).values()) if isinstance(thing, type) else [thing]:
            positional = getattr(function, "__defaults__", None)
            if positional and any(_of_time(one) is not one for one in positional):
                replace(function, "__defaults__", tuple(map(_of_time, positional)))
            named = getattr(function, "__kwdefaults__", None)
            if named and any(_of_time(one) is not one for one in named.values()):
                replace(function, "__kwdefaults__", {key: _of_time(one) for key, one in named.items()})


def _of_time(default: Any) -> Any:
    """Return the simulated counterpart of a function of the module ``time``; anything else unchanged."""
    for real, model in ((time.monotonic, threads.monotonic), (time.sleep, threads.sleep)):
        if default is real:
            return model
    return default
