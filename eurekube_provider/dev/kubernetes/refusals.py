"""Answers of the API in memory that are no success, as Kubernetes' ``Status`` objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]


class ApiRefusal(Exception):
    """A request that is refused.

    :param code: the HTTP status.
    :param reason: CamelCase, such as ``Conflict``.
    :param causes: what is wrong with single fields: pairs of a path and a sentence.
    """

    def __init__(self, code: int, reason: str, message: str, causes: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        fields = [{"field": field, "message": text} for field, text in causes]
        answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
        self.code = code
        self.status: Object = {**answer, "message": message, "reason": reason, "details": {"causes": fields}}
