"""Reads of the Kubernetes API."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
import urllib3

from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.kube.access import PODS, KubeAccess, is_api_unavailable, list_objects_by_name
from eurekube_provider.kube.official_client import client, config


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Return a socket that listens on the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(60)
        yield found


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return the environment without proxies."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


def access_to(server: str, **cluster: str) -> KubeAccess:
    """Return an access to a server, with a token."""
    return KubeAccess.load(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
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
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"kind":"Pod"}')
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


@pytest.mark.parametrize("text", [b"a: [", b"- a", b"hello", b"5", b"\xff\xfe"])
def test_a_kubeconfig_that_is_none_is_one_sentence(text: bytes, tmp_path: Path) -> None:
    """Whatever stands in the file, the error names the file and is no trace."""
    path = tmp_path / "config"
    path.write_bytes(text)
    with pytest.raises(
        ConfigurationError, match=r"the kubeconfig .*config is not in the form of one"
    ) as found:
        KubeAccess.load(path)
    assert "\n" not in str(found.value)


def test_a_command_without_credentials_does_not_make_a_nobody(tmp_path: Path) -> None:
    """A plugin that is not installed, or where nobody has logged in, is named; one that works is used."""
    path, plugin = tmp_path / "config", tmp_path / "plugin"
    version = "client.authentication.k8s.io/v1"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://api.test"}}],
        "users": [{"name": "u", "user": {"exec": {"command": str(plugin), "apiVersion": version}}}],
    }
    path.write_text(json.dumps(document))
    for script in (None, "exit 1", "echo hello"):
        if script:
            plugin.write_text(f"#!/bin/sh\n{script}\n")
            plugin.chmod(0o755)
        with pytest.raises(
            ConfigurationError, match=r"the command '.*plugin' of the kubeconfig's user gave no"
        ):
            KubeAccess.load(path)
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    assert KubeAccess.load(path).server == "https://api.test"


def test_a_proxy_of_the_environment_is_used(listener: socket.socket, environment: pytest.MonkeyPatch) -> None:
    """Requests go through the proxy that the environment names for the API server."""
    environment.setenv("http_proxy", f"127.0.0.1:{listener.getsockname()[1]}")
    access = access_to("http://api.test")
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(answer_requests, listener, 2)
        for _ in range(2):
            access.get(PODS.path("shop", "a"))
        line = b"GET http://api.test/api/v1/namespaces/shop/pods/a HTTP/1.1 Bearer secret"
        assert served.result() == [line] * 2


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_of_the_environment_leads_to_this_machine(
    listener: socket.socket, environment: pytest.MonkeyPatch, host: str
) -> None:
    """A server on the loopback interface is reached without the proxy of the environment, as by kubectl."""
    environment.setenv("http_proxy", "http://proxy.test:3128")
    access = access_to(f"http://{host}:{listener.getsockname()[1]}")
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(answer_requests, listener, 1)
        access.get("/version")
        assert served.result() == [b"GET /version HTTP/1.1 Bearer secret"]


@pytest.mark.parametrize(
    ("no_proxy", "is_direct"),
    [("*.test", True), (".test", True), ("api.test", True), ("*", True), ("10.0.0.0/8,other", False)],
)
def test_no_proxy_names_servers_as_for_kubectl(
    listener: socket.socket, environment: pytest.MonkeyPatch, no_proxy: str, *, is_direct: bool
) -> None:
    """A server that NO_PROXY names is reached without the proxy, whose listener answers nobody here."""
    environment.setenv("http_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
    environment.setenv("no_proxy", no_proxy)
    access = access_to("http://api.test")
    listener.close()
    with pytest.raises(
        KubernetesError, match="resolve 'api.test'" if is_direct else "Unable to connect to proxy"
    ):
        access.get("/version")


def test_the_proxy_of_a_kubeconfig_gets_its_credentials_whatever_the_environment_says(
    listener: socket.socket, environment: pytest.MonkeyPatch
) -> None:
    """A kubeconfig's proxy makes the tunnel, with its URL's credentials, also for what NO_PROXY names."""
    environment.setenv("no_proxy", "*")
    environment.setenv("https_proxy", "http://other.test:3128")
    port = listener.getsockname()[1]
    access = access_to("https://api.test:6443", **{"proxy-url": f"http://me:p%40ss@127.0.0.1:{port}"})

    def refuse_tunnels() -> bytes:
        for _ in range(2):  # each request is tried once more
            connection, _ = listener.accept()
            with connection:
                head = connection.recv(65536)
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        return head

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(refuse_tunnels)
        with pytest.raises(KubernetesError, match="403"):
            access.get("/version")
    head = asked.result()
    assert head.startswith(b"CONNECT api.test:6443 ")
    assert b"basic bWU6cEBzcw==" in head.replace(b"Basic", b"basic")


def test_a_socks_proxy_finds_the_server_and_makes_the_connection(
    listener: socket.socket, environment: pytest.MonkeyPatch
) -> None:
    """A SOCKS proxy gets the server's name, as from kubectl, and answers are bounded through it as well."""
    asked = list[tuple[Any, dict[str, Any]]]()

    def create_connection(address: Any, **options: Any) -> socket.socket:
        asked.append((address, options))
        return socket.create_connection(listener.getsockname())

    module = ModuleType("socks")
    module.__spec__ = ModuleSpec("socks", None)
    vars(module).update(
        PROXY_TYPE_SOCKS4=1, PROXY_TYPE_SOCKS5=2, ProxyError=OSError, create_connection=create_connection
    )
    environment.setitem(sys.modules, "socks", module)
    environment.delitem(sys.modules, "urllib3.contrib.socks", raising=False)
    access = access_to("http://api.test", **{"proxy-url": "socks5://me:hidden@proxy.test:1080"})
    environment.delitem(sys.modules, "urllib3.contrib.socks")
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(answer_requests, listener, 1)
        access.get("/version")
        assert served.result() == [b"GET /version HTTP/1.1 Bearer secret"]
    ((address, options),) = asked
    assert address == ("api.test", 80)
    assert (options["proxy_addr"], options["proxy_port"], options["proxy_rdns"]) == ("proxy.test", 1080, True)
    assert (options["proxy_username"], options["proxy_password"]) == ("me", "hidden")


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("socks5://me:hidden@proxy:1080", "pip install PySocks"),
        ("ftp://me:hidden@proxy:21", "must look like http://host:3128"),
        ("proxy:hidden", "must look like"),
        ("http://proxy:hidden", "must look like"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_told_at_the_start(
    environment: pytest.MonkeyPatch, proxy: str, said: str
) -> None:
    """An unusable proxy raises ConfigurationError with a remedy, and without the proxy's credentials."""
    environment.setattr("eurekube_provider.kube.access.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="the proxy-url of the kubeconfig") as raised:
        access_to("https://api.test", **{"proxy-url": proxy})
    assert said in str(raised.value)
    assert "hidden" not in str(raised.value)
    environment.setenv("https_proxy", "socks5://proxy:1080")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"):
        access_to("https://api.test")


def test_a_token_that_cannot_be_read_is_an_api_that_is_away() -> None:
    """Where the token's file is empty for a moment, a request fails as if the API server were away."""
    configuration = client.Configuration(host="http://api.test", api_key={"BearerToken": "old"})

    def renew(_: object) -> None:
        raise config.ConfigException("Token file exists but empty.")

    configuration.refresh_api_key_hook = renew  # type: ignore[assignment]
    with pytest.raises(KubernetesError, match="not sent, as the token cannot be read") as raised:
        KubeAccess(configuration).get("/version")
    assert is_api_unavailable(raised.value)


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


@pytest.mark.parametrize("answer", [b'{"kind": "Status"}', b'{"kind": "PodList", "items": []}'])
def test_a_page_that_is_no_list_is_no_empty_one(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's own answer raises, whatever it is: a copy of all objects would lose them all."""
    monkeypatch.setattr(urllib3.PoolManager, "request", lambda *_, **__: Mock(status=200, data=answer))
    with pytest.raises(KubernetesError, match="https://api answered with something that is no list"):
        list(access_to("https://api").pages(PODS.path()))


def test_an_answer_that_repeats_the_request_shows_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway's answer with the request's headers puts no token into an error, nor a watch's."""

    def echo(*_: object, headers: dict[str, str], **__: object) -> Mock:
        return Mock(status=502, data=f"no route: {headers}".encode())

    monkeypatch.setattr(urllib3.PoolManager, "request", echo)
    access = access_to("https://api")
    for ask in (lambda: access.get("/version"), lambda: list(access.watch("/version", {}, 1.0))):
        with pytest.raises(KubernetesError, match=r"no route: .*Bearer \[secret\]") as raised:
            ask()
        assert "Bearer secret" not in str(raised.value)


def test_json_that_is_nested_without_end_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON nested too deeply for Python's parser is an error of the API, as any other is."""
    answer = Mock(status=200, data=b"[" * 100_000)
    monkeypatch.setattr(urllib3.PoolManager, "request", lambda *_, **__: answer)
    with pytest.raises(KubernetesError, match="something that is no object of Kubernetes"):
        access_to("https://api").get("/version")


@pytest.mark.parametrize("answer", [b"", b"null", b"[]", b'"ok"', b"1", b"{}", b'{"message": "log in"}'])
def test_what_is_no_object_of_kubernetes_is_an_api_that_is_away(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway's answer in the API server's place is refused where it arrives, for reads and writes."""
    monkeypatch.setattr(urllib3.PoolManager, "request", lambda *_, **__: Mock(status=200, data=answer))
    with pytest.raises(KubernetesError, match="something that is no object of Kubernetes"):
        list_objects_by_name(access_to("https://api"), PODS, "a", "shop")
    with pytest.raises(KubernetesError, match="something that is no object of Kubernetes") as raised:
        access_to("https://api").request("PUT", PODS.path("shop", "a"), body={})
    assert is_api_unavailable(raised.value)
