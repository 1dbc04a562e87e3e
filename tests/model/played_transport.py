"""A replacement of `eureka/protocol/transport.py` without a network."""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.transport import EurekaResponse


class PlayedTransport(ABC):
    """A transport that has each request answered by :meth:`answer` instead of the network."""

    def __init__(self, url: str, connection: Connection) -> None:
        self._url, self._base = url, urlsplit(url).path
        self._longest_seconds = connection.read_timeout_seconds
        self.proxy = ""

    @abstractmethod
    def answer(self, request: ServerRequest, timeout_seconds: float) -> ServerResponse:
        """Answer a request of this server, within so many seconds.

        :raises TransportError: no answer came.
        """

    @staticmethod
    def hide_credentials(text: str) -> str:
        """Return ``text``: no credentials are sent."""
        return text

    def close(self) -> None:  # noqa: B027 - there is no more to do
        """Do nothing: there is no connection to close."""

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> EurekaResponse:
        """Send one request; request and answer are copied, so that sender and server share no object."""
        body = json.loads(data) if data is not None else None
        answer = self.answer(
            ServerRequest(method, _segments(path), dict(params or {}), dict(headers or {}), body),
            min(self._longest_seconds, timeout_seconds or self._longest_seconds),
        )
        return EurekaResponse(answer.status_code, {}, answer.text.encode())


@functools.lru_cache(maxsize=10_000)
def _segments(path: str) -> tuple[str, ...]:
    return tuple(unquote(one) for one in path.split("/") if one)
