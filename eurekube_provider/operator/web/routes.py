"""Which page is where, and what it is made of."""

from __future__ import annotations

import json
from http import HTTPStatus

from eurekube_provider.eureka.front_pages import FigureReader
from eurekube_provider.operator.web.health import stuck
from eurekube_provider.operator.web.http_server import Answer, Request
from eurekube_provider.operator.web.markup import POLICY
from eurekube_provider.operator.web.metrics import Metrics
from eurekube_provider.operator.web.operator_view import Parts
from eurekube_provider.operator.web.overview import overview
from eurekube_provider.operator.web.status_page import html, without_data

STARTING = "the operator is starting: the Kubernetes API has not said yet which cluster this is"
STOPPING = "the operator is stopping"


class OperatorSite:
    """Answers for the operator: at first that it starts, and once :meth:`show` was called all there is."""

    def __init__(self) -> None:
        self._parts: Parts | None = None
        self._why_not = STARTING
        self._figures = FigureReader(())
        self._metrics = Metrics(lambda: self._parts)

    def show(self, parts: Parts) -> None:
        """The operator has its parts now."""
        peers = [peer for registry in parts.registries.values() for peer in registry.peers.peers]
        self._figures = FigureReader(peers)
        self._parts = parts

    def close(self) -> None:
        """The operator ends its loops: they are no sign of life any more, and it is not ready."""
        self._parts, self._why_not = None, STOPPING

    def __call__(self, request: Request) -> Answer | None:
        """The page at a path; None where there is none."""
        if request.path == "/healthz":
            return self._health()
        if request.path == "/readyz":
            parts = self._parts
            return _verdict([self._why_not] if parts is None else parts.not_ready())
        if request.path == "/metrics":
            body, content_type = self._metrics.page(request.accept)
            return Answer(body, content_type)
        if request.path in ("/", "/status.json"):
            return self._status(request)
        return None

    def _health(self) -> Answer:
        pulses = self._parts.pulses() if self._parts else []
        problems = stuck(pulses)
        ages = [f"{pulse.name}: {pulse.age_seconds:.1f} s" for pulse in pulses if not pulse.problem]
        return _verdict(problems, ages)

    def _status(self, request: Request) -> Answer:
        parts = self._parts
        as_json = request.path == "/status.json"
        if parts is None:
            if as_json:
                text = json.dumps({"error": self._why_not})
                return Answer(text.encode(), "application/json", HTTPStatus.SERVICE_UNAVAILABLE)
            return Answer(
                without_data(self._why_not).encode(),
                "text/html; charset=utf-8",
                HTTPStatus.SERVICE_UNAVAILABLE,
                POLICY,
            )
        query = request.query
        document = overview(
            parts, self._figures.latest, query.get("syncer", "").strip(), query.get("application", "").strip()
        )
        if as_json:
            return Answer(json.dumps(document, indent=1).encode(), "application/json")
        page = html(document, refreshes=query.get("refresh") != "off")
        return Answer(page.encode(), "text/html; charset=utf-8", policy=POLICY)


def _verdict(problems: list[str], details: list[str] | None = None) -> Answer:
    """``ok`` and what there is to say, or 503 and a sentence for each problem."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    lines = [*(problems or ["ok"]), *(details or [])]
    return Answer(("\n".join(lines) + "\n").encode(), status=status)
