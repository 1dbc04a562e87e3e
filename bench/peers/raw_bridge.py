"""The floor of P1: a raw watch of a namespace's EndpointSlices, and one raw registration for each new
address.

It has one thread, one connection to each side, only the standard library, and no state but the addresses
seen: the least that any bridge does between the two. ``python -m bench.peers.raw_bridge NAMESPACE``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.access_log import USER_AGENTS
from bench.peers.documents import registration_document
from bench.prober import Prober, RawWatch


def main() -> None:
    """Start the watch, print ``watching``, then register each new address of every event."""
    prober = Prober(os.environ["EUREKA_URL"].split(",")[0], USER_AGENTS.raw)
    watch = RawWatch(Path(os.environ["KUBECONFIG"]), sys.argv[1])
    seen: set[str] = set()
    for item in watch.events(on_start=lambda: print("watching", flush=True)):
        name, port = item["metadata"]["name"], item["ports"][0]["port"]
        for endpoint in item.get("endpoints") or ():
            (address,) = endpoint["addresses"]
            if address not in seen:
                seen.add(address)
                body = registration_document(name, endpoint["targetRef"]["name"], address, port)
                prober.register(name.upper(), body)


if __name__ == "__main__":
    main()
