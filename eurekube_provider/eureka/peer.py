"""One Eureka server: each method is one request, and says plainly what came back.

Retries nothing but a pooled connection that the server had closed meanwhile: which of several servers to
ask, and when again, is decided above.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth

from eurekube_provider.core.errors import (
    RegistryDenied,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka import batch
from eurekube_provider.eureka.batch import Answer
from eurekube_provider.eureka.codec import instance_from_json, instance_to_json, instances_from_json
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.gauges import ServerFigures, figures_from_page

_T = TypeVar("_T")

_POOL_SIZE = 16
_ACCEPT = {"Accept": "application/json"}
_SEND = {"Accept": "application/json", "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What ``/status`` says of a server.

    :param uptime: as the server words it, e.g. ``0 days 00:03``: days, hours and minutes.
    :param started_timestamp_ms: when the server described itself first, by its own clock: another value
        means that it was restarted since. None where it does not say.
    :param clock_ahead_seconds: how far its clock is ahead of ours, to a second or two; None where it does not
        say.
    """

    uptime: str
    started_timestamp_ms: int | None
    registered_replicas: tuple[str, ...]
    available_replicas: tuple[str, ...]
    unavailable_replicas: tuple[str, ...]
    clock_ahead_seconds: float | None = None


class Peer:
    """One server of an Eureka cluster, with a pooled session that any number of threads may share.

    Every method raises :class:`RegistryUnreachable`, :class:`RegistryDenied` or :class:`RegistryRejected`
    when the answer is not one that its docstring names.

    :param url: the service URL without credentials, e.g. ``http://eureka-1:8761/eureka``.
    """

    def __init__(self, url: str, connection: Connection) -> None:
        self.url = url
        self._timeouts = (connection.connect_timeout_seconds, connection.read_timeout_seconds)
        self._session = requests.Session()
        # Nothing from the environment but the proxies: REQUESTS_CA_BUNDLE would override the CA file and
        # ~/.netrc the credentials.
        self._session.trust_env = False
        proxy = connection.proxy
        self._session.proxies = (
            {"http": proxy, "https": proxy} if proxy else dict(requests.utils.get_environ_proxies(url))
        )
        self._session.verify = str(connection.ca_file) if connection.ca_file else True
        if connection.user is not None:
            self._session.auth = HTTPBasicAuth(connection.user.encode(), (connection.password or "").encode())
        if connection.token is not None:
            self._session.headers["Authorization"] = f"Bearer {connection.token}"
        if connection.client_certificate is not None:
            certificate, key = str(connection.client_certificate), connection.client_key
            self._session.cert = (certificate, str(key)) if key else certificate
        adapter = HTTPAdapter(pool_connections=1, pool_maxsize=_POOL_SIZE, pool_block=True)
        self._session.mount(url, adapter)

    def __repr__(self) -> str:
        return f"Peer({self.url!r})"

    def close(self) -> None:
        """Close the pooled connections."""
        self._session.close()

    def register(self, instance: Instance) -> None:
        """Register ``instance`` or replace its registration, which starts a new Eureka lease.

        The server keeps its own version, silently, where that has a newer ``lastDirtyTimestamp``.
        """
        self._request(
            "POST",
            f"/apps/{_segment(instance.application)}",
            f"register {_named(instance)}",
            json={"instance": instance_to_json(instance)},
        )

    def restore(self, instance: Instance) -> None:
        """Register ``instance`` where it was forgotten, together with the status that was set over its own.

        A plain :meth:`register` never carries an override, since it would create one anew that a person may
        have cleared meanwhile.
        """
        document = {**instance_to_json(instance), "overriddenStatus": instance.overridden_status.value}
        self._request(
            "POST",
            f"/apps/{_segment(instance.application)}",
            f"restore {_named(instance)}",
            json={"instance": document},
        )

    def renew(self, instance: Instance) -> bool:
        """Renew the Eureka lease.

        :returns: False where the server does not hold the instance (404).
        """
        response = self._request(
            "PUT", _path(instance), f"renew {_named(instance)}", params=_renewal(instance), missing=True
        )
        return response is not None

    def deregister(self, application: str, instance_id: str) -> bool:
        """Remove the instance.

        :returns: False where the server did not hold it (404), and then told none of its peers.
        """
        path = f"/apps/{_segment(application)}/{_segment(instance_id)}"
        response = self._request("DELETE", path, f"deregister {application} {instance_id}", missing=True)
        return response is not None

    def set_status(self, instance: Instance, status: Status) -> bool:
        """Set a status over the instance's own, e.g. OUT_OF_SERVICE.

        :returns: False where the server does not hold the instance.
        """
        response = self._request(
            "PUT",
            f"{_path(instance)}/status",
            f"set the status of {_named(instance)} to {status}",
            params={"value": status.value},
            missing=True,
        )
        return response is not None

    def clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """Remove the status that was set over the instance's own, and say which one holds from now on.

        :returns: False where the server does not hold the instance.
        """
        response = self._request(
            "DELETE",
            f"{_path(instance)}/status",
            f"clear the status of {_named(instance)}",
            params={"value": status.value},
            missing=True,
        )
        return response is not None

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Read one instance as the server holds it now, past its caches; None where it holds none."""
        path = f"/apps/{_segment(application)}/{_segment(instance_id)}"
        what = f"read {application} {instance_id}"
        response = self._request("GET", path, what, missing=True)
        if response is None:
            return None
        return self._parsed(what, response, lambda document: instance_from_json(document["instance"]))

    def list_instances(self, application: str | None = None) -> list[Instance]:
        """List the registry, or one application of it. Up to 30 s old: it suggests, and proves nothing.

        :returns: an empty list for an application that the server does not know (404).
        """
        path = f"/apps/{_segment(application)}" if application else "/apps"
        what = f"list {application}" if application else "list the registry"
        response = self._request("GET", path, what, missing=application is not None)
        if response is None:
            return []
        return self._parsed(what, response, lambda document: instances_from_json(document)[0])

    def batch(self, items: Sequence[bytes]) -> list[Answer]:
        """Have this server carry out the items of :mod:`~eurekube_provider.eureka.batch`; it forwards none.

        :param items: at most :data:`~eurekube_provider.eureka.batch.MOST_ITEMS`.
        :returns: an answer for each, in their order. That of a register item is always 200.
        """
        what = f"send a batch of {len(items)}"
        response = self._request("POST", "/peerreplication/batch/", what, data=batch.body(items))
        assert response is not None  # noqa: S101 - only missing=True gives None
        result = self._parsed(what, response, batch.answers)
        if len(result) != len(items):
            raise RegistryRejected(f"{what}: {self.url} answered {len(result)} of them", url=self.url)
        return result

    def status(self) -> ServerStatus:
        """What the server says of itself and of its peers."""
        response = self._request(
            "GET", "/status", "read the server's status", headers={"Accept": "application/xml"}
        )
        assert response is not None  # noqa: S101 - only missing=True gives None
        try:
            # The server's own answer, and expat since 2.6 bounds entity expansion.
            root = ElementTree.fromstring(response.text)  # noqa: S314
        except ElementTree.ParseError:
            root = None
        if root is None or root.find("applicationStats") is None:
            raise RegistryRejected(
                f"read the server's status at {self.url}: the answer is not Eureka's;"
                " the service URL usually ends with /eureka (or /eureka/v2)",
                url=self.url,
            )

        def urls(name: str) -> tuple[str, ...]:
            listed = (root.findtext(f".//{name}") or "").split(",")
            return tuple(url.strip() for url in listed if url.strip())

        started = root.findtext("./instanceInfo/lastUpdatedTimestamp") or ""
        return ServerStatus(
            uptime=root.findtext(".//server-uptime") or "",
            started_timestamp_ms=int(started) if started.isdigit() else None,
            registered_replicas=urls("registered-replicas"),
            available_replicas=urls("available-replicas"),
            unavailable_replicas=urls("unavailable-replicas"),
            clock_ahead_seconds=_ahead(response.headers.get("Date")),
        )

    def _parsed(self, what: str, response: requests.Response, parse: Callable[[Any], _T]) -> _T:
        """Read a success; another server's page or JSON is Eureka's error, never one of Python's."""
        try:
            document = response.json()
        except requests.exceptions.JSONDecodeError:
            reason = "something that is not JSON"
        else:
            try:
                return parse(document)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                reason = f"JSON that is not Eureka's ({type(error).__name__}: {error})"
        raise RegistryRejected(
            f"{what}: {self.url} answered {response.status_code} with {reason}:"
            " is this an Eureka service URL (it usually ends with /eureka)?",
            url=self.url,
            status_code=response.status_code,
        )

    def figures(self) -> ServerFigures | None:
        """What the server's front page says of renewals; None where it cannot be read. Raises nothing."""
        front_page = self.url.removesuffix("/v2").removesuffix("/eureka") + "/"
        try:
            response = self._session.get(
                front_page, headers={"Accept": "text/html"}, timeout=self._timeouts, allow_redirects=False
            )
        except requests.exceptions.RequestException:
            return None
        return figures_from_page(response.text) if response.status_code == 200 else None

    def _request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: dict[str, str] | None = None,
        json: Any = None,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
        missing: bool = False,
    ) -> requests.Response | None:
        """Send one request; None for a 404 where ``missing`` is allowed."""
        for attempt in (1, 2):
            started = time.monotonic()
            try:
                response = self._session.request(
                    method,
                    self.url + path,
                    params=params,
                    json=json,
                    data=data,
                    headers=headers or (_ACCEPT if json is None and data is None else _SEND),
                    timeout=self._timeouts,
                    allow_redirects=False,
                )
            except requests.exceptions.SSLError as error:
                raise RegistryUnreachable(
                    f"{what}: the TLS connection to {self.url} failed ({_root_cause(error)});"
                    " check the CA file and the server's certificate, and the client certificate where the"
                    " server asks for one",
                    url=self.url,
                ) from None
            except requests.exceptions.Timeout:
                raise RegistryUnreachable(
                    f"{what}: {self.url} did not answer within {time.monotonic() - started:.1f} s",
                    url=self.url,
                ) from None
            except requests.exceptions.ConnectionError as error:
                if attempt == 1 and "NewConnectionError" not in repr(error):
                    continue  # a pooled connection that the server had closed; every request is repeatable
                raise RegistryUnreachable(
                    f"{what}: no connection to {self.url} ({_root_cause(error)});"
                    " check the URL and whether the server is up",
                    url=self.url,
                ) from None
            except requests.exceptions.RequestException as error:
                raise RegistryUnreachable(
                    f"{what}: the request to {self.url} failed ({_root_cause(error)})", url=self.url
                ) from None
            if response.status_code < 300:
                return response
            if response.status_code == 404 and missing:
                return None
            raise _refusal(what, self.url, response)
        raise AssertionError("unreachable")


def _ahead(date: str | None) -> float | None:
    """How far the clock that wrote a Date header is ahead of ours."""
    try:
        return parsedate_to_datetime(date or "").timestamp() - time.time()
    except ValueError:
        return None


def _renewal(instance: Instance) -> dict[str, str]:
    """The query of a renewal: a server that holds older contents answers 404 and gets them anew."""
    query = {"status": instance.status.value}
    if instance.last_dirty_timestamp_ms is not None:
        query["lastDirtyTimestamp"] = str(instance.last_dirty_timestamp_ms)
    return query


def _refusal(what: str, url: str, response: requests.Response) -> RegistryError:
    code = response.status_code
    if code == 401:
        return RegistryDenied(
            f"{what}: {url} answered 401, so that it wants other credentials:"
            " check eurekube:user and eurekube:password (EUREKA_USER, EUREKA_PASSWORD)",
            url=url,
            status_code=code,
        )
    if code == 403:
        return RegistryDenied(
            f"{what}: {url} answered 403: Spring Security's CSRF protection must be off for /eureka/**,"
            " the user must be allowed to write, and a server that has just started answers so as long as"
            " it has nothing to show",
            url=url,
            status_code=code,
        )
    body = " ".join(response.text.split())[:200]
    said = f"{url} answered {code}{f' ({body})' if body else ''}"
    if code >= 500:
        return RegistryUnreachable(f"{what}: {said}", url=url, status_code=code)
    hint = ""
    if code in (301, 302, 303, 307, 308):
        location = response.headers.get("Location", "").rpartition("@")[2]
        hint = f"; it redirects to {location}: use that address"
    elif code == 404:
        hint = "; the service URL usually ends with /eureka (or /eureka/v2)"
    return RegistryRejected(f"{what}: {said}{hint}", url=url, status_code=code)


def _root_cause(error: BaseException) -> str:
    """The innermost reason in few words; the outer ones repeat the URL."""
    reason: Any = error
    while True:
        inner = getattr(reason, "reason", None) or next(
            (arg for arg in getattr(reason, "args", ()) if isinstance(arg, BaseException)), None
        )
        if not isinstance(inner, BaseException):
            break
        reason = inner
    text = str(reason)
    return text.rpartition(": ")[2] if "object at 0x" in text or "Connection(host=" in text else text


def _path(instance: Instance) -> str:
    return f"/apps/{_segment(instance.application)}/{_segment(instance.instance_id)}"


def _segment(text: str) -> str:
    return quote(text, safe="")


def _named(instance: Instance) -> str:
    return f"{instance.application} {instance.instance_id}"
