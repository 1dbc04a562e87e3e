"""Hypothesis strategies for instances, registries and Kubernetes objects of every shape."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import DataCenter, EurekaLease, Instance, Port, Status
from eurekube_provider.core.objects import SERVICE_NAME_LABEL

EXAMPLES = int(os.environ.get("EUREKUBE_EXAMPLES", "100"))
"""Number of examples tried for each property."""

# The machine is shared: how long one example takes says nothing.
settings.register_profile("shared-machine", deadline=None, max_examples=EXAMPLES)
settings.load_profile("shared-machine")

OURS = "cluster/eks/shop/rating"
THEIRS = "cluster/other/shop/rating"

Object = dict[str, Any]

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)
"""Names as Kubernetes and Eureka allow them."""

ids = st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text)
"""Instance ids: any text without a slash, in every script, with spaces and colons."""

texts = st.text(max_size=12)
hosts = st.text(min_size=1, max_size=12)
port_numbers = st.integers(1, 65535)
ports = st.builds(Port, port_numbers, st.booleans())
statuses = st.sampled_from(Status)
leases = st.builds(EurekaLease, st.integers(1, 3600), st.integers(1, 3600))
timestamps = st.none() | st.integers(0, 4_000_000_000_000)
metadata = st.dictionaries(st.text(max_size=12).filter(lambda key: key != "@class"), texts, max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
data_centers = st.builds(
    DataCenter,
    name=st.sampled_from(["MyOwn", "Amazon", "Netflix"]),
    java_class=st.sampled_from(
        ["com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "com.netflix.appinfo.AmazonInfo"]
    ),
    metadata=metadata,
)

instances = st.builds(
    Instance,
    application=names,
    instance_id=ids,
    host_name=hosts,
    ip_address=hosts,
    port=ports,
    secure_port=ports,
    vip_address=texts,
    secure_vip_address=texts,
    status=statuses,
    metadata=metadata,
    lease=leases,
    home_page_url=texts,
    status_page_url=texts,
    health_check_url=texts,
    secure_health_check_url=texts,
    data_center=data_centers,
    overridden_status=statuses,
    last_dirty_timestamp_ms=timestamps,
    last_updated_timestamp_ms=timestamps,
    unknown_fields=st.dictionaries(
        texts.map(lambda text: f"x-{text}"),  # no name of Eureka's own starts so
        json_values,
        max_size=2,
    ),
)
"""Every instance that the model can represent."""


@st.composite
def desired(draw: st.DrawFn) -> list[Instance]:
    """Draw desired instances with few ids and addresses, so that they collide with a registry's."""
    return draw(st.lists(_small(st.just(OURS), st.just(Status.UNKNOWN)), max_size=6))


@st.composite
def registries(draw: st.DrawFn) -> list[Instance]:
    """Draw a registry with our instances, another cluster's and self-registered ones.

    No two instances share application and id. Some have an override, as set by a person or a tool.
    """
    owners = st.sampled_from([OURS, OURS, THEIRS, None])
    held = draw(st.lists(_small(owners, statuses), max_size=8))
    return list({instance.key: instance for instance in held}.values())


@st.composite
def _small(
    draw: st.DrawFn, owners: st.SearchStrategy[str | None], overrides: st.SearchStrategy[Status]
) -> Instance:
    owner = draw(owners)
    number = draw(st.integers(1, 4))
    override = draw(st.just(Status.UNKNOWN) | overrides)
    status = draw(st.sampled_from([Status.UP, Status.DOWN, Status.STARTING, Status.OUT_OF_SERVICE]))
    if override is not Status.UNKNOWN and draw(st.booleans()):
        status = override
    extra = draw(st.sampled_from([{}, {"zone": "a"}, {"version": "2"}]))
    return Instance(
        application=draw(st.sampled_from(["rating", "order"])),
        instance_id=f"pod-{draw(st.integers(1, 4))}",
        host_name=f"10.0.0.{number}",
        ip_address=f"10.0.0.{number}",
        port=Port(draw(st.sampled_from([8080, 9090]))),
        status=status,
        metadata={**extra, **({OWNER_KEY: owner} if owner else {})},
        overridden_status=override,
        last_dirty_timestamp_ms=draw(st.integers(0, 100)),
    )


_slice_ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.none() | port_numbers},
        optional={
            "name": st.sampled_from(["", "http", "grpc", None]),
            "protocol": st.sampled_from(["TCP", "UDP", "SCTP"]),
            "nodePort": st.none() | port_numbers,
        },
    ),
    max_size=3,
)
_conditions = st.none() | st.fixed_dictionaries(
    {},
    optional={name: st.sampled_from([True, False, None]) for name in ("ready", "serving", "terminating")},
)
_endpoints = st.fixed_dictionaries(
    {"addresses": st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"]), min_size=1, max_size=2)},
    optional={
        "conditions": _conditions,
        "targetRef": st.none()
        | st.fixed_dictionaries(
            {}, optional={"kind": st.sampled_from(["Pod", "Node"]), "name": st.sampled_from(["a", "b", ""])}
        ),
        "zone": st.none() | st.sampled_from(["zone-a", "zone-b"]),
    },
)


def slices(services: st.SearchStrategy[str]) -> st.SearchStrategy[list[Object]]:
    """Return a strategy for EndpointSlices of these Services, with optional fields missing or null."""

    def build(number: int, service: str, kind: str, ports: list[Object] | None, endpoints: Any) -> Object:
        return {
            "metadata": {
                "namespace": "shop",
                "name": f"{service}-{number}",
                "labels": {SERVICE_NAME_LABEL: service},
            },
            "addressType": kind,
            "ports": ports,
            "endpoints": endpoints,
        }

    one = st.builds(
        build,
        st.integers(1, 99),
        services,
        st.sampled_from(["IPv4", "IPv6", "FQDN"]),
        st.none() | _slice_ports,
        st.none() | st.lists(_endpoints, max_size=4),
    )
    return st.lists(one, max_size=4)


def services(names_: st.SearchStrategy[str]) -> st.SearchStrategy[list[Object]]:
    """Return a strategy for Services of the namespace ``shop``, of every type, with and without an
    address.
    """
    ingress = st.fixed_dictionaries(
        {}, optional={"ip": st.just("192.0.2.1"), "hostname": st.just("lb.example.com")}
    )
    spec = st.fixed_dictionaries(
        {},
        optional={
            "clusterIP": st.sampled_from(["10.96.0.1", "None", ""]),
            "externalIPs": st.none() | st.just(["198.51.100.1"]),
            "externalTrafficPolicy": st.sampled_from(["Cluster", "Local"]),
            "ipFamilies": st.sampled_from([["IPv4"], ["IPv6"], ["IPv6", "IPv4"]]),
            "ports": st.none() | _slice_ports,
            "publishNotReadyAddresses": st.booleans(),
            "selector": st.none() | st.sampled_from([{}, {"app": "a"}, {"app": "b"}]),
            "type": st.sampled_from(["ClusterIP", "LoadBalancer", "ExternalName"]),
        },
    )
    status = st.none() | st.fixed_dictionaries(
        {},
        optional={
            "loadBalancer": st.fixed_dictionaries({}, optional={"ingress": st.lists(ingress, max_size=2)})
        },
    )
    one = st.builds(
        lambda name, app, spec, status: {
            "metadata": {"namespace": "shop", "name": name, "labels": {"app": app} if app else None},
            "spec": spec,
            "status": status,
        },
        names_,
        st.none() | names_,
        spec,
        status,
    )
    return st.lists(one, max_size=3, unique_by=lambda service: service["metadata"]["name"])
