"""A fake server that is both Eureka and a Kubernetes API, and records each request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.protocol.codec import instance_to_json_object


class PlayedServers:
    """A fake Eureka and Kubernetes API.

    :ivar instances: the instances in Eureka.
    :ivar objects: the objects in Kubernetes, by the plural of their kind.
    :ivar unknown: plurals of kinds that Kubernetes does not have: 404, or 403 where they are refused.
    :ivar refused: plurals that are answered with 403; ``refused_namespaces``: namespaces whose syncers are.
    :ivar asked: method and path of every request.
    """

    def __init__(self, folder: Path) -> None:
        self.instances: list[Instance] = []
        self.lease_ends: dict[str, int] = {}
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.unknown: set[str] = set()
        self.refused: set[str] = set()
        self.refused_namespaces: set[str] = set()
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.eureka_url = f"{self.url}/eureka"
        self.kubeconfig = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "u", "user": {}}],
            "current-context": "x",
        }
        self.kubeconfig.write_text(yaml.safe_dump(document))

    @contextmanager
    def running(self) -> Iterator[PlayedServers]:
        """Serve requests within the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield self
        self._server.shutdown()
        self._server.server_close()
        thread.join()

    def answer(self, path: str) -> Any | None:
        """Return the object at a path, or None if it does not exist."""
        if path.startswith("/eureka/"):
            return self._of_eureka([unquote(part) for part in path.split("/")[2:]])
        if path == "/version":
            return {"major": "1", "minor": "33"}
        parts = path.split("/")
        if path == "/apis/eurekube.io/v1alpha1":
            kinds = {"eurekasyncers", "eurekamirrors"} - self.unknown
            return {"kind": "APIResourceList", "resources": [{"name": one} for one in sorted(kinds)]}
        if parts[-1] in self.unknown:
            return None
        if path.endswith("/namespaces/kube-system"):
            return {"metadata": {"name": "kube-system", "uid": "uid-1"}}
        if "pods" in parts and parts[-1] != "pods":
            pods = self.objects.get("pods", [])
            return next((one for one in pods if one["metadata"]["name"] == parts[-1]), None)
        items = self.objects.get(parts[-1], [])
        if "namespaces" in parts:
            namespace = parts[parts.index("namespaces") + 1]
            items = [one for one in items if one["metadata"]["namespace"] == namespace]
        return {"metadata": {}, "items": items}

    def refuses(self, path: str) -> bool:
        """Return whether a path is answered with 403."""
        parts = path.split("/")
        is_secret = parts[-1] == "eurekasyncers" and bool(self.refused_namespaces.intersection(parts))
        return parts[-1] in self.refused or is_secret

    def _of_eureka(self, parts: list[str]) -> Any | None:
        shown = [self._shown(one) for one in self.instances]
        if parts == ["apps"]:
            applications = [{"name": one["app"], "instance": [one]} for one in shown]
            return {"applications": {"application": applications}}
        if parts[0] in ("apps", "instances"):
            return next(({"instance": one} for one in shown if one["instanceId"] == parts[-1]), None)
        return None

    def _shown(self, one: Instance) -> dict[str, Any]:
        document = dict(instance_to_json_object(one))
        ends = self.lease_ends.get(one.instance_id)
        if ends is not None:
            document["leaseInfo"] = {**document["leaseInfo"], "lastRenewalTimestamp": ends}
        return document

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        servers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                servers.asked.append(f"GET {path}")
                found = servers.answer(path)
                status = 404 if found is None else 200
                if servers.refuses(path):
                    status, found = 403, {"kind": "Status", "message": "forbidden"}
                body = json.dumps(found or {}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                servers.asked.append(f"{self.command} {self.path}")
                self.send_error(405)

            do_PUT = do_DELETE = do_PATCH = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler
