"""The address families of EndpointSlices: the choice of one address for a pod that has several. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from eurekube_provider.core.objects import Object, is_terminating, pod_name_of_endpoint
from eurekube_provider.core.wording import format_count

_HOST_NAME_ADDRESS_TYPE = "FQDN"
"""The address type of EndpointSlices whose endpoints have host names instead of IP addresses."""


def keep_first_address_family(service: Object, slices: Iterable[Object]) -> tuple[list[Object], list[str]]:
    """Return a Service's EndpointSlices with each pod at one address: in the first family where it has one.

    The endpoints of one pod are one instance. Two endpoints without a pod may or may not be the same machine:
    all of them are taken from the first family that has any.

    :returns: the EndpointSlices with endpoints, less the endpoints of pods that an earlier family has; and
        sentences on the endpoints that are left out.
    """
    slices = [one for one in slices if one.get("endpoints")]
    kinds = {one.get("addressType", "IPv4") for one in slices}
    if len(kinds) < 2 and _HOST_NAME_ADDRESS_TYPE not in kinds:
        return slices, []  # as nearly always
    order = ((service.get("spec") or {}).get("ipFamilies") or (), ("IPv4", "IPv6", _HOST_NAME_ADDRESS_TYPE))
    families: dict[str, list[Object]] = {str(family): [] for family in chain(*order)}
    for one in slices:
        families[str(one.get("addressType", "IPv4"))].append(one)
    names = _count_live_endpoints(families.pop(_HOST_NAME_ADDRESS_TYPE))
    left_out = [f"{format_count(names, 'endpoint')} with a host name in place of an address"] if names else []
    filled = {family: those for family, those in families.items() if those}
    if len(filled) < 2:
        return list(chain(*filled.values())), left_out
    found: list[Object] = []
    taken: set[str] = set()  # the pods that an earlier family has; "" where it has endpoints without one
    for family, those in filled.items():
        if "" in taken and (count := _count_live_endpoints(those, without_pod=True)):
            left_out.append(f"{format_count(count, 'endpoint')} without a pod at an {family} address")
        rest = (
            [{**one, "endpoints": _drop_endpoints_of_pods(one["endpoints"], taken)} for one in those]
            if found
            else those
        )
        found += [one for one in rest if one["endpoints"]]
        taken.update(pod_name_of_endpoint(endpoint) for one in rest for endpoint in one["endpoints"])
    return found, left_out


def _drop_endpoints_of_pods(endpoints: Iterable[Object], taken: Collection[str]) -> list[Object]:
    return [endpoint for endpoint in endpoints if pod_name_of_endpoint(endpoint) not in taken]


def _count_live_endpoints(slices: Iterable[Object], *, without_pod: bool = False) -> int:
    return sum(
        not is_terminating(endpoint) and not (without_pod and pod_name_of_endpoint(endpoint))
        for one in slices
        for endpoint in one["endpoints"]
    )
