"""EndpointSlices of a mirror: a watch that notes their content over time, and a raw writer of the same
slices.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.prober import RawSlices, RawWatch
from eurekube_provider.core.objects import SERVICE_NAME_LABEL

ServiceContent = frozenset[tuple[str, bool]]
"""Addresses of a Service, each with whether it is ready."""

Object = dict[str, Any]


_NO_CONTENT: tuple[float, ServiceContent] = (0.0, frozenset())


class SliceWatch:
    """A watch of a namespace's slices that notes each Service's content, and since when it has it."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._watch = RawWatch(kubeconfig, namespace)
        self._changed = threading.Condition()
        self._shown: dict[str, tuple[float, ServiceContent]] = {}
        started = threading.Event()
        threading.Thread(target=self._follow, args=(started,), daemon=True).start()
        started.wait()

    def wait_until_shown(
        self, wanted: Mapping[str, ServiceContent], timeout_seconds: float
    ) -> dict[str, float]:
        """Wait until each of these Services has its wanted content.

        :returns: since when each has it, by ``time.perf_counter()``.
        :raises TimeoutError: not all did.
        """

        def wrong() -> list[str]:
            return [
                name for name, content in wanted.items() if self._shown.get(name, _NO_CONTENT)[1] != content
            ]

        with self._changed:
            if not self._changed.wait_for(lambda: not wrong(), timeout_seconds):
                raise TimeoutError(f"{len(wrong())} of {len(wanted)} Services do not show what they should")
            return {name: self._shown[name][0] for name in wanted}

    def clear_contents(self) -> None:
        """Forget all contents, since the slices were deleted."""
        with self._changed:
            self._shown.clear()

    def _follow(self, started: threading.Event) -> None:
        for change in self._watch.changes(started.set):
            now, item = time.perf_counter(), change["object"]
            name = (item["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL, "")
            content = slice_content(item) if change["type"] != "DELETED" else frozenset()
            with self._changed:
                self._shown[name] = now, content
                self._changed.notify_all()


def slice_content(item: Mapping[str, Any]) -> ServiceContent:
    """Return a slice's addresses with their readiness."""
    return frozenset(
        (one["addresses"][0], bool(one["conditions"]["ready"])) for one in item.get("endpoints") or ()
    )


class RawMirror(RawSlices):
    """A raw writer of Services and their slices over one connection, for one thread."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        super().__init__(kubeconfig)
        self._connection = self._connect()
        self._headers["Content-Type"] = "application/json"
        self._services = f"/api/v1/namespaces/{namespace}/services"
        self._path = f"{self._slices}/namespaces/{namespace}/endpointslices"

    def create(self, application: Mapping[str, Any]) -> None:
        """Create the Service of an application that Eureka lists, and its slice."""
        name = application["name"].lower()
        spec = {"ports": [{"name": "http", "port": 80}]}
        service = self._send("POST", self._services, {"metadata": {"name": name}, "spec": spec})
        self._send("POST", self._path, _slice(application, service["metadata"]["uid"]))

    def replace(self, application: Mapping[str, Any]) -> None:
        """Replace the slice of an application that Eureka lists."""
        name = application["name"].lower()
        self._send("PUT", f"{self._path}/{name}", _slice(application, None))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _send(self, method: str, path: str, body: Object) -> Object:
        self._connection.request(method, path, json.dumps(body).encode(), self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status in (200, 201), answer
        found: Object = json.loads(answer)
        return found


def parse_applications(body: bytes) -> Iterable[Mapping[str, Any]]:
    """Return the applications of a list or of a delta."""
    found: Iterable[Mapping[str, Any]] = json.loads(body)["applications"]["application"]
    return found


def _slice(application: Mapping[str, Any], owner: str | None) -> Object:
    name = application["name"].lower()
    instances = application["instance"]
    reference = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": owner}
    return {
        "metadata": {
            "name": name,
            "labels": {SERVICE_NAME_LABEL: name},
            **({"ownerReferences": [reference]} if owner else {}),
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": instances[0]["port"]["$"], "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [one["ipAddr"]],
                "conditions": {"ready": one["status"] == "UP", "serving": one["status"] == "UP"},
                "targetRef": {"kind": "EurekaInstance", "name": one["instanceId"]},
            }
            for one in instances
        ],
    }
