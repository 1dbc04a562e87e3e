"""A cluster of Eureka servers for development and tests: the model on real time, behind HTTP.

One lock guards the model. A thread runs the timers: leases, evictions, caches and replication. The servers
replicate in memory, as in the model; all other requests come by HTTP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Self

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.dev.eureka.front_page import render_front_page
from eurekube_provider.dev.eureka.http_front import HTML_MEDIA_TYPE, EurekaListener
from eurekube_provider.dev.eureka.instance_registry import EVICTION_INTERVAL_MS
from eurekube_provider.dev.eureka.virtual_clock import Clock


class EurekaServers:
    """Eureka servers that are peers of each other, each on a port of its own.

    The constructor takes the ports; the servers answer from :meth:`start` to :meth:`stop`, which a ``with``
    statement calls. While a thread holds :attr:`lock`, no request and no timer changes the model.

    :param count: how many servers, at least one.
    :param host: the address to listen on.
    :param ports: a port for each server; free ones by default.
    :param quick: lists that are never stale, evictions each second, and no self-preservation. By default the
        servers have Eureka's own settings: lists up to half a minute old, evictions once a minute,
        self-preservation.
    :ivar urls: the service URLs, such as ``http://127.0.0.1:8761/eureka``.
    :ivar cluster: the model: what each server holds, which of them are down or cut off from each other.
    :ivar lock: guards the model.
    :raises ConfigurationError: a port is taken, or the host is no address of this machine.
    """

    def __init__(
        self, count: int = 1, *, host: str = "127.0.0.1", ports: Sequence[int] = (), quick: bool = False
    ) -> None:
        if count < 1 or (ports and len(ports) != count):
            raise ConfigurationError(
                f"{count} servers cannot have {len(ports)} ports: give each server one, or none"
            )
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._is_stopping = False
        self._waits_until_ms: int | None = None
        self._timer = threading.Thread(
            target=self._run_timers_until_stopped, name="eureka-timers", daemon=True
        )
        self._listeners: list[EurekaListener] = []
        try:
            for port in ports or (0,) * count:
                self._listeners.append(EurekaListener(host, port))
        except ConfigurationError:
            self.stop()
            raise
        self.urls = [listener.service_url for listener in self._listeners]
        self._clock = Clock(int(time.time() * 1000))
        self._ahead_ms = self._clock.now_ms - time.monotonic_ns() // 1_000_000
        self.cluster = EurekaCluster(
            self.urls,
            self._clock,
            self_preservation=not quick,
            use_read_only_cache=not quick,
            eviction_interval_ms=1_000 if quick else EVICTION_INTERVAL_MS,
        )

    def start(self) -> None:
        """Begin to answer requests and to run timers."""
        self._timer.start()
        for listener in self._listeners:
            listener.answer = partial(self._answer, listener.service_url)
            listener.start()

    def stop(self) -> None:
        """Stop answering, end all connections and free the ports."""
        for listener in self._listeners:
            listener.stop()
        with self.lock:
            self._is_stopping = True
            self._changed.notify_all()
        if self._timer.is_alive():
            self._timer.join()

    def advance(self, seconds: float) -> None:
        """Move the servers' clock ahead by ``seconds``, and run the timers that become due."""
        with self.lock:
            self._ahead_ms += int(seconds * 1000)
            self._advance_to_real_time()
            self._changed.notify_all()

    def _answer(self, url: str, request: ServerRequest) -> ServerResponse:
        with self.lock:
            self._advance_to_real_time()
            if request.path:
                response = self.cluster.request(url, request)
            else:
                response = ServerResponse(200, render_front_page(self.cluster, url), HTML_MEDIA_TYPE)
            if self._clock.next_due_ms != self._waits_until_ms:
                self._changed.notify_all()
            return response

    def _advance_to_real_time(self) -> None:
        now_ms = time.monotonic_ns() // 1_000_000 + self._ahead_ms
        self._clock.advance(max(0, now_ms - self._clock.now_ms))

    def _run_timers_until_stopped(self) -> None:
        with self.lock:
            while not self._is_stopping:
                self._advance_to_real_time()
                self._waits_until_ms = self._clock.next_due_ms
                milliseconds = (self._waits_until_ms or 0) - self._clock.now_ms
                self._changed.wait(max(1, milliseconds) / 1000)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
