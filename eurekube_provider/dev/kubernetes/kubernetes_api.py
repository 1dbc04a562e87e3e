"""The API in memory behind HTTP, on the loopback: what a kubeconfig names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import yaml

from eurekube_provider.dev.kubernetes.object_api import ApiRequest, ObjectApi
from eurekube_provider.dev.kubernetes.object_store import ObjectStore
from eurekube_provider.dev.kubernetes.refusals import ApiRefusal, Object

HOST = "127.0.0.1"


class KubernetesApi:
    """A Kubernetes API for as long as the block runs: ``with KubernetesApi() as api:``.

    :param port: 0 for one that is free.
    :ivar url: where it answers; it wants one of its tokens.
    """

    def __init__(self, port: int = 0) -> None:
        self._store = ObjectStore()
        self._api = ObjectApi(self._store)
        self._server = _Server((HOST, port), self._store, self._api)
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.05,), name="kubernetes-api", daemon=True
        )
        self.url = f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End every watch and answer nobody any more."""
        self._store.close()
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig of who may do everything, readable by nobody else."""
        named = {"name": "eurekube-dev"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": {"server": self.url}}],
            "users": [{**named, "user": {"token": next(iter(self._api.tokens))}}],
            "contexts": [{**named, "context": {"cluster": named["name"], "user": named["name"]}}],
            "current-context": named["name"],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], store: ObjectStore, api: ObjectApi) -> None:
        super().__init__(address, _Handler)
        self.store, self.api = store, api

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave who hung up alone."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def _answer(self) -> None:
        if self.server.store.is_closed:
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length) if length else b""
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        only_metadata = "as=PartialObjectMetadata" in self.headers.get("Accept", "")
        try:
            if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.server.api.tokens:
                raise ApiRefusal(401, "Unauthorized", "Unauthorized")
            request = ApiRequest(
                self.command,
                parts.path,
                query,
                _decoded(text),
                self.headers.get("Content-Type", "").partition(";")[0],
                self.headers.get("User-Agent", "unknown").partition("/")[0],
            )
            if query.get("watch") == "true":
                self._stream(self.server.api.watch(request), only_metadata=only_metadata)
                return
            code, answer = self.server.api.answer(request)
        except ApiRefusal as error:
            code, answer = error.code, error.status
        if only_metadata and "items" in answer:
            answer = {**answer, "items": [_metadata(item) for item in answer["items"]]}
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - as http.server calls them

    def _stream(self, events: Iterator[tuple[str, Object]], *, only_metadata: bool) -> None:
        """Send a watch's events, each as a chunk of its own."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for kind, item in events:
                self._send_event(kind, _metadata(item) if only_metadata else item)
        except ApiRefusal as error:
            self._send_event("ERROR", error.status)
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_event(self, kind: str, item: Object) -> None:
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as http.server calls it
        """Log nothing."""


def _decoded(text: bytes) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


def _metadata(item: Object) -> Object:
    about = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
    return {**about, "metadata": item["metadata"]}
