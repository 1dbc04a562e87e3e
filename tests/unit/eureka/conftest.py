"""Fixture with model servers for tests that change instances on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.peers import Peers
from tests.explore.world import owned
from tests.unit.eureka.model_servers import URLS, Servers


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Yield three model servers; no other address can be reached meanwhile."""
    made = Servers()
    with owned(made.world):
        made.peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        yield made
