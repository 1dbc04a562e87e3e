"""Reads of the Kubernetes API."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.kube.access import PODS, KubeAccess, list_objects_by_name


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Return a socket that listens on the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(60)
        yield found


def access_to(server: str) -> KubeAccess:
    """Return an access to a server, with a token."""
    return KubeAccess.load(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }
    )


def answer_requests(listener: socket.socket, count: int) -> list[bytes]:
    """Answer requests on one connection; return the line and the token of each."""
    connection, _ = listener.accept()
    found = []
    with connection, connection.makefile("rb") as file:
        for _ in range(count):
            line, headers = file.readline(), dict[bytes, bytes]()
            while (header := file.readline()) != b"\r\n":
                name, _, value = header.partition(b": ")
                headers[name.lower()] = value
            file.read(int(headers.get(b"content-length", b"0")))
            found.append(line.strip() + b" " + headers[b"authorization"].strip())
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    return found


def test_a_write_costs_one_send_and_no_search_for_a_proxy(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write leaves with head and body in one call, and reads no environment: a pod's has several variables
    for each Service.
    """
    access = access_to(f"http://127.0.0.1:{listener.getsockname()[1]}")
    pieces, searches = list[bytes](), list[str]()
    send = http.client.HTTPConnection.send

    def noted(self: http.client.HTTPConnection, data: bytes) -> None:
        pieces.append(bytes(data))
        send(self, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", noted)

    def search() -> dict[str, str]:
        searches.append("again")
        return {}

    monkeypatch.setattr("kubernetes.client.configuration.getproxies", search)
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(answer_requests, listener, 2)
        for _ in range(2):
            access.request("PUT", PODS.path("shop", "a"), body={"kind": "Pod"})
        assert served.result() == [b"PUT /api/v1/namespaces/shop/pods/a HTTP/1.1 Bearer secret"] * 2
    assert [piece.partition(b"\r\n\r\n")[2] for piece in pieces] == [b'{"kind": "Pod"}'] * 2
    assert searches == []


def test_a_token_is_read_from_its_file_again(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The token that a kubeconfig names by its file is that of the present file, since whoever writes the
    file replaces a token before it expires; one that cannot be read does not count.
    """
    server = f"http://127.0.0.1:{listener.getsockname()[1]}"
    file, kubeconfig = tmp_path / "token", tmp_path / "config"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [
                    {"name": "c", "context": {"cluster": "k", "user": "u"}},
                    {"name": "d", "context": {"cluster": "k", "user": "v"}},
                ],
                "clusters": [{"name": "k", "cluster": {"server": server}}],
                "users": [
                    {"name": "u", "user": {"tokenFile": "token"}},
                    {"name": "v", "user": {"token": "w"}},
                ],
            }
        )
    )
    file.write_text("first\n")
    access, other = KubeAccess.load(kubeconfig), KubeAccess.load(kubeconfig, "d")
    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer_requests, listener, 4)
        access.get("/a")
        file.write_text("second\n")
        access.get("/a")
        monkeypatch.setattr("eurekube_provider.kube.access.TOKEN_FILE_READ_SECONDS", 0.0)
        access.get("/a")
        file.unlink()
        access.get("/a")
    tokens = [line.rpartition(b" ")[2].decode() for line in answered.result()]
    assert tokens == ["first", "first", "second", "second"]
    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer_requests, listener, 1)
        other.get("/a")
    assert answered.result()[0].endswith(b"Bearer w")
    with pytest.raises(ConfigurationError, match="token"):
        KubeAccess.load(kubeconfig)


def test_a_proxy_of_the_environment_is_used(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go through the proxy that the environment names for the API server."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
    access = access_to("http://api.test")
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(answer_requests, listener, 2)
        for _ in range(2):
            access.get(PODS.path("shop", "a"))
        line = b"GET http://api.test/api/v1/namespaces/shop/pods/a HTTP/1.1 Bearer secret"
        assert served.result() == [line] * 2


def test_an_answer_that_is_no_list_is_no_empty_list() -> None:
    """An answer that is no list raises, as an empty list would cause removals; ``items: null`` is an empty
    list.
    """
    access = Mock(server="https://api")
    access.get.return_value = {"items": None}
    assert list_objects_by_name(access, PODS, "a", "shop") == []
    assert access.get.call_args.args == ("/api/v1/namespaces/shop/pods", {"fieldSelector": "metadata.name=a"})
    access.get.return_value = {"kind": "Status"}
    with pytest.raises(KubernetesError, match="https://api answered with something that is no list"):
        list_objects_by_name(access, PODS, "a", "shop")
