"""A reflector keeps a local copy of the objects of one kind: one paged list, then one watch, for ever.

The copy has only the parts of each object that a :data:`Trim` keeps. A reflector never ends by itself:
bookmarks carry it over quiet times, a silent connection is given up after :data:`SILENCE_SECONDS`, an expired
watch leads to a new list, and an API server that is away is asked again with a jittered back-off.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.kube.access import ApiResource, KubeAccess
from eurekube_provider.runtime.backoff import backoff

_log = logging.getLogger(__name__)

SILENCE_SECONDS = 100.0
"""The longest silence of a watch, in seconds: bookmarks come about once a minute, and a watch that is
silent for longer is considered dead.
"""

WATCH_SECONDS = (240, 300)
"""The range of seconds after which a watch is asked to end; random, so that many operators do not come
back at once.
"""

SHORTEST_WATCH_SECONDS = 1.0
"""The shortest time, in seconds, of a successful watch: one that ends sooner counts as a failure, whatever
the reason.
"""

_DENIALS = (401, 403, 404)

_BUSY = 429
"""The status code of an overloaded API server, which a list would load even more."""

SETTLE_SECONDS = 1.0
"""Seconds after the opening of a watch by which missed changes, or the error that it expired, have
arrived.
"""

LONGEST_ROUND_SECONDS = 300.0
"""Seconds without progress after which a reflector counts as stuck: each of its requests ends sooner."""

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.1, 30.0
AGAIN_AFTER_FAILURES = 3
"""The number of refusals in a row after which a new list is read, since the API may not know the version;
the next lists follow after twice as many each.
"""

Object = dict[str, Any]
Trim = Callable[[Object, Object | None], Object]
"""A function that reduces an object to the parts to keep; its second argument is the former object (None
for a new one), whose parts may be reused.
"""
Listener = Callable[[Object | None, Object | None], None]
"""A function that receives each change: the object before (None for a new one) and after (None for a
removed one).
"""


class Reflector:
    """A copy of the objects of one kind, of one namespace or of all, as the API server last reported.

    :param trim: reduces an object to the parts that are kept; must keep ``metadata.name`` and
        ``metadata.namespace``.
    :param listener: called on the reflector's thread; must neither block nor raise.
    :param on_synced: called on that thread when the first list is complete.
    :param labels: a label selector for the objects to copy; default all.
    """

    def __init__(
        self,
        access: KubeAccess,
        resource: ApiResource,
        trim: Trim,
        listener: Listener,
        namespace: str | None = None,
        on_synced: Callable[[], None] = lambda: None,
        labels: str = "",
    ) -> None:
        self.namespace = namespace
        self._selector = {"labelSelector": labels} if labels else {}
        self._access = access
        self._path = resource.path(namespace)
        self._trim = trim
        self._listener = listener
        self._on_synced = on_synced
        self._objects: dict[tuple[str, str], Object] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # so that changes are reported in the order in which they are taken
        self._last_seen_version = 0  # the resource version of the last change that the API server reported
        self._version: str | None = None  # to watch from; None: list first
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._retries_now = threading.Event()
        self._lists_again = False
        self._denied: int | None = None  # the last answer that we may not have them, until they come
        self._asks_again = False
        self.is_level = False
        """True if the copy was current at the last :meth:`retry_now`, or has been listed since."""
        self._current_from: float | None = None  # by the monotonic clock; None: nobody tells of changes
        self.failure: KubernetesError | None = None
        """The last error, for which the copy may be old; None while the watch runs."""
        self.restarts: Counter[str] = Counter()
        """The number of times that the watch began again, by reason: ``ended`` (by the server, as asked),
        ``expired`` (410), ``failed`` (any other error).
        """
        self._active_at = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, name=f"reflector-{resource.plural}-{namespace or 'all'}", daemon=True
        )

    def start(self) -> None:
        """Begin to list and watch, on a thread of the reflector's own."""
        self._active_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Make no further request and do not call the listener any more; does not wait for a silent watch."""
        self._stopped.set()
        self._retries_now.set()

    def retry_now(self) -> None:
        """Try again now if the last try failed, since the API server answers others again.

        Unless the copy is current, it is listed again: the caller wants to know the present objects.
        """
        self.is_level = self.is_current
        self._lists_again = self._asks_again = not self.is_level
        self._retries_now.set()

    @property
    def is_current(self) -> bool:
        """True if the copy shows the present objects: it was listed, and a watch has followed since.

        The reflector notices a server that has vanished after 30 s, and a watch that a proxy holds open
        without a server behind it after :data:`SILENCE_SECONDS`.
        """
        current_from = self._current_from
        return current_from is not None and time.monotonic() >= current_from

    @property
    def is_shut_out(self) -> bool:
        """True if the API server's last answer was that this process may not read these objects, or that
        there is no such kind.

        After :meth:`retry_now` the answer must come again, since an older one may no longer be true.
        """
        return self._denied is not None and not self._asks_again

    @property
    def may_be_led_by(self) -> bool:
        """True if a new leader may act on the copy: it is new enough, or the API server refuses the
        objects.
        """
        return self.is_level or self.is_current or self.is_shut_out

    @property
    def is_synced(self) -> bool:
        """True if the first list is complete."""
        return self._synced.is_set()

    @property
    def is_refused(self) -> bool:
        """True if the first list is not complete because this process has no permission. The reflector
        keeps asking.
        """
        return not self.is_synced and self._denied == 403

    @property
    def is_settled(self) -> bool:
        """True if the first list is complete, or is that of a single namespace that this process may not
        read.
        """
        return self.is_synced or (self.namespace is not None and self.is_refused)

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the reflector's thread; bookmarks show that a watch is alive."""
        return liveness_of([self._thread], time.monotonic() - self._active_at, LONGEST_ROUND_SECONDS)

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object, None where it does not exist."""
        with self._lock:
            return self._objects.get((namespace, name))

    def objects(self, namespace: str | None = None) -> list[Object]:
        """Return all objects, or those of a namespace."""
        with self._lock:
            if namespace is None:
                return list(self._objects.values())
            return [item for key, item in self._objects.items() if key[0] == namespace]

    def take_list(self, pages: Iterable[Object]) -> None:
        """Replace the copy by a whole list, page by page as the API answers, and report the differences to
        the listener.
        """
        was_asked = self._asks_again
        fresh: dict[tuple[str, str], Object] = {}
        for page in pages:
            self._active_at = time.monotonic()
            for item in page.get("items") or ():
                key = _key(item)
                fresh[key] = self._trim(item, self._objects.get(key))
        with self._turn:
            with self._lock:
                before, self._objects = self._objects, fresh
            self._last_seen_version = _version_of(page)
            for key, item in fresh.items():
                old = before.pop(key, None)
                if old != item:
                    self._notify(old, item)
            for old in before.values():
                self._notify(old, None)
        self._version = str(page["metadata"]["resourceVersion"])
        self.failure, self._current_from = None, time.monotonic()
        self._denied = None
        if was_asked:
            self.is_level, self._asks_again = True, False
        if not self._synced.is_set():
            self._synced.set()
            self._on_synced()

    def take(self, event_type: str, item: Object) -> None:
        """Apply one event of a watch (``ADDED``, ``MODIFIED`` or ``DELETED``) to the copy, and report it
        to the listener.
        """
        with self._turn:
            self._last_seen_version = _version_of(item)
            self._replace(item, is_there=event_type != "DELETED")

    def take_answer(self, item: Object) -> None:
        """Store the object in the answer to a write of this process, and report it, unless a watch has
        reported later changes.

        After a later change the answer may be old, and the watch would not repeat the change or removal of
        the object since. Resource versions of one kind only grow (Kubernetes, API concepts: resource
        versions).
        """
        with self._turn:
            version = _version_of(item)
            if not version or version > self._last_seen_version:
                self._replace(item, is_there=True)

    def take_removal(self, item: Object) -> None:
        """Remove an object that this process has deleted, and report it, unless another object has its
        name by now.
        """
        with self._turn:
            stands = self.get(*_key(item))
            if stands is not None and stands["metadata"].get("uid") == item["metadata"].get("uid"):
                self._replace(item, is_there=False)

    def _replace(self, item: Object, *, is_there: bool) -> None:
        key = _key(item)
        old = self._objects.get(key)  # which only who has the turn changes
        kept = self._trim(item, old) if is_there else None
        with self._lock:
            self._objects.pop(key, None)
            if kept is not None:
                self._objects[key] = kept
        if old != kept:
            self._notify(old, kept)

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self._retries_now.clear()
            started = self._active_at = time.monotonic()
            if self._lists_again:
                self._version, self._lists_again = None, False
            try:
                if self._version is None:
                    self.take_list(self._pages())
                self._watch()
                self.restarts["ended"] += 1
                if time.monotonic() - started >= SHORTEST_WATCH_SECONDS:
                    failures = 0
                    continue
                failures += 1  # a server, or a proxy before it, that ends every watch at once
            except KubernetesError as error:
                self.restarts["expired" if error.status_code == 410 else "failed"] += 1
                if time.monotonic() - started > LONGEST_DELAY_SECONDS:
                    failures = 0
                failures += 1
                is_known = self._denied == error.status_code == 404  # a kind that is not installed, for days
                if error.status_code in _DENIALS:
                    self._current_from = None  # first, or retry_now() takes a denied copy for a current one
                    self._denied, self._asks_again = error.status_code, False
                if error.status_code == 410:
                    _log.info("watch expired, listing again", extra={"path": self._path})
                    self._version = None
                else:
                    self.failure = error
                    _log.log(
                        logging.DEBUG if is_known else logging.WARNING,
                        "failed to list or watch, retrying",
                        extra={"path": self._path, "error": str(error)},
                    )
                    if error.status_code not in (None, _BUSY) and _lists_again_after(failures):
                        # E.g. a version from before the API's storage was restored.
                        self._version = None
            except Exception:  # noqa: BLE001 - whatever it was, the copy must not stay old for ever
                failures += 1
                self.restarts["failed"] += 1
                self.failure = KubernetesError(f"watch {self._path}: unexpected error, see the log")
                _log.exception("failed to watch, listing again", extra={"path": self._path})
                self._version = None
            self._current_from = None
            delay = backoff(failures, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
            if not self._stopped.is_set() and self._retries_now.wait(delay):
                failures = 0

    def _pages(self) -> Iterable[Object]:
        if self._selector:
            return self._access.pages(self._path, query=self._selector)
        return self._access.pages(self._path)

    def _watch(self) -> None:
        """Follow changes until the server ends the watch."""
        query = {
            "resourceVersion": str(self._version),
            **self._selector,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - jitter, no secret
        }
        for event in self._access.watch(self._path, query, SILENCE_SECONDS, self._opened):
            if self._stopped.is_set():
                break
            self.failure = None
            self._active_at = time.monotonic()
            item = event["object"]
            if event["type"] == "ERROR":
                raise KubernetesError(
                    f"watch {self._path}: {item.get('message')}", status_code=item.get("code")
                )
            if event["type"] != "BOOKMARK":
                self.take(event["type"], item)
            self._version = str(item["metadata"]["resourceVersion"])

    def _opened(self) -> None:
        self._denied = None
        if self._current_from is None:
            self._current_from = time.monotonic() + SETTLE_SECONDS

    def _notify(self, old: Object | None, new: Object | None) -> None:
        if not self._stopped.is_set():
            self._listener(old, new)


class ReflectorGroup:
    """The reflectors of one kind, one for each watched namespace, with the interface of a single one."""

    def __init__(self, reflectors: Iterable[Reflector]) -> None:
        self.reflectors = tuple(reflectors)

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object, None where it does not exist."""
        for one in self.reflectors:
            if one.namespace in (None, namespace) and (item := one.get(namespace, name)):
                return item
        return None

    def objects(self, namespace: str | None = None) -> list[Object]:
        """Return all objects, or those of a namespace."""
        return [item for one in self.reflectors for item in one.objects(namespace)]

    @property
    def is_synced(self) -> bool:
        """True if all first lists are complete."""
        return all(one.is_synced for one in self.reflectors)

    @property
    def is_settled(self) -> bool:
        """True if all first lists are complete, except those of single namespaces that this process may
        not read.
        """
        return all(one.is_settled for one in self.reflectors)

    @property
    def may_be_led_by(self) -> bool:
        """True if a new leader may act on all copies."""
        return all(one.may_be_led_by for one in self.reflectors)

    def without_list(self, namespace: str) -> Reflector | None:
        """Return a reflector for the namespace whose first list is not complete yet; None if there is
        none.
        """
        for one in self.reflectors:
            if one.namespace in (None, namespace) and not one.is_synced:
                return one
        return None

    @property
    def failure(self) -> KubernetesError | None:
        """The failure of the first reflector that has one; None if none has."""
        return next((one.failure for one in self.reflectors if one.failure), None)

    @property
    def restarts(self) -> Counter[str]:
        """The number of restarts of all watches by reason, as :attr:`Reflector.restarts`."""
        return sum((one.restarts.copy() for one in self.reflectors), Counter[str]())

    def liveness(self) -> list[Liveness]:
        """Return the liveness of all threads."""
        return [loop for one in self.reflectors for loop in one.liveness()]

    def start(self) -> None:
        """Start all reflectors."""
        for one in self.reflectors:
            one.start()

    def retry_now(self) -> None:
        """Have all reflectors try again now."""
        for one in self.reflectors:
            one.retry_now()

    def stop(self) -> None:
        """Stop all reflectors."""
        for one in self.reflectors:
            one.stop()


def _lists_again_after(failures: int) -> bool:
    """Return whether to list again after this many failures in a row: after the first few, then each time
    that they doubled.
    """
    times, rest = divmod(failures, AGAIN_AFTER_FAILURES)
    return rest == 0 and times > 0 and times & (times - 1) == 0


def _version_of(item: Object) -> int:
    """Return the resource version of an object or a list; 0 where it cannot be compared."""
    version = str(item["metadata"].get("resourceVersion"))
    return int(version) if version.isdecimal() else 0


def _key(item: Object) -> tuple[str, str]:
    return (item["metadata"].get("namespace", ""), item["metadata"]["name"])
