"""Messages of errors: each one alone names the action, the server, its answer and the next step."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import (
    ConfigurationError,
    EurekubeError,
    InvalidInstance,
    KubernetesError,
    LeadershipLost,
    OwnershipConflict,
    RegistryDenied,
    RegistryError,
    RegistryRejected,
    RegistrySilent,
    RegistryUnreachable,
)
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.error_responses import error_for_response
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.transport import EurekaResponse, proxy_without_credentials
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import KubeAccess

SECRET = "pa55-w0rd"
RATING = Instance("rating", "rating-1", "10.0.0.1", "10.0.0.1", Port(8080))


class Answering:
    """A server that gives the same answer to every request."""

    def __init__(self, status: int, body: str, headers: dict[str, str], *, hangs_up: bool = False) -> None:
        self.requests: list[str] = []
        answering = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answering.requests.append(f"{self.command} {self.path}")
                if hangs_up:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - the names that http.server calls

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.address}/eureka"
        self.peer = Peer(self.url, Connection.parse(f"http://ann:{SECRET}@{self.address}/eureka"))

    def stop(self) -> None:
        """Stop the server and its thread."""
        self.peer.close()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


Answer = Callable[..., Answering]


@pytest.fixture
def answering() -> Iterator[Answer]:
    """Yield a function that starts a server with one fixed answer."""
    servers: list[Answering] = []

    def start(status: int, body: str = "", hangs_up: bool = False, **headers: str) -> Answering:
        servers.append(Answering(status, body, headers, hangs_up=hangs_up))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def error_of(error: type[RegistryError], ask: Callable[[], object], *words: str) -> RegistryError:
    """Call ``ask``, and return its error, whose message is one line with these words and without the
    password.
    """
    with pytest.raises(error) as caught:
        ask()
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert SECRET not in text
    assert SECRET not in repr(caught.value)
    assert "\n" not in text
    return caught.value


def test_the_tree() -> None:
    """Every error of the package is a EurekubeError, and every error of a Eureka server a RegistryError."""
    for error in (
        ConfigurationError,
        InvalidInstance,
        RegistryError,
        OwnershipConflict,
        LeadershipLost,
        KubernetesError,
    ):
        assert issubclass(error, EurekubeError)
    for error in (RegistryUnreachable, RegistryDenied, RegistryRejected):
        assert issubclass(error, RegistryError)
    assert str(InvalidInstance("port", "too high")) == "port: too high"
    assert str(InvalidInstance("", "nothing fits")) == "nothing fits"


def test_changes_need_permission(answering: Answer) -> None:
    """A peer that may not write sends no change, neither alone nor in a batch; it still sends reads and
    renewals.
    """
    server = answering(404, "")
    allowed = [False]
    peer = Peer(server.url, Connection.parse(server.url), may_write=lambda: allowed[0])
    changes: list[Callable[[], object]] = [
        lambda: peer.register(RATING),
        lambda: peer.restore(RATING),
        lambda: peer.deregister(*RATING.key),
        lambda: peer.set_status(RATING, Status.OUT_OF_SERVICE),
        lambda: peer.clear_status(RATING),
        lambda: peer.send_batch([batch.heartbeat_item(RATING), batch.registration_item(RATING)]),
        lambda: peer.send_batch([batch.cancellation_item(RATING)]),
    ]
    for change in changes:
        with pytest.raises(LeadershipLost, match="not sent"):
            change()
    assert server.requests == []
    assert peer.renew(RATING) is False
    assert peer.read(*RATING.key) is None
    with pytest.raises(RegistryRejected):
        peer.send_batch([batch.heartbeat_item(RATING)])
    assert len(server.requests) == 3
    allowed[0] = True
    assert peer.deregister(*RATING.key) is False
    assert server.requests[-1].startswith("DELETE ")
    peer.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_changes_of_the_cluster_need_permission(method: str, answering: Answer) -> None:
    """Without permission no change is sent to Kubernetes; reads are sent."""
    server, may_write = answering(200, '{"kind": "Any"}'), False
    access = KubeAccess(client.Configuration(host=f"http://{server.address}"))
    guarded = access.with_write_check(lambda: may_write)
    assert guarded.get("/version") == {"kind": "Any"}
    with pytest.raises(LeadershipLost, match="another replica may lead by now"):
        guarded.request(method, "/apis/any")
    may_write = True
    guarded.request(method, "/apis/any")
    assert server.requests == ["GET /version", f"{method} /apis/any"]


def test_nobody_listens() -> None:
    """A refused connection names action, instance, server and cause, and says what to check."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        peer = Peer(f"http://{address}/eureka", Connection.parse(f"http://ann:{SECRET}@{address}/eureka"))
        error = error_of(
            RegistryUnreachable,
            lambda: peer.register(RATING),
            "register RATING rating-1",
            f"http://{address}/eureka",
            "Connection refused",
            "check the URL",
        )
    peer.close()
    assert "host=" not in str(error)
    assert (error.url, error.status_code) == (peer.url, None)


def test_a_name_that_nobody_knows() -> None:
    """The error for a host name that does not resolve names the host and says to check the URL."""
    peer = Peer("http://eureka.invalid/eureka", Connection(("http://eureka.invalid/eureka",)))
    error_of(
        RegistryUnreachable,
        lambda: peer.renew(RATING),
        "renew RATING rating-1",
        "eureka.invalid",
        "check the URL",
    )
    peer.close()


def test_a_server_that_is_silent() -> None:
    """The error for a server that does not answer says after how many seconds the request timed out."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/eureka"
        peer = Peer(url, Connection((url,), read_timeout_seconds=0.2))
        error_of(
            RegistrySilent,
            lambda: peer.read("RATING", "a"),
            "read RATING a",
            url,
            "did not answer within 0.2 s",
        )
        peer.close()


def test_a_closed_connection_is_tried_once_more(answering: Answer) -> None:
    """A request whose connection the server closes is sent a second time, not a third: a pooled connection
    may have ended.
    """
    server = answering(200, hangs_up=True)
    error_of(RegistryUnreachable, lambda: server.peer.renew(RATING), "renew RATING rating-1", server.url)
    assert server.requests == ["PUT /eureka/apps/RATING/rating-1?status=UP"] * 2


def test_wrong_credentials(answering: Answer) -> None:
    """The error for a 401 says where credentials are configured."""
    error = error_of(
        RegistryDenied,
        lambda: answering(401).peer.register(RATING),
        "register RATING rating-1",
        "answered 401",
        "eurekube:password",
        "EUREKA_PASSWORD",
        "restart the process if its Secret was rotated, or name a file (EUREKA_PASSWORD_FILE)",
    )
    assert error.status_code == 401


@pytest.mark.parametrize("status", [400, 500])
def test_an_answer_that_repeats_the_request_shows_no_credentials(answering: Answer, status: int) -> None:
    """Some gateways answer with the request's headers, and whoever may read a status reads the error."""
    sent = b64encode(f"ann:{SECRET}".encode()).decode()
    server = answering(status, f"no route for {'x' * 150} Authorization: Basic {sent} {SECRET}")
    error = error_of(RegistryError, server.peer.list_instances, "Authorization: Basic [secret]")
    assert sent[:8] not in str(error)
    server = answering(307, Location=f"/login?was={sent}")
    assert sent not in str(error_of(RegistryUnreachable, server.peer.list_instances, "/login?was=[secret]"))


def test_csrf(answering: Answer) -> None:
    """The error for a 403 names the usual causes: CSRF protection, and missing rights."""
    server = answering(403)
    error_of(
        RegistryDenied,
        lambda: server.peer.set_status(RATING, RATING.status),
        "set the status of RATING rating-1 to UP",
        f"{server.url} answered 403",
        "CSRF",
        "/eureka/**",
    )


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(answering: Answer, status: int) -> None:
    """A redirect raises an error with the target's URL but not its credentials; no second request is sent."""
    server = answering(status, Location=f"https://bob:{SECRET}@eureka.example.com/eureka/apps")
    error_of(
        RegistryUnreachable,
        server.peer.list_instances,
        "list the registry",
        f"answered {status}",
        "redirects to eureka.example.com/eureka/apps",
    )
    assert len(server.requests) == 1


def test_a_web_page_instead_of_eureka(answering: Answer) -> None:
    """The error for an answer 200 that is no JSON asks to check the URL."""
    server = answering(200, "<html>Welcome</html>", **{"Content-Type": "text/html"})
    error_of(RegistryUnreachable, server.peer.list_instances, server.url, "not JSON", "/eureka")
    error_of(RegistryUnreachable, lambda: server.peer.read("A", "b"), server.url, "not JSON")
    assert server.peer.traffic.state is not None
    assert not server.peer.traffic.state.is_up
    error_of(RegistryRejected, server.peer.read_status, server.url, "is not Eureka's")


JSON_OF_OTHER_SERVERS = ("{}", "[]", "null", '"x"', '{"code": 500, "msg": "busy"}')


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        *((body, RegistryUnreachable) for body in JSON_OF_OTHER_SERVERS),
        ('{"instance": null}', RegistryUnreachable),
        ('{"instance": {"app": "A"}}', RegistryRejected),
        ('{"instance": {"app": "A", "instanceId": "b"', RegistryRejected),
    ],
)
def test_json_that_is_not_eurekas(answering: Answer, body: str, kind: type[RegistryError]) -> None:
    """An answer 200 with other JSON than Eureka's says that the server cannot be used, one with an unreadable
    instance says so of this instance alone; none raises an error of Python's own.
    """
    server = answering(200, body, **{"Content-Type": "application/json"})
    assert type(error_of(RegistryError, lambda: server.peer.read("A", "b"), "read A b", server.url)) is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        *((body, RegistryUnreachable) for body in JSON_OF_OTHER_SERVERS),
        ("", RegistryRejected),
        ('{"applications": 7}', RegistryRejected),
        ('{"applications": {"application": [7]}}', RegistryRejected),
    ],
)
def test_lists_that_are_not_eurekas(answering: Answer, body: str, kind: type[RegistryError]) -> None:
    """An answer 200 with JSON that is no list of applications raises an error: as an empty list it would take
    every instance away.
    """
    server = answering(200, body, **{"Content-Type": "application/json"})
    assert type(error_of(RegistryError, server.peer.list_instances, "list the registry", server.url)) is kind


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (302, "", "text/html"),
        (404, "404 page not found", "text/plain"),
        (405, "", "text/html"),
        (429, "", "text/plain"),
        (200, "<html>Log in</html>", "text/html; charset=utf-8"),
    ],
)
def test_a_gateway_in_place_of_the_first_server(
    answering: Answer, status: int, body: str, content_type: str
) -> None:
    """If a gateway answers in place of the first server, reads, registrations and renewals use the second."""
    gateway = answering(status, body, **{"Content-Type": content_type})
    eureka = answering(200, '{"applications": {}, "instance": {"app": "A", "instanceId": "b"}}')
    peers = Peers(Connection.parse([gateway.url, eureka.url]))
    for ask in (
        peers.list_instances,
        lambda: peers.read("A", "b"),
        lambda: Writer(peers).register(RATING),
        lambda: peers.renew(RATING),
    ):
        peers.avoided.stop_avoiding(peers.peers[0])
        for server in (gateway, eureka):
            server.requests.clear()
        ask()
        assert gateway.requests[:1] == eureka.requests
    peers.close()


@pytest.mark.parametrize("status", [302, 404, 405])
def test_batches_that_a_gateway_keeps_back(answering: Answer, status: int) -> None:
    """A gateway that lets /apps through alone refuses batches and the status: the server can be used."""
    server = answering(status)
    error_of(RegistryRejected, lambda: server.peer.send_batch([]), f"answered {status}")
    error_of(RegistryRejected, server.peer.read_status, f"answered {status}")
    assert server.peer.traffic.state is None


@pytest.mark.parametrize(
    ("status", "body"), [(403, ""), (404, ""), (500, ""), (200, ""), (200, "{}"), (200, "<applications/>")]
)
def test_a_server_may_have_no_deltas(answering: Answer, status: int, body: str) -> None:
    """A server that offers no delta is not judged as down; the caller reads the list instead."""
    peer = answering(status, body).peer
    assert peer.read_delta_if_changed(b"") is None
    assert peer.traffic.state is None or peer.traffic.state.is_up


def test_a_delta_that_is_not_answered(answering: Answer) -> None:
    """A server that does not answer the request for a delta is judged as down."""
    peer = answering(200, hangs_up=True).peer
    with pytest.raises(RegistryUnreachable, match="read what changed in the registry"):
        peer.read_delta_if_changed(b"")
    assert peer.traffic.state is not None
    assert not peer.traffic.state.is_up


def test_compressed_answers(answering: Answer) -> None:
    """An answer that is declared as gzip but is none raises a registry error in one sentence."""
    server = answering(200, "{}", **{"Content-Type": "application/json", "Content-Encoding": "gzip"})
    error_of(RegistryRejected, server.peer.list_instances, "list the registry", server.url)
    error_of(RegistryUnreachable, answering(503, "x", **{"Content-Encoding": "gzip"}).peer.read_status, "503")


def test_the_wrong_path(answering: Answer) -> None:
    """The error for a 404 to a list or a registration says that Eureka's URL usually ends with /eureka."""
    server = answering(404, '{"path":"/apps"}')
    error_of(RegistryUnreachable, server.peer.list_instances, "answered 404", "usually ends with /eureka")
    error_of(
        RegistryUnreachable, lambda: server.peer.register(RATING), "answered 404", "usually ends with /eureka"
    )


def test_a_404_that_is_an_answer(answering: Answer) -> None:
    """A 404 for one instance raises nothing: it means that the server does not hold the instance."""
    peer = answering(404).peer
    assert peer.read("A", "b") is None
    assert peer.find_by_id("b") is None
    assert [peer.renew(RATING), peer.deregister("A", "b"), peer.clear_status(RATING)] == [False] * 3


def test_what_eureka_refused(answering: Answer) -> None:
    """The error for a 400 repeats the server's answer in one line, shortened."""
    server = answering(400, "Missing\n   dataCenterInfo " + "x" * 1000)
    error = error_of(
        RegistryRejected, lambda: server.peer.register(RATING), "answered 400 (Missing dataCenterInfo"
    )
    assert error.status_code == 400
    assert len(str(error)) < 400


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_in_trouble(answering: Answer, status: int) -> None:
    """A 5xx raises RegistryUnreachable, so that the request is tried again."""
    error = error_of(RegistryUnreachable, lambda: answering(status).peer.renew(RATING), f"answered {status}")
    assert error.status_code == status


def test_a_rate_limiter(answering: Answer) -> None:
    """The error for a list's 503 without a body says how a server's rate limiter spares us; a body is
    somebody else's.
    """
    spares = "a rate limiter spares eureka.server.rate-limiter-privileged-clients: add eurekube"
    error_of(RegistryUnreachable, answering(503).peer.list_instances, "answered 503", spares)
    error = error_of(RegistryUnreachable, answering(503, "no upstream").peer.list_instances, "no upstream")
    assert spares not in str(error)


def test_tls_where_there_is_none(answering: Answer) -> None:
    """The error for a failed TLS handshake says to check the CA file."""
    address = answering(200).address
    peer = Peer(f"https://{address}/eureka", Connection.parse(f"https://ann:{SECRET}@{address}/eureka"))
    error_of(RegistryUnreachable, lambda: peer.renew(RATING), "TLS", peer.url, "check the CA file")
    peer.close()


def test_credentials_of_the_environment_are_left_alone(
    answering: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials in a ~/.netrc are not sent to Eureka."""
    server = answering(401)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login eve password x\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    plain = Peer(server.url, Connection((server.url,)))
    error_of(RegistryDenied, lambda: plain.renew(RATING), "answered 401")
    plain.close()
    assert len(server.requests) == 1


def test_only_a_server_that_is_away_has_a_deputy(answering: Answer) -> None:
    """After a 5xx the next server is asked; after a refusal (400) none is, because it would refuse as
    well.
    """
    away, refusing, unasked = answering(503), answering(400, "no"), answering(204)
    peers = Peers(Connection((away.url, refusing.url, unasked.url)))
    error_of(RegistryRejected, lambda: Writer(peers).register(RATING), refusing.url)
    peers.close()
    assert [len(server.requests) for server in (away, refusing, unasked)] == [1, 1, 0]


def test_a_server_that_did_not_answer_is_asked_last(answering: Answer) -> None:
    """A server that failed a request is for a while asked only after the others."""
    away, well = answering(503), answering(200)
    peers = Peers(Connection((away.url, well.url)))
    assert [peers.renew(RATING) for _ in range(3)] == [True] * 3
    peers.close()
    assert [len(server.requests) for server in (away, well)] == [1, 3]


def test_no_server_answers(answering: Answer) -> None:
    """When no server answers, the first server's error is raised."""
    first, second = answering(503, "first"), answering(500, "second")
    peers = Peers(Connection((first.url, second.url)))
    error_of(RegistryUnreachable, lambda: peers.renew(RATING), first.url, "503", "first")
    error_of(RegistryUnreachable, lambda: Writer(peers).remove(RATING))
    held, failures = peers.read_everywhere("A", "b")
    peers.close()
    assert held == {}
    assert failures.keys() == {first.url, second.url}


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (403, RegistryDenied, "answered 403 through the proxy http://proxy:3128: it may be the proxy"),
        (407, RegistryDenied, "the proxy http://proxy:3128 to http://eureka/eureka answered 407"),
        (502, RegistryUnreachable, "answered 502 through the proxy http://proxy:3128: it may be the proxy"),
        (503, RegistryUnreachable, "answered 503 through the proxy http://proxy:3128: it may be the proxy"),
        (504, RegistryUnreachable, "answered 504 through the proxy http://proxy:3128: it may be the proxy"),
        (500, RegistryUnreachable, "list: http://eureka/eureka answered 500"),
        (404, RegistryUnreachable, "list: http://eureka/eureka answered 404"),
        (400, RegistryRejected, "list: http://eureka/eureka answered 400"),
    ],
)
def test_what_may_be_a_proxys_answer_names_the_proxy(
    code: int, kind: type[RegistryError], sentence: str
) -> None:
    """The error for an answer that may come from a proxy names the proxy, without its credentials."""
    shown = proxy_without_credentials("http://ann:pa55-w0rd@proxy:3128/x")
    error = error_for_response("list", "http://eureka/eureka", EurekaResponse(code, {}, b""), shown)
    assert type(error) is kind
    assert sentence in str(error)
    assert SECRET not in str(error)


def test_a_server_whose_status_is_refused_can_be_used() -> None:
    """A refused status request does not mark the server as down, as a gateway may allow /apps only; a refused
    list does.
    """
    server = Answering(403, "no", {})
    with pytest.raises(RegistryDenied):
        server.peer.read_status()
    after_status = server.peer.traffic.state
    with pytest.raises(RegistryDenied):
        server.peer.list_instances()
    after_list = server.peer.traffic.state
    server.stop()
    assert after_status is None
    assert after_list is not None
    assert not after_list.is_up
