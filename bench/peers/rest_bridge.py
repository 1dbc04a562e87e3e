"""A bridge that sends one request for each instance, as the Eureka REST operations page describes it.

As a process: ``python -m bench.peers.rest_bridge register NAMESPACE`` lists a namespace's endpoints with the
official Kubernetes client and registers each; ``... renew NAMESPACE`` renews each, every 30 seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import requests
from kubernetes import client, config

from bench.peers.documents import registration_document
from eurekube_provider.core.model import Instance

RENEWAL_SECONDS = 30.0


def renew_each(url: str, instances: Iterable[Instance]) -> None:
    """Renew instances by one PUT each, over one connection."""
    with requests.Session() as session:
        for instance in instances:
            _renew(session, url, *instance.key)


def renew_each_in_threads(url: str, instances: Iterable[Instance], threads: int = 16) -> None:
    """Renew instances by one PUT each, from several threads with a pool of connections."""
    with requests.Session() as session, ThreadPoolExecutor(threads) as pool:
        session.mount(url, requests.adapters.HTTPAdapter(pool_maxsize=threads))
        list(pool.map(lambda instance: _renew(session, url, *instance.key), instances))


def list_ready_endpoints(namespace: str) -> Iterator[tuple[str, str, str, int]]:
    """Yield application, instance id, address and port of a namespace's ready endpoints."""
    config.load_kube_config()  # type: ignore[no-untyped-call]
    api: Any = client.DiscoveryV1Api()
    for item in api.list_namespaced_endpoint_slice(namespace).items:
        application = item.metadata.labels["kubernetes.io/service-name"]
        port = item.ports[0].port
        for endpoint in item.endpoints or ():
            if endpoint.conditions.ready:
                instance_id = f"{endpoint.target_ref.name}.{namespace}.rest:{application}:{port}"
                yield application, instance_id, endpoint.addresses[0], port


def main() -> None:
    """Register all endpoints once; with ``renew``, also renew them for ever."""
    what, namespace = sys.argv[1:]
    url = os.environ["EUREKA_URL"].split(",")[0]
    with requests.Session() as session:
        found = list(list_ready_endpoints(namespace))
        for application, instance_id, address, port in found:
            body = {"instance": registration_document(application, instance_id, address, port)}
            session.post(f"{url}/apps/{application.upper()}", json=body, timeout=10).raise_for_status()
        print("registered", flush=True)
        while what == "renew":
            started = time.monotonic()
            for application, instance_id, _, _ in found:
                _renew(session, url, application.upper(), instance_id)
            time.sleep(max(0.0, started + RENEWAL_SECONDS - time.monotonic()))


def _renew(session: requests.Session, url: str, application: str, instance_id: str) -> None:
    path = f"/apps/{application}/{quote(instance_id, safe='')}"
    session.put(url + path, timeout=10).raise_for_status()


if __name__ == "__main__":
    main()
