"""The HTTP server, on the loopback interface, of the Kubernetes API in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakSet

import yaml

from eurekube_provider.dev.kubernetes.object_api import ApiRequest, ObjectApi
from eurekube_provider.dev.kubernetes.object_store import ApiRefusal, ObjectStore
from eurekube_provider.dev.kubernetes.served_kinds import Object
from eurekube_provider.runtime.http_listener import HttpListener


class KubernetesApi(HttpListener):
    """A Kubernetes API that runs within a context: ``with KubernetesApi() as api:``.

    :param port: the TCP port; 0 for a free one.
    :ivar objects: the API without its transport.
    :raises ConfigurationError: the port is taken.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__("127.0.0.1", port, _ApiHandler, "a Kubernetes API")
        self._store = ObjectStore()
        self.watching: WeakSet[threading.Thread] = WeakSet()
        self.objects = ObjectApi(self._store)

    def stop(self) -> None:
        """End every watch, stop answering and free the port."""
        self._store.close()
        for thread in [*self.watching]:
            thread.join(5.0)  # after its last chunk
        super().stop()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig with all rights, as a file that only its owner can read."""
        name = "eurekube-dev"
        cluster, user = {"server": self.url}, {"token": next(iter(self.objects.tokens))}
        parts = {"clusters": {"cluster": cluster}, "users": {"user": user}}
        parts["contexts"] = {"context": {"cluster": name, "user": name}}
        document: Object = {key: [{"name": name, **part}] for key, part in parts.items()}
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump({**document, "current-context": name}), encoding="utf-8")
        return path


class _ApiHandler(BaseHTTPRequestHandler):
    server: KubernetesApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece

    def _handle_request(self) -> None:
        text, api = self.rfile.read(int(self.headers.get("Content-Length") or 0)), self.server.objects
        try:
            if self.headers.get("Authorization", "").removeprefix("Bearer ") not in api.tokens:
                raise ApiRefusal(401, "Unauthorized", "Unauthorized")
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            body, content_type = json.loads(text or b"null"), self.headers.get("Content-Type", "")
            request = ApiRequest(self.command, parts.path, query, body, content_type)
            if query.get("watch") == "true":
                self._stream_watch(request)
                return
            code, answer = api.answer(request)
        except ApiRefusal as error:
            code, answer = error.status["code"], error.status
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            code, answer = 400, ApiRefusal(400, "BadRequest", f"the request cannot be read: {error}").status
        data = json.dumps(answer).encode()
        self._send_head(code, {"Content-Length": str(len(data))})
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle_request  # noqa: N815 - as http.server calls them

    def _send_head(self, code: int, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream_watch(self, request: ApiRequest) -> None:
        """Send a watch's events, each as a chunk of its own."""
        self.server.watching.add(threading.current_thread())
        events = self.server.objects.watch(request)
        self._send_head(200, {"Transfer-Encoding": "chunked", "Connection": "close"})
        self.wfile.flush()
        try:
            for kind, item in events:
                self._send_event(kind, item)
        except ApiRefusal as error:
            self._send_event("ERROR", error.status)
        self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, kind: str, item: Object) -> None:
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Log no requests."""
