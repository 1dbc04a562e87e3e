"""A program of your own, which registers a Service's endpoints and a machine outside of the cluster in
Eureka.
"""

from __future__ import annotations

from typing import Any

import pulumi

from eurekube_provider import EurekaApplication, EurekaInstance, FoundEndpoints, get_endpoints_output

config = pulumi.Config()
service, namespace = config.require("service"), config.require("namespace")


def by_pod(found: FoundEndpoints) -> dict[str, Any]:
    """Return an instance for each endpoint that callers can be sent to, by the pod's name."""
    return {
        each.name: {"host_name": each.address, "port": each.ports["http"], "zone": each.zone or None}
        for each in found.ready
    }


# Asked in every preview and up, never in a refresh: when endpoints come and go, up must run again.
endpoints = get_endpoints_output(service, namespace)

pods = EurekaApplication("pods", {"application": service, "instances": endpoints.apply(by_pod)})

legacy = EurekaInstance(
    "legacy",
    {"application": f"{service}-legacy", "host_name": "192.0.2.10", "port": 8080, "metadata": {"tier": "1"}},
)

pulumi.export("instanceIds", pods.instance_ids)
pulumi.export("legacy", legacy.instance_id)
