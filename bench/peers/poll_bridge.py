"""A bridge that lists all endpoints every 30 seconds and registers what is new, as catalog-sync tools do.

The interval is that of consul-k8s' full synchronisation. ``python -m bench.peers.poll_bridge NAMESPACE``.
"""

from __future__ import annotations

import os
import sys
import time

import requests

from bench.peers.documents import registration_document
from bench.peers.rest_bridge import list_ready_endpoints

LIST_INTERVAL_SECONDS = 30.0


def main() -> None:
    """List the endpoints, register new ones, sleep, and repeat."""
    url, namespace = os.environ["EUREKA_URL"].split(",")[0], sys.argv[1]
    registered: set[str] = set()
    with requests.Session() as session:
        while True:
            for application, instance_id, address, port in list_ready_endpoints(namespace):
                if instance_id not in registered:
                    body = {"instance": registration_document(application, instance_id, address, port)}
                    session.post(
                        f"{url}/apps/{application.upper()}", json=body, timeout=10
                    ).raise_for_status()
                    registered.add(instance_id)
            print("looked", flush=True)
            time.sleep(LIST_INTERVAL_SECONDS)


if __name__ == "__main__":
    main()
