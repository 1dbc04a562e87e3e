"""One Eureka server behind its HTTP interface.

Source: the resources of ``com.netflix.eureka.resources`` (Netflix/eureka 2.0.x).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from eurekube_provider.dev.eureka import documents, xml_documents
from eurekube_provider.dev.eureka.documents import JSON, XML, ServerRequest, ServerResponse, Unreadable
from eurekube_provider.dev.eureka.instance_registry import (
    EVICTION_INTERVAL_MS,
    UNKNOWN,
    Document,
    Info,
    InstanceRegistry,
    Lease,
)
from eurekube_provider.dev.eureka.replication import Link, Send
from eurekube_provider.dev.eureka.response_caches import ALL, DELTA, CacheKey, Caches
from eurekube_provider.dev.eureka.virtual_clock import Clock

NOT_FOUND = ServerResponse(404)
OK = ServerResponse(200)
UNREADABLE = ServerResponse(400, '{"error": "cannot parse request body"}')

_METHODS: dict[tuple[str, ...], tuple[str, ...]] = {
    **dict.fromkeys((("apps",), ("apps", "delta"), ("status",)), ("GET",)),
    **dict.fromkeys((("vips", "*"), ("svips", "*"), ("instances", "*")), ("GET",)),
    ("apps", "*"): ("POST", "GET"),
    ("apps", "*", "*"): ("DELETE", "GET", "PUT"),
    ("apps", "*", "*", "status"): ("DELETE", "PUT"),
    ("apps", "*", "*", "metadata"): ("PUT",),
    ("peerreplication", "batch"): ("POST",),
}

_REFUSED_NAME = re.compile("[/\\\\;%\x00\n\r\u2028\u2029]|^\\.\\.?$")
"""Names that Tomcat and Spring Security refuse within a path, as :mod:`.http_front` does in a URL."""

_REPLICATION = {"x-netflix-discovery-replication": "true"}


class EurekaServer:
    """One model server, from its start to its end; a restart makes another object.

    :ivar url: the server's service URL.
    :ivar started_ms: the start time in ``/status``.
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
        self.links: dict[str, Link] = {}
        self.caches = Caches(clock, self.render, use_read_only=use_read_only_cache)
        self._delta_version = 0
        self.registry = InstanceRegistry(
            clock,
            self._replicate,
            self.caches.invalidate,
            self_preservation=self_preservation,
            eviction_interval_ms=eviction_interval_ms,
        )

    def open(self, copied: Sequence[Info] = ()) -> None:
        """Begin to answer requests.

        :param copied: the instances of a neighbour, for a server that copies them at its start.
        """
        for info in copied:
            self.registry.register(info.copy(), replicated=True)
        self.registry.open(len(copied))

    def close(self) -> None:
        """Stop the server's timers and replication."""
        self.registry.close()
        self.caches.close()
        for link in self.links.values():
            link.closed = True

    @property
    def uptime(self) -> str:
        """The time since the server's start, in hours and minutes."""
        minutes = (self._clock.now_ms - self.started_ms) // 60_000
        return f"{minutes // 60:02}:{minutes % 60:02}"

    def seconds_left(self, lease: Lease) -> int:
        """Return the seconds until a lease ends without a renewal; negative where it should have ended."""
        return (lease.updated_ms + lease.duration_ms - self._clock.now_ms) // 1000

    def connect(self, url: str, send: Send) -> None:
        """Forward changes to the server at ``url`` from now on."""
        self.links[url] = Link(self._clock, self.registry, send)

    def handle(self, request: ServerRequest) -> ServerResponse:
        """Answer one request."""
        if any(map(_REFUSED_NAME.search, request.path)):
            return ServerResponse(400)
        match (request.method, *request.path):
            case ("GET", "apps"):
                return self._list(request, ALL)
            case ("GET", "apps", "delta"):
                return self._list(request, DELTA)
            case ("GET", "apps", app):
                return self._list(request, app.upper())
            case ("POST", "apps", app) if app != "delta":
                return self._register(request, app.upper())
            case ("GET", "apps", app, instance_id):
                return self._shown(request, self.registry.get(app.upper(), instance_id))
            case ("PUT", "apps", app, instance_id):
                return self._renew(request, app.upper(), instance_id)
            case ("DELETE", "apps", app, instance_id):
                replicated = _is_replicated(request)
                is_done = self.registry.cancel(app.upper(), instance_id, replicated=replicated)
                return OK if is_done else NOT_FOUND
            case ("PUT" | "DELETE", "apps", app, instance_id, "status"):
                return self._override(request, app.upper(), instance_id)
            case ("PUT", "apps", app, instance_id, "metadata"):
                return self._metadata(request, app.upper(), instance_id)
            case ("GET", "vips" | "svips" as kind, name):
                return self._cached(request, CacheKey(kind[:-1].upper(), name, _format(request)))
            case ("GET", "instances", instance_id):
                return self._instance_by_id(request, instance_id)
            case ("GET", "status"):
                return ServerResponse(500) if _media_type(request) == JSON else self._status()
            case ("POST", "peerreplication", "batch"):
                return self._batch(request)
            case _:
                return ServerResponse(405 if methods_of(request.path) else 404)

    def _list(self, request: ServerRequest, name: str) -> ServerResponse:
        regions = request.query.get("regions", "") if name in (ALL, DELTA) else ""
        return self._cached(
            request,
            CacheKey(
                "Application",
                name,
                _format(request),
                "compact" if request.header("X-Eureka-Accept").lower() == "compact" else "full",
                tuple(sorted(regions.lower().split(","))) if regions else (),
            ),
        )

    def _cached(self, request: ServerRequest, key: CacheKey) -> ServerResponse:
        text = self.caches.get(key)
        return ServerResponse(200, text, _media_type(request)) if text else NOT_FOUND

    def _instance_by_id(self, request: ServerRequest, instance_id: str) -> ServerResponse:
        for leases in self.registry.leases.values():
            if instance_id in leases:
                info = self.registry.get(leases[instance_id].holder.app, instance_id)
                return self._shown(request, info)
        return NOT_FOUND

    def _shown(self, request: ServerRequest, info: Info | None, code: int = 200) -> ServerResponse:
        if info is None:
            return NOT_FOUND
        document = documents.info_document(info, self.registry.leases[info.app][info.id])
        if _media_type(request) == JSON:
            return ServerResponse(code, documents.written({"instance": document}))
        if info.status in ("OUT_OF_SERVICE", UNKNOWN):
            document["status"] = "DOWN"  # XML of one instance knows the statuses of the first version alone
        return ServerResponse(code, xml_documents.written({"instance": document}), XML)

    def _renew(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        replicated, sent = _is_replicated(request), request.query.get("lastDirtyTimestamp")
        try:
            dirty_ms = None if sent is None else int(sent)
        except ValueError:
            return ServerResponse(500)
        if not self.registry.renew(app, instance_id, replicated=replicated):
            return NOT_FOUND
        held = self.registry.get(app, instance_id)
        if dirty_ms is None or held is None or dirty_ms == held.dirty_ms:
            return OK
        if dirty_ms > held.dirty_ms:
            overridden = request.query.get("overriddenstatus", UNKNOWN)
            if replicated and overridden != UNKNOWN:
                self.registry.store_override(app, instance_id, overridden)
            return NOT_FOUND
        return self._shown(request, held, 409) if replicated else OK

    def _register(self, request: ServerRequest, app: str) -> ServerResponse:
        if request.body is None:
            return ServerResponse(500)
        try:
            document = request.body["instance"] if isinstance(request.body, dict) else None
            info = documents.read_info(document, self._clock.now_ms)
        except (Unreadable, KeyError):
            return UNREADABLE
        refusal = documents.refusal(info, app)
        if refusal is not None:
            return ServerResponse(400, refusal, _media_type(request))
        self.registry.register(info, replicated=_is_replicated(request))
        return ServerResponse(204)

    def _override(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        if self.registry.get(app, instance_id) is None:
            return NOT_FOUND
        value = request.query.get("value")
        if value is None and request.method == "DELETE":
            value = UNKNOWN
        if value not in documents.STATUSES:
            return ServerResponse(500)
        dirty = request.query.get("lastDirtyTimestamp", "")
        dirty_ms = int(dirty) if dirty.isdigit() else None
        change = self.registry.set_status if request.method == "PUT" else self.registry.clear_status
        done = change(app, instance_id, value, dirty_ms, replicated=_is_replicated(request))
        return OK if done else ServerResponse(500)

    def _metadata(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        info = self.registry.get(app, instance_id)
        if info is None:
            return NOT_FOUND
        if info.fields["metadata"]:
            info.fields["metadata"].update(request.query)
        else:
            # An instance without metadata has a map that cannot be changed: the server makes a new instance.
            info = replace(info, fields={**info.fields, "metadata": dict(request.query)})
        self.registry.register(info, replicated=False)
        return OK

    def _batch(self, request: ServerRequest) -> ServerResponse:
        try:
            items = documents.batch_items(request.body, self._clock.now_ms)
        except Unreadable:
            return UNREADABLE
        except TypeError:
            return ServerResponse(500)
        # Written when all are done: an instance that an item returns is shown as later items left it.
        done = [self._item(item, info) for item, info in items]
        answers = [
            {"statusCode": code, **({"responseEntity": documents.info_document(info, lease)} if info else {})}
            for code, info, lease in done
        ]
        return ServerResponse(200, documents.written({"responseList": answers}))

    def _item(self, item: Document, sent: Info | None) -> tuple[int, Info | None, Lease | None]:
        """Carry out one item of a batch as another server's change, which is not forwarded."""
        try:
            code = self._dispatch(item, sent).status_code
        except (KeyError, TypeError, ValueError, AttributeError):
            return 500, None, None
        if code != 409:
            return code, None, None
        lease = self.registry.leases[item["appName"].upper()][str(item["id"])]
        return code, lease.holder, lease

    def _dispatch(self, item: Document, sent: Info | None) -> ServerResponse:
        app, instance_id, action = item["appName"].upper(), item.get("id"), item["action"]
        if action == "Register":
            if sent is None:
                raise ValueError("no instance")
            if documents.refusal(sent, app) is None:
                self.registry.register(sent, replicated=True)
            return OK  # whatever became of it
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
                return self._renew(ServerRequest("PUT", path, query, _REPLICATION), app, instance_id)
            case "Cancel":
                return OK if self.registry.cancel(app, instance_id, replicated=True) else NOT_FOUND
            case "StatusUpdate":
                return self._override(ServerRequest("PUT", path, query, _REPLICATION), app, instance_id)
            case "DeleteStatusOverride":
                return self._override(ServerRequest("DELETE", path, query, _REPLICATION), app, instance_id)
            case _:
                raise ValueError("no action")

    def _status(self) -> ServerResponse:
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
        return ServerResponse(200, xml_documents.written({"com.netflix.eureka.util.StatusInfo": found}), XML)

    def render(self, key: CacheKey) -> str:
        """Return the text of a list; empty where the application or VIP address does not exist."""
        registry = self.registry
        if key.kind != "Application":
            vip = "vipAddress" if key.kind == "VIP" else "secureVipAddress"
            listed = [
                lease
                for lease in registry.all()
                if key.name in str(lease.holder.fields.get(vip) or "").split(",")
            ]
            found = documents.applications(listed, listed, -1)
        elif key.name == ALL:
            found = documents.applications(registry.all(), registry.all(), 1)
        elif key.name == DELTA:
            self._delta_version += 1
            changed = [lease for _, lease in registry.changes]
            found = documents.applications(changed, registry.all(), self._delta_version)
        elif leases := registry.leases.get(key.name):
            found = documents.application(leases.values())
        else:
            return ""
        if key.accept == "compact":
            found = documents.compact(found)
        if key.format == "JSON":
            return documents.written(found)
        return xml_documents.written(found, is_pretty=key.accept == "full")

    def _replicate(
        self, action: str, app: str, instance_id: str, info: Info | None, status: str | None
    ) -> None:
        for link in self.links.values():
            link.tell(action, app, instance_id, info, status)


def methods_of(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the HTTP methods of a resource; none where the path names no resource."""
    shape = tuple("*" if place in (1, 2) else name for place, name in enumerate(path))
    return _METHODS.get(path) or _METHODS.get(shape, ())


def _format(request: ServerRequest) -> str:
    """Return the format of a list: JSON for a client that names it anywhere in ``Accept``, else XML."""
    return "JSON" if "json" in request.header("Accept") else "XML"


def _media_type(request: ServerRequest) -> str:
    return documents.preferred(request.header("Accept")) or JSON


def _is_replicated(request: ServerRequest) -> bool:
    return request.header("x-netflix-discovery-replication") == "true"
