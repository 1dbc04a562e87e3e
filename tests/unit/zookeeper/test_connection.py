"""Connection settings of a ZooKeeper ensemble, and the settings that are refused."""

from __future__ import annotations

import pathlib
import socket
import struct
import subprocess
import sys

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.operator.settings import load_settings
from eurekube_provider.zookeeper.connection import ZooKeeperConnection


def configured(**said: str) -> ZooKeeperConnection:
    """Return the connection of these settings; underscores in names stand for dashes."""
    return ZooKeeperConnection.from_settings({key.replace("_", "-"): one for key, one in said.items()}.get)


def test_servers_and_root() -> None:
    """The scheme may stand before each server or the first alone; without a path the root is Spring's."""
    one = configured(url="zookeeper://zk-1:2181,zk-2")
    assert (one.hosts, one.root) == (("zk-1:2181", "zk-2:2181"), "/services")
    two = configured(url="zookeepers://zk-1,zookeepers://[2001:db8::1]:99/apps/prod/")
    assert (two.hosts, two.root) == (("zk-1:2281", "[2001:db8::1]:99"), "/apps/prod")
    assert two.service_urls == ("zookeepers://zk-1:2281/apps/prod", "zookeepers://[2001:db8::1]:99/apps/prod")


def test_credentials_are_never_shown() -> None:
    """Credentials from the URL are neither in the repr nor in errors."""
    one = configured(url="zookeeper://eureka:s%40cret@zk-1")
    assert (one.user, one.password) == ("eureka", "s@cret")
    assert "cret" not in f"{one!r} {one.service_urls}"
    with pytest.raises(ConfigurationError) as caught:
        configured(url="zookeeper://eureka:s3cret@zk 1")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("eureka", None)),
        ({"password": "p"}, ("eureka", "p")),
        ({"user": "ops", "password": "p\n"}, ("ops", "p")),
    ],
)
def test_a_password_belongs_to_the_user_in_the_url(
    given: dict[str, str], expected: tuple[str, str | None]
) -> None:
    """A password that is given beside the URL is that of the user in it: with an empty one, anybody could
    change the nodes.
    """
    one = configured(url="zookeeper://eureka@zk-1", **given)
    assert (one.user, one.password) == expected


@pytest.mark.parametrize(
    "said",
    [
        {"url": "zookeeper://"},
        {"url": "zookeeper://zk-1/a,zk-2/b"},
        {"url": "zookeeper://zk-1:port"},
        {"url": "zookeeper://zk-1", "token": "t"},
        {"url": "zookeeper://zk-1", "mode": "batch"},
        {"url": "zookeeper://zk-1", "zone": "a"},
        {"url": "zookeeper://zk-1", "proxy": "http://p:1"},
        {"url": "zookeeper://zk-1", "password": "p"},
        {"url": "zookeeper://zk-1", "ca-file": __file__},
        {"url": "zookeepers://zk-1", "ca-file": "/nowhere"},
    ],
)
def test_what_cannot_be_used_is_refused(said: dict[str, str]) -> None:
    """Settings that ZooKeeper cannot use are refused before any connection."""
    with pytest.raises(ConfigurationError):
        ZooKeeperConnection.from_settings(said.get)


def test_what_is_eurekas_refuses_it_with_the_reason() -> None:
    """Code that speaks to Eureka servers, and a stack's configuration, refuse a ZooKeeper URL with the
    reason.
    """
    with pytest.raises(ConfigurationError, match="where only syncers register"):
        Peers(configured(url="zookeeper://zk-1"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="where only syncers register"):
        Connection.parse("zookeeper://zk-1:2181/services")


def test_a_broken_answer_is_followed_by_another_connection() -> None:
    """After a malformed answer the client connects again, instead of ending for good."""
    session = struct.pack(">iiqi16s?", 0, 6_000, 1, 16, b"", False)
    to_nobody = struct.pack(">iqi", 99, 0, 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(4.0)
        client = configured(url=f"zookeeper://127.0.0.1:{server.getsockname()[1]}").create_client()
        client.start_async()
        try:
            for _ in range(2):
                with server.accept()[0] as asked:
                    asked.recv(4096)
                    for answer in (session, to_nobody):
                        asked.sendall(struct.pack(">i", len(answer)) + answer)
        finally:
            client.stop()
            client.close()


def test_the_operators_file_names_one(tmp_path: pathlib.Path) -> None:
    """The operator's file may name a ZooKeeper beside Eureka, or it may be the default connection."""
    file = tmp_path / "operator.yaml"
    file.write_text("connections: {zk: {url: [zookeeper://zk-1, zookeeper://zk-2]}}\n")
    settings = load_settings({"config": str(file), "eureka_url": "http://eureka:8761/eureka"}, {})
    kinds = {name: one.registry_kind.name for name, one in settings.connections.items()}
    assert kinds == {"default": "Eureka", "zk": "ZooKeeper"}
    assert (
        load_settings({"eureka_url": "zookeeper://zk-1"}, {}).connections["default"].registry_kind.renewals
        is False
    )


def test_nothing_loads_it_without_a_connection_of_that_kind() -> None:
    """Operator and commands do not load ZooKeeper modules, so that kazoo may be missing, until a ZooKeeper
    URL is used.
    """
    program = (
        "import sys; sys.modules['kazoo'] = None\n"
        "import eurekube_provider.operator.run, eurekube_provider.operator.selfcheck\n"
        "import eurekube_provider.cli.keepalive_command, eurekube_provider.cli.doctor_command\n"
        "import eurekube_provider.cli.explain_command, eurekube_provider.cli.drain_command\n"
        "from eurekube_provider.operator.settings import load_settings\n"
        "load_settings({'eureka_url': 'http://eureka:8761/eureka'}, {})\n"
        "loaded = [name for name in sys.modules if name.startswith('eurekube_provider.zookeeper')]\n"
        "assert not loaded, loaded\n"
        "try:\n    load_settings({'eureka_url': 'zookeeper://zk-1'}, {})\n"
        "except Exception as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "pip install 'eurekube-provider[zookeeper]'" in done.stdout
