"""An API server without any object but those of a test, for tests that ask which parts list and watch."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import KubeAccess


class QuietApi:
    """An API server with silent watches, until a test has it refuse lists and watches.

    :ivar objects: by kind, what a list has; nothing unless a test adds it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lists: Counter[str] = Counter()
        self.objects: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.lists_answer = threading.Event()
        self.lists_answer.set()
        self._refused: dict[str, KubernetesError] = {}
        self._changed = threading.Condition()
        self._is_over = False
        monkeypatch.setattr(KubeAccess, "pages", lambda _, path, *__, **___: self._pages(_kind(path)))
        monkeypatch.setattr(
            KubeAccess, "watch", lambda _, path, _query, _seconds, on_open: self._watch(_kind(path), on_open)
        )

    def refuse(self, kind: str, code: int) -> None:
        """Refuse lists of one kind from now on, and end its watches with the same error."""
        with self._changed:
            self._refused[kind] = KubernetesError(f"{kind} cannot be read", status_code=code)
            self._changed.notify_all()

    def end(self) -> None:
        """End all watches."""
        self.lists_answer.set()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _pages(self, kind: str) -> Iterator[dict[str, Any]]:
        self.lists[kind] += 1
        self.lists_answer.wait(60)
        if kind in self._refused:
            raise self._refused[kind]
        yield {"metadata": {"resourceVersion": "1"}, "items": self.objects[kind]}

    def _watch(self, kind: str, on_open: Callable[[], None]) -> Iterator[dict[str, Any]]:
        if kind not in self._refused:
            on_open()
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or kind in self._refused, 60)
        if kind in self._refused:
            raise self._refused[kind]
        yield from ()


def _kind(path: str) -> str:
    return path.rpartition("/")[2]
