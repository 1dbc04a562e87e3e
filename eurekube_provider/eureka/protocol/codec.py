"""JSON of Eureka to the model and back.

Reads what real servers send (a single object where a list is meant, ``@class`` in empty metadata, both
spellings of the overridden status, enabled flags as strings) and writes what they accept.

Source: EurekaJacksonCodec and InstanceInfo of Netflix/eureka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.model import (
    DEFAULT_DATA_CENTER_CLASS,
    EMPTY,
    MOST_SHARED,
    DataCenter,
    EurekaLease,
    Instance,
    Port,
    Status,
    interned,
    shared_lease,
    shared_port,
)

Json = Mapping[str, Any]

encode = json.JSONEncoder(separators=(",", ":")).encode
quoted = json.encoder.encode_basestring_ascii
"""A string as :data:`encode` writes it."""

_OWN_DATA_CENTER = DataCenter()
_DEFAULT_LEASE = EurekaLease()


def instance_to_text(
    instance: Instance, *, overridden: Status = Status.UNKNOWN, unknown_fields: Json = EMPTY
) -> str:
    """Return the text of an ``InstanceInfo``, as a request to register and an item of a batch have it.

    :param overridden: anything but UNKNOWN creates an override.
    :param unknown_fields: fields that we do not know, handed back as they came. In a batch one in the wrong
        place makes the server refuse all of it.
    """
    # Written by hand, since a cold start needs one of each instance and would wait for an encoder.
    unknown = f"{encode(dict(unknown_fields))[1:-1]}," if unknown_fields else ""
    more = "".join([f'"{name}":{quoted(value)},' for name, value in _optional(instance).items() if value])
    lease, port, secure_port = instance.lease, instance.port, instance.secure_port
    return (
        f'{{{unknown}"instanceId":{quoted(instance.instance_id)},"app":{quoted(instance.application)},'
        f'"hostName":{quoted(instance.host_name)},"ipAddr":{quoted(instance.ip_address)},'
        f'"status":"{instance.status.value}","overriddenStatus":"{overridden.value}",'
        f'"port":{{"$":{port.number},"@enabled":"{_yes(port.enabled)}"}},'
        f'"securePort":{{"$":{secure_port.number},"@enabled":"{_yes(secure_port.enabled)}"}},'
        f'"vipAddress":{quoted(instance.vip_address)},'
        f'"secureVipAddress":{quoted(instance.secure_vip_address)},"countryId":1,{more}'
        f'"leaseInfo":{{"renewalIntervalInSecs":{lease.renewal_interval_seconds},'
        f'"durationInSecs":{lease.duration_seconds}}},'
        f'"dataCenterInfo":{encode(_data_center_to_json(instance.data_center))},'
        f'"metadata":{encode(dict(instance.metadata))}}}'
    )


def instance_to_json(instance: Instance) -> dict[str, Any]:
    """Return the object that a request to register has under the root ``instance``."""
    document: dict[str, Any] = json.loads(instance_to_text(instance, unknown_fields=instance.unknown_fields))
    return document


def _optional(instance: Instance) -> dict[str, str]:
    """The fields that are left out where they are empty."""
    stamp = instance.last_dirty_timestamp_ms
    return {
        "homePageUrl": instance.home_page_url,
        "statusPageUrl": instance.status_page_url,
        "healthCheckUrl": instance.health_check_url,
        "secureHealthCheckUrl": instance.secure_health_check_url,
        "lastDirtyTimestamp": "" if stamp is None else str(stamp),
    }


def instance_from_json(document: Json) -> Instance:
    """Read one ``InstanceInfo``.

    :raises InvalidInstance: no application or id that can be used, or no number where one must be.
    """
    host_name = str(document.get("hostName") or document.get("ipAddr") or "")
    return Instance(
        application=interned(str(document.get("app") or "").upper()),
        # Servers fall back to the host name, see InstanceInfo.getId.
        instance_id=str(document.get("instanceId") or host_name),
        host_name=host_name,
        ip_address=host_name if document.get("ipAddr") == host_name else str(document.get("ipAddr") or ""),
        port=_port_from_json(document.get("port"), Port(7001, enabled=True)),
        secure_port=_port_from_json(document.get("securePort"), Port(7002, enabled=False)),
        vip_address=interned(str(document.get("vipAddress") or "")),
        secure_vip_address=interned(str(document.get("secureVipAddress") or "")),
        status=_status(document.get("status")),
        overridden_status=_status(document.get("overriddenStatus") or document.get("overriddenstatus")),
        metadata=_strings(document.get("metadata")),
        lease=_lease_from_json(document.get("leaseInfo")),
        home_page_url=str(document.get("homePageUrl") or ""),
        status_page_url=str(document.get("statusPageUrl") or ""),
        health_check_url=str(document.get("healthCheckUrl") or ""),
        secure_health_check_url=str(document.get("secureHealthCheckUrl") or ""),
        data_center=_data_center_from_json(document.get("dataCenterInfo")),
        last_dirty_timestamp_ms=_milliseconds(document.get("lastDirtyTimestamp")),
        last_updated_timestamp_ms=_milliseconds(document.get("lastUpdatedTimestamp")),
        lease_ends_ms=lease_end(document.get("leaseInfo")),
        unknown_fields=EMPTY if _KNOWN.issuperset(document) else _unknown(document),
    )


def is_unchanged(instance: Instance, document: Json) -> bool:
    """Whether an ``InstanceInfo`` is what the same server told of it before, for less than to read it again.

    A server stamps each change with its clock; several of one millisecond are told apart by what mostly
    changes. A status it may also set without a stamp, when a renewal finds that another one was enforced.

    :param document: of the same application and id.
    """
    updated = document.get("lastUpdatedTimestamp")
    return (
        bool(updated)
        and str(instance.last_updated_timestamp_ms) == str(updated)
        and str(instance.last_dirty_timestamp_ms) == str(document.get("lastDirtyTimestamp"))
        and instance.status == document.get("status")
        and instance.overridden_status
        == (document.get("overriddenStatus") or document.get("overriddenstatus") or Status.UNKNOWN)
        and instance.metadata == document.get("metadata")
        and instance.ip_address == document.get("ipAddr")
    )


def instances_from_text(text: bytes | str) -> tuple[list[Instance], list[str]]:
    """Read the text of a list, see :func:`instances_from_json`.

    Each instance is made as soon as its own text is read, so that the JSON of a whole registry, which takes
    several times its memory, never stands there at once.

    :raises ValueError: it is not JSON.
    """

    def made(document: dict[str, Any]) -> Any:
        # Metadata has strings only, so that it is never taken for an instance, whatever its keys are.
        if "ipAddr" not in document or not isinstance(document.get("leaseInfo"), dict):
            return document
        try:
            return instance_from_json(document)
        except InvalidInstance:
            return document  # said below

    return instances_from_json(json.loads(text, object_hook=made))


def instances_from_json(document: Json) -> tuple[list[Instance], list[str]]:
    """Read ``/apps``, ``/apps/{APP}`` or ``/vips/{VIP}``.

    :returns: the instances, and a sentence for each that no client could address (an id with a slash).
    """
    instances: list[Instance] = []
    unreadable: list[str] = []
    applications = document.get("applications") or {}
    for application in listed(applications.get("application") or document.get("application")):
        for entry in listed(application.get("instance")):
            try:
                instances.append(entry if isinstance(entry, Instance) else instance_from_json(entry))
            except InvalidInstance as error:
                unreadable.append(f"an instance of {application.get('name')}: {error}")
    return instances, unreadable


def _unknown(document: Json) -> Json:
    return {key: value for key, value in document.items() if key not in _KNOWN}


def listed(value: Any) -> Iterator[Any]:
    """One object or a list of them, as some writers send the one for the other."""
    if isinstance(value, list):
        yield from value
    elif value not in (None, ""):
        yield value


def _yes(holds: bool) -> str:  # noqa: FBT001 - the only thing it is about
    return "true" if holds else "false"


def _port_from_json(value: Any, default: Port) -> Port:
    if not isinstance(value, dict):
        return default if value is None else shared_port(_number("port", value), enabled=default.enabled)
    enabled = value.get("@enabled", default.enabled)
    return shared_port(
        _number("port", value.get("$", default.number)),
        enabled=enabled if isinstance(enabled, bool) else str(enabled).strip().lower() == "true",
    )


def _data_center_to_json(data_center: DataCenter) -> dict[str, Any]:
    document: dict[str, Any] = {"@class": data_center.java_class, "name": data_center.name}
    if data_center.metadata:
        document["metadata"] = dict(data_center.metadata)
    return document


def _data_center_from_json(value: Any) -> DataCenter:
    if not isinstance(value, dict):
        return _OWN_DATA_CENTER
    found = DataCenter(
        name=str(value.get("name") or "MyOwn"),
        java_class=str(value.get("@class") or DEFAULT_DATA_CENTER_CLASS),
        metadata=_strings(value.get("metadata")),
    )
    return _OWN_DATA_CENTER if found == _OWN_DATA_CENTER else found


def lease_end(value: Any) -> int | None:
    """A server says the time of the last renewal plus the lease's duration. Source: Lease.renew."""
    return _milliseconds(value.get("lastRenewalTimestamp")) or None if isinstance(value, dict) else None


def _lease_from_json(value: Any) -> EurekaLease:
    default = _DEFAULT_LEASE
    if not isinstance(value, dict):
        return default
    return shared_lease(
        _number("lease", value.get("renewalIntervalInSecs") or default.renewal_interval_seconds),
        _number("lease", value.get("durationInSecs") or default.duration_seconds),
    )


def _strings(value: Any) -> Mapping[str, str]:
    """Metadata: an empty map comes as ``{"@class": "java.util.Collections$EmptyMap"}``."""
    if not isinstance(value, dict):
        return EMPTY
    return _shared_strings(
        tuple((str(key), "" if item is None else str(item)) for key, item in value.items() if key != "@class")
    )


@lru_cache(maxsize=MOST_SHARED)
def _shared_strings(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The pods of a Service have equal metadata: one map for all of them takes a tenth of the memory."""
    return MappingProxyType({interned(key): interned(item) for key, item in items}) if items else EMPTY


def _status(value: Any) -> Status:
    try:
        return Status(str(value or "UNKNOWN").upper())
    except ValueError:
        return Status.UNKNOWN


def _milliseconds(value: Any) -> int | None:
    return None if value in (None, "") else _number("timestamp", value)


def _number(field: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidInstance(field, f"{value!r} is no number") from None


_SAMPLE = Instance("SAMPLE", "sample", "", "", Port(80))
_KNOWN = frozenset(instance_to_json(_SAMPLE)) | frozenset(_optional(_SAMPLE))
_KNOWN |= {"overriddenstatus", "lastUpdatedTimestamp"}
# Computed by the server; handing them back would mean nothing.
_KNOWN |= {"actionType", "isCoordinatingDiscoveryServer"}
