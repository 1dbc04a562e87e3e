"""Registrations as clients in other languages were reported to write them: none hides another instance."""

from __future__ import annotations

from typing import Any

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
    "an address of thousands of digits": {"ipAddr": "9" * 5000},
    "a lease of minus five seconds": {"leaseInfo": {"durationInSecs": -5, "renewalIntervalInSecs": 0}},
    "an address of more digits than Python turns into a number": {"ipAddr": "9" * 5000},
}


def test_foreign_documents_are_listed_beside_ours(server: Server, peer: Peer, app: str) -> None:
    """The server accepts and lists each foreign instance, and our client reads it and all others.

    All are registered before the list is awaited, which takes up to half a minute.
    """
    applications = {f"{app}-{number}": fields for number, fields in enumerate(REPORTED.values())}
    foreign = {
        name: document(name, f"foreign.{name.lower()}", **fields) for name, fields in applications.items()
    }
    ours = {name: rating(name) for name in applications}
    try:
        for name, registered in foreign.items():
            assert server.register(registered) == 204
            peer.register(ours[name])
        wait_until_listed(peer, *ours.values())
        listed = {one.key: one for one in peer.list_instances()}
        for name, fields in applications.items():
            theirs = name.upper(), str(foreign[name]["instanceId"])
            assert {key for key in listed if key[0] == name.upper()} == {ours[name].key, theirs}
            assert listed[theirs].status is (Status.UNKNOWN if "status" in fields else Status.UP)
            assert peer.read(*ours[name].key) is not None
            assert peer.read(*theirs) is not None
    finally:
        for name, registered in foreign.items():
            peer.deregister(
                name.upper(), registered["instanceId"]
            )  # else the front page fails for other tests
