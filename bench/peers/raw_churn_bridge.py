"""The floor of P8: a raw watch of a namespace's EndpointSlices, and a raw request for each changed endpoint.

It has only the standard library, no memory but each endpoint's readiness, and no way to notice a request that
was lost: the least that a bridge does which sends each change by itself. One of a few threads writes the
changes of a slice, in their order; all servers are asked at once, and none forwards.
``python -m bench.peers.raw_churn_bridge NAMESPACE``.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from bench.access_log import USER_AGENTS
from bench.peers.documents import registration_document
from bench.prober import RawWatch

THREAD_COUNT = 4
"""Number of threads that write, each with a connection to each server."""


class _Writer(threading.Thread):
    """The writer of some slices' changes, in their order."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(daemon=True)
        self.changes: queue.SimpleQueue[tuple[str, str, bytes | None]] = queue.SimpleQueue()
        self._paths = [urlsplit(url).path for url in urls]
        self._connections = [
            http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
            for parts in map(urlsplit, urls)
        ]
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": USER_AGENTS.raw,
        }
        if len(urls) > 1:
            self._headers["x-netflix-discovery-replication"] = "true"

    def run(self) -> None:
        """Send each change to all servers, and take their answers."""
        while True:
            method, path, body = self.changes.get()
            for connection, prefix in zip(self._connections, self._paths, strict=True):
                connection.request(method, prefix + path, body, self._headers)
            for connection in self._connections:
                response = connection.getresponse()
                response.read()
                assert response.status in (200, 204, 404), response.status


def main() -> None:
    """Start the watch, print ``watching``, then write each endpoint that changed."""
    namespace = sys.argv[1]
    writers = [_Writer(os.environ["EUREKA_URL"].split(",")) for _ in range(THREAD_COUNT)]
    for writer in writers:
        writer.start()
    watch = RawWatch(Path(os.environ["KUBECONFIG"]), namespace)
    seen: dict[str, dict[str, bool]] = {}
    for item in watch.slices(on_start=lambda: print("watching", flush=True)):
        name = item["metadata"]["name"]
        writer = writers[hash(name) % THREAD_COUNT]
        for change in _changes(name, item, seen.setdefault(name, {})):
            writer.changes.put(change)


def _changes(name: str, item: dict[str, Any], known: dict[str, bool]) -> list[tuple[str, str, bytes | None]]:
    """Return the requests for the endpoints of a slice that changed, and note them in ``known``."""
    port, path = item["ports"][0]["port"], f"/apps/{name.upper()}"
    gone, changes = set(known), list[tuple[str, str, bytes | None]]()
    for endpoint in item.get("endpoints") or ():
        if endpoint["conditions"].get("terminating"):
            continue
        instance_id, ready = endpoint["targetRef"]["name"], endpoint["conditions"]["ready"]
        gone.discard(instance_id)
        if known.get(instance_id) != ready:
            known[instance_id] = ready
            instance = registration_document(name, instance_id, endpoint["addresses"][0], port, up=ready)
            changes.append(("POST", path, json.dumps({"instance": instance}).encode()))
    for instance_id in gone:
        del known[instance_id]
        changes.append(("DELETE", f"{path}/{quote(instance_id, safe='')}", None))
    return changes


if __name__ == "__main__":
    main()
