"""Figures that show how near a real server is to self-preservation."""

from __future__ import annotations

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from tests.contract.conftest import rating
from tests.eureka_servers import Train, run_servers


def test_the_front_page_is_read(spring_cloud: Train, app: str) -> None:
    """The threshold on a server's front page grows by two renewals a minute for each instance, times 85 %.

    The test has a server of its own, since other tests' documents may break the front page.
    """
    with run_servers(spring_cloud) as running:
        (url,) = running.eureka_urls
        peer = Peer(url, Connection((url,)))
        before = peer.read_front_page()
        for number in range(20):
            peer.register(rating(app, f"{number}.{app}"))
        after = peer.read_front_page()
        peer.close()
    assert before is not None
    assert after is not None
    assert 33 <= after.renewals_threshold - before.renewals_threshold <= 35


def test_no_front_page() -> None:
    """If the front page cannot be read our client returns no figures, and does not raise."""
    nowhere = "http://127.0.0.1:9/eureka"
    assert Peer(nowhere, Connection((nowhere,))).read_front_page() is None
