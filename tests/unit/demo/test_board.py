"""The demo's table drawn as a picture for the README."""

from __future__ import annotations

import re

import pytest
from kubernetes import client

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.demo.board import EndpointTable
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess


@pytest.fixture
def board() -> EndpointTable:
    """Return a table that observes no server."""
    access = KubeAccess(client.Configuration(host="http://127.0.0.1:1"))
    peers = Peers(Connection.parse("http://127.0.0.1:9/eureka"))
    return EndpointTable(access, peers, "shop", "rating", 8080, "lab", None)


def test_the_picture_has_the_table_and_loads_nothing(board: EndpointTable) -> None:
    """The picture has the table's row and the step as its title, and loads no font from another server."""
    board.add_stack_registration(
        "billing", Instance("billing", "vm:billing:8080", "192.0.2.10", "192.0.2.10", Port(8080))
    )
    drawn = board.render_svg("3. It is scaled to 5")
    words = re.sub(r"<[^>]+>|&#160;", " ", drawn)
    for expected in ("billing", "192.0.2.10", "(stack)", "scaled", "Kubernetes"):
        assert expected in words
    assert "@font-face" not in drawn
    assert not re.search(r"(?:src|href|url\()\W*http", drawn)
