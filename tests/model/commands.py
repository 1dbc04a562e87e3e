"""Random commands for a Eureka server, and the parts of its answers that can be compared.

The same commands go to a model server and to a real one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.dev.eureka.instance_registry import Document

DATA_CENTER = {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"}
REPLICATED = {"x-netflix-discovery-replication": "true"}


def amazon(instance_id: str) -> Document:
    """Return the data centre of a machine that is named by it and sends no instance id."""
    metadata = {"instance-id": instance_id, "availability-zone": "eu-west-1a"}
    return {"@class": "com.netflix.appinfo.AmazonInfo", "name": "Amazon", "metadata": metadata}


_JSON = {"Accept": "application/json"}

_TIMES = (1_000, 2_000, 3_000)
"""Dirty timestamps in milliseconds: so few that older, equal and newer ones often meet."""

_REGISTERED = (*("UP", "OUT_OF_SERVICE") * 4, "DOWN", "STARTING", "UNKNOWN")
_SET = ("OUT_OF_SERVICE", "OUT_OF_SERVICE", "UP", "DOWN", "UNKNOWN", "nonsense", None)
_OVERRIDDEN = ("UNKNOWN", "OUT_OF_SERVICE", "UP")


class Commands:
    """A source of random commands about a few instances of two applications.

    :param name: unlike any other on the server, since overrides and lists outlive a sequence.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.apps = (f"{name}A".upper(), f"{name}B".upper())
        # One id in both applications: servers keep overrides by id alone.
        self.ids = (f"{name}-1", f"{name}-2")
        self._random = random.Random(seed)  # noqa: S311 - a test
        self._app, self._id = self.apps[0], self.ids[0]

    def draw(self) -> ServerRequest:
        """Draw one command."""
        return self._random.choice(self._kinds())()

    def reads(self, about: ServerRequest | None = None) -> list[ServerRequest]:
        """Return commands that read all instances, or those whose id appears in a request, past the list
        caches.
        """
        ids = [one for one in self.ids if about is None or one in repr(about)]
        return [ServerRequest("GET", ("apps", app, one), headers=_JSON) for app in self.apps for one in ids]

    def clean_up(self) -> list[ServerRequest]:
        """Return the commands that remove all instances again."""
        ids = (*self.ids, "10.0.0.1")  # the host name is the id of what has none
        return [
            ServerRequest("DELETE", ("apps", app, one), headers=_JSON) for app in self.apps for one in ids
        ]

    def _kinds(self) -> Sequence[Callable[[], ServerRequest]]:
        return (
            *(self._register,) * 4,
            *(self._renew,) * 3,
            *(self._put_status,) * 2,
            *(self._delete_status,) * 2,
            self._cancel,
            self._metadata,
            *(self._batch,) * 3,
            *(self._read,) * 2,
            self._list,
            self._list_one,
            self._delta,
        )

    def document(self, app: str, instance_id: str) -> Document:
        """Return a random document to register an instance."""
        number = self._random.choice((8080, 8081))
        return {
            "instanceId": instance_id,
            "app": app,
            "hostName": "10.0.0.1",
            "ipAddr": "10.0.0.1",
            "status": self._random.choice(_REGISTERED),
            "overriddenStatus": self._overridden(0.3),
            "port": {"$": number, "@enabled": "true"},
            "securePort": {"$": 443, "@enabled": "false"},
            "vipAddress": app.lower(),
            "secureVipAddress": app.lower(),
            "dataCenterInfo": DATA_CENTER,
            "metadata": self._random.choice(({}, {"a": "1"}, {"b": "2"})),
            "lastDirtyTimestamp": str(self._random.choice(_TIMES)),
        }

    def _place(self) -> tuple[str, str]:
        """Draw an application and an instance id, mostly those of the previous command: two commands to
        one instance show the most differences.
        """
        if self._random.random() < 0.3:
            self._app = self._random.choice(self.apps)
        if self._random.random() < 0.1:
            self._id = self._random.choice(self.ids)
        return self._app, self._id

    def _overridden(self, share: float) -> str:
        return self._random.choice(_OVERRIDDEN) if self._random.random() < share else "UNKNOWN"

    def _headers(self) -> Document:
        return {**_JSON, **(REPLICATED if self._random.random() < 0.3 else {})}

    def _dirty(self) -> dict[str, str]:
        return {"lastDirtyTimestamp": str(self._random.choice(_TIMES))} if self._random.random() < 0.6 else {}

    def _register(self) -> ServerRequest:
        app, instance_id = self._place()
        document = self.document(app, instance_id)
        if self._random.random() < 0.1:
            del document[self._random.choice(("hostName", "ipAddr", "dataCenterInfo", "instanceId"))]
        return ServerRequest("POST", ("apps", app), headers=self._headers(), body={"instance": document})

    def _renew(self) -> ServerRequest:
        app, instance_id = self._place()
        query = self._dirty()
        if self._random.random() < 0.5:
            query["overriddenstatus"] = self._overridden(1.0)
        return ServerRequest("PUT", ("apps", app, instance_id), query, self._headers())

    def _put_status(self) -> ServerRequest:
        app, instance_id = self._place()
        value = self._random.choice(_SET)
        query = {**self._dirty(), **({"value": value} if value else {})}
        return ServerRequest("PUT", ("apps", app, instance_id, "status"), query, self._headers())

    def _delete_status(self) -> ServerRequest:
        app, instance_id = self._place()
        value = self._random.choice(_SET)
        query = {**self._dirty(), **({"value": value} if value else {})}
        return ServerRequest("DELETE", ("apps", app, instance_id, "status"), query, self._headers())

    def _cancel(self) -> ServerRequest:
        return ServerRequest("DELETE", ("apps", *self._place()), headers=self._headers())

    def _metadata(self) -> ServerRequest:
        query = {self._random.choice("abc"): str(self._random.randint(1, 3))}
        return ServerRequest("PUT", ("apps", *self._place(), "metadata"), query, self._headers())

    def _batch(self) -> ServerRequest:
        items = [self._item() for _ in range(self._random.randint(1, 3))]
        return ServerRequest(
            "POST", ("peerreplication", "batch"), headers=_JSON, body={"replicationList": items}
        )

    def _item(self) -> Document:
        app, instance_id = self._place()
        action = self._random.choice(
            ("Heartbeat", "Heartbeat", "Register", "Cancel", "StatusUpdate", "DeleteStatusOverride")
        )
        item: Document = {"action": action, "appName": app, "id": instance_id}
        if self._random.random() < 0.8:
            item["lastDirtyTimestamp"] = self._random.choice(_TIMES)
        if action == "Register":
            item["instanceInfo"] = self.document(app, instance_id)
        if action in ("StatusUpdate", "DeleteStatusOverride"):
            item["status"] = self._random.choice(("UP", "DOWN", "OUT_OF_SERVICE"))
        if action == "Heartbeat" and self._random.random() < 0.4:
            item["overriddenStatus"] = self._overridden(1.0)
        if self._random.random() < 0.03:
            item["surprise"] = 1
        return item

    def _read(self) -> ServerRequest:
        return ServerRequest("GET", ("apps", *self._place()), headers=_JSON)

    def _list(self) -> ServerRequest:
        return ServerRequest("GET", ("apps",), headers=_JSON)

    def _list_one(self) -> ServerRequest:
        return ServerRequest("GET", ("apps", self._random.choice(self.apps)), headers=_JSON)

    def _delta(self) -> ServerRequest:
        return ServerRequest("GET", ("apps", "delta"), headers=_JSON)


def comparable(request: ServerRequest, response: ServerResponse, commands: Commands) -> Any:
    """Return the part of an answer that depends on the commands alone, without times and instances of
    others.
    """
    code, path = response.status_code, request.path
    if code >= 300 or not response.text:
        return code
    if path[:2] == ("peerreplication", "batch"):
        return code, [
            (entry["statusCode"], _instance(entry.get("responseEntity") or {}))
            for entry in response.json["responseList"]
        ]
    if request.method != "GET":
        return code
    found = response.json
    if "instance" in found:
        return code, _instance(found["instance"])
    listed = found["applications"]["application"] if "applications" in found else [found["application"]]
    ours = {
        app["name"]: sorted(map(json.dumps, map(_instance, _list_of(app["instance"]))))
        for app in _list_of(listed)
        if app["name"] in commands.apps
    }
    hash_code = found["applications"]["apps__hashcode"] if "applications" in found else ""
    return code, ours, hash_code


def _instance(document: Document) -> Document:
    names = ("app", "instanceId", "status", "overriddenStatus", "lastDirtyTimestamp", "actionType", "port")
    shown = {name: document.get(name) for name in names}
    metadata = document.get("metadata") or {}
    return {**shown, "metadata": {key: metadata[key] for key in sorted(metadata) if key != "@class"}}


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
