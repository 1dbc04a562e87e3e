"""The address and the ports of a Service that an Ingress or a Gateway gives to callers."""

from __future__ import annotations

from eurekube_provider.core.addresses import Address
from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.gateway_routes import gateway_route_candidates, no_http_route_problem
from eurekube_provider.core.ingress_routes import ingress_route_candidates, no_ingress_problem
from eurekube_provider.core.objects import Object, qualified_name
from eurekube_provider.core.ports import Ports, choose_port_objects
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.routes import RouteCandidate, Routes, TargetService, choose_route
from eurekube_provider.core.syncer import Advertise, Syncer


def routed_address(
    syncer: Syncer, service: Object, routes: Routes | None, domain: str
) -> tuple[Address, Ports] | Problem:
    """Choose the host name, the address and the ports by which callers reach a Service from outside.

    An Ingress and a Gateway choose by host and path, so callers need the host name: of a rule that leads to
    the Service at ``/``, and of which no path leads elsewhere.

    :param routes: None as long as they have not been read.
    :param domain: the cluster's DNS domain.
    """
    if routes is None:
        kinds = "Ingresses" if syncer.advertise is Advertise.INGRESS else "Gateways and HTTPRoutes"
        return Problem(
            Reason.ROUTES_NOT_READ, f"the {kinds} have not been read yet: nothing is changed before"
        )
    offered = (service.get("spec") or {}).get("ports")
    ports = choose_port_objects(
        offered, syncer.port, syncer.secure_port, f"Service {qualified_name(service)}"
    )
    if isinstance(ports, Problem):
        return ports
    metadata = service["metadata"]
    target = TargetService(
        metadata["namespace"], metadata["name"], tuple(one for one in ports if one is not None)
    )
    if syncer.advertise is Advertise.INGRESS:
        found = choose_route(
            ingress_route_candidates(target, routes.ingresses, domain), no_ingress_problem(target)
        )
    else:
        found = choose_route(gateway_route_candidates(target, routes, domain), no_http_route_problem(target))
    return found.address_and_ports if isinstance(found, RouteCandidate) else found
