"""Three model servers of Eureka on real ports, in place of :class:`~lab.peering.PeeredEurekas`.

Time in the model follows real time. Servers replicate inside the model, so that only clients' requests pass
through proxies.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

import requests

from eurekube_provider.core.model import Instance
from eurekube_provider.dev.eureka import documents
from eurekube_provider.dev.eureka.cluster import EurekaCluster, NoAnswer
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.virtual_clock import Clock
from eurekube_provider.eureka.protocol.codec import instances_from_json
from lab.peering import SERVER_COUNT
from lab.ports import HOST, free_ports
from lab.proxy import Proxy
from tests.faults.expected import Key

TICK_SECONDS = 0.02


class ModelServer:
    """A model server that can be killed, started and frozen as a process can."""

    def __init__(self, peering: ModelPeering, number: int, port: int, log: Path) -> None:
        self.name = f"eureka-{number}"
        self.port = port
        self.url = f"http://{HOST}:{port}/eureka"
        self.log = log
        self.log.touch()
        self._peering = peering
        self._is_gone = self._is_frozen = False

    def kill(self) -> None:
        """Kill the server."""
        self._is_gone = True
        self._down()

    def pause(self) -> None:
        """Freeze the server."""
        self._is_frozen = True
        self._down()

    def resume(self) -> None:
        """Let the server continue after a pause."""
        self._is_frozen = False
        if not self._is_gone:
            self._peering.model.down.discard(self.url)

    def launch(self) -> None:
        """Start the server empty, unless it runs."""
        if self._is_gone:
            self._start(None)

    def start_with_registry_copy(self) -> None:
        """Start the server with a copy of another server's registry."""
        others = (one.url for one in self._peering.servers if one is not self)
        self._start(next(others))

    def restart(self) -> None:
        """Restart the server empty."""
        self._start(None)

    def wait_until_ready(self) -> None:
        """Return at once, as a model server is ready when it runs."""

    def _down(self) -> None:
        with self._peering.lock:
            self._peering.model.down.add(self.url)

    def _start(self, copy_from: str | None) -> None:
        self._is_gone = False
        with self._peering.lock:
            self._peering.model.restart(self.url, copy_from=copy_from)


class ModelPeering:
    """Model servers and the proxies before them: ``with ModelPeering(directory) as eureka:``."""

    def __init__(self, log_directory: Path) -> None:
        ports = free_ports(SERVER_COUNT)
        self.lock = threading.RLock()
        self.servers = [
            ModelServer(self, number, port, log_directory / f"{number}.log")
            for number, port in enumerate(ports)
        ]
        self.model = EurekaCluster(
            [one.url for one in self.servers],
            Clock(int(time.time() * 1000)),
            self_preservation=False,
            use_read_only_cache=False,
        )
        self.fronts = [Proxy(port) for port in ports]
        self._stopped = threading.Event()
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        for server, front in zip(self.servers, self.fronts, strict=True):
            http = _listening(self, server)
            self._ends.callback(http.server_close)
            self._ends.callback(http.shutdown)
            threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
            self._ends.enter_context(front)
        clock = threading.Thread(target=self._pass_time, name="model-clock")
        clock.start()
        self._ends.callback(clock.join)
        self._ends.callback(self._stopped.set)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.close()

    @property
    def urls(self) -> list[str]:
        """URLs for clients, which lead through the proxies."""
        return [f"http://{HOST}:{front.port}/eureka" for front in self.fronts]

    def heal(self) -> None:
        """End all faults: let everything pass, and let every server run."""
        for front in self.fronts:
            front.heal()
        self.model.cut.clear()
        for server in self.servers:
            server.resume()
            server.launch()

    def isolate_server(self, number: int) -> None:
        """Cut one server off from its peers, but not from clients."""
        url = self.servers[number].url
        self.model.cut |= {ends for ends in itertools.permutations(self.model.urls, 2) if url in ends}

    def list_instances(self, number: int) -> dict[Key, Instance]:
        """Return a server's instances; raise a client's error if the server is down."""
        url = self.servers[number].url
        with self.lock:
            if url in self.model.down:
                raise requests.exceptions.ConnectionError(url)
            leases = self.model.servers[url].registry.all_leases()
            document = json.loads(json.dumps(documents.applications_document(leases, leases, 1)))
        return {one.key: one for one in instances_from_json(document)}

    def _pass_time(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            with self.lock:
                self.model.clock.advance(int(time.time() * 1000) - self.model.clock.now_ms)


def _listening(peering: ModelPeering, server: ModelServer) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            path = tuple(map(unquote, parts.path.removeprefix("/eureka/").split("/")))
            request = ServerRequest(
                self.command,
                tuple(filter(None, path)),
                dict(parse_qsl(parts.query)),
                dict(self.headers.items()),
                json.loads(body) if body else None,
            )
            try:
                with peering.lock:
                    answer = peering.model.request(server.url, request)
            except NoAnswer:
                self.close_connection = True
                return
            text = answer.text.encode()
            self.send_response(answer.status_code)
            is_xml = text.startswith(b"<")
            self.send_header("Content-Type", "application/xml" if is_xml else "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - names that the library gives

        def log_message(self, *_: object) -> None:
            pass

    result = ThreadingHTTPServer((HOST, server.port), Handler)
    result.daemon_threads = True
    return result
