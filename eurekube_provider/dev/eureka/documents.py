"""Requests, answers and the JSON of instances, as a Eureka server reads and writes them.

A server reads into fields of its own: it drops unknown fields, fills in missing ones, and converts values
that are no numbers as well as it can.

Source: EurekaJacksonCodec, InstanceInfo, Applications and the mixins for the compact form of Netflix/eureka.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.dev.eureka.instance_registry import UNKNOWN, Document, InstanceInfo, Lease

JSON_MEDIA_TYPE, XML_MEDIA_TYPE = "application/json", "application/xml"

MY_OWN_DATA_CENTER_CLASS = "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"
AMAZON_DATA_CENTER_CLASS = "com.netflix.appinfo.AmazonInfo"
EMPTY_METADATA = {"@class": "java.util.Collections$EmptyMap"}

INSTANCE_STATUSES = ("UP", "DOWN", "STARTING", "OUT_OF_SERVICE", UNKNOWN)

_REPLICATION_ACTIONS = ("Register", "Heartbeat", "Cancel", "StatusUpdate", "DeleteStatusOverride", None)
_WRITTEN_DATA_CENTER_CLASS_BY_SENT = {
    MY_OWN_DATA_CENTER_CLASS: MY_OWN_DATA_CENTER_CLASS,
    "com.netflix.appinfo.MyDataCenterInfo": MY_OWN_DATA_CENTER_CLASS,
    AMAZON_DATA_CENTER_CLASS: AMAZON_DATA_CENTER_CLASS,
}
_URL_FIELDS = ("homePageUrl", "statusPageUrl", "healthCheckUrl", "secureHealthCheckUrl")
_VIP_FIELDS = ("vipAddress", "secureVipAddress")
_PORT_FIELDS = ("port", "securePort")
_TEXT_FIELDS = ("instanceId", "hostName", "ipAddr", *_URL_FIELDS, *_VIP_FIELDS, "asgName")
_FIELD_ORDER = (
    *(
        "instanceId",
        "hostName",
        "app",
        "ipAddr",
        "sid",
        "status",
        "overriddenStatus",
        *_PORT_FIELDS,
        "countryId",
    ),
    *("dataCenterInfo", "leaseInfo", "metadata", "appGroupName", *_URL_FIELDS, *_VIP_FIELDS),
    *("isCoordinatingDiscoveryServer", "lastUpdatedTimestamp", "lastDirtyTimestamp", "actionType", "asgName"),
)
_COMPACT_FIELDS = (
    *(
        "instanceId",
        "app",
        "ipAddr",
        *_VIP_FIELDS,
        "dataCenterInfo",
        "hostName",
        "status",
        "lastUpdatedTimestamp",
    ),
    *("actionType", "asgName", *_PORT_FIELDS),
)
_COMPACT_AMAZON_METADATA = (
    "instance-id",
    "public-ipv4",
    "public-hostname",
    "local-ipv4",
    "availability-zone",
)
_KNOWN_BATCH_ITEM_FIELDS = frozenset(
    {"appName", "id", "lastDirtyTimestamp", "overriddenStatus", "status", "instanceInfo", "action"}
)


class UnreadableBody(Exception):
    """Raised for a body that the server cannot read, and answers with 400."""


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request to a model server; its path is below the service URL, decoded, in segments."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    def header(self, name: str) -> str:
        """Return a header, its name in any case; empty where it is missing."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """One answer of a model server: JSON or XML, the text of a refusal, or nothing."""

    status_code: int
    text: str = ""
    media_type: str = JSON_MEDIA_TYPE

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def to_compact_json(document: Any) -> str:
    """Return compact JSON as servers write it, on which the client's fast path for deltas depends."""
    return json.dumps(document, separators=(",", ":"))


def preferred_media_type(
    accept: str, offered: Sequence[str] = (XML_MEDIA_TYPE, JSON_MEDIA_TYPE)
) -> str | None:
    """Return the offered media type that an ``Accept`` header prefers; None where it accepts none.

    :param offered: the media types of the server; the first is for a client that accepts any.
    """
    found, best = None, (0.0, True)
    for one in (accept or "*/*").lower().split(","):
        name, *parameters = (part.strip() for part in one.split(";"))
        kind = name if name in offered else offered[0] if name in ("*", "*/*", "application/*") else None
        try:
            quality = float(next((part[2:] for part in parameters if part.startswith("q=")), "1"))
        except ValueError:
            continue
        if kind and (quality, kind == name) > best:
            found, best = kind, (quality, kind == name)
    return found


def parse_instance_info(document: Any, now_ms: int) -> InstanceInfo:
    """Read an instance as it was sent, or raise UnreadableBody."""
    if not isinstance(document, dict) or document.get("app") is None:
        raise UnreadableBody("no instance with an application")
    fields: Document = {
        name: _parse_text(document[name]) for name in _TEXT_FIELDS if document.get(name) is not None
    }
    if document.get("sid") not in (None, "na", "unknown"):
        fields["sid"] = _parse_text(document["sid"])
    if document.get("appGroupName") is not None:
        fields["appGroupName"] = _parse_text(document["appGroupName"]).upper()
    fields["port"] = _parse_port(document.get("port"), 7001, "true")
    fields["securePort"] = _parse_port(document.get("securePort"), 7002, "false")
    fields["countryId"] = 1 if document.get("countryId") is None else _parse_number(document["countryId"])
    data_center = _parse_data_center(document.get("dataCenterInfo"))
    if data_center is not None:
        fields["dataCenterInfo"] = data_center
    fields["metadata"] = _parse_texts(_object_field(document, "metadata"))
    lease = _object_field(document, "leaseInfo")
    duration_s, interval_s = (
        _parse_number(lease.get(name)) for name in ("durationInSecs", "renewalIntervalInSecs")
    )
    amazon_id = (data_center or {}).get("metadata", {}).get("instance-id")
    info = InstanceInfo(
        app=_parse_text(document["app"]).upper(),
        id=fields.get("instanceId") or amazon_id or fields.get("hostName") or "",
        fields=fields,
        status=_parse_status(document.get("status"), "UP"),
        overridden=_parse_status(
            document.get("overriddenStatus") or document.get("overriddenstatus"), UNKNOWN
        ),
        dirty_ms=_parse_number(document["lastDirtyTimestamp"])
        if document.get("lastDirtyTimestamp")
        else now_ms,
        duration_s=duration_s if duration_s > 0 else 90,
        renewal_interval_s=interval_s if interval_s > 0 else 30,
    )
    if data_center is not None and data_center["@class"] == AMAZON_DATA_CENTER_CLASS:
        data_center["metadata"].setdefault("instance-id", info.id)
    return info


def registration_refusal(info: InstanceInfo, app: str) -> str | None:
    """Return the reason to refuse a register request with 400; None to accept it."""
    if not info.id:
        return "Missing instanceId"
    if not info.fields.get("hostName"):
        return "Missing hostname"
    if not info.fields.get("ipAddr"):
        return "Missing ip address"
    if not info.app:
        return "Missing appName"
    if info.app != app:
        return f"Mismatched appName, expecting {app} but was {info.app}"
    if not info.fields.get("dataCenterInfo"):
        return "Missing dataCenterInfo"
    if not info.fields["dataCenterInfo"].get("name"):
        return "Missing dataCenterInfo Name"
    return None


def instance_info_document(info: InstanceInfo, lease: Lease | None) -> Document:
    """Return an instance as the server writes it in JSON."""
    values = {
        **info.fields,
        "app": info.app,
        "status": info.status,
        "overriddenStatus": info.overridden,
        "leaseInfo": {
            "renewalIntervalInSecs": info.renewal_interval_s,
            "durationInSecs": info.duration_s,
            "registrationTimestamp": lease.registered_ms if lease else 0,
            "lastRenewalTimestamp": lease.updated_ms if lease else 0,
            "evictionTimestamp": lease.evicted_ms if lease else 0,
            "serviceUpTimestamp": lease.up_ms if lease else 0,
        },
        "metadata": dict(info.fields["metadata"] or EMPTY_METADATA),
        "isCoordinatingDiscoveryServer": "false",
        "lastUpdatedTimestamp": str(info.updated_ms),
        "lastDirtyTimestamp": str(info.dirty_ms),
        "actionType": info.action,
    }
    return {name: values[name] for name in _FIELD_ORDER if name in values}


def application_document(leases: Iterable[Lease]) -> Document:
    """Return the document of ``/apps/{APP}``."""
    instances = [instance_info_document(lease.holder, lease) for lease in leases]
    return {"application": {"name": instances[0]["app"], "instance": instances}}


def applications_document(listed: Iterable[Lease], counted: Iterable[Lease], version: int) -> Document:
    """Return the document of ``/apps`` or its delta, whose hash code counts all registered instances."""
    by_app: dict[str, dict[str, Document]] = {}
    for lease in listed:
        # An application is a map by id: what changed twice is there once, as it is now.
        by_app.setdefault(lease.holder.app, {})[lease.holder.id] = instance_info_document(lease.holder, lease)
    counts = Counter(lease.holder.status for lease in counted)
    return {
        "applications": {
            "versions__delta": str(version),
            "apps__hashcode": "".join(f"{status}_{counts[status]}_" for status in sorted(counts)),
            "application": [
                {"name": name, "instance": list(instances.values())} for name, instances in by_app.items()
            ],
        }
    }


def compact_document(document: Document) -> Document:
    """Return the compact form, with the fields that callers need, of ``/apps``, a delta or an application."""
    ((name, found),) = document.items()
    if name == "application":
        return {name: {**found, "instance": [_compact_instance(one) for one in found["instance"]]}}
    listed = [compact_document({"application": one})["application"] for one in found["application"]]
    return {name: {"application": listed, **{key: found[key] for key in found if key != "application"}}}


def _compact_instance(instance: Document) -> Document:
    short = {name: instance[name] for name in _COMPACT_FIELDS if name in instance}
    data_center = dict(short["dataCenterInfo"])
    if "metadata" in data_center:
        kept = data_center["metadata"].items()
        data_center["metadata"] = {key: value for key, value in kept if key in _COMPACT_AMAZON_METADATA}
    updated_ms = int(short["lastUpdatedTimestamp"])
    return {**short, "dataCenterInfo": data_center, "lastUpdatedTimestamp": updated_ms}


def parse_batch_items(body: Any, now_ms: int) -> list[tuple[Document, InstanceInfo | None]]:
    """Read a peer batch; return each item with its instance, if it has one.

    :raises UnreadableBody: an item cannot be read, or has a field that the server does not know; the whole
        batch then fails.
    :raises TypeError: the batch, its list or an item is null, on which the server fails.
    """
    if not isinstance(body, dict | None) or (body or {}).keys() - {"replicationList"}:
        raise UnreadableBody("no batch")
    items = (body or {}).get("replicationList")
    if not isinstance(items, list | None):
        raise UnreadableBody("no list")
    return [_parse_batch_item(item, now_ms) for item in items]  # type: ignore[union-attr]


def _parse_batch_item(item: Any, now_ms: int) -> tuple[Document, InstanceInfo | None]:
    if item is None:
        raise TypeError("no item")
    if not isinstance(item, dict) or not _KNOWN_BATCH_ITEM_FIELDS.issuperset(item):
        raise UnreadableBody("an unknown field in an item")
    sent, dirty = item.get("instanceInfo"), item.get("lastDirtyTimestamp")
    if item.get("action") not in _REPLICATION_ACTIONS or not str(dirty or 0).isdigit():
        raise UnreadableBody("an unknown action, or a timestamp that is no number")
    return {**item, "lastDirtyTimestamp": dirty}, None if sent is None else parse_instance_info(sent, now_ms)


def _parse_status(value: Any, default: str) -> str:
    return default if value is None else value if value in INSTANCE_STATUSES else UNKNOWN


def _parse_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise UnreadableBody("no text")
    return json.dumps(value)


def _parse_number(value: Any) -> int:
    """Return a value as a whole number, or 0 where it is none."""
    try:
        return int(float(value)) if isinstance(value, float | str) and "." in str(value) else int(value)
    except (TypeError, ValueError):
        return 0


def _object_field(document: Document, name: str) -> Document:
    value = document.get(name)
    if not isinstance(value, dict | None):
        raise UnreadableBody(f"{name} is no object")
    return value or {}


def _parse_texts(values: Document) -> dict[str, str]:
    return {key: _parse_text(value) for key, value in values.items() if key != "@class"}


def _parse_port(value: Any, number: int, enabled: str) -> Document:
    if value is None:
        return {"$": number, "@enabled": enabled}
    if not isinstance(value, dict) or value.keys() - {"$", "@enabled"}:
        raise UnreadableBody("a port is no object of $ and @enabled")
    if "@enabled" in value:
        enabled = "true" if value["@enabled"] in (True, "true") else "false"
    return {"$": _parse_number(value["$"]) if "$" in value else number, "@enabled": enabled}


def _parse_data_center(value: Any) -> Document | None:
    if value is None:
        return None
    kind = (
        _WRITTEN_DATA_CENTER_CLASS_BY_SENT.get(str(value.get("@class"))) if isinstance(value, dict) else None
    )
    if kind == AMAZON_DATA_CENTER_CLASS and isinstance(value.get("metadata"), dict):
        return {"@class": kind, "name": "Amazon", "metadata": _parse_texts(value["metadata"])}
    is_known = kind == MY_OWN_DATA_CENTER_CLASS and value.get("name") in ("Netflix", "Amazon", "MyOwn", None)
    if not is_known or value.keys() - {"@class", "name"}:
        raise UnreadableBody("a data centre that the server does not know")
    return {"@class": kind, "name": value.get("name")}
