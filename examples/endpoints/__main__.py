"""The ready endpoints of a Service, looked up in its cluster and registered in Eureka.

The endpoints are looked up only when the program runs: ``pulumi up`` brings Eureka to today's endpoints, a
refresh does not. Run ``pulumi up`` whenever the endpoints change, for instance by a trigger.
"""

import pulumi

from eurekube_provider import EurekaApplication, FoundEndpoint, FoundEndpoints, get_endpoints_output
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
config = pulumi.Config()
service = config.require("service")
namespace = config.require("namespace")
fewest = config.require_int("fewest")


def port(endpoint: FoundEndpoint) -> int:
    """Return the port called http, else the only one."""
    ports = endpoint.ports
    if "http" not in ports and len(ports) != 1:
        raise pulumi.RunError(f"Service {namespace}/{service} has several ports and none is called http")
    return ports.get("http", next(iter(ports.values())))


def instances(found: FoundEndpoints) -> dict[str, dict[str, str | int]]:
    """Return an instance for each ready endpoint, by the pod's name."""
    if len(found.ready) < fewest:
        # A cluster that suddenly shows nothing may be the one that is broken.
        raise pulumi.RunError(
            f"Service {namespace}/{service} has {len(found.ready)} ready endpoints, fewer than"
            f" endpoints:fewest ({fewest}): what is registered stays as it is"
        )
    return {each.name: {"host_name": each.address, "port": port(each)} for each in found.ready}


endpoints = get_endpoints_output(service, namespace)
registered = EurekaApplication(service, {"application": service, "instances": endpoints.apply(instances)})

pulumi.export("addresses", endpoints.apply(lambda found: sorted(each.address for each in found.ready)))
pulumi.export("instanceIds", registered.instance_ids)
