"""Limits for HTTP answers that never end, arrive byte by byte, or are too large."""

from __future__ import annotations

import gzip
import http.client
import io
import itertools
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.errors import KubernetesError, RegistryRejected, RegistryUnreachable
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.transport import EurekaResponse, ResponseTooLarge, Transport
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.runtime import bounded_http
from eurekube_provider.runtime.bounded_http import (
    AnswerTooLarge,
    AnswerTooSlow,
    FinalResponse,
    bounded_pool_classes,
    plain_request,
)

SECONDS = 0.3
"""Time-out of the requests in seconds; dripping servers send a byte each tenth of it."""

Serve = Callable[[socket.socket, threading.Event], None]


@contextmanager
def hostile(serve: Serve) -> Iterator[str]:
    """Yield the address of a server that answers each request with ``serve``."""
    ended = threading.Event()

    def attend(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(65536):
                serve(connection, ended)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        ended.set()


def dripping(text: bytes) -> Serve:
    """Return a function that sends one byte at a time, each long before the time-out."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        for number in range(len(text)):
            connection.sendall(text[number : number + 1])
            if ended.wait(SECONDS / 10):
                return

    return serve


def at_once(*pieces: bytes) -> Serve:
    """Return a function that sends these pieces at once."""

    def serve(connection: socket.socket, _: threading.Event) -> None:
        for piece in pieces:
            connection.sendall(piece)

    return serve


def endless(head: bytes, piece: bytes) -> Serve:
    """Return a function that sends a piece again and again."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(head)
        while not ended.is_set():
            connection.sendall(piece)

    return serve


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


def answered(text: bytes, encoding: str = "") -> bytes:
    """Return a complete HTTP answer."""
    more = f"Content-Encoding: {encoding}\r\n" if encoding else ""
    return f"HTTP/1.1 200 OK\r\n{more}Content-Length: {len(text)}\r\n\r\n".encode() + text


@contextmanager
def peer_of(serve: Serve, *, is_proxy: bool = False, max_answer_mib: int = 1) -> Iterator[Peer]:
    """Yield a client of a hostile server, or of a server behind a hostile proxy."""
    with hostile(serve) as address:
        url = "http://eureka.example/eureka" if is_proxy else f"http://{address}/eureka"
        proxy = f"http://{address}" if is_proxy else None
        peer = Peer(
            url,
            Connection(
                (url,),
                proxy=proxy,
                connect_timeout_seconds=SECONDS,
                read_timeout_seconds=SECONDS,
                max_answer_mib=max_answer_mib,
            ),
        )
        yield peer
        peer.close()


ASKED: dict[str, Callable[[Peer], object]] = {
    "status": lambda peer: peer.read_status(),
    "instance": lambda peer: peer.read("RATING", "a"),
    "list": lambda peer: peer.list_instances(),
    "delta": lambda peer: peer.read_delta_if_changed(b""),
    "removal": lambda peer: peer.deregister("RATING", "a"),
    "batch": lambda peer: peer.send_batch([]),
}
"""Requests of every kind, by name."""


@pytest.mark.parametrize("asks", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("text", [HEAD, HEAD + b" " * 5000, CHUNKED + b"1\r\n \r\n" * 1000], ids=len)
def test_a_server_that_drips_is_given_up_in_time(asks: Callable[[Peer], object], text: bytes) -> None:
    """An answer that drips, in its head, body or chunks, times out as a whole, and the server counts as
    down.
    """
    with peer_of(dripping(text)) as peer:
        began = time.monotonic()
        with pytest.raises(RegistryUnreachable, match="began to answer, and had not ended after 0"):
            asks(peer)
        assert time.monotonic() - began < 10 * SECONDS
        state = peer.traffic.state
        assert state is not None
        assert not state.is_up
        assert "had not ended" in state.error


@pytest.mark.parametrize("asks", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(
    "serve",
    [
        endless(CHUNKED, b"8000\r\n" + b" " * 0x8000 + b"\r\n"),
        endless(UNTIL_CLOSED, b" " * 65536),
        at_once(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n"),
        endless(CHUNKED + b"7fffffffffffffff\r\n", b" " * 65536),
    ],
    ids=["chunks", "until it is closed", "said in its head", "one chunk"],
)
def test_an_answer_without_end_is_given_up_in_its_middle(
    asks: Callable[[Peer], object], serve: Serve
) -> None:
    """An answer beyond the size limit is given up; the server counts as down, and the error names the
    setting.
    """
    with peer_of(serve) as peer:
        with pytest.raises(RegistryUnreachable, match=r"answers with more than 1 MiB.*max-answer-mib"):
            asks(peer)
        state = peer.traffic.state
        assert state is not None
        assert not state.is_up


def test_a_proxys_drip_is_given_up_as_well() -> None:
    """An answer that drips from a proxy times out as a whole."""
    with (
        peer_of(dripping(HEAD), is_proxy=True) as peer,
        pytest.raises(RegistryUnreachable, match="had not ended"),
    ):
        peer.read_status()


def test_the_tunnel_of_a_proxy_that_drips_is_given_up() -> None:
    """A proxy's dripping answer to CONNECT, before TLS, times out."""
    with hostile(dripping(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000)) as address:
        url = "https://eureka.example/eureka"
        connection = Connection((url,), proxy=f"http://{address}", connect_timeout_seconds=SECONDS)
        began = time.monotonic()
        with pytest.raises(RegistryUnreachable):
            Peer(url, connection).read_status()
        assert time.monotonic() - began < 10 * SECONDS


@pytest.mark.parametrize("code", [100, 102, 103])
def test_an_interim_answer_is_no_answer(code: int) -> None:
    """An interim answer of a server or a proxy is taken neither for the answer nor for the next one's."""
    answers = iter([503, 404, 200])

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(f"HTTP/1.1 {code} Wait\r\nLink: </a>\r\n\r\n".encode() * 2)
        ended.wait(SECONDS / 10)
        connection.sendall(f"HTTP/1.1 {next(answers)} Done\r\nContent-Length: 0\r\n\r\n".encode())

    with peer_of(serve) as peer:
        with pytest.raises(RegistryUnreachable, match="answered 503"):
            peer.deregister("RATING", "a")
        assert not peer.deregister("RATING", "a")
        assert peer.deregister("RATING", "a")


def test_an_answer_in_another_protocol_is_no_answer() -> None:
    """A change of protocols that nobody asked for is no success."""
    changed = at_once(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    with peer_of(changed) as peer, pytest.raises(RegistryUnreachable, match="that nobody asked for"):
        peer.deregister("RATING", "a")


@pytest.mark.parametrize("end", [b"", gzip.compress(b"")], ids=["true size", "untrue size"])
@pytest.mark.parametrize("name", ["instance", "list", "status", "batch"])
def test_an_answer_that_decompresses_without_end_is_given_up(name: str, end: bytes) -> None:
    """A small gzip answer that would grow beyond the limit is given up without decompressing all of it, also
    where its last bytes, which give its size, do not count a part of it.
    """
    with peer_of(at_once(answered(gzip.compress(b" " * 20 * 2**20) + end, "gzip"))) as peer:
        tracemalloc.start()
        with pytest.raises(RegistryUnreachable, match="answers with more than 1 MiB"):
            ASKED[name](peer)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 10 * 2**20
        state = peer.traffic.state
        assert state is not None
        assert not state.is_up


def test_an_answer_that_is_no_list_is_small() -> None:
    """Answers other than lists are limited to 4 MiB, whatever the limit for lists."""
    with peer_of(at_once(answered(b" " * 5 * 2**20)), max_answer_mib=64) as peer:
        with pytest.raises(RegistryUnreachable, match="answers with more than 4 MiB"):
            peer.read("RATING", "a")
        with pytest.raises(RegistryUnreachable, match="answers with more than 4 MiB"):
            peer.read_status()


def test_json_that_is_nested_without_end_is_no_answer() -> None:
    """JSON nested too deeply for Python's parser is the server's error."""
    nested = at_once(answered(b"[" * 100_000))
    with peer_of(nested) as peer, pytest.raises(RegistryRejected, match="JSON that cannot be read"):
        peer.read("RATING", "a")


@pytest.mark.parametrize("count", [1, 3])
def test_what_several_pieces_of_gzip_hold_is_read_to_its_end(count: int) -> None:
    """A body of several gzip members is read to its end; a truncated member raises."""
    raw = gzip.compress(b"abc") * count
    answer = EurekaResponse(200, {"Content-Encoding": "gzip"}, raw)
    assert answer.body() == b"abc" * count
    with pytest.raises(ValueError, match="not gzip"):
        EurekaResponse(200, {"Content-Encoding": "gzip"}, raw[:-1]).body()
    with pytest.raises(ResponseTooLarge):
        answer.body(3 * count - 1)


def test_a_large_answer_is_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each received piece of a large answer extends its time, up to a bound, so that a slow network
    succeeds.
    """
    monkeypatch.setattr(bounded_http, "BYTES_PER_TIMEOUT_EXTENSION", 1000)

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        for _ in range(10):
            if ended.wait(SECONDS / 4):
                return
            connection.sendall(b" " * 1000)

    def read(pool: urllib3.HTTPConnectionPool) -> int:
        return len(pool.urlopen("GET", "/", retries=False, timeout=SECONDS).data)

    with hostile(serve) as address:
        host, _, port = address.partition(":")
        made = bounded_pool_classes(1_000_000)["http"]
        with made(host, int(port)) as pool:
            assert read(pool) == 10_000
            monkeypatch.setattr(bounded_http, "MAX_TIMEOUTS_PER_ANSWER", 2)
            with pytest.raises(AnswerTooSlow):
                read(pool)
        with bounded_pool_classes(1000)["http"](host, int(port)) as pool, pytest.raises(AnswerTooLarge):
            read(pool)


def test_a_kubernetes_api_that_drips_is_given_up_but_not_a_watch() -> None:
    """A dripping answer of the Kubernetes API times out, except a watch, which is meant to last."""
    drip = dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + b'{"a":1}\n\n')
    with hostile(drip) as address:
        access = KubeAccess.load(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": f"http://{address}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
        for method in ("GET", "PATCH"):
            with pytest.raises(KubernetesError, match="began to answer, and did not end in time"):
                access.request(method, "/api/v1/pods", timeout_seconds=SECONDS)
        assert list(access.watch("/api/v1/pods", {}, SECONDS)) == [{"a": 1}]


def test_a_name_that_leads_to_another_server_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former server still answers; a connection to it is replaced in time, and kept while the name leads
    nowhere.
    """
    resolve, lead_to = socket.getaddrinfo, ["127.0.0.1"]

    def resolve_played(host: str, *arguments: object, **options: object) -> object:
        if host != "eureka.example":
            return resolve(host, *arguments, **options)  # type: ignore[arg-type]
        if not lead_to[-1]:
            raise socket.gaierror("no such name")
        return resolve(lead_to[-1], *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_played)

    def serve(listener: socket.socket, name: bytes) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection, name), daemon=True).start()

    def answer(connection: socket.socket, name: bytes) -> None:
        with connection, suppress(OSError):
            while connection.recv(65536):
                connection.sendall(answered(name))

    with (
        socket.create_server(("127.0.0.1", 0)) as former,
        socket.create_server(("127.0.0.2", former.getsockname()[1])) as latter,
    ):
        for listener, name in ((former, b"former"), (latter, b"latter")):
            threading.Thread(target=serve, args=(listener, name), daemon=True).start()
        url = f"http://eureka.example:{former.getsockname()[1]}"
        transport = Transport(url, Connection((url,)))

        def answerer() -> bytes:
            return transport.request("GET", "/").body()

        assert answerer() == b"former"
        lead_to.append("127.0.0.2")
        assert answerer() == b"former", "the connection is young"
        monkeypatch.setattr(bounded_http, "LONGEST_CONNECTION_SECONDS", 0.0)
        lead_to.append("")
        assert answerer() == b"former", "a server that answers is not given up for a name that cannot be read"
        lead_to.append("127.0.0.2")
        assert answerer() == b"latter"
        transport.close()


STATUS_LINES = ["HTTP/1.1 200", "HTTP/1.1 404 Not found", "HTTP/1.1 204 ", "HTTP/1.1 304  \t -"] * 9
STATUS_LINES += [
    f"HTTP/1.1 {code}" for code in ("200\tOK", " 200", "200 \xe4", "100 Wait", "+20", "20", "999", "")
]
STATUS_LINES += ["HTTP/1.0 200 OK", "HTTP/1.2 200 OK", "HTTP/2 200 OK", "HTTP/1.1", "SMTP 200 OK", ""]
PLAIN = [
    f"{name}: {value}" for name in ("Content-Length", "content-length") for value in (5, 7, -1, "1_0", "+5")
]
PLAIN += [f"Transfer-Encoding:{value}" for value in ("chunked", " Chunked", " chunked ", "\tgzip, chunked")]
PLAIN += [
    "Connection: keep-alive, Close",
    "connection: close",
    "Keep-Alive: 5",
    "Set-Cookie: a",
    "Via:",
    "X.!: a:b",
]
STRANGE = [
    f"Content-{rest}" for rest in ("Length: x", "Length: NINES", "Length:", "Length: 5, 5", "Length : 5")
]
STRANGE += [
    f"Content-Type: {kind}" for kind in ("multipart/mixed; boundary=b", "Message/rfc822", "multipart/mixed")
]
STRANGE += [
    f"{name}: a" for name in ("", " X", "\tX", "X Y", "X\t", "From ", "From", "\xe4", "\x00", "=?utf-8?q?a?=")
]
STRANGE += [
    f"X: {value}" for value in ("\xe4\x85", "\x0b", "\x1c", "\x00", "\x7f", "a\rY: b", "a\nZ: b", "LONG")
]
LINES = [*PLAIN, *STRANGE, "", "no colon"]
heads = st.builds(
    lambda status, plain, strange, many, end, ends: end.join(
        [status, *plain, *strange, *(f"X-{number}: a" for number in range(many)), *[""] * ends]
    ),
    st.sampled_from(STATUS_LINES),
    st.lists(st.sampled_from(PLAIN), max_size=4, unique_by=lambda line: line.partition(":")[0]),
    st.lists(st.sampled_from(LINES) | st.text(st.characters(max_codepoint=255)), max_size=1),
    st.sampled_from([0] * 8 + [95, 98, 99, 100]),
    st.sampled_from(["\r\n"] * 9 + ["\n", "\r"]),
    st.sampled_from([2] * 9 + [1, 0]),
)


class Sent(io.RawIOBase):
    """A socket with an answer, which arrives in pieces of this size at most."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = io.BytesIO(data), size

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(memoryview(buffer)[: self._size])


def read_all(kind: type[http.client.HTTPResponse], data: bytes, size: int) -> object:
    """Return all that a kind of response reads of an answer, or its error."""
    read = kind(Sent(data, size), method="GET")  # type: ignore[arg-type]
    try:
        read.begin()
        head = read.version, read.status, vars(read)["code"], read.reason
        headers = read.headers.items(), read.msg.items()
        strange = list(map(repr, read.headers.defects)), read.headers.is_multipart()
        text = "" if read.headers.is_multipart() else read.headers.get_payload() or ""
        return *head, *headers, *strange, text, read.chunked, read.length, read.will_close, read.read()
    except (http.client.HTTPException, ValueError) as error:
        return repr(error)


def is_read_alike(head: str, size: int = 9000, body: str = "12345678") -> bool:
    """Return whether an answer is read as Python's http.client reads it."""
    long = head.replace("NINES", "9" * 5000).replace("LONG", "a" * 70_000)
    data = (long + body).encode("latin-1")
    return read_all(FinalResponse, data, size) == read_all(http.client.HTTPResponse, data, size)


@given(
    heads, st.sampled_from([9000] * 8 + [60, 1]), st.sampled_from(["", "1234567", "1\r\na\r\n0\r\n\r\nrest"])
)
def test_a_head_is_read_as_pythons_http_client_reads_it(head: str, size: int, body: str) -> None:
    """Whatever a head holds: a name twice, continued lines, lines without a name, lengths that are none."""
    assert is_read_alike(head, size, body)


def test_lines_and_pairs_of_lines_are_read_as_pythons_http_client_reads_them() -> None:
    """Each status line, each pair of lines, and each number of lines about the most that are read."""
    assert [one for one in STATUS_LINES if not is_read_alike(f"{one}\r\n\r\n")] == []
    starts = [f"HTTP/1.1 200 OK\r\n{first}\r\n{second}\r\n" for first in LINES for second in LINES]
    assert [one for one in starts if not is_read_alike(f"{one}\r\n")] == []
    many = [
        "HTTP/1.1 200 OK\r\n" + "".join(f"X-{n}: a\r\n" for n in range(count)) for count in range(97, 102)
    ]
    assert [one for one in many if not is_read_alike(f"{one}\r\n")] == []


class Recorded(urllib3.connection.HTTPConnection):
    """A connection of urllib3 that records the bytes it would send."""

    sent = b""

    def connect(self) -> None:
        self.sock = self

    def sendall(self, data: bytes) -> None:
        self.sent += data


def sent_by_urllib3(connection: Recorded, *request: Any) -> bytes:
    """Return the bytes that urllib3 sends for a request; none for one that it refuses."""
    with suppress(ValueError, http.client.HTTPException):
        connection.request(*request)
        return connection.sent
    return b""


GIVEN_HEADERS: list[dict[str, str]] = [
    {"User-Agent": "x"},
    {"User-Agent": "x", "Accept-Encoding": "gzip", "Accept": "", "Authorization": "Bearer \t a: b"},
    {"user-agent": "x", "accept-encoding": "gzip"},
    {"Accept": "x"},
    *({"User-Agent": f"x{end}Y: z"} for end in ("\r\n", "\n", "\r", "\x0b", "\x1c", "\r\n ", "\xe4", "\x7f")),
    *(
        {"User-Agent": "x", name: "1"}
        for name in ("Host", "content-Length", "Transfer-encoding", "", "A:", "A\n")
    ),
]


def test_a_plain_request_is_sent_as_urllib3_sends_it() -> None:
    """Whatever is asked for of whom, with which headers and body; nothing that urllib3 refuses is plain."""
    plain, other = 0, 0
    hosts = [("a", 80), ("a.b-c", 8761), ("10.0.0.1", 443), ("::1", 80), ("\xe9.de", 80), ("a_b", 80)]
    urls = ["/", "/apps/A/b:1?c=%2F", "/a b", "/\r\nX: y", "/\xe4", "http://b/", ""]
    for (host, port), url, headers in itertools.product(hosts, urls, GIVEN_HEADERS):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get"):
            for body in (None, "", b"", b"a\r\n\r\n\xff", "\xe9"):
                connection = Recorded(host, port)
                where = host if port == connection.default_port else f"{host}:{port}"
                found = plain_request(method, url, where, headers, body)
                plain, other = plain + bool(found), other + (not found)
                assert found in (b"", sent_by_urllib3(connection, method, url, body, headers))
    assert plain >= 3 * 2 * 3 * 5 * 5
    assert other > plain


@pytest.mark.parametrize("end", ["", "Connection: close\r\n"])
@pytest.mark.parametrize("decodes", [True, False])
def test_the_answer_to_a_plain_request_is_whole(end: str, decodes: bool) -> None:
    """Its body is decompressed only where that is asked for, the head and the body of a request come in one
    piece, and a connection that the server keeps is used again.
    """
    packed, arrived, used = gzip.compress(b"abc"), list[bytes](), set[socket.socket]()
    head = f"HTTP/1.1 201 Made\r\nContent-Encoding: gzip\r\n{end}Content-Length: {len(packed)}\r\n\r\n"

    def attend(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                arrived.append(data)
                used.add(connection)
                connection.sendall(head.encode() + packed)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=attend, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        with bounded_pool_classes(1000)["http"]("127.0.0.1", listener.getsockname()[1]) as pool:
            for _ in range(2):
                answer = pool.urlopen(
                    "POST",
                    "/",
                    "abc",
                    {"User-Agent": "x"},
                    retries=False,
                    decode_content=decodes,
                    timeout=9.0,
                )
                assert (answer.status, answer.reason, answer.data) == (
                    201,
                    "Made",
                    b"abc" if decodes else packed,
                )
                assert answer.headers["content-encoding"] == "gzip"
    assert [one.endswith(b"Content-Length: 3\r\nUser-Agent: x\r\n\r\nabc") for one in arrived] == [True] * 2
    assert len(used) == (2 if end else 1)
