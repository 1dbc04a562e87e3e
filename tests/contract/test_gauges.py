"""The danger of self-preservation, as real servers show it."""

from __future__ import annotations

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from tests.contract.conftest import rating
from tests.eureka_servers import Train, run_servers


def test_the_front_page_is_read(spring_cloud: Train, app: str) -> None:
    """The renewals that a server expects are read off its front page: two a minute, of which 85 % will do.

    A server of its own: with some documents that it takes from clients its front page is an error.
    """
    with run_servers(spring_cloud) as running:
        (url,) = running.eureka_urls
        peer = Peer(url, Connection((url,)))
        before = peer.figures()
        for number in range(20):
            peer.register(rating(app, f"{number}.{app}"))
        after = peer.figures()
        peer.close()
    assert before is not None
    assert after is not None
    assert 33 <= after.threshold - before.threshold <= 35


def test_no_front_page() -> None:
    """Where the page cannot be read there are no figures, and no error."""
    nowhere = "http://127.0.0.1:9/eureka"
    assert Peer(nowhere, Connection((nowhere,))).figures() is None
