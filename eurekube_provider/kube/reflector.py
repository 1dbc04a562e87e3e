"""A reflector keeps a local copy of the objects of one kind: one paged list, then one watch, for ever.

The copy has only the parts of each object that a :data:`TrimFunction` keeps. A reflector never ends by
itself: bookmarks carry it over quiet times, a silent connection is given up after
:data:`LONGEST_WATCH_SILENCE_SECONDS`, an expired watch leads to a new list, and an API server that is away
is asked again with a jittered back-off.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.objects import key_of, resource_version
from eurekube_provider.kube.access import PAGE_SIZE, ApiResource, KubeAccess, is_api_unavailable
from eurekube_provider.runtime.backoff import backoff_seconds
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)

LONGEST_WATCH_SILENCE_SECONDS = 100.0
"""Seconds of silence after which a watch is considered dead: bookmarks come about once a minute."""

WATCH_SECONDS_RANGE = (240, 300)
"""The seconds after which a watch is asked to end: a range, so that many operators do not return at once."""

SHORTEST_GOOD_WATCH_SECONDS = 1.0
"""Seconds that a successful watch lasts at least: one that ends sooner counts as a failure."""

_DENIAL_STATUS_CODES = (401, 403, 404)

DENIAL_SETTLE_SECONDS = 10.0
"""Seconds for which a denial may be wrong: an API server denies all until it has read its own rules."""

WATCH_SETTLE_SECONDS = 1.0
"""Seconds after which an opened watch has sent missed changes, or the error that it expired."""

STUCK_AFTER_SECONDS = 300.0
"""Seconds without progress after which a reflector counts as stuck: each of its requests ends sooner."""

FIRST_RETRY_DELAY_SECONDS, LONGEST_RETRY_DELAY_SECONDS = 0.1, 30.0

RELIST_AFTER_FAILURES = 3
"""The number of refusals in a row after which a new list is read, since the API may not know the version;
the next lists follow after twice as many each.
"""

MOST_FAILED_REPORTS = 5
"""Lists in a row that report a change again after an error of the listener; then the copy goes on without."""

Object = dict[str, Any]
TrimFunction = Callable[[Object, Object | None], Object]
"""A function that reduces an object to the parts to keep; its second argument is the former object (None
for a new one), whose parts may be reused.
"""
ChangeListener = Callable[[Object | None, Object | None], None]
"""A function that gets each change: the object before and after, None for one that is not there."""


class Reflector:
    """A copy of the objects of one kind, of one namespace or of all, as the API server last reported.

    :param trim: reduces an object to the parts that are kept; must keep ``metadata.name`` and
        ``metadata.namespace``.
    :param listener: called on the reflector's thread; must neither block nor raise.
    :param on_synced: called on that thread when the first list is complete.
    :param on_denied: called on that thread when the objects that were listed before may not be read any more.
    """

    def __init__(
        self,
        access: KubeAccess,
        resource: ApiResource,
        trim: TrimFunction,
        listener: ChangeListener,
        namespace: str | None = None,
        on_synced: Callable[[], None] = lambda: None,
        labels: str = "",
        page_size: int = PAGE_SIZE,
        on_denied: Callable[[], None] = lambda: None,
    ) -> None:
        self.namespace = namespace
        self._page_size = page_size
        self._selector = {"labelSelector": labels} if labels else {}
        self._access = access
        self._path = resource.path(namespace)
        self._trim = trim
        self._listener = listener
        self._on_synced = on_synced
        self._on_denied = on_denied
        self._objects: dict[tuple[str, str], Object] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # so that changes are reported in the order in which they are taken
        self._last_seen_version = 0  # the resource version of the last change that the API server reported
        self._version: str | None = None  # to watch from; None: list first
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._retries_now = threading.Event()
        self._failed_reports = 0
        self._lists_again = False
        self._was_unavailable = False  # since when the API server may have been restored from a backup
        self._denied: int | None = None  # the last answer that we may not have them, until they come
        self._denied_at = 0.0
        self._asks_again = False
        self.is_current_since_retry = False
        """True if the copy was current at the last :meth:`retry_now`, or has been listed since."""
        self._current_from: float | None = None  # by the monotonic clock; None: nobody tells of changes
        self._heard_at = -math.inf  # when the watch was opened or last brought an event, by the boot clock
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
        """Try again now, whatever failed before; list all objects again unless the copy is current."""
        self.is_current_since_retry = self.is_current
        self._lists_again = self._asks_again = not self.is_current_since_retry
        self._retries_now.set()

    @property
    def is_current(self) -> bool:
        """True if the copy shows the present objects: it was listed, and a watch has followed since.

        The reflector notices a server that has vanished after 30 s, and a watch that a proxy holds open
        without a server behind it after :data:`LONGEST_WATCH_SILENCE_SECONDS`. After a suspension
        of the machine, which stops the watch's time-out as well, it waits for the next event.
        """
        current_from, silence = self._current_from, boot_clock_seconds() - self._heard_at
        return (
            current_from is not None
            and time.monotonic() >= current_from
            and silence < LONGEST_WATCH_SILENCE_SECONDS + WATCH_SETTLE_SECONDS
        )

    @property
    def is_access_denied(self) -> bool:
        """True if the API server's last answer was that there is no such kind, or no right to read it.

        After :meth:`retry_now` the answer must come again, since an older one may no longer be true.
        """
        return self._denied is not None and not self._asks_again

    @property
    def is_denied_after_list(self) -> bool:
        """True if the objects were listed, and may not be read for some time now: the copy is old."""
        is_denied = self._denied is not None and self.is_synced
        return is_denied and time.monotonic() - self._denied_at >= DENIAL_SETTLE_SECONDS

    @property
    def is_usable_by_new_leader(self) -> bool:
        """True if a new leader may act on the copy: it is new enough, or the API server denies it."""
        is_denied = self.is_access_denied and (self.is_denied_after_list or not self.is_synced)
        return self.is_current_since_retry or self.is_current or is_denied

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def is_synced_or_forbidden(self) -> bool:
        """True if the first list is complete, or if a single namespace may not be read, which is retried."""
        return self.is_synced or (self.namespace is not None and self._denied == 403)

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the reflector's thread; bookmarks show that a watch is alive."""
        return liveness_of_started_threads(
            [self._thread], time.monotonic() - self._active_at, STUCK_AFTER_SECONDS
        )

    def get(self, namespace: str, name: str) -> Object | None:
        with self._lock:
            return self._objects.get((namespace, name))

    def objects(self, namespace: str | None = None) -> list[Object]:
        with self._lock:
            if namespace is None:
                return list(self._objects.values())
            return [item for key, item in self._objects.items() if key[0] == namespace]

    def replace_from_list(self, pages: Iterable[Object]) -> None:
        """Replace the copy by a list, whose pages are read here, and report the differences."""
        was_asked = self._asks_again
        fresh: dict[tuple[str, str], Object] = {}
        for page in pages:
            self._active_at = time.monotonic()
            for item in page.get("items") or ():
                key = key_of(item)
                fresh[key] = self._trim(item, self._objects.get(key))
        with self._turn:
            with self._lock:
                before, self._objects = self._objects, fresh
            self._last_seen_version = resource_version(page)
            changes: list[tuple[tuple[str, str], Object | None, Object | None]] = [
                (key, old, item) for key, item in fresh.items() if (old := before.pop(key, None)) != item
            ]
            changes += [(key, old, None) for key, old in before.items()]
            failed: dict[tuple[str, str], Object | None] = {}
            for key, old, new in changes:
                try:
                    self._notify_listener(old, new)
                except Exception as error:  # noqa: BLE001 - the other changes must be reported
                    failed[key], why = old, error
            if failed and self._failed_reports < MOST_FAILED_REPORTS:
                self._failed_reports += 1
                for key, old in failed.items():
                    self._put(key, old)
                raise why
            self._failed_reports = 0
        self._version = str(page["metadata"]["resourceVersion"])
        self._was_unavailable = False
        self.failure, self._current_from = None, time.monotonic()
        self._heard_at = boot_clock_seconds()
        self._denied = None
        if was_asked:
            self.is_current_since_retry, self._asks_again = True, False
        if not self._synced.is_set():
            self._synced.set()
            self._on_synced()

    def apply_event(self, event_type: str, item: Object) -> None:
        """Apply an event of a watch, ``ADDED``, ``MODIFIED`` or ``DELETED``, to the copy, and report it."""
        with self._turn:
            self._last_seen_version = resource_version(item)
            self._store_or_remove(item, exists=event_type != "DELETED")

    def store_write_answer(self, item: Object) -> None:
        """Store and report the object in the answer to our own write, unless a watch reported later changes.

        After a later change the answer may be old, and the watch would not repeat the change or removal of
        the object since. Resource versions of one kind only grow (Kubernetes, API concepts: resource
        versions).
        """
        with self._turn:
            version = resource_version(item)
            if not version or version > self._last_seen_version:
                self._store_or_remove(item, exists=True)

    def remove_deleted(self, item: Object) -> None:
        """Remove and report an object that this process deleted, unless another has its name by now."""
        with self._turn:
            stands = self.get(*key_of(item))
            if stands is not None and stands["metadata"].get("uid") == item["metadata"].get("uid"):
                self._store_or_remove(item, exists=False)

    def _store_or_remove(self, item: Object, *, exists: bool) -> None:
        key = key_of(item)
        old = self._objects.get(key)  # only the thread that holds the turn changes it
        kept = self._trim(item, old) if exists else None
        self._put(key, kept)
        if old == kept:
            return
        try:
            self._notify_listener(old, kept)
        except Exception:
            self._put(key, old)  # so that the next list has the change again
            raise

    def _put(self, key: tuple[str, str], item: Object | None) -> None:
        with self._lock:
            self._objects.pop(key, None)
            if item is not None:
                self._objects[key] = item

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self._retries_now.clear()
            started = self._active_at = time.monotonic()
            if self._lists_again:
                self._version, self._lists_again = None, False
            try:
                if self._was_unavailable and self._version is not None:
                    self._forget_version_that_is_ahead()
                if self._version is None:
                    pages = self._access.pages(self._path, query=self._selector, page_size=self._page_size)
                    self.replace_from_list(pages)
                self._watch()
                self.restarts["ended"] += 1
                if time.monotonic() - started >= SHORTEST_GOOD_WATCH_SECONDS:
                    failures = 0
                    continue
                failures += 1  # a server, or a proxy before it, that ends every watch at once
            except KubernetesError as error:
                self.restarts["expired" if error.status_code == 410 else "failed"] += 1
                if time.monotonic() - started > LONGEST_RETRY_DELAY_SECONDS:
                    failures = 0
                failures += 1
                self._was_unavailable |= is_api_unavailable(error)
                # A kind that is not installed, for days.
                is_known = self._denied == error.status_code == 404 and not self.is_synced
                if error.status_code in _DENIAL_STATUS_CODES:
                    self._current_from = None  # first, or retry_now() takes a denied copy for a current one
                    self._record_denial(error.status_code)
                if error.status_code == 410:
                    _log.info(
                        "watch expired, keeping the old copy and listing again", extra={"path": self._path}
                    )
                    self._version = None
                else:
                    self.failure = error
                    _log.log(
                        logging.DEBUG if is_known else logging.WARNING,
                        "failed to list or watch objects, keeping the old copy and retrying",
                        extra={"path": self._path, "error": str(error)},
                    )
                    # E.g. a version from before the API's storage was restored. 429: it is overloaded, which
                    # a list would make worse.
                    if error.status_code not in (None, 429) and _must_relist_after(failures):
                        self._version = None
            except Exception:  # noqa: BLE001 - whatever it was, the copy must not stay old for ever
                failures += 1
                self.restarts["failed"] += 1
                self.failure = KubernetesError(f"watch {self._path}: unexpected error, see the log")
                _log.exception(
                    "failed to list or watch objects: unexpected error, keeping the old copy and listing "
                    "again",
                    extra={"path": self._path},
                )
                self._version = None
            self._current_from = None
            delay = backoff_seconds(failures, FIRST_RETRY_DELAY_SECONDS, LONGEST_RETRY_DELAY_SECONDS)
            if not self._stopped.is_set() and self._retries_now.wait(delay):
                failures = 0

    def _forget_version_that_is_ahead(self) -> None:
        """List again if the API server has not reached our version: its storage was restored from a backup.

        It would accept a watch from that version, report nothing before it comes to it, and never report the
        changes up to there.
        """
        page = next(iter(self._access.pages(self._path, query=self._selector, page_size=1)))
        self._was_unavailable = False
        if 0 < resource_version(page) < resource_version({"metadata": {"resourceVersion": self._version}}):
            _log.warning(
                "the API server has an older version than before, as after a restore from a backup: keeping "
                "the old copy and listing again",
                extra={"path": self._path},
            )
            self._version = None

    def _watch(self) -> None:
        query = {
            "resourceVersion": str(self._version),
            **self._selector,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS_RANGE)),  # noqa: S311 - jitter, no secret
        }
        for event in self._access.watch(
            self._path, query, LONGEST_WATCH_SILENCE_SECONDS, self._on_watch_opened
        ):
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
                self.apply_event(event["type"], item)
            self._version = str(item["metadata"]["resourceVersion"])
            self._heard_at = boot_clock_seconds()

    def _record_denial(self, status_code: int) -> None:
        is_new = self._denied is None
        if is_new:
            self._denied_at = time.monotonic()
        self._denied, self._asks_again = status_code, False
        if is_new and self.is_synced:
            self._on_denied()

    def _on_watch_opened(self) -> None:
        self._denied = None
        self._heard_at = boot_clock_seconds()
        if self._current_from is None:
            self._current_from = time.monotonic() + WATCH_SETTLE_SECONDS

    def _notify_listener(self, old: Object | None, new: Object | None) -> None:
        if not self._stopped.is_set():
            self._listener(old, new)


class ReflectorGroup:
    """The reflectors of one kind, one for each watched namespace, with the interface of a single one."""

    def __init__(self, reflectors: Iterable[Reflector]) -> None:
        self.reflectors = tuple(reflectors)

    def get(self, namespace: str, name: str) -> Object | None:
        for one in self.reflectors:
            if one.namespace in (None, namespace) and (item := one.get(namespace, name)):
                return item
        return None

    def objects(self, namespace: str | None = None) -> list[Object]:
        return [item for one in self.reflectors for item in one.objects(namespace)]

    @property
    def is_synced(self) -> bool:
        return all(one.is_synced for one in self.reflectors)

    @property
    def is_synced_or_forbidden(self) -> bool:
        return all(one.is_synced_or_forbidden for one in self.reflectors)

    @property
    def is_usable_by_new_leader(self) -> bool:
        return all(one.is_usable_by_new_leader for one in self.reflectors)

    def find_unsynced(self, namespace: str) -> Reflector | None:
        """Return a reflector for the namespace whose first list is not complete yet, if any."""
        for one in self.reflectors:
            if one.namespace in (None, namespace) and not one.is_synced:
                return one
        return None

    def find_denied_after_list(self, namespace: str) -> Reflector | None:
        """Return a reflector for the namespace whose copy is old since it may not be read, if any."""
        for one in self.reflectors:
            if one.namespace in (None, namespace) and one.is_denied_after_list:
                return one
        return None

    @property
    def failure(self) -> KubernetesError | None:
        return next((one.failure for one in self.reflectors if one.failure), None)

    @property
    def restarts(self) -> Counter[str]:
        return sum((one.restarts.copy() for one in self.reflectors), Counter[str]())

    def liveness(self) -> list[Liveness]:
        return [loop for one in self.reflectors for loop in one.liveness()]

    def start(self) -> None:
        for one in self.reflectors:
            one.start()

    def retry_now(self) -> None:
        for one in self.reflectors:
            one.retry_now()

    def stop(self) -> None:
        for one in self.reflectors:
            one.stop()


def _must_relist_after(failures: int) -> bool:
    times, rest = divmod(failures, RELIST_AFTER_FAILURES)
    return rest == 0 and times > 0 and times & (times - 1) == 0
