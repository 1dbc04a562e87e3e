"""Pages of Eureka's list for ``pulumi do ... list``: ids that can be read and imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import Instance
from eurekube_provider.core.wording import suggest_name
from eurekube_provider.provider.protocol import provider_pb2 as proto
from eurekube_provider.registrations.resource import APPLICATION_REGISTRATION_KIND, INSTANCE_REGISTRATION_KIND

QUERY_ARGUMENT_DESCRIPTIONS_BY_TOKEN: Mapping[str, Mapping[str, str]] = {
    INSTANCE_REGISTRATION_KIND.token: {
        "application": "Only the instances of this application, in any case.",
        "owner": "Only what this owner has registered, as Eureka names it.",
    },
    APPLICATION_REGISTRATION_KIND.token: {
        "owner": "Only applications of which this owner has registered an instance, as Eureka names it."
    },
}
"""The query arguments of a list, with their descriptions, by resource type."""

_TOKEN_COUNT_PATTERN = re.compile("[0-9]{1,18}")


def find_ids(token: str, query: Mapping[str, Any], listed: Iterable[Instance]) -> list[str]:
    """Return the ids of a type that a query finds, sorted; raise ConfigurationError for an unknown query."""
    known = QUERY_ARGUMENT_DESCRIPTIONS_BY_TOKEN.get(token)
    if known is None:
        raise ConfigurationError(
            f"nothing lists {token!r} (there are {', '.join(QUERY_ARGUMENT_DESCRIPTIONS_BY_TOKEN)})"
        )
    for name in query:
        if name not in known:
            raise ConfigurationError(
                f"a list of {token} cannot be asked for {name!r}; {suggest_name(name, known)}"
            )
    application, owner = (query.get(name) for name in ("application", "owner"))
    found = [
        each
        for each in listed
        if (application is None or each.application == str(application).upper())
        and (owner is None or (each.owner or "") == owner)
    ]
    if token == APPLICATION_REGISTRATION_KIND.token:
        return sorted({each.application for each in found})
    return sorted("/".join(each.key) for each in found)


def build_page(found: list[str], limit: int, page_size: int, continuation: str) -> list[Any]:
    """Return the answers for one page; the last answer has a token for the next page if there is one.

    A token has the number of reported ids and the last one: what comes or goes meanwhile moves no page.

    :param limit: the greatest number of ids on all pages, and ``page_size`` on one page; below 1 no limit.
    :raises ConfigurationError: the token was not made by this provider.
    """
    count, _, last = continuation.partition(" ")
    if continuation and not (_TOKEN_COUNT_PATTERN.fullmatch(count) and last):
        raise ConfigurationError(f"{continuation!r} continues no list of this provider: begin again")
    before = int(count or 0)
    left = [id_ for id_ in found if id_ > last]
    if limit > 0:
        left = left[: max(limit - before, 0)]
    shown = left[:page_size] if page_size > 0 else left
    answers = [
        proto.ListResponse(result=proto.ListResponse.Result(id=id_, name=id_.rpartition("/")[2]))
        for id_ in shown
    ]
    if len(shown) < len(left):
        token = f"{before + len(shown)} {shown[-1]}"
        more = proto.ListResponse.Continuation(continuation_token=token)
        answers.append(proto.ListResponse(continuation=more))
    return answers
