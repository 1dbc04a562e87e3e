"""All that the code under test can reach is the explorer's: Eureka, the time, and the end of its process.

What is explored runs on one thread: executors run their work at once, and sleeping lets the model's time
pass.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from unittest import mock
from urllib.parse import unquote, urlsplit

from eurekube_provider.eureka import peer, peers, transport
from eurekube_provider.resources import waits
from tests.model.cluster import Cluster, NoAnswer
from tests.model.wire import Request


class Killed(BaseException):
    """The process ends here; whatever it still tries to do does not happen."""


class Fault(Enum):
    """What becomes of one request."""

    LOST_BEFORE = "lost before it arrived"
    LOST_AFTER = "carried out, and the answer lost"
    KILLED_BEFORE = "the process killed before it was sent"
    KILLED_AFTER = "the process killed when it was carried out"

    @property
    def is_loss(self) -> bool:
        """Whether the process goes on."""
        return self in (Fault.LOST_BEFORE, Fault.LOST_AFTER)


@dataclass(slots=True)
class World:
    """One cluster of Eureka servers, and what happens at each request.

    :ivar faults: what happens, by the number of the request.
    :ivar aliases: further URLs of a server, by URL.
    :ivar watch: called after each request and checkpoint, with its description.
    :ivar trace: what was asked so far.
    """

    cluster: Cluster
    faults: Mapping[int, Fault] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    watch: Callable[[str], None] = lambda _: None
    trace: list[str] = field(default_factory=list)
    _dead: bool = False

    def new_process(self) -> None:
        """What was killed runs again."""
        self._dead = False

    def point(self, what: str, carry_out: Callable[[], Any]) -> Any:
        """Something that may fail or be the last thing that the process did.

        :raises NoAnswer: it was lost.
        :raises Killed: the process is dead.
        """
        if self._dead:
            raise Killed
        fault = self.faults.get(len(self.trace))
        self.trace.append(f"{what}{f'  <- {fault.value}' if fault else ''}")
        if fault is Fault.KILLED_BEFORE:
            self._dead = True
            raise Killed
        if fault is Fault.LOST_BEFORE:
            raise NoAnswer(what)
        result = carry_out()
        self.watch(what)
        if fault is Fault.KILLED_AFTER:
            self._dead = True
            raise Killed
        if fault is Fault.LOST_AFTER:
            raise NoAnswer(what)
        return result

    def exchange(self, url: str, request: Request) -> transport.Answer:
        """One request to a server, as our transport sends it.

        :raises TimedOut: no answer came.
        """
        server = self.aliases.get(url, url)
        what = f"{request.method} {url} /{'/'.join(request.path)} {_shown(request)}"
        try:
            answer = self.point(what, lambda: self.cluster.request(server, request))
        except NoAnswer:
            self.cluster.clock.advance(5_000)
            raise transport.TimedOut("no answer") from None
        return transport.Answer(answer.status_code, {}, answer.text.encode())


def _shown(request: Request) -> str:
    body = request.body
    if isinstance(body, dict) and "instance" in body:
        return f"{body['instance'].get('status')} {body['instance'].get('metadata')}"
    if isinstance(body, dict) and "replicationList" in body:
        return " ".join(f"{item['action']}:{item['id']}" for item in body["replicationList"])
    return " ".join(f"{key}={value}" for key, value in request.query.items())


class _Wire:
    """In place of the transport: the same door, and the world behind it."""

    world: World

    def __init__(self, url: str, _connection: object) -> None:
        self._url = url
        self._base = urlsplit(url).path

    def close(self) -> None:
        """Nothing is open."""

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        document: Any = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,  # noqa: ARG002 - a lost answer takes its time in the model
    ) -> transport.Answer:
        """See :meth:`eurekube_provider.eureka.transport.Transport.request`."""
        segments = tuple(unquote(one) for one in path.split("/") if one)
        body = json.loads(data) if data is not None else json.loads(json.dumps(document))
        return self.world.exchange(
            self._url, Request(method, segments, dict(params or {}), dict(headers or {}), body)
        )


class InlinePeerExecutor:
    """In place of a server's own threads."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[[], None]) -> bool:
        """Do it now."""
        work()
        return True

    def close(self) -> None:
        """Nothing runs."""


class InlineExecutor:
    """In place of a thread pool: what is submitted has run when the call returns."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        """Run it now."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - handed over as a pool does
            future.set_exception(error)
        return future

    def map(self, function: Callable[..., Any], *iterables: Any) -> Iterator[Any]:
        """Run all of it now."""
        return iter(
            [self.submit(function, *arguments).result() for arguments in zip(*iterables, strict=False)]
        )

    def shutdown(self, *_: object, **__: object) -> None:
        """Nothing runs."""


@contextlib.contextmanager
def owned(world: World) -> Iterator[None]:
    """Have our code reach nothing but ``world``, until the end of the block."""
    clock = world.cluster.clock

    def sleep(seconds: float) -> None:
        clock.advance(max(1, round(seconds * 1000)))

    def now() -> float:
        return clock.now_ms / 1000

    with contextlib.ExitStack() as stack:
        _Wire.world = world
        stack.enter_context(mock.patch.object(peer, "Transport", _Wire))
        stack.enter_context(mock.patch.object(peers, "PeerExecutor", InlinePeerExecutor))
        stack.enter_context(mock.patch.object(time, "sleep", sleep))
        stack.enter_context(mock.patch.object(time, "time", now))
        stack.enter_context(mock.patch.object(time, "monotonic", now))
        for name, module in list(sys.modules.items()):
            if name.startswith("eurekube_provider") and getattr(module, "ThreadPoolExecutor", None) is (
                ThreadPoolExecutor
            ):
                stack.enter_context(mock.patch.object(module, "ThreadPoolExecutor", InlineExecutor))
        stack.enter_context(mock.patch.object(waits.Waits, "of_this_call", return_value=sleep))
        for function in _waiting_by_default():
            defaults = tuple(sleep if one is _SLEEP else one for one in function.__defaults__ or ())
            named = {
                key: sleep if one is _SLEEP else one for key, one in (function.__kwdefaults__ or {}).items()
            }
            stack.enter_context(mock.patch.object(function, "__defaults__", defaults or None))
            stack.enter_context(mock.patch.object(function, "__kwdefaults__", named or None))
        yield


_SLEEP = time.sleep


@functools.cache
def _waiting_by_default() -> list[Any]:
    """The functions of ours that sleep unless they are told otherwise."""
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
