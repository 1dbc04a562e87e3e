"""One Eureka server behind its HTTP interface.

Source: the resources of ``com.netflix.eureka.resources`` (Netflix/eureka 2.0.x).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from eurekube_provider.dev.eureka import documents
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse, Unreadable
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


class EurekaServer:
    """One server, from its start to its end; a restart is another object.

    :ivar url: its service URL.
    :ivar started_ms: what ``/status`` says of its start.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        self_preservation: bool = True,
        use_read_only_cache: bool = True,
        eviction_interval_ms: int = EVICTION_INTERVAL_MS,
        seed: int = 0,
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
            random=random.Random(seed),  # noqa: S311 - a model
        )

    def open(self, copied: Sequence[Info] = ()) -> None:
        """Begin to serve.

        :param copied: what a neighbour lists, for a server that copies it at its start.
        """
        for info in copied:
            self.registry.register(info.copy(), replicated=True)
        self.registry.open(len(copied))

    def close(self) -> None:
        """The server has ended."""
        self.registry.close()
        self.caches.close()
        for link in self.links.values():
            link.closed = True

    def connect(self, url: str, send: Send) -> None:
        """Forward to this server from now on."""
        self.links[url] = Link(self._clock, self.registry, send)

    def handle(self, request: ServerRequest) -> ServerResponse:
        """Answer one request."""
        path = request.path
        if path[:1] == ("apps",):
            return self._apps(request, path[1:])
        if path[:2] == ("peerreplication", "batch") and request.method == "POST":
            return self._batch(request)
        if path[:1] in (("vips",), ("svips",)) and len(path) == 2 and request.method == "GET":
            return self._vip(request, path[0][:-1].upper(), path[1])
        if path[:1] == ("instances",) and len(path) == 2 and request.method == "GET":
            return self._instance_by_id(path[1])
        if path == ("status",) and request.method == "GET":
            return self._status()
        return NOT_FOUND

    def _apps(self, request: ServerRequest, rest: tuple[str, ...]) -> ServerResponse:
        if len(rest) == 0:
            return self._list(request, ALL) if request.method == "GET" else ServerResponse(405)
        if rest == ("delta",) and request.method == "GET":
            return self._list(request, DELTA)
        app = rest[0].upper()
        if len(rest) == 1:
            if request.method == "POST":
                return self._register(request, app)
            return self._list(request, app) if request.method == "GET" else ServerResponse(405)
        if len(rest) == 2:
            return self._instance(request, app, rest[1])
        if len(rest) == 3 and rest[2] == "status" and request.method in ("PUT", "DELETE"):
            return self._override(request, app, rest[1])
        if len(rest) == 3 and rest[2] == "metadata" and request.method == "PUT":
            return self._metadata(request, app, rest[1])
        return NOT_FOUND

    def _list(self, request: ServerRequest, name: str) -> ServerResponse:
        regions = request.query.get("regions", "") if name in (ALL, DELTA) else ""
        text = self.caches.get(
            CacheKey(
                "Application",
                name,
                "JSON" if "json" in request.header("Accept") else "XML",
                "compact" if request.header("X-Eureka-Accept") == "compact" else "full",
                tuple(sorted(regions.lower().split(","))) if regions else (),
            )
        )
        return ServerResponse(200, text) if text else NOT_FOUND

    def _vip(self, request: ServerRequest, kind: str, name: str) -> ServerResponse:
        key = CacheKey(kind, name, "JSON" if "json" in request.header("Accept") else "XML")
        text = self.caches.get(key)
        found = json.loads(text)["applications"]["application"] if text else []
        return ServerResponse(200, text) if found else NOT_FOUND

    def _instance_by_id(self, instance_id: str) -> ServerResponse:
        for leases in self.registry.leases.values():
            if instance_id in leases:
                info = self.registry.get(leases[instance_id].holder.app, instance_id)
                return self._shown(info)
        return NOT_FOUND

    def _instance(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        replicated = _is_replicated(request)
        match request.method:
            case "GET":
                return self._shown(self.registry.get(app, instance_id))
            case "PUT":
                dirty = request.query.get("lastDirtyTimestamp")
                return self._renew(
                    app,
                    instance_id,
                    int(dirty) if dirty else None,
                    request.query.get("overriddenstatus"),
                    replicated=replicated,
                )
            case "DELETE":
                return OK if self.registry.cancel(app, instance_id, replicated=replicated) else NOT_FOUND
            case _:
                return ServerResponse(405)

    def _shown(self, info: Info | None) -> ServerResponse:
        if info is None:
            return NOT_FOUND
        lease = self.registry.leases[info.app][info.id]
        return ServerResponse(200, json.dumps({"instance": documents.info_document(info, lease)}))

    def _renew(
        self, app: str, instance_id: str, dirty_ms: int | None, overridden: str | None, *, replicated: bool
    ) -> ServerResponse:
        if not self.registry.renew(app, instance_id, replicated=replicated):
            return NOT_FOUND
        held = self.registry.get(app, instance_id)
        if dirty_ms is None or held is None or dirty_ms == held.dirty_ms:
            return OK
        if dirty_ms > held.dirty_ms:
            if replicated and overridden not in (None, UNKNOWN):
                self.registry.store_override(app, instance_id, str(overridden))
            return NOT_FOUND
        if not replicated:
            return OK
        return ServerResponse(409, self._shown(held).text)

    def _register(self, request: ServerRequest, app: str) -> ServerResponse:
        try:
            document = request.body["instance"] if isinstance(request.body, dict) else None
            info = documents.read_info(document, self._clock.now_ms)
        except (Unreadable, KeyError, ValueError):
            return ServerResponse(400)
        if documents.refusal(info, app):
            return ServerResponse(400)
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
        dirty = request.query.get("lastDirtyTimestamp")
        change = self.registry.set_status if request.method == "PUT" else self.registry.clear_status
        done = change(
            app, instance_id, value, int(dirty) if dirty else None, replicated=_is_replicated(request)
        )
        return OK if done else ServerResponse(500)

    def _metadata(self, request: ServerRequest, app: str, instance_id: str) -> ServerResponse:
        info = self.registry.get(app, instance_id)
        if info is None:
            return NOT_FOUND
        held = info.fields.get("metadata") or {}
        added = {key: value for key, value in request.query.items() if key != "@class"}
        if not held or set(held) == {"@class"}:
            # An instance without metadata has a map that cannot be changed: the server makes a new instance.
            info = replace(info, fields={**info.fields, "metadata": added})
        else:
            held.update(added)
        self.registry.register(info, replicated=False)
        return OK

    def _batch(self, request: ServerRequest) -> ServerResponse:
        try:
            items = documents.batch_items(request.body)
        except Unreadable:
            return ServerResponse(400)
        # Written when all are done: an instance that an item returns is shown as later items left it.
        done = [self._item(item) for item in items]
        answers = [
            {"statusCode": code, "responseEntity": documents.info_document(info, lease) if info else None}
            for code, info, lease in done
        ]
        return ServerResponse(200, json.dumps({"responseList": answers}))

    def _item(self, item: Document) -> tuple[int, Info | None, Lease | None]:
        """Carry out one item, as if another server had sent it: nothing of it is forwarded."""
        try:
            code = self._dispatch(item).status_code
        except (KeyError, TypeError, ValueError, AttributeError):
            return 500, None, None
        if code != 409:
            return code, None, None
        lease = self.registry.leases[item["appName"].upper()][str(item["id"])]
        return code, lease.holder, lease

    def _dispatch(self, item: Document) -> ServerResponse:
        app, instance_id, action = item["appName"].upper(), str(item.get("id")), item["action"]
        dirty, status = item.get("lastDirtyTimestamp"), item.get("status")
        path = ("apps", app, instance_id)
        headers = {"x-netflix-discovery-replication": "true"}
        query: dict[str, str] = {} if dirty is None else {"lastDirtyTimestamp": str(dirty)}
        match action:
            case "Register":
                info = documents.read_info(item["instanceInfo"], self._clock.now_ms)
                if not documents.refusal(info, app):
                    self.registry.register(info, replicated=True)
                return OK  # whatever became of it
            case "Heartbeat":
                overridden = item.get("overriddenStatus")
                return self._renew(
                    app, instance_id, None if dirty is None else int(dirty), overridden, replicated=True
                )
            case "Cancel":
                return OK if self.registry.cancel(app, instance_id, replicated=True) else NOT_FOUND
            case "StatusUpdate":
                query |= {"value": status} if status else {}
                return self._override(ServerRequest("PUT", path, query, headers), app, instance_id)
            case "DeleteStatusOverride":
                if dirty is None:
                    raise ValueError("no timestamp")
                query |= {"value": status} if status else {}
                return self._override(ServerRequest("DELETE", path, query, headers), app, instance_id)
            case _:
                raise ValueError(action)

    def _status(self) -> ServerResponse:
        replicas = ",".join(self.links)
        return ServerResponse(
            200,
            "<com.netflix.eureka.util.StatusInfo><generalStats><server-uptime>00:00</server-uptime></generalStats>"
            f"<applicationStats><registered-replicas>{replicas}</registered-replicas>"
            f"<available-replicas>{replicas}</available-replicas><unavailable-replicas/></applicationStats>"
            f"<instanceInfo><lastUpdatedTimestamp>{self.started_ms}</lastUpdatedTimestamp></instanceInfo>"
            "</com.netflix.eureka.util.StatusInfo>",
        )

    def render(self, key: CacheKey) -> str:
        registry = self.registry
        if key.kind != "Application":
            vip = "vipAddress" if key.kind == "VIP" else "secureVipAddress"
            listed = [
                lease
                for lease in registry.all()
                if key.name in str(lease.holder.fields.get(vip) or "").split(",")
            ]
            return documents.written(documents.applications(listed, listed, -1))
        if key.name == ALL:
            return documents.written(documents.applications(registry.all(), registry.all(), 1))
        if key.name == DELTA:
            self._delta_version += 1
            changed = [lease for _, lease in registry.changes]
            return documents.written(documents.applications(changed, registry.all(), self._delta_version))
        leases = registry.leases.get(key.name)
        if not leases:
            return ""
        instances = [documents.info_document(lease.holder, lease) for lease in leases.values()]
        return json.dumps({"application": {"name": key.name, "instance": instances}})

    def _replicate(
        self, action: str, app: str, instance_id: str, info: Info | None, status: str | None
    ) -> None:
        for link in self.links.values():
            link.tell(action, app, instance_id, info, status)


def _is_replicated(request: ServerRequest) -> bool:
    return request.header("x-netflix-discovery-replication") == "true"
