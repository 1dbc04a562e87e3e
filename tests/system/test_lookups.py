"""The native provider's function that reads a Service's endpoints, on a real API server."""

from __future__ import annotations

import pytest

from eurekube_provider.provider.configuration import Configuration
from eurekube_provider.provider.functions import invoke
from lab import Lab
from lab.workloads import Cluster, wait_for

pytestmark = pytest.mark.lab

TOKEN = "eurekube:index:getEndpoints"


def test_the_endpoints_of_a_service(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """The function returns the callable endpoints in the schema's names, and none for a missing Service."""
    service = f"{namespace}-app"
    cluster.apply_deployment(namespace, service, 2)
    cluster.apply_service(namespace, service)
    wait_for(lambda: len(cluster.ready_addresses(namespace, service)) == 2, "endpoints")
    configuration = Configuration({"kubeconfig": str(lab.kubeconfig)})
    found = invoke(TOKEN, {"service": service, "namespace": namespace}, configuration, is_preview=True)
    assert (found["service"], found["namespace"]) == (service, namespace)
    assert sorted(each["address"] for each in found["ready"]) == cluster.ready_addresses(namespace, service)
    assert found["endpoints"] == found["ready"]
    assert {(each["ready"], each["terminating"]) for each in found["ready"]} == {(True, False)}
    nobody = invoke(TOKEN, {"service": "nobody", "namespace": namespace}, configuration, is_preview=False)
    assert (nobody["endpoints"], nobody["ready"]) == ([], [])
