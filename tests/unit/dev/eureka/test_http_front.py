"""HTTP of the development server: chunked and broken bodies, slow and many clients.

``tests/contract/test_dev_server.py`` compares the answers with those of real servers.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from eurekube_provider.dev.eureka.serving import EurekaServers
from tests.model.commands import DATA_CENTER


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Yield the service URL of a quick server."""
    with EurekaServers(quick=True) as servers:
        yield servers.urls[0]


@pytest.fixture
def session() -> Iterator[requests.Session]:
    """Yield a session that asks for JSON and ignores proxies of the environment."""
    with requests.Session() as made:
        made.trust_env = False
        made.headers.update({"Accept": "application/json", "Content-Type": "application/json"})
        yield made


def connected(url: str) -> socket.socket:
    """Return a socket connected to the server."""
    place = urlsplit(url)
    return socket.create_connection((str(place.hostname), place.port or 0), timeout=30)


def body(instance_id: str, **fields: Any) -> bytes:
    """Return the body of a registration."""
    found = {"instanceId": instance_id, "app": "WEB", "hostName": "h", "ipAddr": "10.0.0.1"}
    return json.dumps({"instance": {**found, "dataCenterInfo": DATA_CENTER, **fields}}).encode()


def answer_to(url: str, *parts: bytes) -> bytes:
    """Send these bytes, and return the answer until the server closes the connection."""
    with closing(connected(url)) as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


HEAD = b"POST /eureka/apps/WEB HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def test_a_body_may_come_in_chunks(url: str, session: requests.Session) -> None:
    """A chunked body, as Java's clients send it, is read; chunk extensions and trailers are skipped."""
    data = body("chunked")
    answer = answer_to(
        url,
        CHUNKED,
        b"%x;name=value\r\n%s\r\n" % (10, data[:10]),
        b"%X\r\n%s\r\n" % (len(data) - 10, data[10:]),
        b"0\r\nTrailer: value\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert session.get(f"{url}/apps/WEB/chunked").status_code == 200


@pytest.mark.parametrize(
    "broken",
    [
        CHUNKED + b"no number\r\n",
        CHUNKED + b"-5\r\nabcde\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nabcdefgh\r\n0\r\n\r\n",
        CHUNKED + b"ff\r\nends here",
        HEAD + b"Content-Length: 100\r\n\r\nends here",
        HEAD + b"Content-Length: five\r\n\r\n12345",
        HEAD + b"Content-Length: -1\r\n\r\n",
    ],
)
def test_a_broken_body_is_refused_and_ends_the_connection(url: str, broken: bytes) -> None:
    """A broken body is refused with 400 and closes the connection, as its rest cannot be read."""
    head, _, rest = answer_to(url, broken + b"GET /eureka/apps HTTP/1.1\r\nHost: h\r\n\r\n").partition(
        b"\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in head
    assert b"HTTP/1.1" not in rest


@pytest.mark.parametrize(
    ("method", "path", "headers", "code", "kind"),
    [
        ("GET", "apps", {}, 200, "application/xml"),
        ("GET", "apps", {"Accept": "application/json"}, 200, "application/json"),
        (
            "GET",
            "v2/apps",
            {"Accept": "application/json", "X-Eureka-Accept": "compact"},
            200,
            "application/json",
        ),
        ("HEAD", "apps/delta", {}, 200, "application/xml"),
        ("OPTIONS", "apps/WEB", {"Accept": "application/json"}, 200, "application/json"),
        ("GET", "apps", {"Accept": "image/png"}, 406, None),
        ("GET", "nothing", {}, 404, "application/json"),
        ("GET", "nothing", {"Accept": "application/xml"}, 404, "application/xml;charset=UTF-8"),
        ("GET", "nothing", {"Accept": "text/html"}, 404, "text/html;charset=UTF-8"),
        ("PATCH", "apps", {}, 405, "application/json"),
        ("POST", "apps/WEB", {"Content-Type": "text/plain"}, 415, "application/json"),
        ("POST", "apps/WEB", {"Content-Type": "application/json"}, 400, "application/json"),
        ("POST", "apps/WEB", {"Content-Type": "application/xml"}, 400, "application/xml"),
        ("GET", "apps/WEB/a%2Fb", {}, 400, "text/html;charset=UTF-8"),
        ("GET", "apps/WEB/a%3Bb", {}, 400, "application/json"),
        ("GET", "apps/WEB", {"Authorization": "x" * 9000}, 400, "text/html;charset=UTF-8"),
    ],
)
def test_how_requests_are_answered(
    url: str, method: str, path: str, headers: dict[str, str], code: int, kind: str | None
) -> None:
    """Status code and content type equal those of a real server."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=30)
    connection.request(
        method, f"{place.path}/{path}", headers=headers, body="{" if method == "POST" else None
    )
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert (answer.status, answer.headers["Content-Type"]) == (code, kind)


def test_a_list_is_packed_into_the_same_bytes_each_time(
    url: str, session: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unchanged list has the same gzip bytes each time, without a timestamp, so that clients notice that
    it is unchanged.
    """

    def packed() -> bytes:
        answer = session.get(f"{url}/apps", headers={"Accept-Encoding": "gzip"}, stream=True)
        assert answer.headers["Content-Encoding"] == "gzip"
        return answer.raw.read()

    before, now = packed(), time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    assert packed() == before


@pytest.mark.parametrize(
    "text",
    [
        '{"instance": {"app": "WEB", "metadata": {',
        '{"instance": {"app": "WEB", "port": {',
        '["',
        "[" * 100_000,
    ],
)
def test_a_registration_that_is_cut_off_is_refused(url: str, session: requests.Session, text: str) -> None:
    """A truncated registration is refused at once; a real server's thread reads some of these for ever."""
    answer = session.post(f"{url}/apps/WEB", data=text, timeout=30)
    assert (answer.status_code, answer.json()) == (400, {"error": "cannot parse request body"})


def test_a_connection_carries_many_requests(url: str) -> None:
    """A connection serves several requests, also after a refused one."""
    with closing(connected(url)) as connection, closing(connection.makefile("rb")) as answers:
        for path, code in (("apps", 200), ("nothing", 404), ("apps/delta", 200)):
            connection.sendall(f"GET /eureka/{path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            assert answers.readline().split()[1] == str(code).encode()
            lines = dict(line.split(b": ", 1) for line in iter(answers.readline, b"\r\n"))
            answers.read(int(lines[b"Content-Length"]))


def test_a_client_that_says_little_holds_up_nobody(url: str, session: requests.Session) -> None:
    """Slow clients delay no other client, because each connection has a thread."""
    slow = [connected(url) for _ in range(50)]
    for connection in slow:
        connection.sendall(b"POST /eureka/apps/WEB HTTP/1.1\r\nContent-Length: 100000\r\n")
    assert session.get(f"{url}/apps", timeout=30).status_code == 200
    for connection in slow:
        connection.close()


def test_a_large_body(url: str, session: requests.Session) -> None:
    """Five megabytes of metadata are stored and read."""
    data = body("large", metadata={"large": "x" * 5_000_000})
    assert session.post(f"{url}/apps/WEB", data=data).status_code == 204
    found = session.get(f"{url}/apps/WEB/large").json()["instance"]["metadata"]["large"]
    assert len(found) == 5_000_000
    assert session.delete(f"{url}/apps/WEB/large").status_code == 200


def test_a_client_that_waits_for_leave_to_send_gets_it(url: str) -> None:
    """A request with ``Expect: 100-continue``, as curl sends it with a large body, gets the answer 100."""
    data = body("expecting")
    with closing(connected(url)) as connection, closing(connection.makefile("rb")) as answers:
        length = b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(data)
        connection.sendall(HEAD + length)
        assert answers.readline().startswith(b"HTTP/1.1 100 ")
        answers.readline()
        connection.sendall(data)
        assert answers.readline().startswith(b"HTTP/1.1 204 ")


def test_many_threads_register_and_remove(url: str) -> None:
    """Concurrent clients get the right answers to registrations, renewals and removals."""
    failures: list[object] = []

    def work(number: int) -> None:
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Content-Type"] = "application/json"
            place = f"{url}/apps/WEB/many-{number}"
            codes = [session.post(f"{url}/apps/WEB", data=body(f"many-{number}")).status_code]
            codes += [session.put(place).status_code for _ in range(10)]
            codes.append(session.delete(place).status_code)
        if codes != [204, *[200] * 11]:
            failures.append(codes)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_failure_of_the_server_is_a_500_and_ends_nothing(
    url: str, session: requests.Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error inside the server is answered with 500 and logged, and the next request is served."""

    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr("eurekube_provider.dev.eureka.cluster.EurekaCluster.request", fail)
        assert session.get(f"{url}/apps").status_code == 500
    assert "on purpose" in caplog.text
    assert session.get(f"{url}/apps").status_code == 200


def test_the_page_shows_what_is_registered_and_trusts_no_text(url: str, session: requests.Session) -> None:
    """The status page escapes markup in ids, and shows overrides."""
    odd = "<b>id</b>&"
    assert session.post(f"{url}/apps/WEB", data=body(odd)).status_code == 204
    session.put(f"{url}/apps/WEB/{odd}/status".replace("/b", "%2Fb"), params={"value": "DOWN"})
    answer = session.get(url.removesuffix("eureka"))
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "&lt;b&gt;id&lt;/b&gt;&amp;" in answer.text
    assert odd not in answer.text
    assert "90 s" in answer.text or "89 s" in answer.text
    assert url in answer.text
