"""A program that registers one team's instances in a Eureka that other teams use, too."""

import pulumi
from guard import may_only_register

from eurekube_provider import EurekaInstance
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
may_only_register(["orders", "orders-admin"])

for each in pulumi.Config().require_object("registrations"):
    EurekaInstance(
        f"{each['application']}-{each['host']}",
        {
            "application": each["application"],
            "host_name": each["host"],
            "port": each["port"],
            "instance_id": each.get("instanceId"),
            "on_conflict": each.get("onConflict"),
        },
    )
