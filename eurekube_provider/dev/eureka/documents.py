"""Requests, answers and the JSON of instances, as a Eureka server reads and writes them.

Source: EurekaJacksonCodec, InstanceInfo and Applications of Netflix/eureka.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.dev.eureka.instance_registry import UNKNOWN, Document, Info, Lease

STATUSES = ("UP", "DOWN", "STARTING", "OUT_OF_SERVICE", UNKNOWN)

_KNOWN_ITEM_FIELDS = frozenset(
    {"appName", "id", "lastDirtyTimestamp", "overriddenStatus", "status", "instanceInfo", "action"}
)


class Unreadable(Exception):
    """The body is not what the server can read: it answers 400."""


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request.

    :param path: below the service URL, decoded, in segments.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    def header(self, name: str) -> str:
        """A header in any case; empty where it is missing."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """One answer; ``text`` is JSON, or empty."""

    status_code: int
    text: str = ""

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)


def written(document: Any) -> str:
    """JSON as servers write it: the client's fast path for deltas goes by that."""
    return json.dumps(document, separators=(",", ":"))


def read_info(document: Any, now_ms: int) -> Info:
    """An instance as it was sent.

    :raises Unreadable: it is no instance.
    """
    if not isinstance(document, dict):
        raise Unreadable("no instance")
    lease = document.get("leaseInfo") or {}
    overridden = document.get("overriddenStatus") or document.get("overriddenstatus") or UNKNOWN
    known = {
        "app",
        "status",
        "overriddenStatus",
        "overriddenstatus",
        "leaseInfo",
        "lastDirtyTimestamp",
        "lastUpdatedTimestamp",
        "actionType",
        "isCoordinatingDiscoveryServer",
    }
    for port in ("port", "securePort"):
        if port in document and not isinstance(document[port], dict):
            raise Unreadable(f"{port} is no object")
    return Info(
        app=str(document.get("app") or "").upper(),
        id=str(document.get("instanceId") or document.get("hostName") or ""),
        fields={key: value for key, value in document.items() if key not in known},
        status=_status(document.get("status"), "UP"),
        overridden=_status(overridden, UNKNOWN),
        dirty_ms=int(document["lastDirtyTimestamp"]) if document.get("lastDirtyTimestamp") else now_ms,
        duration_s=int(lease.get("durationInSecs") or 90),
        renewal_interval_s=int(lease.get("renewalIntervalInSecs") or 30),
    )


def refusal(info: Info, app: str) -> str | None:
    """Why a register request is refused with 400; None where it is not."""
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


def info_document(info: Info, lease: Lease | None) -> Document:
    """An instance as the server writes it."""
    times = {
        "registrationTimestamp": lease.registered_ms if lease else 0,
        "lastRenewalTimestamp": lease.updated_ms if lease else 0,
        "evictionTimestamp": lease.evicted_ms if lease else 0,
        "serviceUpTimestamp": lease.up_ms if lease else 0,
    }
    metadata = info.fields.get("metadata") or {"@class": "java.util.Collections$EmptyMap"}
    first = {key: value for key, value in info.fields.items() if key == "instanceId"}
    return {
        **first,
        **info.fields,
        "app": info.app,
        "status": info.status,
        "overriddenStatus": info.overridden,
        "leaseInfo": {
            "renewalIntervalInSecs": info.renewal_interval_s,
            "durationInSecs": info.duration_s,
            **times,
        },
        "metadata": dict(metadata),
        "isCoordinatingDiscoveryServer": "false",
        "lastUpdatedTimestamp": str(info.updated_ms),
        "lastDirtyTimestamp": str(info.dirty_ms),
        "actionType": info.action,
    }


def applications(listed: Iterable[Lease], counted: Iterable[Lease], version: int) -> Document:
    """``/apps`` or its delta.

    :param counted: what the hash code counts by status: all that is registered.
    """
    by_app: dict[str, dict[str, Document]] = {}
    for lease in listed:
        # An application is a map by id: what changed twice is there once, as it is now.
        by_app.setdefault(lease.holder.app, {})[lease.holder.id] = info_document(lease.holder, lease)
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


def batch_items(body: Any) -> list[Document]:
    """The items of a peer batch.

    :raises Unreadable: one field that the server does not know fails all of them.
    """
    if not isinstance(body, dict) or not isinstance(body.get("replicationList"), list):
        raise Unreadable("no batch")
    for item in body["replicationList"]:
        if not isinstance(item, dict) or not _KNOWN_ITEM_FIELDS.issuperset(item):
            raise Unreadable("an unknown field in an item")
    return list(body["replicationList"])


def _status(value: Any, default: str) -> str:
    word = str(value or default).upper()
    return word if word in STATUSES else UNKNOWN
