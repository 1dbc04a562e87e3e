"""Registrations of a hand-written bridge: the fields that the Eureka REST operations page asks for."""

from __future__ import annotations

from typing import Any


def registration_document(
    application: str, instance_id: str, address: str, port: int, *, up: bool = True
) -> dict[str, Any]:
    """Return an instance, as it stands under the key ``instance`` of a registration."""
    return {
        "instanceId": instance_id,
        "app": application.upper(),
        "hostName": address,
        "ipAddr": address,
        "vipAddress": application,
        "secureVipAddress": application,
        "status": "UP" if up else "DOWN",
        "port": {"$": port, "@enabled": "true"},
        "securePort": {"$": 443, "@enabled": "false"},
        "homePageUrl": f"http://{address}:{port}/",
        "dataCenterInfo": {
            "@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo",
            "name": "MyOwn",
        },
        "leaseInfo": {"renewalIntervalInSecs": 30, "durationInSecs": 90},
        "metadata": {"zone": "zone-a"},
    }
