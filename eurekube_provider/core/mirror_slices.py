"""The EndpointSlices of a mirrored Service: a plan of writes that turns existing into wanted ones.

Each write of a slice is sent to every node of the cluster. So a slice is written at most once, and only if it
changes; new endpoints go first into slices that change anyway (KEP-0752). A slice's name is made of the
Service, the ports and a counter, so that a repeated creation finds the slice that was created.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eurekube_provider.core.mirror import SOURCE_ANNOTATION
from eurekube_provider.core.mirror_endpoints import EndpointGroup, MirrorEndpoint
from eurekube_provider.core.objects import Object

MAX_ENDPOINTS_PER_SLICE = 100
"""The most endpoints in one slice, as in Kubernetes' EndpointSlice controller: a change of one endpoint
sends its whole slice to all nodes.
"""

TARGET_REF_KIND = "EurekaInstance"
"""The ``kind`` in an endpoint's ``targetRef``, whose ``name`` is the instance's id."""


@dataclass(frozen=True, slots=True)
class SliceMetadata:
    """The metadata that all slices of one Service have in common.

    :ivar labels: among them ``kubernetes.io/service-name`` and the name of the slices' manager.
    :ivar owner_reference: the owner reference, by which Kubernetes removes the slices together with their
        owner.
    """

    namespace: str
    service: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_reference: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """The writes of slices, each slice once. Creations come first, so that no endpoint is missing in between.

    :ivar updates: whole slices, with the ``resourceVersion`` that they replace.
    :ivar deletions: slices as they are in the cluster.
    """

    creations: tuple[dict[str, Any], ...] = ()
    updates: tuple[dict[str, Any], ...] = ()
    deletions: tuple[Object, ...] = ()

    def __len__(self) -> int:
        """Return the number of writes."""
        return len(self.creations) + len(self.updates) + len(self.deletions)


@dataclass(slots=True)
class _SliceContents:
    """An existing slice, and the endpoints that it must hold, by address."""

    endpoint_slice: Object
    endpoints: dict[str, MirrorEndpoint] = field(default_factory=dict)
    is_changed: bool = False

    @property
    def free_places(self) -> int:
        return MAX_ENDPOINTS_PER_SLICE - len(self.endpoints)

    @property
    def loses_endpoints(self) -> bool:
        return any(
            one["addresses"][0] not in self.endpoints for one in self.endpoint_slice.get("endpoints") or ()
        )


def plan_slices(
    slice_metadata: SliceMetadata,
    wanted: Iterable[MirrorEndpoint],
    existing: Sequence[Object],
    taken: Iterable[str] = (),
) -> SlicePlan:
    """Plan the writes after which the slices hold the wanted endpoints and no others.

    :param slice_metadata: its annotations name the source that is read now.
    :param wanted: endpoints, no two of one group with the same address.
    :param existing: the mirror's slices of the Service.
    :param taken: names of other slices.
    """
    wanted = list(wanted)
    has_zone_hints = all(one.zone for one in wanted if one.is_ready)
    # Each slice has one source, which its annotation names; empty for the source that is read now.
    by_group: dict[tuple[EndpointGroup, str], dict[str, MirrorEndpoint]] = defaultdict(dict)
    for one in wanted:
        by_group[one.group, one.source][one.address] = one
    slices_by_group: dict[tuple[EndpointGroup, str] | None, list[_SliceContents]] = defaultdict(list)
    for item in sorted(existing, key=lambda each: str(each["metadata"]["name"])):
        group = slice_group(item)
        places = ((group, slice_source(item)), (group, ""), None)
        slices_by_group[next(one for one in places if one is None or one in by_group)].append(
            _SliceContents(item)
        )
    names = {*taken, *(str(item["metadata"]["name"]) for item in existing)}
    creations: list[dict[str, Any]] = []
    updates: list[tuple[bool, dict[str, Any]]] = []
    deletions = [one.endpoint_slice for one in slices_by_group.pop(None, [])]
    for (group, source), endpoints in sorted(by_group.items()):
        marks = slice_metadata
        if source:
            marks = replace(marks, annotations={**marks.annotations, SOURCE_ANNOTATION: source})
        fillings = slices_by_group[group, source]
        rest = _place_endpoints(fillings, endpoints, marks, has_zone_hints=has_zone_hints)
        for filling in fillings:
            if not filling.endpoints:
                deletions.append(filling.endpoint_slice)
            elif filling.is_changed:
                body = _updated_slice_body(filling, marks, group, has_zone_hints=has_zone_hints)
                updates.append((filling.loses_endpoints, body))
        for start in range(0, len(rest), MAX_ENDPOINTS_PER_SLICE):
            name = _take_free_slice_name(slice_metadata.service, group, names)
            part = rest[start : start + MAX_ENDPOINTS_PER_SLICE]
            creations.append(_slice_body(marks, group, name, part, has_zone_hints=has_zone_hints))
    # An endpoint that changes its port moves to another slice: it is added there first, for no gap in calls.
    ordered = (body for _, body in sorted(updates, key=lambda one: one[0]))
    return SlicePlan(tuple(creations), tuple(ordered), tuple(deletions))


def _place_endpoints(
    fillings: list[_SliceContents],
    wanted: Mapping[str, MirrorEndpoint],
    slice_metadata: SliceMetadata,
    *,
    has_zone_hints: bool,
) -> list[MirrorEndpoint]:
    """Put the wanted endpoints of one group into its slices; return those that need new slices."""
    left = dict(wanted)
    for one in fillings:
        endpoints = one.endpoint_slice.get("endpoints") or ()
        one.is_changed = not _has_metadata(one.endpoint_slice, slice_metadata)
        for stands in endpoints:
            address = stands["addresses"][0]
            endpoint = left.pop(address, None) if one.free_places else None
            if endpoint is None:
                one.is_changed = True
                continue
            one.endpoints[address] = endpoint
            written = {key: value for key, value in stands.items() if value}
            one.is_changed |= written != _endpoint_body(endpoint, has_zone_hints=has_zone_hints)
    rest = sorted(left.values(), key=lambda each: each.address)
    for one in sorted(fillings, key=lambda each: not each.is_changed):
        # Slices that change anyway are filled first; one other slice is, if it takes all remaining endpoints.
        if rest and one.free_places and one.endpoints and (one.is_changed or len(rest) <= one.free_places):
            added, rest = rest[: one.free_places], rest[one.free_places :]
            one.endpoints |= {each.address: each for each in added}
            one.is_changed = True
    # A slice that would become empty takes new endpoints instead of being deleted: one write less.
    for one in fillings:
        if rest and not one.endpoints:
            added, rest = rest[:MAX_ENDPOINTS_PER_SLICE], rest[MAX_ENDPOINTS_PER_SLICE:]
            one.endpoints = {each.address: each for each in added}
            one.is_changed = True  # also where somebody else has emptied it
    return rest


def slice_group(item: Object) -> EndpointGroup:
    """Return a slice's family and ports; a group that no mirror makes if a port's protocol was changed."""
    ports = tuple(
        (str(one.get("name") or ""), int(one.get("port") or 0), str(one.get("appProtocol") or ""))
        if one.get("protocol") in (None, "TCP")
        else (str(one["protocol"]), 0, "")
        for one in item.get("ports") or ()
    )
    return EndpointGroup(str(item.get("addressType") or "IPv4"), ports)


def slice_source(item: Object) -> str:
    """Return the URLs of the servers that listed a slice's endpoints; empty where none are written down."""
    return str((item["metadata"].get("annotations") or {}).get(SOURCE_ANNOTATION) or "")


def endpoints_in_slices(slices: Iterable[Object]) -> list[MirrorEndpoint]:
    """Return the endpoints in the mirror's slices; one that somebody else wrote has no instance id."""
    return [
        MirrorEndpoint(
            group,
            str(one["addresses"][0]),
            _instance_id(one),
            (one.get("conditions") or {}).get("ready") is not False,
            str(one.get("zone") or ""),
            source,
        )
        for item in slices
        for group, source in ((slice_group(item), slice_source(item)),)
        for one in item.get("endpoints") or ()
    ]


def _instance_id(endpoint: Object) -> str:
    target = endpoint.get("targetRef") or {}
    return str(target.get("name") or "") if target.get("kind") == TARGET_REF_KIND else ""


def _endpoint_body(one: MirrorEndpoint, *, has_zone_hints: bool) -> dict[str, Any]:
    """Return an endpoint as the API's JSON.

    An instance that is not UP has ``serving: false`` as well. If all endpoints were terminating and serving,
    as when a person takes the whole application out of service, kube-proxy would call them.
    """
    body: dict[str, Any] = {
        "addresses": [one.address],
        "conditions": {"ready": one.is_ready, "serving": one.is_ready, "terminating": False},
        "targetRef": {"kind": TARGET_REF_KIND, "name": one.instance_id},
    }
    if one.zone:
        body["zone"] = one.zone
    if one.zone and one.is_ready and has_zone_hints:
        body["hints"] = {"forZones": [{"name": one.zone}]}
    return body


def _has_metadata(item: Object, slice_metadata: SliceMetadata) -> bool:
    """Return whether a slice has its labels, annotations and owner; further ones do not matter."""
    metadata = item["metadata"]
    return (
        dict(slice_metadata.labels).items() <= (metadata.get("labels") or {}).items()
        and dict(slice_metadata.annotations).items() <= (metadata.get("annotations") or {}).items()
        and any(
            one.get("uid") == slice_metadata.owner_reference.get("uid")
            for one in metadata.get("ownerReferences") or ()
        )
    )


def _updated_slice_body(
    one: _SliceContents, slice_metadata: SliceMetadata, group: EndpointGroup, *, has_zone_hints: bool
) -> dict[str, Any]:
    metadata = one.endpoint_slice["metadata"]
    body = _slice_body(
        slice_metadata, group, str(metadata["name"]), one.endpoints.values(), has_zone_hints=has_zone_hints
    )
    for field_name in ("labels", "annotations"):
        body["metadata"][field_name] = {**(metadata.get(field_name) or {}), **body["metadata"][field_name]}
    if metadata.get("finalizers"):
        body["metadata"]["finalizers"] = metadata["finalizers"]
    if metadata.get("resourceVersion"):
        body["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    return body


def _slice_body(
    slice_metadata: SliceMetadata,
    group: EndpointGroup,
    name: str,
    endpoints: Iterable[MirrorEndpoint],
    *,
    has_zone_hints: bool,
) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": slice_metadata.namespace,
            "labels": dict(slice_metadata.labels),
            "annotations": dict(slice_metadata.annotations),
            "ownerReferences": [dict(slice_metadata.owner_reference)],
        },
        "addressType": group.family,
        "ports": [port_body(*port) for port in group.ports],
        "endpoints": [
            _endpoint_body(one, has_zone_hints=has_zone_hints)
            for one in sorted(endpoints, key=lambda each: each.address)
        ],
    }


def port_body(name: str, number: int, app_protocol: str) -> dict[str, Any]:
    """Return a port of an EndpointSlice, or of a Service, as the API's JSON."""
    body: dict[str, Any] = {"name": name, "port": number, "protocol": "TCP"}
    return {**body, "appProtocol": app_protocol} if app_protocol else body


def _take_free_slice_name(service: str, group: EndpointGroup, names: set[str]) -> str:
    """Return the first free name for a slice of a Service and group, and add it to ``names``."""
    text = json.dumps([service, group.family, group.ports])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    number = 0
    while (name := f"{service}-{digest}-{number}") in names:
        number += 1
    names.add(name)
    return name
