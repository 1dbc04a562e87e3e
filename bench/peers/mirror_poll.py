"""A bridge that polls Eureka and rewrites every slice, like a script written in an afternoon.

``python -m bench.peers.mirror_poll NAMESPACE SECONDS`` reads the whole registry every SECONDS with `requests`
and replaces the EndpointSlice of each application, changed or not, with the official Kubernetes client.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import requests
from kubernetes import client, config


def main() -> None:
    """Read the registry, rewrite every slice, sleep, and repeat."""
    url, namespace, seconds = os.environ["EUREKA_URL"].split(",")[0], sys.argv[1], float(sys.argv[2])
    config.load_kube_config()  # type: ignore[no-untyped-call]
    core: Any = client.CoreV1Api()
    discovery: Any = client.DiscoveryV1Api()
    with requests.Session() as session:
        while True:
            answer = session.get(f"{url}/apps", headers={"Accept": "application/json"}, timeout=30)
            answer.raise_for_status()
            for application in answer.json()["applications"]["application"]:
                _rewrite_slice(core, discovery, namespace, application)
            print("looked", flush=True)
            time.sleep(seconds)


def _rewrite_slice(core: Any, discovery: Any, namespace: str, application: dict[str, Any]) -> None:
    name = application["name"].lower()
    service = {"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80}]}}
    body = {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": application["instance"][0]["port"]["$"]}],
        "endpoints": [
            {"addresses": [one["ipAddr"]], "conditions": {"ready": one["status"] == "UP"}}
            for one in application["instance"]
        ],
    }
    try:
        discovery.replace_namespaced_endpoint_slice(name, namespace, body)
    except client.ApiException as error:
        if error.status != 404:
            raise
        core.create_namespaced_service(namespace, service)
        discovery.create_namespaced_endpoint_slice(namespace, body)


if __name__ == "__main__":
    main()
