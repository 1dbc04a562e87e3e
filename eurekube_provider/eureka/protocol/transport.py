"""HTTP to one Eureka server: pooled connections, credentials, TLS and proxies, and nothing else.

Each answer has one deadline for all of it, and a bound on its size
(:mod:`~eurekube_provider.runtime.bounded_http`), also once a kilobyte is decompressed to a megabyte.

It uses urllib3 without requests: an operator sends thousands of small requests, and requests takes as much
processor time for each as urllib3 and the socket together.
"""

from __future__ import annotations

import base64
import logging
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import urllib3

from eurekube_provider.core.errors import ConfigurationError, RegistrySilent, RegistryUnreachable
from eurekube_provider.core.quoting import MIN_SECRET_LENGTH, REDACTION_PLACEHOLDER
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection, read_secret
from eurekube_provider.runtime.bounded_http import AnswerTooLarge, AnswerTooSlow, bounded_pool_classes

_log = logging.getLogger(__name__)

_POOL_SIZE = 48
"""The most pooled connections: enough for all threads that renew and those that write."""

_DENIED_STATUS_CODES = (401, 403)

_DECOMPRESSION_STEP_BYTES = 2**18
"""The most bytes that one step of decompression produces: larger pieces cost a page fault for each 4 kB."""

_NO_RETRIES = urllib3.Retry(total=False, redirect=False)
"""The setting for no retries, made once: from ``False``, urllib3 would make one for each request."""


class TransportError(Exception):
    """The error where no answer came; the message is the innermost reason, without URLs.

    :cvar sentence: what failed and what to do, with places for ``url``, ``proxy``, ``seconds`` and ``error``.
    :cvar kind: the error of which the sentence is the message.
    """

    sentence = "no connection to {url} ({error}); check the URL and whether the server is up"
    kind = RegistryUnreachable


class TlsFailed(TransportError):
    """The error where either side refused the TLS connection."""

    sentence = (
        "the TLS connection to {url} failed ({error}); check the CA file and the server's certificate, and"
        " the client certificate where the server asks for one"
    )


class TimedOut(TransportError):
    """The error where the server did not answer in time."""

    sentence = "{url} did not answer within {seconds:.1f} s{proxy}"
    kind = RegistrySilent


class ResponseNotEnded(TimedOut):
    """The error where the server began to answer, and did not end in time."""

    sentence = (
        "{url} began to answer{proxy}, and had not ended after {seconds:.1f} s; check the server, and the"
        " network between"
    )


class ResponseTooLarge(TransportError):
    """The error for an answer that is larger than the bound."""

    sentence = (
        "{url} answers with {error}, and so much is not read of a Eureka server; check what answers there,"
        " or raise max-answer-mib (EUREKA_MAX_ANSWER_MIB) where the registry is really that large"
    )


class ProxyFailed(TransportError):
    """The error where the proxy cannot be reached, or makes no connection to the server."""

    sentence = (
        "no connection to {url}{proxy} ({error}); check the proxy (eurekube:proxy, EUREKA_PROXY, HTTP_PROXY,"
        " HTTPS_PROXY), and whether it lets this URL through; NO_PROXY names what needs none"
    )


class ConnectionBroken(TransportError):
    """The error where the connection ended before the whole answer; a pooled one perhaps long before."""


@dataclass(frozen=True, slots=True)
class EurekaResponse:
    """A server's answer.

    :param raw_body: the body as it was sent, perhaps compressed: equal for equal bodies.
    :param most_bytes: the largest size to which the body is decompressed.
    """

    status_code: int
    headers: Mapping[str, str]
    raw_body: bytes
    most_bytes: int = windows.LARGEST_ANSWER_BYTES

    def body(self, most_bytes: int | None = None) -> bytes:
        """Return the body, decompressed.

        :param most_bytes: the largest size; None for the largest of any answer.
        :raises ValueError: the body claims to be compressed, and is not.
        :raises ResponseTooLarge: the body is larger; no more than the largest size was decompressed.
        """
        return b"".join(self.pieces(most_bytes))

    def pieces(self, most_bytes: int | None = None) -> Iterator[bytes]:
        """Return the body, decompressed, in pieces, so that it is never in memory as a whole.

        Takes and raises what :meth:`body` does, perhaps only where a piece is asked for.
        """
        most_bytes = self.most_bytes if most_bytes is None else min(most_bytes, self.most_bytes)
        if len(self.raw_body) > most_bytes:
            raise ResponseTooLarge(f"more than {most_bytes / 2**20:g} MiB")
        if self.headers.get("Content-Encoding") != "gzip":
            return iter((self.raw_body,))
        # The end of a gzip says how large it is; it may lie, so that the pieces are counted as well.
        if int.from_bytes(self.raw_body[-4:], "little") > most_bytes:
            raise ResponseTooLarge(f"more than {most_bytes / 2**20:g} MiB")
        return _decompress(self.raw_body, most_bytes)

    def text(self, most_bytes: int | None = None) -> str:
        """Return the body as text; empty where it cannot be decompressed, or is larger than the bound."""
        try:
            return self.body(most_bytes).decode(errors="replace")
        except (ValueError, ResponseTooLarge):
            return ""


def _decompress(raw: bytes, most_bytes: int) -> Iterator[bytes]:
    """Yield the pieces of a gzip body of one or several members.

    :raises ValueError: it is no gzip, or its last member is truncated.
    :raises ResponseTooLarge: the result is larger than ``most_bytes``; no more than that was decompressed.
    """
    count = 0
    while raw:
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        while not member.eof:
            try:
                piece = member.decompress(raw, _DECOMPRESSION_STEP_BYTES)
            except zlib.error as error:
                raise ValueError(f"not gzip ({error})") from None
            raw = member.unconsumed_tail or member.unused_data
            count += len(piece)
            if count > most_bytes:
                raise ResponseTooLarge(f"more than {most_bytes / 2**20:g} MiB")
            if not (piece or raw or member.eof):
                raise ValueError("not gzip (its end is missing)")
            yield piece


class Transport:
    """HTTP requests to one server; any number of threads may share the object.

    Only proxies are taken from the environment: REQUESTS_CA_BUNDLE would override the CA file, and ~/.netrc
    the credentials. Redirects are not followed.
    """

    def __init__(self, url: str, connection: Connection) -> None:
        parts = urlsplit(url)
        self._url, self._connection = url, connection
        self._headers = {"Accept-Encoding": "gzip", "User-Agent": "eurekube"}
        self._headers["DiscoveryIdentity-Name"] = "eurekube"  # by which a server's rate limiter may spare us
        self._authorization = _authorization_header(connection)
        options: dict[str, Any] = {"maxsize": _POOL_SIZE, "block": True, "retries": _NO_RETRIES}
        options["timeout"] = urllib3.Timeout(
            connect=connection.connect_timeout_seconds, read=connection.read_timeout_seconds
        )
        if parts.scheme == "https":
            options["cert_reqs"] = "CERT_REQUIRED"
            options["ca_certs"] = _path_or_none(connection.ca_file) or _default_ca_file()
            options["cert_file"] = _path_or_none(connection.client_certificate)
            options["key_file"] = _path_or_none(connection.client_key)
        proxy = connection.proxy or _proxy_from_environment(url)
        self.proxy = proxy_without_credentials(proxy) if proxy else ""
        """The proxy in between, without credentials; empty for none."""
        self._pool: urllib3.HTTPConnectionPool | urllib3.ProxyManager
        self._most_bytes = connection.max_answer_mib * 2**20
        pools = bounded_pool_classes(self._most_bytes)
        if proxy:
            self._pool, self._origin = _proxy_pool(proxy, options), f"{parts.scheme}://{parts.netloc}"
            self._pool.pool_classes_by_scheme = pools
        else:
            self._pool, self._origin = urllib3.connection_from_url(url, **options), ""
            self._pool.ConnectionCls = pools[parts.scheme].ConnectionCls
        self._base = parts.path

    def close(self) -> None:
        """Close the pooled connections."""
        if isinstance(self._pool, urllib3.ProxyManager):
            self._pool.clear()
        else:
            self._pool.close()

    def hide_credentials(self, text: str) -> str:
        """Return ``text`` without the credentials that are sent, also in the form in which they are sent."""
        sent = [*self._authorization.values(), *(getattr(self._pool, "proxy_headers", None) or {}).values()]
        given = (self._connection.password, self._connection.token)
        secrets = [value.partition(" ")[2] for value in sent]
        secrets += [one for one in given if one and len(one) >= MIN_SECRET_LENGTH]
        for secret in secrets:
            text = text.replace(secret, REDACTION_PLACEHOLDER) if secret else text
        return text

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> EurekaResponse:
        """Send one request; repeat it only if the credentials were refused and their file has other ones.

        :param path: below the service URL; a path that begins with ``//`` is below the server's root.
        :param timeout_seconds: the longest wait for a connection or for the answer; None for the settings'.
        :raises TransportError: no answer came.
        """
        target = path[1:] if path.startswith("//") else self._base + path
        if params:
            target += f"?{urlencode(params)}"
        shown = self._authorization
        answer = self._send(method, target, data, {**(headers or {}), **shown}, timeout_seconds)
        if answer.status_code not in _DENIED_STATUS_CODES:
            return answer
        others = self._reload_credentials()
        if others in (None, shown):
            return answer
        again = self._send(method, target, data, {**(headers or {}), **others}, timeout_seconds)
        if again.status_code in _DENIED_STATUS_CODES:  # the file may be ahead of the server
            return answer
        self._authorization = others
        _log.info(
            "reloaded the credentials from their file, using them from now on", extra={"url": self._url}
        )
        return again

    def _reload_credentials(self) -> dict[str, str] | None:
        """Read the credentials again from their file, which may have changed; None without a file."""
        file = self._connection.secret_file
        if file is None:
            return None
        try:
            secret = read_secret(str(file), "credentials")
        except ConfigurationError as error:
            _log.warning(
                "failed to reload the refused credentials, keeping them and reading their file at each "
                "refusal",
                extra={"url": self._url, "error": str(error)},
            )
            return None
        kind = "password" if self._connection.token is None else "token"
        return _authorization_header(replace(self._connection, **{kind: secret}))  # type: ignore[arg-type]

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float | None,
    ) -> EurekaResponse:
        short_timeout: dict[str, Any] = {}
        if timeout_seconds is not None:
            # All pooled connections may be taken by requests that are not answered.
            limits = self._connection.connect_timeout_seconds, self._connection.read_timeout_seconds
            connect, read = (min(timeout_seconds, limit) for limit in limits)
            timeout = urllib3.Timeout(connect=connect, read=read)
            short_timeout = {"timeout": timeout, "pool_timeout": timeout_seconds}
        try:
            response = self._pool.urlopen(
                method,
                self._origin + target,
                body=body,
                headers={**self._headers, **headers},
                redirect=False,
                assert_same_host=False,  # which would be looked up in each URL
                decode_content=False,
                **short_timeout,
            )
        except AnswerTooSlow:
            raise ResponseNotEnded("the answer did not end in time") from None
        except AnswerTooLarge:
            raise ResponseTooLarge(f"more than {self._connection.max_answer_mib} MiB") from None
        except urllib3.exceptions.SSLError as error:
            raise TlsFailed(_root_cause(error)) from None
        except urllib3.exceptions.ProxyError as error:
            raise ProxyFailed(_root_cause(error)) from None
        except urllib3.exceptions.NewConnectionError as error:
            raise TransportError(_root_cause(error)) from None
        except (urllib3.exceptions.TimeoutError, urllib3.exceptions.EmptyPoolError) as error:
            raise TimedOut(_root_cause(error)) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ConnectionBroken(_root_cause(error)) from None
        except ValueError as error:  # of a header, which it would show
            raise TransportError(f"the request cannot be sent ({type(error).__name__})") from None
        return EurekaResponse(response.status, response.headers, response.data, self._most_bytes)


def _authorization_header(connection: Connection) -> dict[str, str]:
    if connection.token is not None:
        return {"Authorization": f"Bearer {connection.token}"}
    if connection.user is None:
        return {}
    both = base64.b64encode(f"{connection.user}:{connection.password or ''}".encode()).decode()
    return {"Authorization": f"Basic {both}"}


def proxy_without_credentials(url: str) -> str:
    """Return a proxy's URL without credentials, path and query."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _proxy_from_environment(url: str) -> str | None:
    """Return the proxy that the environment, or the system's settings, name for ``url``."""
    if not urllib.request.getproxies():
        return None
    import requests.utils  # late, since it takes a while; its rules are what people know

    return requests.utils.select_proxy(url, dict(requests.utils.get_environ_proxies(url)))


def _default_ca_file() -> str:
    """Return the path of the CA certificates that requests trusts."""
    import requests.utils

    return requests.utils.DEFAULT_CA_BUNDLE_PATH


def _proxy_pool(url: str, options: dict[str, Any]) -> urllib3.ProxyManager:
    """Return the connections through a proxy, with the credentials in its URL.

    :raises ConfigurationError: the proxy, which the environment may name, is of another kind.
    """
    full = url if "://" in url else f"http://{url}"
    parts = urlsplit(full)
    credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    headers = urllib3.make_headers(proxy_basic_auth=credentials) if parts.username else None
    try:
        return urllib3.ProxyManager(full, proxy_headers=headers, **options)
    except urllib3.exceptions.HTTPError:  # it shows the URL
        raise ConfigurationError(
            "the proxy to Eureka cannot be used: it must look like http://host:3128 or https://host:3128"
            " (proxy, EUREKA_PROXY, HTTP_PROXY)"
        ) from None


def _path_or_none(path: object) -> str | None:
    return str(path) if path is not None else None


def _root_cause(error: BaseException) -> str:
    """Return the innermost reason of an error in few words; the outer ones repeat the URL."""
    reason: Any = error
    while True:
        inner = getattr(reason, "reason", None) or next(
            (arg for arg in getattr(reason, "args", ()) if isinstance(arg, BaseException)), None
        )
        if not isinstance(inner, BaseException):
            break
        reason = inner
    text = str(reason)
    return text.rpartition(": ")[2] if "object at 0x" in text or "(host=" in text else text
