"""What it means that one server holds a registration and another one does not.

Either it is on its way to that one, or that one has forgotten it, or it was removed there and the first one
has missed the removal: it was frozen or cut off. A renewal would bring the last back on all servers, at an
address where nobody is any more. So what is old enough, and lacks where a server has run all the time, was
removed; but where nobody renewed it for as long as its lease lasts, a server may have evicted it just now,
and it stays.
"""

from collections.abc import Mapping

from eurekube_provider.core.model import Instance, newest

ON_ITS_WAY_SECONDS = 120.0
"""So long a registration may take to reach all servers: one that was frozen hears of it with a renewal."""


def removed_at(
    held: Mapping[str, Instance | None], started_by_url: Mapping[str, int], since: float
) -> tuple[str, ...]:
    """The servers at which an instance was removed that others still hold.

    :param held: by the servers that answered.
    :param started_by_url: when each was started, in milliseconds; one that does not say may have forgotten.
    :param since: Unix time; what was written later may be on its way.
    """
    found = newest(held.values())
    if found is None or found.written_at_ms > since * 1000:
        return ()
    return tuple(
        url
        for url, instance in held.items()
        if instance is None and url in started_by_url and started_by_url[url] < found.written_at_ms
    )


def may_be_evicted(held: Mapping[str, Instance | None], now: float) -> bool:
    """Whether nobody renewed it for so long that a server may have evicted it by itself.

    :param now: Unix time.
    """
    ends = [one.lease_ends_ms for one in held.values() if one is not None and one.lease_ends_ms is not None]
    return bool(ends) and max(ends) < now * 1000
