"""Servers behind Spring Security, asked by our client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eurekube_provider.core.errors import RegistryDenied
from eurekube_provider.core.model import Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from lab import EUREKA_PASSWORD, EUREKA_USER, Lab
from lab.eureka import SpringCloudRelease
from tests.contract.conftest import WAIT_SECONDS, one, rating

pytestmark = pytest.mark.real_server("it asks for passwords")


@pytest.fixture(scope="module", params=["basic", "csrf"])
def secured(request: pytest.FixtureRequest, spring_cloud: SpringCloudRelease) -> Iterator[Lab]:
    """Start a server that asks for a password, and one that also refuses every write."""
    with Lab(eureka=1, kubernetes=False, security=request.param, spring_cloud=spring_cloud) as running:
        yield running


@pytest.fixture
def security(request: pytest.FixtureRequest) -> str:
    """Return the server's kind of security."""
    return str(request.node.callspec.params["secured"])


def client(lab: Lab, user: str | None, password: str | None) -> Peer:
    """Return a client with these credentials."""
    (url,) = lab.eureka_urls
    return Peer(url, Connection((url,), user, password, read_timeout_seconds=WAIT_SECONDS))


@pytest.mark.parametrize(
    ("user", "password"), [(None, None), (EUREKA_USER, "wr0ng-pa55"), ("eve", "wr0ng-pa55")]
)
def test_wrong_credentials(secured: Lab, user: str | None, password: str | None) -> None:
    """A read with wrong credentials raises an error that names the settings and never shows the password."""
    peer = client(secured, user, password)
    with pytest.raises(RegistryDenied, match=r"401.*EUREKA_USER, EUREKA_PASSWORD") as caught:
        peer.list_instances()
    peer.close()
    assert caught.value.status_code == 401
    assert "wr0ng-pa55" not in str(caught.value)
    assert secured.eureka_urls[0] in str(caught.value)


def test_credentials_whose_file_changed_are_read_again(secured: Lab, tmp_path: Path) -> None:
    """If credentials are refused, the client reads their file again and repeats the request."""
    (url,) = secured.eureka_urls
    file = tmp_path / "password"
    file.write_text("n0t-yet")
    peer = Peer(url, Connection((url,), EUREKA_USER, "f0rmer", secret_file=file))
    with pytest.raises(RegistryDenied, match="401"):
        peer.list_instances()
    file.write_text(f"{EUREKA_PASSWORD}\n")
    assert peer.read("NOBODY", "nobody") is None
    file.unlink()
    assert peer.read("NOBODY", "nobody") is None
    peer.close()


def test_the_right_credentials(secured: Lab, security: str, app: str) -> None:
    """With the right credentials everything works; with CSRF protection only reads do, and each refused
    write says why.
    """
    peer = client(secured, EUREKA_USER, EUREKA_PASSWORD)
    sent = rating(app)
    assert peer.read(*sent.key) is None
    assert sent.key not in {one.key for one in peer.list_instances()}
    assert peer.read_status().started_timestamp_ms is not None
    writes: list[Callable[[], object]] = [
        lambda: peer.register(sent),
        lambda: peer.renew(sent),
        lambda: peer.set_status(sent, Status.OUT_OF_SERVICE),
        lambda: peer.send_batch([batch.heartbeat_item(sent)]),
        lambda: peer.deregister(*sent.key),
    ]
    for write in writes:
        if security == "csrf":
            with pytest.raises(RegistryDenied, match=r"403.*CSRF.*/eureka/\*\*") as caught:
                write()
            assert EUREKA_PASSWORD not in str(caught.value)
        else:
            write()
    peer.close()
    assert one(app) == sent.instance_id
