"""The danger of self-preservation, as real servers show it."""

from __future__ import annotations

import pytest

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer

pytestmark = pytest.mark.lab


def test_the_front_page_is_read(peer: Peer) -> None:
    """The renewals that a server expects and gets are read off its front page."""
    figures = peer.figures()
    assert figures is not None
    assert figures.threshold >= 0
    assert figures.last_minute >= 0


def test_no_front_page() -> None:
    """Where the page cannot be read there are no figures, and no error."""
    nowhere = "http://127.0.0.1:9/eureka"
    assert Peer(nowhere, Connection((nowhere,))).figures() is None
