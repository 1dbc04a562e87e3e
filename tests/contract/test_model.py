"""The model of Eureka (``eurekube_provider/dev/eureka``) answers as real servers do.

``EUREKUBE_MODEL_SEQUENCES=10000`` runs the long form; ``EUREKUBE_MODEL_SEED`` draws other sequences.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
import requests

from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from tests.contract.conftest import Server, document
from tests.eureka_servers import TRAINS, Servers, Train
from tests.model.commands import Commands, comparable

pytestmark = pytest.mark.real_server("the model behind it is compared with real servers here")

SEQUENCES = int(os.environ.get("EUREKUBE_MODEL_SEQUENCES", "75"))
FIRST_SEED = int(os.environ.get("EUREKUBE_MODEL_SEED", "1"))
LENGTH = 24

TOGETHER = 30
"""Number of sequences that run side by side, so that they wait for replication or caches only once."""

STEPS = 5
SETTLE_SECONDS = 2.5
"""Seconds until a peer has an instance that it missed: a renewal takes two batches of half a second each."""

MOST_TRIES = 50

_names = itertools.count(1)


def sent(server: Server, request: ServerRequest) -> ServerResponse:
    """Send the request to a real server by HTTP; return its answer."""
    path = "/" + "/".join(quote(segment, safe="") for segment in request.path)
    if request.path[:1] == ("peerreplication",):
        path += "/"
    answer = server.send(
        request.method,
        path,
        params=dict(request.query),
        headers=dict(request.headers),
        **({} if request.body is None else {"json": request.body}),
    )
    return ServerResponse(answer.status_code, answer.text)


def difference(
    server: Server, model: EurekaCluster, url: str, commands: Commands, request: ServerRequest
) -> str:
    """Send a request to server and model; return the difference of their answers, or nothing."""
    expected = comparable(request, sent(server, request), commands)
    answered = comparable(request, model.request(url, request), commands)
    return "" if expected == answered else f"{request}\n  server: {expected}\n  model:  {answered}"


def seeds(spring_cloud: Train, count: int) -> range:
    """Return seeds that differ between the release trains, so that both together try twice as many
    sequences.
    """
    first = FIRST_SEED + count * list[Train](TRAINS).index(spring_cloud)
    return range(first, first + count)


def drawn(seed: int, length: int) -> tuple[Commands, list[ServerRequest]]:
    """Draw a sequence of commands about instances that no other sequence uses."""
    commands = Commands(f"m{next(_names)}", seed)
    return commands, [commands.draw() for _ in range(length)]


def first_difference(server: Server, commands: Commands, sequence: Sequence[ServerRequest]) -> str:
    """Run a sequence on the server and on a fresh model, with a read after each command; return the first
    difference.
    """
    model = EurekaCluster(["model"], use_read_only_cache=False)
    try:
        asked = ((request, *commands.reads(request)) for request in sequence)
        found = (
            difference(server, model, "model", commands, one) for one in itertools.chain.from_iterable(asked)
        )
        return next(filter(None, found), "")
    finally:
        for request in commands.clean_up():
            sent(server, request)


def shortest(server: Server, seed: int) -> str:
    """Return the fewest commands of a failing sequence that still fail, one a line, and the difference."""

    def run(numbers: Sequence[int]) -> str:
        commands, sequence = drawn(seed, LENGTH)
        return first_difference(server, commands, [sequence[number] for number in numbers])

    kept = list(range(LENGTH))
    for number in range(LENGTH):
        fewer = [one for one in kept if one != number]
        kept = fewer if run(fewer) else kept
    sequence = drawn(seed, LENGTH)[1]
    return "\n".join([f"seed {seed}", *(str(sequence[number]) for number in kept), run(kept)])


@pytest.mark.timeout(900 + SEQUENCES / 4)  # the long form takes a quarter of an hour on two slow cores
def test_same_commands_same_answers(uncached: Servers, http: requests.Session, spring_cloud: Train) -> None:
    """Server and model answer random sequences of registrations, renewals, statuses, batches and reads
    alike.
    """
    server = Server(uncached.eureka_urls[0], http)
    for seed in seeds(spring_cloud, SEQUENCES):
        assert not first_difference(server, *drawn(seed, LENGTH)), shortest(server, seed)


def test_what_changes_while_a_list_is_rendered_is_not_in_it(
    uncached: Servers, http: requests.Session
) -> None:
    """A change while a list is rendered is missing in that list and in the next, until something else
    changes.

    Without its second cache a server renders a list when it is asked, which takes long for a large one.
    """
    server = Server(uncached.eureka_urls[0], http)
    names = [f"LARGE-{number}" for number in range(60)]

    def register(name: str, size: int = 0) -> str:
        assert server.register(document(name, "i", metadata={"large": "x" * size})) == 204
        names.append(name)
        return f'"{name}"'

    def listed() -> str:
        return server.send("GET", "/apps", headers={"Accept": "application/json"}).text

    try:
        for name in names[:60]:
            register(name, 200_000)
        with ThreadPoolExecutor(1) as reader:
            for number in range(MOST_TRIES):
                before = register(f"BEFORE-{number}")
                reading = reader.submit(listed)
                time.sleep(0.03)
                meanwhile = register(f"MEANWHILE-{number}")
                reading.result()
                if before in (there := listed()) and meanwhile not in there:
                    break
            else:
                pytest.fail(f"all {MOST_TRIES} changes were listed")
        assert server.send("GET", f"/apps/{meanwhile[1:-1]}/i").status_code == 200
        afterwards = register("AFTERWARDS")
        there = listed()
        assert meanwhile in there
        assert afterwards in there
    finally:
        for name in names:
            server.send("DELETE", f"/apps/{name}/i")


def test_servers_that_tell_each_other(servers: list[Server], spring_cloud: Train) -> None:
    """After each command to one of three servers, all three hold what the model's servers hold."""
    urls = [f"model-{number}" for number in range(len(servers))]
    model = EurekaCluster(urls)
    sequences = [drawn(seed, STEPS) for seed in seeds(spring_cloud, TOGETHER)]
    for step in range(STEPS):
        for number, (commands, sequence) in enumerate(sequences):
            chosen = (number + step) % len(servers)
            request = sequence[step]
            if request.path[-1] in ("apps", "delta"):
                continue  # of all sequences together, each of which the servers learned in another order
            found = difference(servers[chosen], model, urls[chosen], commands, request)
            assert not found, found
        time.sleep(SETTLE_SECONDS)
        model.clock.advance(int(SETTLE_SECONDS * 1000))
        for commands, sequence in sequences:
            for read in commands.reads():
                for url, server in zip(urls, servers, strict=True):
                    found = difference(server, model, url, commands, read)
                    assert not found, f"{url} after step {step} of {sequence[: step + 1]}: {found}"
