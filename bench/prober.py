"""The prober: reads and writes Eureka over raw connections, to see its present state and to measure the
floors.

It never asks for a list, which is up to half a minute old, or, made again for each request, fills the
server's memory for three minutes. It reads single instances, and many by heartbeats in batches; neither comes
from a cache.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

MAX_BATCH_ITEMS = 250
_RESOURCE_VERSION_PATTERN = re.compile(rb'"resourceVersion": ?"(\d+)"')
_JSON_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}

Key = tuple[str, str]


class Prober:
    """One connection to one Eureka server, for one thread.

    :param agent: the user agent that the server's access log shows.
    """

    def __init__(self, url: str, agent: str = "prober") -> None:
        self._headers = {**_JSON_HEADERS, "User-Agent": agent}
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._path = parts.path
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send one request, a second time if an idle connection was closed; return status code and body."""
        for attempt in (1, 2):
            try:
                self._connection.request(method, self._path + path, body, self._headers)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                self._connection.close()
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def read(self, key: Key) -> dict[str, Any] | None:
        """Return one instance as the server holds it now; None where it does not."""
        status, body = self.request("GET", f"/apps/{key[0]}/{quote(key[1], safe='')}")
        return json.loads(body)["instance"] if status == 200 else None

    def shows(self, key: Key) -> bool:
        """Return whether the server holds an instance now."""
        return self.request("GET", f"/apps/{key[0]}/{quote(key[1], safe='')}")[0] == 200

    def count_held(self, keys: Sequence[Key]) -> int:
        """Return how many of the given instances the server holds now."""
        return sum(answer["statusCode"] == 200 for answer in self._send_heartbeats(keys, None))

    def read_statuses(self, keys: Sequence[Key]) -> dict[Key, str]:
        """Return the statuses of the given instances that the server holds now."""
        return {key: held["status"] for key, held in self._read_held(keys).items()}

    def register(self, application: str, document: dict[str, Any]) -> None:
        """Register one instance by a raw request."""
        status, body = self.request(
            "POST", f"/apps/{application}", json.dumps({"instance": document}).encode()
        )
        assert status == 204, body

    def register_all(self, documents: Iterable[dict[str, Any]]) -> None:
        """Register instances in raw batches."""
        items = (
            {
                "action": "Register",
                "appName": document["app"],
                "id": document["instanceId"],
                "status": "UP",
                "lastDirtyTimestamp": document["lastDirtyTimestamp"],
                "instanceInfo": document,
            }
            for document in documents
        )
        self._send_batches(items)

    def cancel(self, keys: Sequence[Key]) -> None:
        """Remove the given instances."""
        self._send_batches({"action": "Cancel", "appName": key[0], "id": key[1]} for key in keys)
        assert self.count_held(keys) == 0

    def wait_until_registered(
        self, keys: Sequence[Key], timeout_seconds: float = 300.0, an_application: int = 100
    ) -> float:
        """Wait until the server holds all given instances; return when it got the last one, by
        ``time.perf_counter()``.

        First the last instance of each application is read until it is there, which hardly disturbs the
        server; then all are read. That takes some tenths of a second, so the time is taken from the server's
        own records: when each instance was last registered.

        :raises TimeoutError: not all came.
        """
        deadline = time.monotonic() + timeout_seconds
        last = list(keys[an_application - 1 :: an_application]) or [keys[-1]]
        while True:
            while last and self.shows(last[-1]):
                last.pop()
            if not last and len(registered := self._registration_times(keys)) == len(keys):
                return max(registered) - time.time() + time.perf_counter()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.count_held(keys)} of {len(keys)} instances after {timeout_seconds:g} s"
                )
            time.sleep(0.02)

    def _registration_times(self, keys: Sequence[Key]) -> list[float]:
        """Return the Unix times at which the server took the given instances that it holds."""
        return [int(each["lastUpdatedTimestamp"]) / 1000 for each in self._read_held(keys).values()]

    def _read_held(self, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """Return the given instances that the server holds now."""
        # A server answers so old a heartbeat with the instance that it holds.
        answers = zip(keys, self._send_heartbeats(keys, 1), strict=True)
        return {key: answer["responseEntity"] for key, answer in answers if answer["statusCode"] == 409}

    def _send_heartbeats(self, keys: Sequence[Key], timestamp_ms: int | None) -> list[dict[str, Any]]:
        return self._send_batches(
            {
                "action": "Heartbeat",
                "appName": key[0],
                "id": key[1],
                "status": "UP",
                "lastDirtyTimestamp": timestamp_ms,
            }
            for key in keys
        )

    def _send_batches(self, items: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        while chunk := list(itertools.islice(items, MAX_BATCH_ITEMS)):
            body = json.dumps({"replicationList": chunk}, separators=(",", ":")).encode()
            status, answer = self.request("POST", "/peerreplication/batch/", body)
            assert status == 200, answer
            answers += json.loads(answer)["responseList"]
        return answers


_LONGEST_WATCH_SECONDS = 6 * 3600
"""Seconds that a watch may last, longer than any benchmark; by default a server ends it within an hour."""


class RawSlices:
    """Access to the API of EndpointSlices with the standard library only."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        parts = urlsplit(cluster["server"])
        assert parts.hostname is not None
        self._headers = {"Authorization": f"Bearer {user['token']}", "Accept": "application/json"}
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._host, self._port = parts.hostname, parts.port
        self._slices = "/apis/discovery.k8s.io/v1"

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, timeout=300, context=self._context)


class RawPatches(RawSlices):
    """A connection that changes slices by JSON patch, for one thread."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self._connection = self._connect()
        self._headers["Content-Type"] = "application/json-patch+json"

    def patch(self, namespace: str, name: str, body: bytes) -> str:
        """Send one patch, only once: some patches would mean something else the second time.

        :returns: the slice's new resource version.
        """
        path = f"{self._slices}/namespaces/{namespace}/endpointslices/{name}"
        self._connection.request("PATCH", path, body, self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        found = _RESOURCE_VERSION_PATTERN.search(answer)
        assert found is not None, answer
        return found[1].decode()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class RawWatch(RawSlices):
    """A watch of a namespace's EndpointSlices."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        super().__init__(kubeconfig)
        self._namespace = namespace

    def events(self, on_start: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """List, watch, and call ``on_start``; then yield each changed object until the server ends the
        watch.
        """
        return (change["object"] for change in self.changes(on_start))

    def slices(self, on_start: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """List and yield each slice, then watch, call ``on_start``, and yield each changed one."""
        listed = [one for page in self.pages(self._namespace) for one in page["items"]]
        yield from listed
        yield from self.events(on_start)

    def changes(self, on_start: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """List, watch, and call ``on_start``; then yield each change of an object, with its type."""
        version = "0"
        for page in self.pages(self._namespace):
            version = page["metadata"]["resourceVersion"]
        connection = self._connect()
        # Bookmarks come once a minute, so that a namespace in which nothing happens is not taken for dead.
        query = (
            f"watch=1&allowWatchBookmarks=1&timeoutSeconds={_LONGEST_WATCH_SECONDS}&resourceVersion={version}"
        )
        path = f"{self._slices}/namespaces/{self._namespace}/endpointslices?{query}"
        connection.request("GET", path, headers=self._headers)
        response = connection.getresponse()
        assert response.status == 200
        on_start()
        while line := response.readline():
            change = json.loads(line)
            if change["type"] != "BOOKMARK":
                yield change

    def pages(self, namespace: str, limit: int = 500) -> Iterator[dict[str, Any]]:
        """Yield a namespace's slices, page by page."""
        connection = self._connect()
        more = ""
        while True:
            path = f"{self._slices}/namespaces/{namespace}/endpointslices?limit={limit}{more}"
            connection.request("GET", path, headers=self._headers)
            page = json.loads(connection.getresponse().read())
            yield page
            token = page["metadata"].get("continue")
            if not token:
                connection.close()
                return
            more = f"&continue={quote(token)}"


def wait_until(
    look: Callable[[], bool], what: str, timeout_seconds: float, pause_seconds: float = 0.02
) -> float:
    """Call ``look`` until it returns true; return that time by ``time.perf_counter()``.

    :raises TimeoutError: it never did.
    """
    deadline = time.monotonic() + timeout_seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_seconds:g} s")
        time.sleep(pause_seconds)
    return time.perf_counter()
