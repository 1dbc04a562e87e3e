"""Acts of others while an operator works: of people, Eureka servers, the API server and other replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eurekube_provider.dev.eureka.documents import ServerRequest
from tests.explore.operator.rules import CLUSTER, STACKS
from tests.explore.operator.workloads import APP, SHOP

if TYPE_CHECKING:
    from tests.explore.operator.explorer import Explored

Act = Callable[["Explored"], None]
"""An act of others, just before a request is carried out."""

KEY = ("default", APP.upper(), f"a-0.{SHOP}.{CLUSTER.name}:{APP}:8080")
"""Connection, application and id of the instance that people change."""

BEHIND_MS = 12_000
"""Milliseconds for which the API server's cache stands still."""

FROZEN_MS = 40_000
"""Milliseconds for which a Eureka server is frozen: longer than its peers try to forward changes."""

BESIDE_MS = 4_000
"""Milliseconds for which operators with the old and the new cluster name run beside each other."""

_BACK_MS = 60_000
"""Milliseconds for which an instance that others removed may be missing."""


def _ask(explored: Explored, method: str, *more: str, **query: str) -> bool:
    """Send a request about :data:`KEY` to the first server that answers; return whether it succeeded."""
    cluster = explored.world.cluster
    url = next((one for one in cluster.urls if one not in cluster.down), None)
    if url is None:
        return False
    answer = cluster.request(url, ServerRequest(method, ("apps", *KEY[1:], *more), query))
    explored.world.disturb()
    return answer.status_code == 200


def a_person_takes_out(explored: Explored) -> None:
    """Set OUT_OF_SERVICE as a person would."""
    if _ask(explored, "PUT", "status", value="OUT_OF_SERVICE"):
        explored.witness.taken_out(KEY)


def a_person_puts_back(explored: Explored) -> None:
    """Clear OUT_OF_SERVICE as a person would."""
    if _ask(explored, "DELETE", "status", value="UP") and KEY in explored.witness.overridden:
        explored.witness.put_back(KEY)
        explored.witness.excuse(KEY, _BACK_MS)


def a_person_removes(explored: Explored) -> None:
    """Remove an instance of ours, and its override, as a person would."""
    if _ask(explored, "DELETE"):
        explored.witness.removed(KEY)
        explored.witness.excuse(KEY, _BACK_MS)


def a_stack_removes_behind_a_split(explored: Explored) -> None:
    """Remove a stack's registration at one server, while its peers cannot be told."""
    cluster = explored.world.cluster
    first = cluster.urls[0]
    if first in cluster.down:
        return
    servers_lose_each_other(explored)
    if cluster.request(first, ServerRequest("DELETE", ("apps", *STACKS))).status_code == 200:
        explored.witness.stack_removed(first)


def a_server_restarts_empty(explored: Explored) -> None:
    """Restart the last Eureka server with an empty memory."""
    _restart(explored, None)


def a_server_restarts_with_a_copy(explored: Explored) -> None:
    """Restart the last server with a copy of the first one's instances."""
    urls = explored.world.cluster.urls
    _restart(explored, urls[0] if len(urls) > 1 else None)


def _restart(explored: Explored, copy_from: str | None) -> None:
    world = explored.world
    url = world.cluster.urls[-1]
    world.cluster.restart(url, copy_from=copy_from)
    explored.witness.restarted(url)
    world.disturb()


def a_server_freezes(explored: Explored) -> None:
    """Freeze the first server for a while."""
    world = explored.world
    url = world.cluster.urls[0]
    if url not in world.cluster.down:
        world.cluster.down.add(url)
        explored.witness.parted()
        world.cluster.clock.run_after(FROZEN_MS, lambda: world.cluster.down.discard(url))
        world.disturb(world.now_ms + FROZEN_MS)


def servers_lose_each_other(explored: Explored) -> None:
    """Stop replication between the first server and the others for a while; clients reach all of them."""
    cluster = explored.world.cluster
    first, *others = cluster.urls
    pairs = {(first, other) for other in others} | {(other, first) for other in others}
    cluster.cut |= pairs
    explored.witness.parted()
    cluster.clock.run_after(FROZEN_MS, lambda: cluster.cut.difference_update(pairs))
    explored.world.disturb(explored.world.now_ms + FROZEN_MS)


def servers_repeat_themselves(explored: Explored) -> None:
    """Have each server send the next status to its peers twice, as after a lost answer."""
    for server in explored.world.cluster.servers.values():
        for link in server.links.values():
            link.is_next_status_repeated = True
    explored.world.disturb()


def servers_render_their_lists(explored: Explored) -> None:
    """Render the servers' lists now; later changes appear after the next change, or three minutes later."""
    for server in explored.world.cluster.servers.values():
        server.caches.copy_with_slow_rendering()


def the_api_is_behind(explored: Explored) -> None:
    """Freeze the API server's cache for a while, so that lists and watches show nothing new."""
    kube = explored.world.kube
    if kube.behind is None:
        kube.behind = kube.version
        explored.world.cluster.clock.run_after(BEHIND_MS, kube.thaw)
        explored.world.disturb(explored.world.now_ms + BEHIND_MS)
        explored.witness.is_behind = True


def watches_break(explored: Explored) -> None:
    """Break all watches, and forget the changes that they missed, so that clients must list."""
    explored.world.kube.drop_watches()
    explored.world.kube.expire()
    explored.world.disturb()


def the_operator_ends_in_peace(explored: Explored) -> None:
    """Stop the operator in order, and start it again."""
    explored.end_in_peace()


def the_cluster_gets_another_name(explored: Explored) -> None:
    """Stop the operator, and start it with another cluster name, as after a change of settings."""
    explored.name_cluster(_next_name(explored))


def the_cluster_gets_another_name_beside_the_old_one(explored: Explored) -> None:
    """Start an operator with another cluster name before the old one ends, as in a rolling update."""
    explored.name_cluster(_next_name(explored), beside_ms=BESIDE_MS)


def _next_name(explored: Explored) -> str:
    """Return a new cluster name, or the first one again every other time."""
    names = explored.witness.names
    return CLUSTER.name if explored.witness.cluster != CLUSTER else f"name-{len(names)}"


def the_operator_is_killed_and_the_api_behind(explored: Explored) -> None:
    """Kill the operator while the API server's cache is frozen, so that the next one reads old data."""
    the_api_is_behind(explored)
    explored.kill_all()


ACTS: tuple[Act, ...] = (
    a_person_takes_out,
    a_person_puts_back,
    a_person_removes,
    a_stack_removes_behind_a_split,
    a_server_restarts_empty,
    a_server_restarts_with_a_copy,
    a_server_freezes,
    servers_lose_each_other,
    servers_repeat_themselves,
    servers_render_their_lists,
    the_api_is_behind,
    watches_break,
    the_operator_ends_in_peace,
    the_operator_is_killed_and_the_api_behind,
    the_cluster_gets_another_name,
    the_cluster_gets_another_name_beside_the_old_one,
)
