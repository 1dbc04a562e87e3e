"""An Eureka that takes requests and does not answer: said at once, not only when the time-outs are over.

A request to a server that hangs ends after seconds, and a syncer's plan is many requests. Until they end the
status would say what held before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.eureka.eureka_registry import Registry
from eurekube_provider.operator.index import SyncerKey

_log = logging.getLogger(__name__)

TELL_AFTER_SECONDS = 1.0
"""So long no server of an Eureka may answer before a syncer whose changes wait says so."""

TROUBLE_AFTER_SECONDS = 3.0
"""The same for all its syncers: rendering a list of a large registry takes its time, but for one that has not
even said who it is.
"""

TICK_SECONDS = 0.25
LONGEST_ROUND_SECONDS = 60.0

Tell = Callable[[RegistryError], None]
TellAll = Callable[[str, RegistryError], None]


@dataclass(frozen=True, slots=True)
class _UnderWay:
    registry: Registry
    since: float
    tell: Tell


class UnresponsiveWatch:
    """Watches the Eurekas of one operator on a thread of its own; any number of workers may share it.

    :param hangs: called with the name of an Eureka that is silent, again and again, and why it is said to be.
    """

    def __init__(self, registries: Mapping[str, Registry], hangs: TellAll = lambda *_: None) -> None:
        self._registries = registries
        self._hangs = hangs
        self._lock = threading.Lock()
        self._under_way: dict[SyncerKey, _UnderWay] = {}
        self._silent: set[str] = set()
        self._went_round_at = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="silence", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._went_round_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def liveness(self) -> list[Liveness]:
        """Its thread."""
        return liveness_of([self._thread], time.monotonic() - self._went_round_at, LONGEST_ROUND_SECONDS)

    @contextmanager
    def watched(self, key: SyncerKey, registry: Registry, tell: Tell | None) -> Iterator[None]:
        """While changes of a syncer are being made at ``registry``.

        :param tell: called once if it does not answer meanwhile; never after the end. None: nothing waits.
        """
        if tell is None:
            yield
            return
        with self._lock:
            self._under_way[key] = _UnderWay(registry, time.monotonic(), tell)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.pop(key, None)

    def look(self) -> None:
        """Tell of what does not answer now, and of what answers again."""
        now = time.monotonic()
        silent = {name: _silence(registry) for name, registry in self._registries.items()}
        for name, registry in self._registries.items():
            if silent[name] >= TROUBLE_AFTER_SECONDS:
                if name not in self._silent:
                    self._silent.add(name)
                    registry.falls_silent(_error(registry, silent[name]))
            elif name in self._silent and not silent[name]:
                self._silent.discard(name)
                registry.is_heard()
            if (error := hanging(registry)) is not None:
                self._hangs(name, error)
        by_registry = {id(registry): silent[name] for name, registry in self._registries.items()}
        with self._lock:
            for key, one in list(self._under_way.items()):
                seconds = min(by_registry.get(id(one.registry), 0.0), now - one.since)
                if seconds >= TELL_AFTER_SECONDS:
                    del self._under_way[key]
                    one.tell(_error(one.registry, seconds))

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            self._went_round_at = time.monotonic()
            try:
                self.look()
            except Exception:  # noqa: BLE001 - the thread must look again
                _log.exception("not told that an Eureka does not answer")


def hanging(registry: Registry) -> RegistryUnreachable | None:
    """Why an Eureka counts as one that hangs; None where it does not."""
    seconds = _silence(registry)
    has_answered = any(peer.traffic.standing is not None for peer in registry.peers.peers)
    if seconds < (TROUBLE_AFTER_SECONDS if has_answered else TELL_AFTER_SECONDS):
        return None
    return _error(registry, seconds)


def _silence(registry: Registry) -> float:
    """For how long none of its servers has answered although it was asked."""
    return min((peer.traffic.silence_seconds for peer in registry.peers.peers), default=0.0)


def _error(registry: Registry, seconds: float) -> RegistryUnreachable:
    urls = ", ".join(peer.url for peer in registry.peers.peers)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))
    return RegistryUnreachable(
        f"{urls} was asked and has not answered since {since}: what waits is tried again until it does",
        url=urls,
    )
