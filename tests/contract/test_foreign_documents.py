"""Registrations as clients in other languages were reported to write them: none hides another instance."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.model import Status
from eurekube_provider.eureka.protocol.peer import Peer
from tests.contract.conftest import Server, document, rating, wait_until_listed

AMAZON = "com.netflix.appinfo.AmazonInfo"

REPORTED: dict[str, dict[str, Any]] = {
    "an Amazon data centre with nulls": {
        "dataCenterInfo": {
            "@class": AMAZON,
            "name": "Amazon",
            "metadata": {"instance-id": "i-0a1b2c", "public-ipv4": None, "public-hostname": None},
        }
    },
    "metadata in another script": {"metadata": {"team": "支払い", "face": "😀"}},
    "metadata that is no text": {"metadata": {"weight": 1, "canary": True, "note": None}},
    "a status that Eureka does not know": {"status": "READY"},
    "a port that no machine has": {"port": {"$": 99999, "@enabled": "true"}},
    "neither port nor VIP address": {"port": None, "vipAddress": None, "secureVipAddress": None},
    "a lease of minus five seconds": {"leaseInfo": {"durationInSecs": -5, "renewalIntervalInSecs": 0}},
}


@pytest.mark.parametrize("fields", REPORTED.values(), ids=list(REPORTED))
def test_a_foreign_document_is_listed_beside_ours(
    server: Server, peer: Peer, app: str, fields: dict[str, Any]
) -> None:
    """The server accepts and lists the foreign instance, and our client reads it and all others."""
    foreign = document(app, f"foreign.{app.lower()}", **fields)
    theirs = app.upper(), foreign["instanceId"]
    assert server.register(foreign) == 204
    try:
        ours = rating(app)
        peer.register(ours)
        wait_until_listed(peer, ours)
        listed = {one.instance_id: one for one in peer.list_instances() if one.application == app.upper()}
        assert listed.keys() == {ours.instance_id, foreign["instanceId"]}
        assert listed[foreign["instanceId"]].status is (Status.UNKNOWN if "status" in fields else Status.UP)
        assert peer.read(*ours.key) is not None
        assert peer.read(*theirs) is not None
    finally:
        peer.deregister(*theirs)  # or the front page is an error for other tests, too
