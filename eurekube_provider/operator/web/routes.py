"""The paths of the operator's web server, and their responses."""

from __future__ import annotations

import json
from http import HTTPStatus

from eurekube_provider.core.liveness import restart_reasons
from eurekube_provider.operator.blind_renewals import BlindRenewals
from eurekube_provider.operator.web.http_server import Request, Response
from eurekube_provider.operator.web.metrics import Metrics
from eurekube_provider.operator.web.overview import overview
from eurekube_provider.operator.web.page_request import PageRequest
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.operator.web.status_page import POLICY, html, without_data

STARTING = "the operator is starting: the Kubernetes API has not said yet which cluster this is"
STOPPING = "the operator is stopping"


class Routes:
    """The handler of all paths: at first it says that the operator starts, and after :meth:`show` it shows
    everything.

    :param has_status_page: False to serve health and metrics only.
    """

    def __init__(self, *, has_status_page: bool = True) -> None:
        self._has_status_page = has_status_page
        self._operator: RunningOperator | None = None
        self._blind: BlindRenewals | None = None
        self._why_not = STARTING
        self._metrics = Metrics()

    def watch(self, blind: BlindRenewals) -> None:
        """Report these renewals until the operator's parts are assembled."""
        self._blind, self._metrics = blind, Metrics(blind=blind)

    def show(self, operator: RunningOperator) -> None:
        """Show an operator whose parts are assembled."""
        self._operator, self._metrics = operator, Metrics(operator, operator.blind)

    def close(self) -> None:
        """Show no operator any more: it ends its loops, so that they are no sign of life, and it is not
        ready.
        """
        self._operator, self._blind, self._metrics, self._why_not = None, None, Metrics(), STOPPING

    def __call__(self, request: Request) -> Response | None:
        """Return the response for a request's path; None for an unknown path."""
        if request.path == "/healthz":
            return self._health()
        if request.path == "/readyz":
            operator = self._operator
            return _verdict([self._why_no_data] if operator is None else operator.not_ready())
        if request.path == "/metrics":
            body, content_type = self._metrics.page(request.accept)
            return Response(body, content_type)
        if request.path in ("/", "/status.json") and self._has_status_page:
            return self._status(request)
        return None

    @property
    def _why_no_data(self) -> str:
        """Sentence on why no status can be shown, and on renewals that go on all the same."""
        blind = self._blind.sentence if self._blind else ""
        return f"{self._why_not}; {blind}" if blind else self._why_not

    def _health(self) -> Response:
        loops = self._operator.liveness() if self._operator else []
        ages = [loop.problem or f"{loop.name}: {loop.age_seconds:.1f} s" for loop in loops]
        return _verdict(restart_reasons(loops), ages)

    def _status(self, request: Request) -> Response:
        operator, as_json = self._operator, request.path == "/status.json"
        if operator is None:
            if as_json:
                text = json.dumps({"error": self._why_no_data})
                return Response(text.encode(), "application/json", HTTPStatus.SERVICE_UNAVAILABLE)
            return _page(without_data(self._why_no_data), HTTPStatus.SERVICE_UNAVAILABLE)
        query = request.query
        document = overview(operator, PageRequest.of(query, is_paged=not as_json))
        if as_json:
            return Response(json.dumps(document, indent=1).encode(), "application/json")
        return _page(html(document, refreshes=query.get("refresh") != "off"))


def _page(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(text.encode(), "text/html; charset=utf-8", status, POLICY)


def _verdict(problems: list[str], details: list[str] | None = None) -> Response:
    """Return a response ``ok`` with details, or 503 with a line for each problem before the details."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    lines = [*(problems or ["ok"]), *(one for one in details or [] if one not in problems)]
    return Response(("\n".join(lines) + "\n").encode(), status=status)
