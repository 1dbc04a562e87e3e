"""A kopf operator for ``kopf run``: an event handler that registers each endpoint in Eureka as it appears.

Written after kopf's pages "Event-watching handlers" and "Startup handlers". It sends no renewals and has no
status, which only makes it faster.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any
from urllib.parse import quote

import kopf
import requests

from bench.peers.documents import registration_document

EUREKA_URLS = os.environ["EUREKA_URL"].split(",")
# Of several servers each is written to, and none forwards it, which takes half a second.
HEADERS = {"x-netflix-discovery-replication": "true"} if len(EUREKA_URLS) > 1 else {}
session = requests.Session()
readiness_by_slice: dict[str, dict[str, bool]] = defaultdict(dict)


@kopf.on.event("discovery.k8s.io", "v1", "endpointslices")
def endpoints_changed(
    event: kopf.RawEvent, body: kopf.Body, name: str, namespace: str | None, **_: Any
) -> None:
    """Register endpoints that are new or have another readiness; deregister those that are gone or
    terminating.
    """
    application = body["metadata"]["labels"]["kubernetes.io/service-name"]
    port = body["ports"][0]["port"]
    wanted: dict[str, tuple[str, bool]] = {}
    if event["type"] != "DELETED":
        for endpoint in body.get("endpoints") or ():
            conditions = endpoint["conditions"]
            if not conditions.get("terminating"):
                instance_id = f"{endpoint['targetRef']['name']}.{namespace}.kopf:{application}:{port}"
                wanted[instance_id] = (endpoint["addresses"][0], bool(conditions.get("ready")))
    known = readiness_by_slice[name]
    for instance_id, (address, ready) in wanted.items():
        if known.get(instance_id) != ready:
            instance = registration_document(application, instance_id, address, port, up=ready)
            for url in EUREKA_URLS:
                answer = session.post(
                    f"{url}/apps/{application.upper()}",
                    json={"instance": instance},
                    headers=HEADERS,
                    timeout=10,
                )
                answer.raise_for_status()
            known[instance_id] = ready
    for instance_id in known.keys() - wanted.keys():
        path = f"/apps/{application.upper()}/{quote(instance_id, safe='')}"
        for url in EUREKA_URLS:
            session.delete(url + path, headers=HEADERS, timeout=10)
        del known[instance_id]
