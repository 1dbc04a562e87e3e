"""One Eureka server behind its HTTP interface.

Source: the resources of ``com.netflix.eureka.resources`` (Netflix/eureka 2.0.x).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from eurekube_provider.dev.eureka import documents, xml_documents
from eurekube_provider.dev.eureka.documents import (
    JSON_MEDIA_TYPE,
    XML_MEDIA_TYPE,
    ServerRequest,
    ServerResponse,
    UnreadableBody,
)
from eurekube_provider.dev.eureka.instance_registry import (
    EVICTION_INTERVAL_MS,
    UNKNOWN,
    Document,
    InstanceInfo,
    InstanceRegistry,
    Lease,
)
from eurekube_provider.dev.eureka.replication import ReplicationLink
from eurekube_provider.dev.eureka.response_caches import ALL_APPS, ALL_APPS_DELTA, CacheKey, ResponseCaches
from eurekube_provider.dev.eureka.virtual_clock import Clock

NOT_FOUND_RESPONSE = ServerResponse(404)
OK_RESPONSE = ServerResponse(200)
UNREADABLE_BODY_RESPONSE = ServerResponse(400, '{"error": "cannot parse request body"}')

_METHODS_BY_PATH: dict[tuple[str, ...], tuple[str, ...]] = {
    **dict.fromkeys((("apps",), ("apps", "delta"), ("status",)), ("GET",)),
    **dict.fromkeys((("vips", "*"), ("svips", "*"), ("instances", "*")), ("GET",)),
    ("apps", "*"): ("POST", "GET"),
    ("apps", "*", "*"): ("DELETE", "GET", "PUT"),
    ("apps", "*", "*", "status"): ("DELETE", "PUT"),
    ("apps", "*", "*", "metadata"): ("PUT",),
    ("peerreplication", "batch"): ("POST",),
}

_REFUSED_PATH_SEGMENT_PATTERN = re.compile("[/\\\\;%\x00\n\r\u2028\u2029]|^\\.\\.?$")
"""Names that Tomcat and Spring Security refuse within a path, as :mod:`.http_front` does in a URL."""

_REPLICATION_HEADERS = {"x-netflix-discovery-replication": "true"}


class EurekaServer:
    """One model server, from its start to its end; a restart makes another object.

    :ivar started_ms: the start time in ``/status``.
    :ivar links: the replication to each other server, by its URL.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        self_preservation: bool = True,
        use_read_only_cache: bool = True,
        eviction_interval_ms: int = EVICTION_INTERVAL_MS,
    ) -> None:
        self.url = url
        self.started_ms = clock.now_ms
        self._clock = clock
        self.links: dict[str, ReplicationLink] = {}
        self.caches = ResponseCaches(clock, self.render_list, use_read_only=use_read_only_cache)
        self._delta_version = 0
        self.registry = InstanceRegistry(
            clock,
            self._replicate,
            self.caches.invalidate,
            self_preservation=self_preservation,
            eviction_interval_ms=eviction_interval_ms,
        )

    def open(self, copied: Sequence[InstanceInfo] = ()) -> None:
        """Begin to answer requests, perhaps with instances that are copied from a neighbour."""
        for info in copied:
            self.registry.register(info.copy(), replicated=True)
        self.registry.open(len(copied))

    def close(self) -> None:
        self.registry.close()
        self.caches.close()
        for link in self.links.values():
            link.closed = True

    @property
    def uptime(self) -> str:
        """The time since the server's start, in hours and minutes."""
        minutes = (self._clock.now_ms - self.started_ms) // 60_000
        return f"{minutes // 60:02}:{minutes % 60:02}"

    def lease_seconds_left(self, lease: Lease) -> int:
        """Return the seconds until a lease ends without a renewal; negative where it should have ended."""
        return (lease.updated_ms + lease.duration_ms - self._clock.now_ms) // 1000

    def handle(self, request: ServerRequest) -> ServerResponse:
        if any(map(_REFUSED_PATH_SEGMENT_PATTERN.search, request.path)):
            return ServerResponse(400)
        match (request.method, *request.path):
            case ("GET", "apps"):
                return self._answer_list(request, ALL_APPS)
            case ("GET", "apps", "delta"):
                return self._answer_list(request, ALL_APPS_DELTA)
            case ("GET", "apps", app):
                return self._answer_list(request, app.upper())
            case ("POST", "apps", app) if app != "delta":
                return self._register(request, app.upper())
            case ("GET", "apps", app, instance_id):
                return self._instance_response(request, self.registry.get(app.upper(), instance_id))
            case ("PUT", "apps", app, instance_id):
                return self._renew(request, app.upper(), instance_id)
            case ("DELETE", "apps", app, instance_id):
                return self._cancel(app.upper(), instance_id, replicated=_is_replication_request(request))
            case ("PUT" | "DELETE", "apps", app, instance_id, "status"):
                return self._change_override(request, app.upper(), instance_id)
            case ("PUT", "apps", app, instance_id, "metadata"):
                return self._update_metadata(request, app.upper(), instance_id)
            case ("GET", "vips" | "svips" as kind, name):
                return self._answer_from_cache(
                    request, CacheKey(kind[:-1].upper(), name, _list_format(request))
                )
            case ("GET", "instances", instance_id):
                return self._answer_instance_by_id(request, instance_id)
            case ("GET", "status"):
                is_json = _response_media_type(request) == JSON_MEDIA_TYPE
                return ServerResponse(500) if is_json else self._answer_status()
            case ("POST", "peerreplication", "batch"):
                return self._answer_batch(request)
            case _:
                return ServerResponse(405 if allowed_methods(request.path) else 404)

    def _answer_list(self, request: ServerRequest, name: str) -> ServerResponse:
        regions = request.query.get("regions", "") if name in (ALL_APPS, ALL_APPS_DELTA) else ""
        return self._answer_from_cache(
            request,
            CacheKey(
                "Application",
                name,
                _list_format(request),
                "compact" if request.header("X-Eureka-Accept").lower() == "compact" else "full",
                tuple(sorted(regions.lower().split(","))) if regions else (),
            ),
        )

    def _answer_from_cache(self, request: ServerRequest, key: CacheKey) -> ServerResponse:
        text = self.caches.get(key)
        return ServerResponse(200, text, _response_media_type(request)) if text else NOT_FOUND_RESPONSE

    def _answer_instance_by_id(self, request: ServerRequest, instance_id: str) -> ServerResponse:
        for leases in self.registry.leases.values():
            if instance_id in leases:
                info = self.registry.get(leases[instance_id].holder.app, instance_id)
                return self._instance_response(request, info)
        return NOT_FOUND_RESPONSE

    def _instance_response(
        self, request: ServerRequest, info: InstanceInfo | None, code: int = 200
    ) -> ServerResponse:
        if info is None:
            return NOT_FOUND_RESPONSE
        document = documents.instance_info_document(info, self.registry.leases[info.app][info.id])
        if _response_media_type(request) == JSON_MEDIA_TYPE:
            return ServerResponse(code, documents.to_compact_json({"instance": document}))
        if info.status in ("OUT_OF_SERVICE", UNKNOWN):
            document["status"] = "DOWN"  # XML of one instance knows the statuses of the first version alone
        return ServerResponse(code, xml_documents.to_xml({"instance": document}), XML_MEDIA_TYPE)

    def _renew(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        replicated, sent = _is_replication_request(request), request.query.get("lastDirtyTimestamp")
        try:
            dirty_ms = None if sent is None else int(sent)
        except ValueError:
            return ServerResponse(500)
        if not self.registry.renew(app, instance_id, replicated=replicated):
            return NOT_FOUND_RESPONSE
        held = self.registry.get(app, instance_id)
        if dirty_ms is None or held is None or dirty_ms == held.dirty_ms:
            return OK_RESPONSE
        if dirty_ms > held.dirty_ms:
            overridden = request.query.get("overriddenstatus", UNKNOWN)
            if replicated and overridden != UNKNOWN:
                self.registry.store_override_of_peer(app, instance_id, overridden)
            return NOT_FOUND_RESPONSE
        return self._instance_response(request, held, 409) if replicated else OK_RESPONSE

    def _register(self, request: ServerRequest, app: str) -> ServerResponse:
        if request.body is None:
            return ServerResponse(500)
        try:
            document = request.body["instance"] if isinstance(request.body, dict) else None
            info = documents.parse_instance_info(document, self._clock.now_ms)
        except (UnreadableBody, KeyError):
            return UNREADABLE_BODY_RESPONSE
        refusal = documents.registration_refusal(info, app)
        if refusal is not None:
            return ServerResponse(400, refusal, _response_media_type(request))
        self.registry.register(info, replicated=_is_replication_request(request))
        return ServerResponse(204)

    def _change_override(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        if self.registry.get(app, instance_id) is None:
            return NOT_FOUND_RESPONSE
        value = request.query.get("value")
        if value is None and request.method == "DELETE":
            value = UNKNOWN
        if value not in documents.INSTANCE_STATUSES:
            return ServerResponse(500)
        dirty = request.query.get("lastDirtyTimestamp", "")
        dirty_ms = int(dirty) if dirty.isdigit() else None
        change = self.registry.set_status if request.method == "PUT" else self.registry.clear_status
        done = change(app, instance_id, value, dirty_ms, replicated=_is_replication_request(request))
        return OK_RESPONSE if done else ServerResponse(500)

    def _cancel(self, app: str, instance_id: str, *, replicated: bool) -> ServerResponse:
        is_done = self.registry.cancel(app, instance_id, replicated=replicated)
        return OK_RESPONSE if is_done else NOT_FOUND_RESPONSE

    def _update_metadata(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        info = self.registry.get(app, instance_id)
        if info is None:
            return NOT_FOUND_RESPONSE
        if info.fields["metadata"]:
            info.fields["metadata"].update(request.query)
        else:
            # An instance without metadata has a map that cannot be changed: the server makes a new instance.
            info = replace(info, fields={**info.fields, "metadata": dict(request.query)})
        self.registry.register(info, replicated=False)
        return OK_RESPONSE

    def _answer_batch(self, request: ServerRequest) -> ServerResponse:
        try:
            items = documents.parse_batch_items(request.body, self._clock.now_ms)
        except UnreadableBody:
            return UNREADABLE_BODY_RESPONSE
        except TypeError:
            return ServerResponse(500)
        # Written when all are done: an instance that an item returns is shown as later items left it.
        done = [self._apply_batch_item(item, info) for item, info in items]
        answers = [
            {
                "statusCode": code,
                **({"responseEntity": documents.instance_info_document(info, lease)} if info else {}),
            }
            for code, info, lease in done
        ]
        return ServerResponse(200, documents.to_compact_json({"responseList": answers}))

    def _apply_batch_item(
        self, item: Document, sent: InstanceInfo | None
    ) -> tuple[int, InstanceInfo | None, Lease | None]:
        """Carry out one item of a batch as another server's change, which is not forwarded.

        :returns: the HTTP status of the item and, for a conflict only, the instance and its lease here.
        """
        try:
            code = self._dispatch_batch_item(item, sent).status_code
        except (KeyError, TypeError, ValueError, AttributeError):
            return 500, None, None
        if code != 409:
            return code, None, None
        lease = self.registry.leases[item["appName"].upper()][str(item["id"])]
        return code, lease.holder, lease

    def _dispatch_batch_item(self, item: Document, sent: InstanceInfo | None) -> ServerResponse:
        app, instance_id, action = item["appName"].upper(), item.get("id"), item["action"]
        if action == "Register":
            if sent is None:
                raise ValueError("no instance")
            if documents.registration_refusal(sent, app) is None:
                self.registry.register(sent, replicated=True)
            return OK_RESPONSE  # whatever became of it
        if instance_id is None or (action == "DeleteStatusOverride" and item["lastDirtyTimestamp"] is None):
            raise ValueError("no id, or no timestamp")
        given = {
            "lastDirtyTimestamp": item["lastDirtyTimestamp"],
            "value": item.get("status"),
            "overriddenstatus": item.get("overriddenStatus"),
        }
        query = {name: str(value) for name, value in given.items() if value is not None}
        path = ("apps", app, instance_id)
        match action:
            case "Heartbeat":
                return self._renew(ServerRequest("PUT", path, query, _REPLICATION_HEADERS), app, instance_id)
            case "Cancel":
                return self._cancel(app, instance_id, replicated=True)
            case "StatusUpdate" | "DeleteStatusOverride":
                method = "PUT" if action == "StatusUpdate" else "DELETE"
                request = ServerRequest(method, path, query, _REPLICATION_HEADERS)
                return self._change_override(request, app, instance_id)
            case _:
                raise ValueError("no action")

    def _answer_status(self) -> ServerResponse:
        replicas = ",".join(f"{url}/" for url in self.links)
        found = {
            "generalStats": {"server-uptime": self.uptime},
            "applicationStats": {
                "registered-replicas": replicas,
                "available-replicas": replicas,
                "unavailable-replicas": "",
            },
            "instanceInfo": {"instanceId": self.url, "lastUpdatedTimestamp": self.started_ms},
        }
        return ServerResponse(
            200, xml_documents.to_xml({"com.netflix.eureka.util.StatusInfo": found}), XML_MEDIA_TYPE
        )

    def render_list(self, key: CacheKey) -> str:
        """Return the text of a list; empty where the application or VIP address does not exist."""
        registry = self.registry
        if key.kind != "Application":
            vip = "vipAddress" if key.kind == "VIP" else "secureVipAddress"
            listed = [
                lease
                for lease in registry.all_leases()
                if key.name in str(lease.holder.fields.get(vip) or "").split(",")
            ]
            found = documents.applications_document(listed, listed, -1)
        elif key.name == ALL_APPS:
            found = documents.applications_document(registry.all_leases(), registry.all_leases(), 1)
        elif key.name == ALL_APPS_DELTA:
            self._delta_version += 1
            changed = [lease for _, lease in registry.recent_changes]
            found = documents.applications_document(changed, registry.all_leases(), self._delta_version)
        elif leases := registry.leases.get(key.name):
            found = documents.application_document(leases.values())
        else:
            return ""
        if key.accept == "compact":
            found = documents.compact_document(found)
        if key.format == "JSON":
            return documents.to_compact_json(found)
        return xml_documents.to_xml(found, is_pretty=key.accept == "full")

    def _replicate(
        self, action: str, app: str, instance_id: str, info: InstanceInfo | None, status: str | None
    ) -> None:
        for link in self.links.values():
            link.queue_change(action, app, instance_id, info, status)


def allowed_methods(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the HTTP methods of a resource; none where the path names no resource."""
    shape = tuple("*" if place in (1, 2) else name for place, name in enumerate(path))
    return _METHODS_BY_PATH.get(path) or _METHODS_BY_PATH.get(shape, ())


def _list_format(request: ServerRequest) -> str:
    """Return the format of a list: JSON for a client that names it anywhere in ``Accept``, else XML."""
    return "JSON" if "json" in request.header("Accept") else "XML"


def _response_media_type(request: ServerRequest) -> str:
    return documents.preferred_media_type(request.header("Accept")) or JSON_MEDIA_TYPE


def _is_replication_request(request: ServerRequest) -> bool:
    return request.header("x-netflix-discovery-replication") == "true"
