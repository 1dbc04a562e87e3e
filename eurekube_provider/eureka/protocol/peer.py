"""One Eureka server: each method sends one request, and returns the result or raises an error.

Repeats a request only if the server had closed the pooled connection: callers try again, and elsewhere.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Self, TypeVar
from urllib.parse import quote, urlsplit

from eurekube_provider.core.errors import (
    LeadershipLost,
    RegistryDenied,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.model import MAX_SHARED_VALUES, FindInstance, Instance, Status
from eurekube_provider.core.text import describe_unaddressable_name
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol import batch, transport
from eurekube_provider.eureka.protocol.batch import ItemResponse
from eurekube_provider.eureka.protocol.codec import (
    NotEurekas,
    instance_from_json,
    instance_to_json_text,
)
from eurekube_provider.eureka.protocol.delta import Delta, delta_from_text
from eurekube_provider.eureka.protocol.error_responses import error_for_response
from eurekube_provider.eureka.protocol.instance_texts import TextPieces, instances_from_pieces
from eurekube_provider.eureka.protocol.request_stats import NO_ANSWER_CODE, RequestStats
from eurekube_provider.eureka.protocol.server_status import StatusPage, status_from_xml
from eurekube_provider.eureka.protocol.transport import (
    ConnectionBroken,
    ResponseTooLarge,
    Transport,
    TransportError,
)
from eurekube_provider.eureka.self_preservation import FrontPage, parse_front_page
from eurekube_provider.runtime.garbage_collection import pause_collection

_T = TypeVar("_T")

_MOST_BYTES_PARSED_AMID_COLLECTIONS = 2**16
"""The most bytes of an answer that makes too few objects for a collection to take long."""

_READ_HEADERS = {"Accept": "application/json"}
_WRITE_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}
_REPLICATION_HEADERS = {**_WRITE_HEADERS, "x-netflix-discovery-replication": "true"}


class Peer:
    """One server of a Eureka cluster, with pooled connections that any number of threads may share.

    Every method raises :class:`RegistryUnreachable`, :class:`RegistryDenied` or :class:`RegistryRejected`
    when the answer is not one that its docstring names.

    :param url: the service URL without credentials, e.g. ``http://eureka-1:8761/eureka``.
    :param may_write: asked directly before each request that changes something; if it returns False, the
        request is not sent and :class:`LeadershipLost` is raised. Reads and renewals are always sent.
    """

    def __init__(
        self, url: str, connection: Connection, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        self.url = url
        self._may_write = may_write
        self.traffic = RequestStats()
        self._transport = Transport(url, connection)
        self.timeout_seconds: float | None = None
        """Seconds after which each request is given up; None for the connection's time-outs."""

    def __repr__(self) -> str:
        return f"Peer({self.url!r})"

    def close(self) -> None:
        """Close the pooled connections."""
        self._transport.close()

    def with_timeout(self, timeout_seconds: float) -> Self:
        """Return a client with the same connections that waits no longer than this for an answer."""
        quick = copy.copy(self)
        quick.timeout_seconds = timeout_seconds
        return quick

    def register(self, instance: Instance) -> None:
        """Register ``instance`` or replace its registration, which starts a new Eureka lease.

        The server silently keeps the instance that it holds if that has a newer ``lastDirtyTimestamp``.
        """
        self._post_instance("register", instance)

    def restore(self, instance: Instance) -> None:
        """Register an ``instance`` that the server forgot, together with its override.

        A plain :meth:`register` never sends an override, which a person may have cleared meanwhile.
        """
        self._post_instance("restore", instance, overridden=instance.overridden_status)

    def register_as_replica(self, instance: Instance) -> None:
        """Register ``instance`` at this server alone, as another server would replicate it.

        The server does not keep a status of its own if the timestamps are equal, and does not tell its peers.
        """
        self._post_instance("tell of", instance, _REPLICATION_HEADERS)

    def renew(self, instance: Instance) -> bool:
        """Renew the Eureka lease.

        :returns: False where the server does not hold the instance (404).
        """
        return self._request_finds_instance(
            "PUT",
            _instance_path(*instance.key),
            f"renew {_describe_instance(instance)}",
            _renewal_query(instance),
        )

    def deregister(self, application: str, instance_id: str) -> bool:
        """Remove the instance.

        :returns: False where the server did not hold the instance (404), and so told none of its peers.
        """
        path, what = _instance_path(application, instance_id), f"deregister {application} {instance_id}"
        return self._request_finds_instance("DELETE", path, what, writes=True)

    def set_status(self, instance: Instance, status: Status) -> bool:
        """Set an override, e.g. OUT_OF_SERVICE, which hides the status that the instance registered.

        :returns: False where the server does not hold the instance.
        """
        what = f"set the status of {_describe_instance(instance)} to {status}"
        return self._request_about_status("PUT", what, instance, status)

    def clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """Remove the instance's override, and set the status that it has from now on.

        :returns: False where the server does not hold the instance.
        """
        what = f"clear the status of {_describe_instance(instance)}"
        return self._request_about_status("DELETE", what, instance, status)

    def _request_about_status(self, method: str, what: str, instance: Instance, status: Status) -> bool:
        path = f"{_instance_path(*instance.key)}/status"
        return self._request_finds_instance(method, path, what, {"value": status.value}, writes=True)

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Read one instance as the server holds it now, past its caches; None where it holds none."""
        path = _instance_path(application, instance_id)
        return self._read_instance(path, f"read {application} {instance_id}")

    def find_by_id(self, instance_id: str) -> Instance | None:
        """Read the instance with this id, in whatever application, past the server's caches.

        :returns: None where the server does not hold it.
        """
        return self._read_instance(f"/instances/{_quote_segment(instance_id)}", f"find {instance_id}")

    def _read_instance(self, path: str, what: str) -> Instance | None:
        response = self._request("GET", path, what, may_be_missing=True)
        if response is None:
            return None
        return self._parse(what, response, partial(_parse_instance, response), judges_usability=True)

    def list_instances(self) -> list[Instance]:
        """List the registry, up to 30 s old: a hint, but no proof.

        Code that needs fresh data reads single instances. A server remembers for ever each list that it was
        asked for, by path, regions and Accept, and makes each again every 30 s; so this is the list that
        every client asks for, and no other one is used.
        """
        return self.list_if_changed(b"")[1] or []

    def list_if_changed(
        self, fingerprint: bytes, find_known: FindInstance = lambda _: None
    ) -> tuple[bytes, list[Instance] | None]:
        """List the whole registry, unless the answer has the given fingerprint.

        Servers make their answer once and keep it until something changes, for up to 3 minutes.

        :param fingerprint: the fingerprint of an earlier answer; empty for none.
        :param find_known: returns a version of an instance with which a new one shares what is equal.
        :returns: the answer's fingerprint, and the list; None in place of the list if the answer is the same.
        """
        found, read = self.fetch_unparsed_list_if_changed(fingerprint, find_known)
        return found, None if read is None else read()

    def fetch_unparsed_list_if_changed(
        self, fingerprint: bytes, find_known: FindInstance = lambda _: None
    ) -> tuple[bytes, Callable[[], list[Instance]] | None]:
        """List as :meth:`list_if_changed` does, but return a function that parses the answer."""
        what = "list the registry"
        response = self._request("GET", "/apps", what)
        assert response is not None  # noqa: S101 - only missing=True gives None
        found = hashlib.sha256(response.raw_body).digest()
        if found == fingerprint:
            return found, None
        return found, lambda: self._parse(
            what,
            response,
            lambda: instances_from_pieces(response.pieces, find_known),
            judges_usability=True,
        )

    def read_delta_if_changed(
        self,
        fingerprint: bytes,
        read: Callable[[TextPieces], Delta] = lambda pieces: delta_from_text(b"".join(pieces())),
    ) -> tuple[bytes, Delta | None] | None:
        """Return the changes of the last three minutes, up to 30 s old; the delta that every client asks for.

        :param fingerprint: as in :meth:`list_if_changed`.
        :param read: parses the answer, perhaps by what is known already.
        :returns: the answer's fingerprint, and the delta, None in its place if the answer is the same; None
            alone if the server gives none that can be read (``eureka.server.disable-delta``, or no Eureka).
        :raises RegistryUnreachable: no answer came.
        """
        what = "read what changed in the registry"
        response = self._request("GET", "/apps/delta", what, may_be_refused=True)
        if response is None:
            return None
        found = hashlib.sha256(response.raw_body).digest()
        if found == fingerprint:
            return found, None
        try:
            return found, self._parse(what, response, lambda: read(response.pieces))
        except RegistryRejected:
            return None

    def send_batch(self, items: Sequence[bytes]) -> list[ItemResponse]:
        """Have this server carry out :mod:`.batch` items; it forwards none to its peers.

        :param items: at most :data:`~eurekube_provider.eureka.protocol.batch.MOST_ITEMS_PER_BATCH`.
        :returns: an answer for each item, in their order. The answer for a register item is always 200.
        """
        what = f"send a batch of {len(items)}"
        writes = not all(map(batch.is_heartbeat_item, items))
        body = batch.batch_body(items)
        # Anyone who lets /apps through alone lets us work.
        response = self._request(
            "POST", "/peerreplication/batch/", what, data=body, writes=writes, judges_usability=False
        )
        assert response is not None  # noqa: S101 - only missing=True gives None
        result = self._parse(what, response, lambda: batch.parse_item_responses(json.loads(response.body())))
        if len(result) != len(items):
            raise RegistryRejected(f"{what}: {self.url} answered {len(result)} of them", url=self.url)
        return result

    def read_status(self) -> StatusPage:
        """Return the server's status page, with its peers."""
        return self._read_status({})

    def read_status_and_close(self) -> StatusPage:
        """Return the server's status page, over a connection that ends with the answer."""
        return self._read_status({"Connection": "close"})

    def _read_status(self, headers: dict[str, str]) -> StatusPage:
        headers = {"Accept": "application/xml", **headers}
        what = "read the server's status"
        # Anyone who lets /apps through alone lets us work.
        response = self._request("GET", "/status", what, headers=headers, judges_usability=False)
        assert response is not None  # noqa: S101 - only missing=True gives None
        try:
            text = response.body(windows.LARGEST_SINGLE_ANSWER_BYTES).decode(errors="replace")
        except ResponseTooLarge as error:
            raise self._no_answer_error(what, error) from None
        except ValueError:
            text = ""
        found = status_from_xml(text, response.headers.get("Date"))
        if found is None:
            raise RegistryRejected(
                f"read the server's status at {self.url}: the answer is not Eureka's;"
                " the service URL usually ends with /eureka (or /eureka/v2)",
                url=self.url,
            )
        return found

    def _parse(
        self,
        what: str,
        response: transport.EurekaResponse,
        parse: Callable[[], _T],
        *,
        judges_usability: bool = False,
    ) -> _T:
        """Parse a successful answer; what is not Eureka's raises an error of Eurekube's, not of Python's.

        :param judges_usability: True if the server cannot be used where the answer is not Eureka's at all.
        """
        is_eurekas = True
        try:
            is_large = len(response.raw_body) > _MOST_BYTES_PARSED_AMID_COLLECTIONS
            with pause_collection() if is_large else nullcontext():
                return parse()
        except ResponseTooLarge as error:
            raise self._no_answer_error(what, error) from None
        except (MemoryError, RecursionError) as error:
            reason = f"JSON that cannot be read ({type(error).__name__})"
        except (json.JSONDecodeError, UnicodeDecodeError):
            reason = "something that is not JSON"
            # A Eureka that fails to render one client's data centre answers a list with nothing at all.
            text = response.text(windows.LARGEST_SINGLE_ANSWER_BYTES).lstrip()
            is_eurekas = not text or text.startswith("{")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"JSON that is not Eureka's ({type(error).__name__}: {error})"
            is_eurekas = not isinstance(error, NotEurekas)
        kind = RegistryRejected if is_eurekas or not judges_usability else RegistryUnreachable
        raise self._strange_answer_error(what, response.status_code, reason, kind)

    def _strange_answer_error(
        self, what: str, status_code: int, reason: str, kind: type[RegistryError] = RegistryUnreachable
    ) -> RegistryError:
        error = kind(
            f"{what}: {self.url} answered {status_code} with {reason}:"
            " is this a Eureka service URL (it usually ends with /eureka)?",
            url=self.url,
            status_code=status_code,
        )
        if kind is RegistryUnreachable:
            self.traffic.note_usability(str(error))
        return error

    def _no_answer_error(self, what: str, error: TransportError, seconds: float = 0.0) -> RegistryUnreachable:
        proxy = f" through the proxy {self._transport.proxy}" if self._transport.proxy else ""
        reason = error.sentence.format(url=self.url, proxy=proxy, seconds=seconds, error=error)
        self.traffic.note_usability(f"{what}: {reason}")
        return error.kind(f"{what}: {reason}", url=self.url)

    def read_front_page(self) -> FrontPage | None:
        """Return the renewal figures of the front page; None if it cannot be read. Raises nothing."""
        base = urlsplit(self.url).path.removesuffix("/v2").removesuffix("/eureka")
        try:
            response = self._transport.request("GET", f"/{base}/", headers={"Accept": "text/html"})
        except TransportError:
            return None
        return parse_front_page(response.text()) if response.status_code == 200 else None

    def _post_instance(
        self,
        verb: str,
        instance: Instance,
        headers: dict[str, str] | None = None,
        overridden: Status = Status.UNKNOWN,
    ) -> None:
        # By the instance's path: what could never be removed again is not sent.
        path = _instance_path(*instance.key).rpartition("/")[0]
        text = instance_to_json_text(instance, overridden=overridden, unknown_fields=instance.unknown_fields)
        data = f'{{"instance":{text}}}'.encode()
        what = f"{verb} {_describe_instance(instance)}"
        self._request("POST", path, what, data=data, headers=headers, writes=True)

    def _request_finds_instance(
        self, method: str, path: str, what: str, params: dict[str, str] | None = None, *, writes: bool = False
    ) -> bool:
        """Send a request about one instance; return False where the server does not hold the instance."""
        response = self._request(method, path, what, params=params, may_be_missing=True, writes=writes)
        return response is not None

    def _request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: dict[str, str] | None = None,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
        may_be_missing: bool = False,
        writes: bool = False,
        may_be_refused: bool = False,
        judges_usability: bool = True,
    ) -> transport.EurekaResponse | None:
        """Send one request.

        :param may_be_missing: True if the answer may be 404.
        :param judges_usability: True if a refusal of this request means that the server cannot be used.
        :param may_be_refused: True if any other refusal is allowed, too, and says nothing about the server.
        :returns: None for an allowed 404 or refusal.
        """
        for is_last in (False, True):
            if writes and not self._may_write():
                raise LeadershipLost(f"{what}: not sent, since another replica may lead by now")
            started, counted_as, is_web_page, is_expected = time.monotonic(), NO_ANSWER_CODE, False, False
            self.traffic.note_request_begins()
            try:
                response = self._transport.request(
                    method,
                    path,
                    params,
                    data,
                    headers or (_READ_HEADERS if data is None else _WRITE_HEADERS),
                    self.timeout_seconds,
                )
                code = response.status_code
                counted_as = str(code)
                # A gateway answers a change with a page, such as that of a login.
                is_web_page = (
                    code < 300
                    and method != "GET"
                    and bool(response.raw_body)
                    and response.headers.get("Content-Type", "").startswith("text/html")
                )
                is_expected = not is_web_page if code < 300 else code == 404 and may_be_missing
                break
            except TransportError as broken:
                failure = broken
            finally:
                seconds = time.monotonic() - started
                self.traffic.note_request_ended(method, counted_as, seconds, is_usable=is_expected)
            if is_last or not isinstance(failure, ConnectionBroken):
                raise self._no_answer_error(what, failure, seconds)
            # Else the server had closed a pooled connection; every request is repeatable.
        if is_web_page:
            raise self._strange_answer_error(what, code, "a web page")
        if is_expected:
            return response if code < 300 else None
        if may_be_refused:
            return None
        way = self._transport
        error = error_for_response(
            what, self.url, response, way.proxy, way.hide_credentials, judges_usability=judges_usability
        )
        if isinstance(error, RegistryUnreachable) or (judges_usability and isinstance(error, RegistryDenied)):
            self.traffic.note_usability(str(error))
        raise error


def _renewal_query(instance: Instance) -> dict[str, str]:
    """Return the query of a renewal, whose timestamp gets a 404 from a server with older contents."""
    query = {"status": instance.status.value}
    if instance.last_dirty_timestamp_ms is not None:
        query["lastDirtyTimestamp"] = str(instance.last_dirty_timestamp_ms)
    return query


def _parse_instance(response: transport.EurekaResponse) -> Instance:
    """Parse the answer to the read of one instance.

    :raises ValueError: the answer is no instance.
    """
    document = json.loads(response.body(windows.LARGEST_SINGLE_ANSWER_BYTES))
    if not isinstance(document, dict) or not isinstance(document.get("instance"), dict):
        raise NotEurekas("it has no instance")
    instance = instance_from_json(document["instance"])
    if not instance.instance_id:
        raise ValueError("an instance without an id")
    return instance


def _instance_path(application: str, instance_id: str) -> str:
    return f"/apps/{_quote_segment(application)}/{_quote_segment(instance_id)}"


@lru_cache(maxsize=MAX_SHARED_VALUES)
def _quote_segment(text: str) -> str:
    """Quote a name for a URL.

    :raises RegistryRejected: no URL can contain the name: a server refuses it, or takes it for another path.
    """
    if problem := describe_unaddressable_name(text):
        raise RegistryRejected(f"{text!r} {problem}")
    return quote(text, safe="")


def _describe_instance(instance: Instance) -> str:
    return f"{instance.application} {instance.instance_id}"
