"""The conversion of Eureka's JSON to the model and back.

Reads what real servers send (a single object in place of a list, ``@class`` in empty metadata, both spellings
of the overridden status, enabled flags as strings) and writes what they accept. Any entry in place of an
instance is read as one: parts that cannot be read, or names that no request can contain, are reported in its
:attr:`~eurekube_provider.core.model.Instance.unreadable`, and do not affect other instances.

Source: EurekaJacksonCodec and InstanceInfo of Netflix/eureka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from eurekube_provider.core.model import (
    DEFAULT_DATA_CENTER_CLASS,
    EMPTY_MAPPING,
    MAX_SHARED_VALUES,
    DataCenter,
    EurekaLease,
    Instance,
    Port,
    Status,
    intern_text,
    shared_lease,
    shared_port,
)
from eurekube_provider.core.networks import describe_ambiguous_address
from eurekube_provider.core.text import describe_unaddressable_name

JsonObject = Mapping[str, Any]


class NotEurekas(ValueError):
    """The error for JSON without the root that a Eureka's answer has, such as a gateway's error in JSON."""


encode_json = json.JSONEncoder(separators=(",", ":")).encode
quote_json = json.encoder.encode_basestring_ascii
"""A function that writes a string as JSON, as :data:`encode_json` does."""

_cached_path_problem = lru_cache(maxsize=MAX_SHARED_VALUES)(describe_unaddressable_name)
_DEFAULT_DATA_CENTER = DataCenter()
_DEFAULT_DATA_CENTER_JSON: dict[str, Any] = {
    "@class": DEFAULT_DATA_CENTER_CLASS,
    "name": _DEFAULT_DATA_CENTER.name,
}
_MISSING = (None, "")
_STATUS_BY_TEXT = {status.value: status for status in Status}
_DEFAULT_LEASE = EurekaLease()
_OPTIONAL_FIELDS = {
    "homePageUrl": "home_page_url",
    "statusPageUrl": "status_page_url",
    "healthCheckUrl": "health_check_url",
    "secureHealthCheckUrl": "secure_health_check_url",
    "lastDirtyTimestamp": "last_dirty_timestamp_ms",
}
"""The fields that are left out where they are empty, with their names in the model."""

_DEFAULT_PORT, _DEFAULT_SECURE_PORT = Port(7001, enabled=True), Port(7002, enabled=False)


def instance_to_json_text(
    instance: Instance, *, overridden: Status = Status.UNKNOWN, unknown_fields: JsonObject = EMPTY_MAPPING
) -> str:
    """Return the JSON text of an ``InstanceInfo``, for a request to register or an item of a batch.

    :param overridden: any status but UNKNOWN creates an override.
    :param unknown_fields: fields that Eurekube does not know, returned as they were read. In a batch, one
        such field in the wrong place makes the server refuse the whole batch.
    """
    # Written by hand, since a cold start needs one of each instance and would wait for an encoder.
    unknown = f"{encode_json(dict(unknown_fields))[1:-1]}," if unknown_fields else ""
    more = ""
    for key, name in _OPTIONAL_FIELDS.items():
        if (value := getattr(instance, name)) not in _MISSING:
            more += f'"{key}":{quote_json(str(value))},'
    center = _DEFAULT_DATA_CENTER_JSON
    if instance.data_center != _DEFAULT_DATA_CENTER:
        center = {"@class": instance.data_center.java_class, "name": instance.data_center.name}
        if instance.data_center.metadata:
            center["metadata"] = dict(instance.data_center.metadata)
    lease, port, secure_port = instance.lease, instance.port, instance.secure_port
    return (
        f'{{{unknown}"instanceId":{quote_json(instance.instance_id)},"app":{quote_json(instance.application)},'
        f'"hostName":{quote_json(instance.host_name)},"ipAddr":{quote_json(instance.ip_address)},'
        f'"status":"{instance.status.value}","overriddenStatus":"{overridden.value}",'
        f'"port":{{"$":{port.number},"@enabled":"{str(port.enabled).lower()}"}},'
        f'"securePort":{{"$":{secure_port.number},"@enabled":"{str(secure_port.enabled).lower()}"}},'
        f'"vipAddress":{quote_json(instance.vip_address)},'
        f'"secureVipAddress":{quote_json(instance.secure_vip_address)},"countryId":1,{more}'
        f'"leaseInfo":{{"renewalIntervalInSecs":{lease.renewal_interval_seconds},'
        f'"durationInSecs":{lease.duration_seconds}}},'
        f'"dataCenterInfo":{encode_json(center)},'
        f'"metadata":{encode_json(dict(instance.metadata))}}}'
    )


def instance_to_json_object(instance: Instance) -> dict[str, Any]:
    """Return the object under the root ``instance`` of a request to register."""
    text = instance_to_json_text(instance, unknown_fields=instance.unknown_fields)
    document: dict[str, Any] = json.loads(text)
    return document


def instance_from_json(document: JsonObject, application: str = "") -> Instance:
    """Read one ``InstanceInfo``; a part that cannot be read gets its default, see ``unreadable``.

    :param application: the application of the list around it, for an instance that names none.
    """
    host_name = str(document.get("hostName") or document.get("ipAddr") or "")
    name = intern_text(str(document.get("app") or application).upper())
    instance_id = instance_id_of(document)
    ip_address = host_name if document.get("ipAddr") == host_name else str(document.get("ipAddr") or "")
    problems: list[str] = []
    if _cached_path_problem(name):
        problems.append(f"no request can name the application {name!r}")
    if describe_unaddressable_name(instance_id):
        problems.append(f"no request can name the id {instance_id!r}")
    if problem := describe_ambiguous_address(ip_address):
        problems.append(f"ipAddr {ip_address!r} {problem}")
    port = _port_from_json(document.get("port"), _DEFAULT_PORT, problems)
    secure_port = _port_from_json(document.get("securePort"), _DEFAULT_SECURE_PORT, problems)
    lease = _lease_from_json(document.get("leaseInfo"), problems)
    status = _status_from_json(document.get("status"), problems)
    written_ms = _parse_timestamp(document.get("lastDirtyTimestamp"), problems)
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        problems.append("metadata is no object, so that nobody knows who owns it")
    return Instance(
        application=name,
        instance_id=instance_id,
        host_name=host_name,
        ip_address=ip_address,
        port=port,
        secure_port=secure_port,
        vip_address=intern_text(str(document.get("vipAddress") or "")),
        secure_vip_address=intern_text(str(document.get("secureVipAddress") or "")),
        status=status,
        overridden_status=_status_from_json(
            document.get("overriddenStatus") or document.get("overriddenstatus"), problems
        ),
        metadata=_metadata_from_json(metadata),
        lease=lease,
        home_page_url=str(document.get("homePageUrl") or ""),
        status_page_url=str(document.get("statusPageUrl") or ""),
        health_check_url=str(document.get("healthCheckUrl") or ""),
        secure_health_check_url=str(document.get("secureHealthCheckUrl") or ""),
        data_center=_data_center_from_json(document.get("dataCenterInfo")),
        last_dirty_timestamp_ms=written_ms,
        last_updated_timestamp_ms=_parse_timestamp(document.get("lastUpdatedTimestamp"), problems),
        lease_ends_ms=lease_end_ms(document.get("leaseInfo")),
        unknown_fields=EMPTY_MAPPING if _KNOWN_FIELDS.issuperset(document) else _unknown_fields(document),
        unreadable="; ".join(problems),
    )


def instance_id_of(document: JsonObject) -> str:
    """Return the id by which a server holds an ``InstanceInfo``; empty where no field can be the id.

    Without an ``instanceId`` it is that of the Amazon data centre, else the host name: InstanceInfo.getId.
    """
    given = document.get("instanceId")
    if given:
        return str(given)
    center = document.get("dataCenterInfo")
    theirs = center.get("metadata") if isinstance(center, dict) and _is_amazon_data_center(center) else None
    if isinstance(theirs, dict) and theirs.get("instance-id"):
        return str(theirs["instance-id"])
    return str(document.get("hostName") or document.get("ipAddr") or "")


def _is_amazon_data_center(center: JsonObject) -> bool:
    """Return whether a server reads a data centre as AmazonInfo: by its class, else by its name."""
    java_class = str(center.get("@class") or "")
    return java_class.endswith("AmazonInfo") if java_class else center.get("name") == "Amazon"


def is_unchanged(instance: Instance, document: JsonObject) -> bool:
    """Return whether an ``InstanceInfo``, not fully read, equals what the same server reported before.

    A server stamps each change with its clock, but for a status that a renewal finds enforced; several
    changes within one millisecond are told apart by the fields that mostly change.

    :param document: an ``InstanceInfo`` of the same application and id.
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


def instances_from_text(text: bytes | str) -> list[Instance]:
    """Read the text of a list, see :func:`instances_from_json`.

    Each instance is made as soon as its own text is read: the JSON of a whole registry, which takes several
    times the memory of the instances, is never in memory at once.

    :raises ValueError: the text is not JSON.
    """

    def make_instance(document: dict[str, Any]) -> Any:
        # Metadata has strings only, so that it is never taken for an instance, whatever its keys are.
        if "ipAddr" not in document or not isinstance(document.get("leaseInfo"), dict):
            return document
        # What names no application or id is read with the list around it.
        is_named = document.get("app") and (document.get("instanceId") or instance_id_of(document))
        return instance_from_json(document) if is_named else document

    return instances_from_json(json.loads(text, object_hook=make_instance))


def instances_from_json(document: JsonObject) -> list[Instance]:
    """Read ``/apps``, ``/apps/{APP}`` or ``/vips/{VIP}``; whatever stands for an instance becomes one.

    :raises NotEurekas: the JSON is no list, and must not pass for an empty one.
    """
    if not isinstance(document, dict) or not {"applications", "application"} & document.keys():
        raise NotEurekas("it has no applications")
    instances: list[Instance] = []
    applications = document.get("applications") or {}
    for application in iterate_items(applications.get("application") or document.get("application")):
        name = str(application.get("name") or "")
        for number, entry in enumerate(iterate_items(application.get("instance")), start=1):
            instances.append(entry if isinstance(entry, Instance) else _parse_list_entry(entry, name, number))
    return instances


def _parse_list_entry(entry: Any, application: str, number: int) -> Instance:
    """Read an entry of a list; one without an id gets an id of its own, from its position."""
    if isinstance(entry, dict) and instance_id_of(entry):
        return instance_from_json(entry, application)
    problem = "it has no id" if isinstance(entry, dict) else "it is no instance"
    read = instance_from_json(entry if isinstance(entry, dict) else {}, application)
    return replace(read, instance_id=f"(number {number}, without an id)", unreadable=problem)


def _unknown_fields(document: JsonObject) -> JsonObject:
    return {key: value for key, value in document.items() if key not in _KNOWN_FIELDS}


def iterate_items(value: Any) -> Iterator[Any]:
    """Yield the items of a list, or a single item that a writer sent in place of a list."""
    if isinstance(value, list):
        yield from value
    elif value not in (None, ""):
        yield value


def _port_from_json(value: Any, default: Port, problems: list[str]) -> Port:
    if value is None:
        return default
    fields = value if isinstance(value, dict) else {"$": value}
    number = fields.get("$", default.number)
    if type(number) is not int:  # servers send one
        number = _parse_number("port", number, problems)
    is_enabled = str(fields.get("@enabled", default.enabled)).strip().lower() == "true"
    return shared_port(0, enabled=False) if number is None else shared_port(number, enabled=is_enabled)


def _data_center_from_json(value: Any) -> DataCenter:
    if not isinstance(value, dict) or value == _DEFAULT_DATA_CENTER_JSON:
        return _DEFAULT_DATA_CENTER
    found = DataCenter(
        name=str(value.get("name") or "MyOwn"),
        java_class=str(value.get("@class") or DEFAULT_DATA_CENTER_CLASS),
        metadata=_metadata_from_json(value.get("metadata")),
    )
    return _DEFAULT_DATA_CENTER if found == _DEFAULT_DATA_CENTER else found


def lease_end_ms(value: Any) -> int | None:
    """Return when an instance's lease ends, in ms: a server's ``lastRenewalTimestamp`` is that end.

    A server reports the time of the last renewal plus the lease's duration. Source: Lease.renew.
    """
    ends = value.get("lastRenewalTimestamp") if isinstance(value, dict) else None
    return _parse_timestamp(ends, []) or None


def _lease_from_json(value: Any, problems: list[str]) -> EurekaLease:
    default = _DEFAULT_LEASE
    if not isinstance(value, dict):
        return default
    interval = value.get("renewalIntervalInSecs") or default.renewal_interval_seconds
    duration = value.get("durationInSecs") or default.duration_seconds
    if not type(interval) is type(duration) is int:  # servers send both
        interval = _parse_number("lease", interval, problems)
        duration = _parse_number("lease", duration, problems)
    return default if interval is None or duration is None else shared_lease(interval, duration)


def _metadata_from_json(value: Any) -> Mapping[str, str]:
    """Return metadata as strings, without the ``@class`` that servers send in an empty map."""
    if not isinstance(value, dict):
        return EMPTY_MAPPING
    if "@class" not in value and {str}.issuperset(map(type, value.values())):
        return _shared_metadata(tuple(value.items()))
    return _shared_metadata(
        tuple(
            [(str(key), "" if item is None else str(item)) for key, item in value.items() if key != "@class"]
        )
    )


@lru_cache(maxsize=MAX_SHARED_VALUES)
def _shared_metadata(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return one map for all equal metadata, as the pods of a Service have: a tenth of the memory."""
    if not items:
        return EMPTY_MAPPING
    return MappingProxyType({intern_text(key): intern_text(item) for key, item in items})


def _status_from_json(value: Any, problems: list[str]) -> Status:
    if isinstance(value, str) and (known := _STATUS_BY_TEXT.get(value)):
        return known
    try:
        return Status(str(value or "UNKNOWN").upper())
    except ValueError:
        problems.append(f"status: {value!r} is none of Eureka's")
        return Status.UNKNOWN


def _parse_number(
    field: str, value: Any, problems: list[str], missing: tuple[object, ...] = ()
) -> int | None:
    if value in missing:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        problems.append(f"{field}: {value!r} is no number")
        return None


_parse_timestamp = partial(_parse_number, "timestamp", missing=_MISSING)
_SAMPLE_INSTANCE = Instance("SAMPLE", "sample", "", "", Port(80))
_KNOWN_FIELDS = frozenset(instance_to_json_object(_SAMPLE_INSTANCE)) | frozenset(_OPTIONAL_FIELDS)
_KNOWN_FIELDS |= {"overriddenstatus", "lastUpdatedTimestamp"}
# Computed by the server; handing them back would mean nothing.
_KNOWN_FIELDS |= {"actionType", "isCoordinatingDiscoveryServer"}
