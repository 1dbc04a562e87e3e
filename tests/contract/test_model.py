"""The model of Eureka (``eurekube_provider/dev/eureka``) answers as real servers do.

``EUREKUBE_MODEL_SEQUENCES=10000`` is the long form; ``EUREKUBE_MODEL_SEED`` draws others.
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
"""Sequences that wait together: for servers to tell each other, or for a cache to be copied."""

STEPS = 5
SETTLE_SECONDS = 2.5
"""A renewal that another server misses takes two batches, of half a second each, until it is there."""

MOST_TRIES = 50

_names = itertools.count(1)


def sent(server: Server, request: ServerRequest) -> ServerResponse:
    """The same request over real HTTP."""
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
    """Ask both; empty where they answer alike."""
    expected = comparable(request, sent(server, request), commands)
    answered = comparable(request, model.request(url, request), commands)
    return "" if expected == answered else f"{request}\n  server: {expected}\n  model:  {answered}"


def seeds(spring_cloud: Train, count: int) -> range:
    """Others for each release train: together they draw twice as many sequences."""
    first = FIRST_SEED + count * list[Train](TRAINS).index(spring_cloud)
    return range(first, first + count)


def drawn(seed: int, length: int) -> tuple[Commands, list[ServerRequest]]:
    """A sequence about instances that no other has."""
    commands = Commands(f"m{next(_names)}", seed)
    return commands, [commands.draw() for _ in range(length)]


def first_difference(server: Server, commands: Commands, sequence: Sequence[ServerRequest]) -> str:
    """Run a sequence on the server and on a model of its own, and read what each command made of it."""
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
    """The commands of a failing sequence that cannot be left out, one a line, and what differs."""

    def run(numbers: Sequence[int]) -> str:
        commands, sequence = drawn(seed, LENGTH)
        return first_difference(server, commands, [sequence[number] for number in numbers])

    kept = list(range(LENGTH))
    for number in range(LENGTH):
        fewer = [one for one in kept if one != number]
        kept = fewer if run(fewer) else kept
    sequence = drawn(seed, LENGTH)[1]
    return "\n".join([f"seed {seed}", *(str(sequence[number]) for number in kept), run(kept)])


@pytest.mark.timeout(300 + SEQUENCES / 4)  # the long form takes a quarter of an hour on two slow cores
def test_same_commands_same_answers(uncached: Servers, http: requests.Session, spring_cloud: Train) -> None:
    """Random sequences of registrations, renewals, statuses, batches and reads are answered alike."""
    server = Server(uncached.eureka_urls[0], http)
    for seed in seeds(spring_cloud, SEQUENCES):
        assert not first_difference(server, *drawn(seed, LENGTH)), shortest(server, seed)


def test_what_changes_while_a_list_is_rendered_is_not_in_it(
    uncached: Servers, http: requests.Session
) -> None:
    """Nor in the next one, until something else changes.

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
