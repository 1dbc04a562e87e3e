"""The in-memory Kubernetes API as a server: start, end, authentication and unsupported requests.

tests/contract/test_kubernetes_api.py compares it with a real API server.
"""

from __future__ import annotations

import http.client
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.kube.access import NAMESPACES, SERVICES, KubeAccess

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    """Yield a running API server."""
    with KubernetesApi() as running:
        yield running


@pytest.fixture
def access(api: KubernetesApi, tmp_path: Path) -> KubeAccess:
    """Return a client with all rights at the API server."""
    return KubeAccess.load(api.write_kubeconfig(tmp_path / "kubeconfig"))


def test_its_kubeconfig_is_its_owners_alone(api: KubernetesApi, tmp_path: Path) -> None:
    """The kubeconfig, whose token has all rights, is readable for its owner only."""
    path = api.write_kubeconfig(tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KubeAccess.load(path).get(NAMESPACES.path())["items"]


def test_two_run_at_once_and_know_nothing_of_each_other(access: KubeAccess, tmp_path: Path) -> None:
    """Two API servers in one process have separate ports, tokens and objects."""
    with KubernetesApi() as second:
        other = KubeAccess.load(second.write_kubeconfig(tmp_path / "other"))
        other.request("POST", CONFIG_MAPS, body={"metadata": {"name": "one"}})
        assert access.get(CONFIG_MAPS)["items"] == []
        assert other.server != access.server


def test_a_port_in_use_is_one_sentence(api: KubernetesApi) -> None:
    """The error for a port in use is one sentence with address, cause and remedy."""
    port = urlsplit(api.url).port
    assert port is not None
    with pytest.raises(ConfigurationError, match=rf"cannot listen on 127\.0\.0\.1:{port} .*choose another"):
        KubernetesApi(port)


def test_its_end_ends_every_watch(tmp_path: Path) -> None:
    """The end of the API server ends its watches and frees its port."""
    with KubernetesApi() as api:
        access = KubeAccess.load(api.write_kubeconfig(tmp_path / "kubeconfig"))
        opened, ended = threading.Event(), threading.Event()

        def watch() -> None:
            list(access.watch(SERVICES.path(), {"timeoutSeconds": "600"}, 600.0, opened.set))
            ended.set()

        threading.Thread(target=watch, daemon=True).start()
        assert opened.wait(10)
    assert ended.wait(10)
    with pytest.raises(KubernetesError):
        access.request("GET", NAMESPACES.path(), timeout_seconds=2.0)
    KubernetesApi(int(api.url.rpartition(":")[2])).server_close()


def test_one_connection_carries_many_requests(api: KubernetesApi, access: KubeAccess) -> None:
    """A connection serves several requests, also after a refused one."""
    del access  # it made the kubeconfig; here the wire itself is looked at
    token = next(iter(api.objects.tokens))
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=10)
    codes = []
    for path in ("/api/v1/namespaces", "/api/v1/nothing", "/api/v1/namespaces/default"):
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        codes.append(answer.status)
        answer.read()
    connection.close()
    assert codes == [200, 404, 200]


@pytest.mark.parametrize(
    ("method", "path", "query", "code"),
    [
        ("GET", "/apis", {}, 404),
        ("DELETE", CONFIG_MAPS, {}, 405),
        ("POST", "/api/v1/namespaces/default", {}, 405),
        ("GET", CONFIG_MAPS, {"labelSelector": "tier in (web)"}, 400),
        ("GET", CONFIG_MAPS, {"fieldSelector": "status.phase=Running"}, 400),
    ],
)
def test_what_it_does_not_do_is_refused(
    access: KubeAccess, method: str, path: str, query: dict[str, str], code: int
) -> None:
    """Unsupported requests are refused with a Kubernetes error, and never understood as something else."""
    with pytest.raises(KubernetesError) as raised:
        access.request(method, path, query, body={"metadata": {"name": "x"}} if method == "POST" else None)
    assert raised.value.status_code == code


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b""])
def test_a_body_that_is_no_object_is_a_bad_request(api: KubernetesApi, body: bytes) -> None:
    """A body that is no JSON object is answered with 400, and the connection stays open."""
    headers = {"Authorization": f"Bearer {next(iter(api.objects.tokens))}"}
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=10)
    for _ in range(2):
        connection.request("POST", CONFIG_MAPS, body, headers)
        answer = connection.getresponse()
        assert answer.status == 400
        assert b"cannot be read" in answer.read()
    connection.close()


def test_a_connection_that_ends_with_its_watch_is_announced(api: KubernetesApi) -> None:
    """A watch is answered with ``Connection: close``; else a client would send its next request into the
    closed connection.
    """
    address = urlsplit(api.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
    headers = {"Authorization": f"Bearer {next(iter(api.objects.tokens))}"}
    connection.request("GET", f"{SERVICES.path()}?watch=true&timeoutSeconds=1", headers=headers)
    answer = connection.getresponse()
    assert answer.headers["Connection"] == "close"
    assert answer.read() == b""
    connection.request("GET", NAMESPACES.path(), headers=headers)  # over a new connection
    assert connection.getresponse().status == 200
    connection.close()
