"""The simulated world of the code under test, which reaches nothing else: Eureka, time, and the death of its
process.

The code runs on one thread: executors run their work at once, and sleeping lets the model's time pass.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from eurekube_provider.core.errors import DrainInterrupted
from eurekube_provider.dev.eureka.cluster import EurekaCluster, NoAnswer
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka import peers
from eurekube_provider.eureka.protocol import peer, transport
from eurekube_provider.registrations import cancellation, property_check
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.property_check import CheckedProperties
from tests.explore.others import Act
from tests.model.played_transport import PlayedTransport


class Killed(BaseException):
    """The simulated process is dead; nothing that it still tries takes effect."""


TIMEOUT_MS = 5_000


class Fault(Enum):
    """The faults of one request."""

    LOST_BEFORE = "lost before it arrived"
    LOST_AFTER = "carried out, and the answer lost"
    SLOW = "carried out when it is given up"
    DRIPPED = "carried out, and the answer comes byte by byte"
    BLOATED = "carried out, and the answer is larger than what is read"
    KILLED_BEFORE = "the process killed before it was sent"
    KILLED_AFTER = "the process killed when it was carried out"

    @property
    def is_loss(self) -> bool:
        """True if the process survives the fault."""
        return self not in (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


NO_ANSWERS = tuple(fault for fault in Fault if fault not in (Fault.DRIPPED, Fault.BLOATED))
"""Faults that are tried at every request; answers that are too slow or too large are only drawn at random."""

Faults = Mapping[int, Fault | Act]
"""Faults by the number of the request at which they happen."""


@dataclass(slots=True)
class World:
    """One cluster of Eureka servers, and what happens at each request.

    :ivar faults: the fault of a request, or an act of others before it, by the request's number.
    :ivar act: carries out an act of others.
    :ivar aliases: further URLs of a server, by URL.
    :ivar watch: called after each request and checkpoint, with its description.
    :ivar trace: the requests so far.
    :ivar chance: the random numbers of our code, so that a sequence is the same each time.
    """

    cluster: EurekaCluster
    faults: Faults = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    watch: Callable[[str], None] = lambda _: None
    act: Callable[[Act], None] = lambda _: None
    trace: list[str] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - replayed
    _dead: bool = False

    def new_process(self) -> None:
        """Begin a new process after the former one was killed."""
        self._dead = False

    def point(self, what: str, carry_out: Callable[[], Any]) -> Any:
        """Carry out a request or checkpoint, at which a fault may happen.

        :raises NoAnswer: the request or its answer was lost.
        :raises Killed: the process is dead.
        """
        if self._dead:
            raise Killed
        happens = self.faults.get(len(self.trace))
        while isinstance(happens, Act):
            self.trace.append(f"** {happens.value}")
            self.act(happens)
            self.watch(happens.value)
            happens = self.faults.get(len(self.trace))
        if happens is not None and happens.is_loss and what.startswith("checkpoint"):
            happens = None  # the state is lost with the process only
        self.trace.append(f"{what}{f'  <- {happens.value}' if happens else ''}")
        if happens is Fault.KILLED_BEFORE:
            self._dead = True
            raise Killed
        if happens is Fault.LOST_BEFORE:
            raise NoAnswer(what)
        if happens is Fault.SLOW:
            self.cluster.clock.advance(TIMEOUT_MS - 1)
        result = carry_out()
        self.watch(what)
        if happens is Fault.KILLED_AFTER:
            self._dead = True
            raise Killed
        if happens in (Fault.LOST_AFTER, Fault.SLOW):
            raise NoAnswer(what)
        if happens is Fault.DRIPPED:
            self.cluster.clock.advance(TIMEOUT_MS)
            raise transport.ResponseNotEnded("the answer did not end in time")
        if happens is Fault.BLOATED:
            raise transport.ResponseTooLarge("more than 128 MiB")
        return result

    def exchange(self, url: str, request: ServerRequest) -> ServerResponse:
        """Send one request to a server, as our transport does.

        :raises TimedOut: no answer came.
        """
        server = self.aliases.get(url, url)
        given_up_ms = self.cluster.clock.now_ms + TIMEOUT_MS
        what = f"{request.method} {url} /{'/'.join(request.path)} {_shown(request)}"
        try:
            answer: ServerResponse = self.point(what, lambda: self.cluster.request(server, request))
        except NoAnswer:
            self.cluster.clock.advance(max(0, given_up_ms - self.cluster.clock.now_ms))
            raise transport.TimedOut("no answer") from None
        return answer


def _shown(request: ServerRequest) -> str:
    body = request.body
    if isinstance(body, dict) and "instance" in body:
        return f"{body['instance'].get('status')} {body['instance'].get('metadata')}"
    if isinstance(body, dict) and "replicationList" in body:
        return " ".join(f"{item['action']}:{item['id']}" for item in body["replicationList"])
    return " ".join(f"{key}={value}" for key, value in request.query.items())


class _Wire(PlayedTransport):
    """A replacement of the transport that sends requests to the simulated world."""

    world: World

    def answer(self, request: ServerRequest, timeout_seconds: float) -> ServerResponse:  # noqa: ARG002 - a lost answer takes its time in the model
        return self.world.exchange(self._url, request)


class InlinePeerExecutor:
    """A replacement of a server's own threads."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[[], None]) -> bool:
        """Run the work at once."""
        work()
        return True

    def close(self) -> None:
        """Do nothing: no work is pending."""


class InlineExecutor:
    """A replacement of a thread pool, which runs submitted work before the call returns."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        """Run the function at once; return its result as a future."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - handed over as a pool does
            future.set_exception(error)
        return future

    def map(self, function: Callable[..., Any], *iterables: Any) -> Iterator[Any]:
        """Run all calls at once; return their results."""
        return iter(
            [self.submit(function, *arguments).result() for arguments in zip(*iterables, strict=False)]
        )

    def shutdown(self, *_: object, **__: object) -> None:
        """Do nothing: no work is pending."""


_MOST_REMEMBERED = 20_000


class CachedCheck:
    """A cached version of the check of properties, whose result depends on its arguments alone and took a
    sixth of all time.
    """

    def __init__(self, check: Callable[[Properties, Properties], CheckedProperties]) -> None:
        self._check = check
        self._known: dict[bytes, CheckedProperties] = {}

    def __call__(self, olds: Properties, news: Properties) -> CheckedProperties:
        """Return the check's result as a fresh object."""
        try:
            asked = marshal.dumps((olds, news), 2)  # without references: equal for what is equal
        except ValueError:
            return self._check(olds, news)  # what is not known yet, or secret
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        if asked not in self._known:
            self._known[asked] = self._check(olds, news)
        found = self._known[asked]
        own = {key: dict(value) if type(value) is dict else value for key, value in found.properties.items()}
        return replace(found, properties=own)


_SLEEP = time.sleep


def _sleep(seconds: float) -> None:
    _Wire.world.cluster.clock.advance(max(1, round(seconds * 1000)))


def _wait(seconds: float) -> None:
    """Wait as our code does in a drain; the wait may be interrupted, or the process killed in it."""
    try:
        _Wire.world.point(f"wait {seconds:g} s", lambda: _sleep(seconds))
    except NoAnswer:
        raise DrainInterrupted("interrupted while callers were forgetting it") from None


def _now() -> float:
    return _Wire.world.cluster.clock.now_ms / 1000


def _uniform(low: float, high: float) -> float:
    return _Wire.world.chance.uniform(low, high)


@contextlib.contextmanager
def owned(world: World) -> Iterator[None]:
    """Have our code reach nothing but ``world`` while the block runs."""
    _Wire.world = world
    ways_out = _ways_out()
    for target, name, ours, _ in ways_out:
        setattr(target, name, ours)
    try:
        yield
    finally:
        for target, name, _, theirs in ways_out:
            setattr(target, name, theirs)


@functools.cache
def _ways_out() -> list[tuple[Any, str, Any, Any]]:
    """Return the functions by which our code reaches the outside: module, name, replacement and original."""
    ours: list[tuple[Any, str, Any]] = [
        (peer, "Transport", _Wire),
        (peers, "PeerExecutor", InlinePeerExecutor),
        (time, "sleep", _sleep),
        (time, "time", _now),
        (time, "monotonic", _now),
        (random, "uniform", _uniform),
        (secrets, "token_hex", lambda size: _Wire.world.chance.randbytes(size).hex()),
        (cancellation.Cancellation, "make_interruptible_sleep", lambda _: _wait),
    ]
    check = CachedCheck(property_check.check)
    for name, module in list(sys.modules.items()):
        if not name.startswith("eurekube_provider"):
            continue
        if getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor:
            ours.append((module, "ThreadPoolExecutor", InlineExecutor))
        if getattr(module, "check", None) is property_check.check:
            ours.append((module, "check", check))
    for function in _waiting_by_default():
        defaults = tuple(_sleep if one is _SLEEP else one for one in function.__defaults__ or ())
        named = {
            key: _sleep if one is _SLEEP else one for key, one in (function.__kwdefaults__ or {}).items()
        }
        ours += [(function, "__defaults__", defaults or None), (function, "__kwdefaults__", named or None)]
    return [(target, name, new, getattr(target, name)) for target, name, new in ours]


def _waiting_by_default() -> list[Any]:
    """Return our functions whose default arguments are functions that sleep."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("eurekube_provider"):
            for thing in vars(module).values():
                inner = vars(thing).values() if isinstance(thing, type) else (thing,)
                for function in inner:
                    defaults = (
                        *(getattr(function, "__defaults__", None) or ()),
                        *(getattr(function, "__kwdefaults__", None) or {}).values(),
                    )
                    if _SLEEP in defaults:
                        found[id(function)] = function
    return list(found.values())
