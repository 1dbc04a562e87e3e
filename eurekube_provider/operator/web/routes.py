"""The paths of the operator's web server, and their responses."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus

from eurekube_provider.core.liveness import describe_restart_reasons
from eurekube_provider.core.quoting import encodable
from eurekube_provider.operator.blind_renewals import RenewalsWithoutKubernetes
from eurekube_provider.operator.web.http_server import Request, Response
from eurekube_provider.operator.web.metrics import MetricsExporter
from eurekube_provider.operator.web.overview import PageRequest, build_status_document
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.operator.web.status_page import (
    PAGE_SECURITY_POLICY,
    html_without_data,
    status_page_html,
)

STARTING_MESSAGE = "the operator is starting: the Kubernetes API has not said yet which cluster this is"
STOPPING_MESSAGE = "the operator is stopping"


class WebRoutes:
    """The handler of all paths: until :meth:`show_operator`, responses say that the operator is starting.

    :param blind: renewals without Kubernetes, which are reported until then.
    """

    def __init__(
        self, blind: RenewalsWithoutKubernetes | None = None, *, has_status_page: bool = True
    ) -> None:
        pages = ("/metrics", "/", "/status.json") if has_status_page else ("/metrics",)
        self._turns = {path: threading.Lock() for path in pages}
        """A lock for each path with much to compute: requests for one page wait, and delay nobody else."""
        self._operator: RunningOperator | None = None
        self._blind = blind
        self._why_not = STARTING_MESSAGE
        self._metrics = MetricsExporter(blind=blind)

    def show_operator(self, operator: RunningOperator) -> None:
        """Serve the status of an operator whose parts are assembled."""
        self._operator, self._metrics = operator, MetricsExporter(operator, operator.blind)

    def show_stopping(self) -> None:
        """Answer that the operator is stopping: its loops end, and their liveness means nothing any more."""
        self._operator = self._blind = None
        self._metrics, self._why_not = MetricsExporter(), STOPPING_MESSAGE

    def __call__(self, request: Request) -> Response | None:
        """Return the response for a request's path; None for an unknown path."""
        if request.path == "/healthz":
            loops = self._operator.liveness() if self._operator else []
            ages = [
                one.problem_sentence or f"{one.name}: {one.seconds_without_progress:.1f} s" for one in loops
            ]
            return _probe_response(describe_restart_reasons(loops), ages)
        if request.path == "/readyz":
            operator = self._operator
            return _probe_response(
                [self._why_no_data] if operator is None else operator.not_ready_sentences()
            )
        turn = self._turns.get(request.path)
        if turn is None:
            return None
        with turn:
            if not request.is_awaited():
                return None
            if request.path == "/metrics":
                return Response(*self._metrics.render_scrape(request.accept))
            return self._status_response(request)

    @property
    def _why_no_data(self) -> str:
        """Sentence that explains the missing status, and names renewals that go on without Kubernetes."""
        blind = self._blind.status_sentence if self._blind else ""
        return f"{self._why_not}; {blind}" if blind else self._why_not

    def _status_response(self, request: Request) -> Response:
        operator, as_json = self._operator, request.path == "/status.json"
        if operator is None:
            if as_json:
                text = json.dumps({"error": self._why_no_data})
                return Response(text.encode(), "application/json", HTTPStatus.SERVICE_UNAVAILABLE)
            return _html_response(html_without_data(self._why_no_data), HTTPStatus.SERVICE_UNAVAILABLE)
        query = request.query
        document = build_status_document(operator, PageRequest.from_query(query, is_paged=not as_json))
        if as_json:
            return Response(json.dumps(document, indent=1).encode(), "application/json")
        return _html_response(status_page_html(document, refreshes=query.get("refresh") != "off"))


def _html_response(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    body = encodable(text).encode()
    return Response(body, "text/html; charset=utf-8", status, PAGE_SECURITY_POLICY)


def _probe_response(problems: list[str], details: list[str] | None = None) -> Response:
    """Return a response ``ok`` with details, or 503 with a line for each problem before the details."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    lines = [*(problems or ["ok"]), *(one for one in details or [] if one not in problems)]
    return Response(("\n".join(lines) + "\n").encode(), status=status)
