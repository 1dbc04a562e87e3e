"""The conversion of Curator's ServiceInstance, as Spring Cloud Zookeeper writes it, to the model and back.

Source: ServiceInstance of Curator; ZookeeperInstance and StatusConstants of Spring Cloud Zookeeper.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import DataCenter, EurekaLease, Instance, Port, Status, shared_port
from eurekube_provider.core.registry_kinds import ZOOKEEPER

PAYLOAD_CLASS = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"

SPRING_STATUS_KEY = "instance_status"
"""Spring's metadata key for the status; Spring's LoadBalancer leaves out instances whose value is not UP."""

STATUS_WRITTEN_BY_EUREKUBE_KEY = "eurekube.status"
"""Metadata key: the status that Eurekube wrote. If Spring's status differs, somebody else has set it."""

EXTRA_FIELDS_KEY = "eurekube.instance"
"""Metadata key: the fields of an instance that Spring's layout has no place for, as JSON."""

_DATA_CENTER = DataCenter(ZOOKEEPER.name, "")
_COMPOSITE_FIELD_TYPES: dict[str, Any] = {"port": Port, "secure_port": Port, "lease": EurekaLease}
_TEXT_FIELDS = ("application", "ip_address", "secure_vip_address", "home_page_url", "status_page_url")
_EXTRA_FIELDS = (*_TEXT_FIELDS, "health_check_url", "secure_health_check_url", *_COMPOSITE_FIELD_TYPES)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an instance.

    :ivar version: how often its content was changed; a write names the version that it replaces.
    :ivar mzxid: ZooKeeper's number of its last change, which grows over all nodes.
    :ivar shown_status: its present status, whoever wrote it, as the text that Spring reads.
    :ivar status_written_by_eurekube: the status that Eurekube wrote last.
    :ivar registered_ms: Unix time of the registration, in milliseconds.
    """

    path: str
    instance: Instance
    version: int = 0
    mzxid: int = 0
    shown_status: str = ""
    status_written_by_eurekube: str = ""
    registered_ms: int = 0
    data: bytes = b""


def encode_node(want: Instance, now_ms: int, there: Node | None = None) -> bytes:
    """Return the content of an instance's node; a status that somebody set over ours in ``there`` is kept."""
    shown = written = want.status.value
    if there is not None and there.instance.is_overridden:
        shown = there.shown_status
        if want.status is there.instance.status:
            written = there.status_written_by_eurekube
    name = want.vip_address
    metadata = {**want.metadata, SPRING_STATUS_KEY: shown, STATUS_WRITTEN_BY_EUREKUBE_KEY: written}
    secure = want.secure_port.number if want.secure_port.enabled else None
    # Spring's {scheme}://{address}:{port}, of which {port} is the plain one in Curator.
    spec = ("scheme", "://", "address", ":", "port" if secure is None else "ssl-port")
    document = {
        "name": name,
        "id": want.instance_id,
        "address": want.host_name,
        "port": want.port.number if want.port.enabled else None,
        "sslPort": secure,
        "payload": {"@class": PAYLOAD_CLASS, "id": name, "name": name, "metadata": metadata},
        "registrationTimeUTC": there.registered_ms if there is not None else now_ms,
        "serviceType": "PERMANENT",
        "uriSpec": {"parts": [{"value": one, "variable": one not in ("://", ":")} for one in spec]},
    }
    layout = _instance_from_document(document, want.metadata, want.status)
    differ = {
        name: getattr(want, name) for name in _EXTRA_FIELDS if getattr(want, name) != getattr(layout, name)
    }
    if rest := {
        name: astuple(one) if name in _COMPOSITE_FIELD_TYPES else one for name, one in differ.items()
    }:
        metadata[EXTRA_FIELDS_KEY] = json.dumps(rest, separators=(",", ":"), sort_keys=True)
    return json.dumps(document, separators=(",", ":")).encode()


def unreadable_node(path: str, why: str) -> Node:
    """Return a node that exists but cannot be read, with the reason."""
    *_, name, instance_id = path.split("/")
    port, status, why = Port(0, enabled=False), Status.UNKNOWN, f"node {path}: {why:.300}"
    instance = Instance(name, instance_id, "", "", port, vip_address=name, status=status, unreadable=why)
    return Node(path, replace(instance, data_center=_DATA_CENTER))


def decode_node(path: str, data: bytes, stat: Any) -> Node:
    """Parse a node; one that is in no known form becomes an unreadable one. ``stat`` is kazoo's."""
    *_, name, instance_id = path.split("/")
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError("it is no object")
        payload: Any = document.get("payload")
        kind = payload.get("@class") if isinstance(payload, dict) else None
        if kind != PAYLOAD_CLASS:
            raise TypeError(f"its payload's class is {kind}, so that Spring reads none of its service")
        read = _parse_document(document, payload.get("metadata") or {})
        if (document["name"], document["id"]) != (name, instance_id):
            raise TypeError(f"it says that it is {document['name']}/{document['id']}")
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        why = f"{'no ' if isinstance(error, KeyError) else ''}{error}"
        return replace(unreadable_node(path, why), version=stat.version, mzxid=stat.mzxid, data=data)
    instance, shown, written = read
    instance = replace(instance, data_center=_DATA_CENTER, last_dirty_timestamp_ms=stat.mtime)
    registered = document.get("registrationTimeUTC") or stat.ctime
    return Node(path, instance, stat.version, stat.mzxid, shown, written, registered, data)


def _parse_document(document: Mapping[str, Any], written: Mapping[str, str]) -> tuple[Instance, str, str]:
    """Return the instance, the status that the node shows, and the one that Eurekube wrote last."""
    metadata = {str(key): str(value) for key, value in written.items()}
    shown = metadata.pop(SPRING_STATUS_KEY, "")
    own = metadata.pop(STATUS_WRITTEN_BY_EUREKUBE_KEY, Status.UP.value)
    rest = json.loads(metadata.pop(EXTRA_FIELDS_KEY, "{}"))
    status = _parse_status(shown)
    instance = _instance_from_document(document, metadata, status)
    more: dict[str, Any] = {
        name: _COMPOSITE_FIELD_TYPES[name](*map(int, one)) if name in _COMPOSITE_FIELD_TYPES else str(one)
        for name, one in rest.items()
        if name in _EXTRA_FIELDS
    }
    if metadata.get(OWNER_KEY) is not None and shown.strip() and shown != own:
        more["overridden_status"] = status
    return replace(instance, **more), shown, own


def _instance_from_document(
    document: Mapping[str, Any], metadata: Mapping[str, str], status: Status
) -> Instance:
    plain, secure, address = document.get("port"), document.get("sslPort"), str(document.get("address") or "")
    if not address or (plain is None and secure is None):
        raise TypeError("it has no address, or no port")
    scheme, number = ("https", secure) if secure is not None else ("http", plain)
    return Instance(
        application=str(document["name"]),
        instance_id=str(document["id"]),
        host_name=address,
        ip_address=address,
        port=shared_port(int(plain or secure or 0), enabled=plain is not None),
        secure_port=shared_port(int(secure or 443), enabled=secure is not None),
        vip_address=str(document["name"]),
        status=status,
        metadata=metadata,
        home_page_url=f"{scheme}://{address}:{number}/",
    )


def _parse_status(shown: str) -> Status:
    """Parse a status as Spring does: an empty one is UP, and callers use an instance with no other status."""
    text = shown.strip().upper() or Status.UP.value
    return Status(text) if text in (Status.UP, Status.DOWN, Status.STARTING) else Status.OUT_OF_SERVICE
