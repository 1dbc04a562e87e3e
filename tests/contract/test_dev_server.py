"""The development server answers HTTP as real servers do: formats, encodings, methods and refusals.

Each case sends a sequence of requests to both. ``docs/reference/dev-eureka.md`` has the differences that
remain.
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import requests

from eurekube_provider.dev.eureka.serving import EurekaServers
from tests.contract.conftest import DATA_CENTER, Document, Server, item
from tests.eureka_servers import Servers

pytestmark = pytest.mark.real_server("it is compared with real servers here")

APP = "FRONT"
WANTS_JSON = {"Accept": "application/json"}
WANTS_XML = {"Accept": "application/xml"}
HAS_JSON = {"Content-Type": "application/json"}
HAS_XML = {"Content-Type": "application/xml"}
COMPACT = {"X-Eureka-Accept": "compact"}
REPLICATED = {"x-netflix-discovery-replication": "true"}

ACCEPTED = (
    *("*/*", "application/*", "application/json", "application/xml", "application/xml, application/json"),
    *("application/json;q=0.1, application/xml;q=0.9", "text/html, application/json;q=0.2", "image/png"),
    *("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", "*/*, application/json", "text/xml"),
    *("application/json, application/*+json", "application/vnd.x+json", ""),
)

PLACE = f"/apps/{APP}/one"
PLACES = (
    *("/apps", "/apps/delta", f"/apps/{APP}", PLACE, "/instances/one", "/vips/front", "/svips/front"),
    *(f"{PLACE}/status", f"{PLACE}/metadata", "/peerreplication/batch"),
)


class Sent(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: str | None = None


def registration(instance_id: str | None = "one", /, **fields: Any) -> Sent:
    """Return a registration in JSON without the fields that are None."""
    found = {
        "instanceId": instance_id,
        "app": APP,
        "hostName": "10.0.0.1",
        "ipAddr": "10.0.0.1",
        "vipAddress": "front",
        "dataCenterInfo": DATA_CENTER,
        "lastDirtyTimestamp": "1000",
        **fields,
    }
    found = {key: value for key, value in found.items() if value is not None}
    return Sent("POST", f"/apps/{APP}", HAS_JSON, json.dumps({"instance": found}))


def xml(**replaced: str) -> Sent:
    """Return a registration in XML; named elements are replaced by a text, or left out if it is empty."""
    elements = {
        "instanceId": "<instanceId>one</instanceId>",
        "hostName": "<hostName>10.0.0.1</hostName>",
        "app": f"<app>{APP.lower()}</app>",
        "ipAddr": "<ipAddr>10.0.0.1</ipAddr>",
        "status": "<status>UP</status>",
        "port": '<port enabled="true">8080</port>',
        "securePort": '<securePort enabled="true">8443</securePort>',
        "dataCenterInfo": '<dataCenterInfo class="x"><name>MyOwn</name></dataCenterInfo>',
        "metadata": "<metadata><k>v</k><a_.002fb>w</a_.002fb><c__d_-e> 1 </c__d_-e><f/></metadata>",
        "leaseInfo": "<leaseInfo><durationInSecs>77</durationInSecs></leaseInfo>",
        "vipAddress": "<vipAddress>front</vipAddress>",
        "lastDirtyTimestamp": "<lastDirtyTimestamp>1000</lastDirtyTimestamp>",
    }
    body = "".join({**elements, **replaced}.values())
    return Sent("POST", f"/apps/{APP}", HAS_XML, f"<?xml version='1.0'?><instance>{body}</instance>")


FULL: Document = {
    "sid": "sid",
    "status": "DOWN",
    "port": {"$": 8080, "@enabled": "true"},
    "securePort": {"$": "8443", "@enabled": True},
    "homePageUrl": "http://h/",
    "statusPageUrl": "http://h/s",
    "healthCheckUrl": "http://h/h",
    "secureHealthCheckUrl": "https://h/h",
    "secureVipAddress": "front,other",
    "countryId": 7,
    "appGroupName": "group",
    "asgName": "asg",
    "metadata": {"a/b": "1 & <2> \"3\" '4'", "k": "ü", "_x$": "", "9": "nine", "größe": "1", "÷": "2"},
    "leaseInfo": {"renewalIntervalInSecs": 10, "durationInSecs": 40},
    "isCoordinatingDiscoveryServer": "true",
    "actionType": "DELETED",
    "lastUpdatedTimestamp": "5",
    "unknown": "field",
}

AMAZON: Document = {
    "@class": "com.netflix.appinfo.AmazonInfo",
    "name": "Amazon",
    "metadata": {"instance-id": "i-1", "ami-id": "ami", "public-hostname": "h.example"},
}

MINE = "com.netflix.appinfo.MyDataCenterInfo"

ODD: Mapping[str, Sequence[Any]] = {
    "instanceId": (None, ""),
    "hostName": (None, "", 5),
    "ipAddr": (None, ""),
    "app": (None, "", 5),
    "vipAddress": ("",),
    "port": (
        5,
        "80",
        [],
        {},
        {"$": "80"},
        {"$": "x"},
        {"$": 80, "@enabled": False},
        {"$": 1, "@enabled": "TRUE"},
        {"$": 99999},
        {"other": 1},
    ),
    "status": (5, "up", "NOWHERE", "OUT_OF_SERVICE"),
    "overriddenStatus": ("NOWHERE", "DOWN"),
    "overriddenstatus": ("OUT_OF_SERVICE",),
    "metadata": (5, {"number": 1, "flag": True, "@class": "x"}),
    "leaseInfo": (5, {}, {"durationInSecs": 0, "renewalIntervalInSecs": -1}, {"durationInSecs": "7"}),
    "lastDirtyTimestamp": ("x", 12, None),
    "countryId": ("x",),
    "dataCenterInfo": (
        *(None, {}, "x", [], {"name": "MyOwn"}, {"@class": "x.Y", "name": "MyOwn"}, {"@class": MINE}),
        *({"@class": MINE, "name": "Netflix"}, {"@class": MINE, "name": "Nobody"}),
        {"@class": MINE, "name": "MyOwn", "other": 1},
        *({**AMAZON, "metadata": {}}, {**AMAZON, "metadata": {"ami-id": "ami"}}),
        {**AMAZON, "metadata": {"instance-id": ""}},
    ),
}
"""Values that clients should not send, by field; None means that the field is missing."""

ODD_XML: Sequence[dict[str, str]] = (
    *({name: ""} for name in ("hostName", "ipAddr", "app", "dataCenterInfo", "instanceId", "metadata")),
    *({"status": f"<status>{one}</status>"} for one in ("up", "nowhere")),
    {"status": "<status>UP</status><overriddenstatus>down</overriddenstatus>"},
    {"port": '<port enabled="no">8080</port>', "securePort": '<securePort enabled="no">1</securePort>'},
    {"port": "<port>x</port>"},
    {"dataCenterInfo": "<dataCenterInfo><name>Nobody</name></dataCenterInfo>"},
    {"dataCenterInfo": "<dataCenterInfo><name>Amazon</name></dataCenterInfo>", "instanceId": ""},
    {
        "dataCenterInfo": "<dataCenterInfo><name>Amazon</name><metadata><instance-id>i-9</instance-id>"
        "</metadata></dataCenterInfo>",
        "instanceId": "",
    },
    {"vipAddress": "<vipAddress>a</vipAddress><homePageUrl>http://h</homePageUrl><other>1</other>"},
    {"vipAddress": "<vipAddress>a"},
)

BODIES = ("garbage", '{"a": 1}', "[]", "")
TYPES = ("application/json", "application/json;charset=UTF-8", "application/json;charset=utf-16", "*/*")


def heartbeat(**fields: Any) -> str:
    """Return the body of a batch with one heartbeat."""
    found = {**item("Heartbeat", APP, "one"), "lastDirtyTimestamp": 1000, **fields}
    return json.dumps({"replicationList": [{key: value for key, value in found.items() if value is not ...}]})


BATCHES = (
    *("garbage", "[]", "{}", '{"replicationList": null}', '{"replicationList": [null]}'),
    *('{"replicationList": [5]}', '{"replicationList": {}}', '{"replicationList": [], "other": 1}'),
    *(heartbeat(), heartbeat(lastDirtyTimestamp=...), heartbeat(lastDirtyTimestamp="999")),
    *(heartbeat(lastDirtyTimestamp="x"), heartbeat(action="Other"), heartbeat(action=None)),
    *(heartbeat(id=None), heartbeat(id="nobody"), heartbeat(appName=None), heartbeat(other=1)),
    *(heartbeat(action="Register", instanceInfo=one) for one in (None, 5, {"port": 5}, {"app": APP})),
    *(heartbeat(action="StatusUpdate", status=one) for one in ("NOWHERE", None)),
    *(heartbeat(action="DeleteStatusOverride", lastDirtyTimestamp=one) for one in (1000, None)),
)


CASES: dict[str, Sequence[Sent]] = {
    "forms": [
        registration(),
        *(
            Sent("GET", path, {"Accept": one})
            for one in ACCEPTED
            for path in (f"/apps/{APP}", PLACE, "/apps")
        ),
        *(Sent("GET", path) for path in ("/apps", PLACE, "/apps/NOBODY", "/vips/nobody", f"/apps/{APP}/x")),
        *(Sent("GET", "/apps/NOBODY", {"Accept": one}) for one in ACCEPTED),
    ],
    "every field": [
        registration(**FULL),
        *(Sent("GET", path, wants) for path in PLACES[:-1] for wants in (WANTS_JSON, WANTS_XML)),
        *(
            Sent("GET", path, {**COMPACT, **wants})
            for path in PLACES[:4]
            for wants in (WANTS_JSON, WANTS_XML)
        ),
    ],
    "packed": [
        registration(**FULL),
        *(
            Sent(method, path, {**WANTS_JSON, "Accept-Encoding": "gzip, deflate"})
            for path in PLACES[:7]
            for method in ("GET", "HEAD")
        ),
        Sent("GET", "/apps", {"Accept": "application/xml, application/json", "Accept-Encoding": "gzip"}),
        Sent("GET", "/apps", {"Accept-Encoding": "gzip"}),
        Sent("GET", "/apps", {"Accept-Encoding": "deflate"}),
    ],
    "amazon": [
        registration(None, dataCenterInfo=AMAZON),
        *(
            Sent("GET", f"/apps/{APP}", {**form, **wants})
            for form in ({}, COMPACT)
            for wants in (WANTS_JSON, WANTS_XML)
        ),
        Sent("GET", f"/apps/{APP}/i-1", WANTS_JSON),
        Sent("DELETE", f"/apps/{APP}/i-1"),
    ],
    "methods": [
        registration(),
        *(
            Sent(method, path, WANTS_JSON)
            for path in (*PLACES, "/nothing", "/apps/delta/x", "/vips", "/status")
            for method in ("OPTIONS", "HEAD", "PATCH", "PUT", "POST")
            if (method, path) != ("HEAD", "/status")
        ),
    ],
    "paths": [
        registration(),
        *(
            Sent("GET", path, WANTS_JSON)
            for path in (
                *(f"{PLACE}/", "/apps/", f"/apps/{APP.lower()}/one", f"/apps/{APP}/on%65", f"/v2{PLACE}"),
                *(
                    f"/v1{PLACE}",
                    f"{PLACE}/x",
                    f"/apps/{APP}%2Fone",
                    f"/apps/{APP}/a%5Cb",
                    f"/apps/{APP}//one",
                ),
                *(f"/apps/{APP}/%zz", f"/apps/{APP}/..", f"/apps/{APP}/one;x=1", "/apps?x=%zz", "", "/"),
                *(
                    f"/apps/{APP}/one%20",
                    "/instances/nobody",
                    "/apps/delta/",
                    "/vips/front/x",
                    "/serverinfo",
                ),
            )
        ),
    ],
    "queries": [
        registration(),
        *(
            Sent("PUT", f"{PLACE}?{query}", WANTS_JSON)
            for query in (
                *("lastDirtyTimestamp=x", "lastDirtyTimestamp=", "lastDirtyTimestamp=999", "status=NOWHERE"),
                *("lastDirtyTimestamp=1001", "lastDirtyTimestamp=1000&lastDirtyTimestamp=x", ""),
            )
        ),
        *(
            Sent("PUT", f"{PLACE}?lastDirtyTimestamp=999", {**REPLICATED, **wants})
            for wants in (WANTS_JSON, WANTS_XML, {})
        ),
        *(
            Sent(method, f"{PLACE}/status?{query}", WANTS_JSON)
            for method in ("PUT", "DELETE")
            for query in (*("value=NOWHERE", "value=", "value=down", "value=OUT_OF_SERVICE", "value=UP"),)
        ),
        Sent("PUT", f"{PLACE}/metadata?n=1&n=2&m=&%3Cx%3E=%26", WANTS_JSON),
        Sent("GET", PLACE, WANTS_JSON),
        Sent("PUT", f"{PLACE}/metadata?o=1", WANTS_JSON),
        *(Sent("GET", PLACE, wants) for wants in (WANTS_JSON, WANTS_XML)),
        Sent("DELETE", f"{PLACE}/status"),
        *(Sent("GET", path, wants) for path in (PLACE, f"/apps/{APP}") for wants in (WANTS_JSON, WANTS_XML)),
        Sent("PUT", PLACE),
        Sent("PUT", f"/apps/{APP}/nobody/metadata?o=1", WANTS_JSON),
        Sent("DELETE", f"/apps/{APP}/nobody", WANTS_JSON),
    ],
    "registrations": [
        sent
        for name, values in ODD.items()
        for value in values
        for sent in (
            registration(**{name: value}),
            registration()._replace(headers={**HAS_JSON, **WANTS_JSON}),
            Sent("GET", f"/apps/{APP}", WANTS_JSON),
            *(Sent("DELETE", f"/apps/{APP}/{one}") for one in ("one", "10.0.0.1", "i-1", "5")),
        )
    ],
    "registrations in XML": [
        sent
        for odd in ODD_XML
        for sent in (
            xml(**odd),
            Sent("GET", f"/apps/{APP}", WANTS_JSON),
            Sent("GET", f"/apps/{APP}", WANTS_XML),
            *(Sent("DELETE", f"/apps/{APP}/{one}") for one in ("one", "10.0.0.1", "i-9")),
        )
    ],
    "bodies": [
        *(
            Sent("POST", f"/apps/{APP}", {"Content-Type": kind}, body)
            for kind in (
                *TYPES,
                "application/xml",
                "text/plain",
                "text/json",
                "text/xml",
                "application/x-www-form-urlencoded",
            )
            for body in BODIES
        ),
        *(Sent("POST", f"/apps/{APP}", {}, body) for body in BODIES),
        Sent("POST", f"/apps/{APP}", HAS_JSON, "null"),
        registration()._replace(headers={"Content-Type": "application/json; charset=utf-8"}),
        xml()._replace(headers={"Content-Type": "*/*"}),
        registration(app="OTHER"),
        registration()._replace(headers={**HAS_JSON, "Accept": "image/png"}),
    ],
    "batches": [
        registration(),
        *(Sent("POST", "/peerreplication/batch/", {**HAS_JSON, **WANTS_JSON}, body) for body in BATCHES),
        *(
            Sent("POST", "/peerreplication/batch", {**headers, **WANTS_JSON}, heartbeat())
            for headers in (HAS_XML, {"Content-Type": "text/plain"}, {})
        ),
        Sent("GET", PLACE, WANTS_JSON),
    ],
}


class Received(NamedTuple):
    """An answer, without parts that depend on time or on the number of earlier answers."""

    status: int
    headers: Mapping[str, Any]
    body: Any


def ask(connection: http.client.HTTPConnection, base: str, sent: Sent, app: str) -> Received:
    """Send a request for another application, with no more headers than HTTP needs."""

    def own(text: str) -> str:
        return text.replace(APP, app).replace(APP.lower(), app.lower())

    data = None if sent.body is None else own(sent.body).encode()
    connection.putrequest(sent.method, base + own(sent.path), skip_accept_encoding=True)
    for name, value in sent.headers.items():
        connection.putheader(name, value)
    if data is not None:
        connection.putheader("Content-Length", str(len(data)))
    connection.endheaders(data)
    answer = connection.getresponse()
    content = answer.read()
    headers: dict[str, Any] = {name: answer.headers[name] for name in ("Content-Type", "Content-Encoding")}
    headers["Allow"] = set(re.findall(r"\w+", answer.headers["Allow"] or "")) - {"HEAD"}
    if headers["Content-Encoding"] == "gzip" and sent.method != "HEAD":
        content = gzip.decompress(content)
    return Received(answer.status, headers, content.decode())


def comparable(received: Received, app: str) -> Received:
    """Return an answer without times, versions of deltas, other tests' instances, and texts for people."""
    if received.status == 406 or str(received.headers["Content-Type"]).startswith("text/html"):
        return received._replace(headers={}, body="")
    text = re.sub(r"<timestamp>[^<]*", "<timestamp>", received.body)  # in a form that differs by the train
    text = re.sub(r"\b1[789]\d{11}\b", "1700000000000", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+Z]+", "time", text)
    text = re.sub(r"(versions__delta(?:\":\"|>))\d+", r"\1", text)
    if text.startswith("{"):
        document = json.loads(text)
        if "applications" in document:
            listed = document["applications"]["application"]
            document["applications"]["application"] = [one for one in listed if one["name"] == app]
        elif "application" in document:
            document["application"]["instance"].sort(key=lambda one: one.get("instanceId", ""))
        return received._replace(body=document)
    text = re.sub(r"\s*<application>\s*<name>(?!" + app + r"<).*?</application>", "", text, flags=re.DOTALL)
    return received._replace(
        body=re.sub(r"(?<=<metadata>).*?(?=</metadata>)", _sorted, text, flags=re.DOTALL)
    )


def _sorted(found: re.Match[str]) -> str:
    return "".join(sorted(re.findall(r"\s*<[^/>]+>[^<]*</[^>]+>|\s+$", found[0])))


@pytest.fixture
def both(uncached: Servers, http: requests.Session) -> Iterator[Sequence[str]]:
    """Return the URLs of an empty real server and of a development server, whose lists are as fresh as
    reads.
    """
    server = Server(uncached.eureka_urls[0], http)
    server.batch(*(item("Cancel", app, instance_id) for app, instance_id in server.held()))
    with EurekaServers(quick=True) as development:
        yield server.url, development.urls[0]
    server.batch(*(item("Cancel", app, instance_id) for app, instance_id in server.held()))


def differences(urls: Sequence[str], case: str, app: str) -> Iterator[str]:
    """Yield each request of a case that the servers answer differently, and both answers."""
    places = [urlsplit(url) for url in urls]
    connections = [http.client.HTTPConnection(str(place.netloc), timeout=60) for place in places]
    for sent in CASES[case]:
        expected, answered = (
            comparable(ask(connection, place.path, sent, app), app)
            for connection, place in zip(connections, places, strict=True)
        )
        if expected != answered:
            yield f"{sent}\n  real: {expected}\n  dev:  {answered}"
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("case", CASES)
def test_both_answer_alike(both: Sequence[str], case: str, app: str) -> None:
    """Status, headers and body of the development server's answers equal those of the real server."""
    found = list(differences(both, case, re.sub(r"\W", "", app).upper()))
    assert not found, "\n".join(found)
