"""P13: harm to Eureka: the traces that five hundred rounds of all Eurekube actions leave in a default server.

Two servers hold the same 1,000 instances, which their own clients renew and list. One of them is left alone:
the floor. At the other one stacks come and go, are refreshed, checked for drift and drained, a doctor asks,
operators take over from each other, and a mirror reads all instances. The cost of that work is not measured
here, but what remains of it afterwards.
"""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, redirect_stderr, redirect_stdout
from typing import Any, Self

from bench.age import OPERATOR_PATHS, STACK_PATHS
from bench.contestant import process_cpu_seconds
from bench.harness import Result, Size, print_progress
from bench.prober import Prober
from bench.registry import make_instances
from eurekube_provider.cli.main import main
from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY, Cluster, ClusterOwner
from eurekube_provider.core.model import Instance, InstanceKey, Port
from eurekube_provider.core.plan import plan
from eurekube_provider.doctor.reader import read_eureka
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.codec import instances_from_json
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.lookups import get_application
from lab import Lab
from lab.eureka import EurekaServer
from lab.waiting import wait_until

HEAP_LIMIT, CPU_LIMIT = 1.05, 1.10
BAR = (
    "live heap after a collection <= 1.05x the floor's, 60 s after Eureka has forgotten what changed;"
    " processor time of 120 s, 60 s after the last request, <= 1.1x; not one log line more a minute"
)
MEASURES = (*OPERATOR_PATHS, *STACK_PATHS, "eurekube_provider/doctor")
INSTANCE_COUNT = 1_000
ROUNDS = {Size.FULL: 500, Size.QUICK: 16}
SETTLE_SECONDS = {Size.FULL: 60.0, Size.QUICK: 5.0}
WATCHED_SECONDS = {Size.FULL: 120.0, Size.QUICK: 15.0}
DELTA_RETENTION_SECONDS = {Size.FULL: 180.0, Size.QUICK: 0.0}
"""Seconds for which Eureka keeps every change, no matter who made it, for clients that ask for changes
only.
"""

INSTANCES_PER_APPLICATION = 10
PARALLEL_STACKS = 8
"""Number of stacks at work at once: most of a round is a wait for a removal's second look."""

CONNECTIONS = 4 * PARALLEL_STACKS
"""Number of connections for the warm-up, at least as many as are open at once later."""

RENEWAL_SECONDS = 30.0
MIRROR_SECONDS = 5.0
"""Seconds between a mirror's readings, a third of the default."""

_LIST_PATHS = ("/apps", "/apps/delta")
_READ_SECONDS = 60.0

Properties = dict[str, Any]


def run(size: Size) -> Result:
    """Fill both servers, keep one of them busy, and compare what is left in each."""
    rounds, settle, watched = ROUNDS[size], SETTLE_SECONDS[size], WATCHED_SECONDS[size]
    with Lab(eureka=1, kubernetes=False) as lab, Lab(eureka=1, kubernetes=False) as alone:
        servers = {"ours": lab.eurekas[0], "floor": alone.eurekas[0]}
        with _RenewingClients([server.url for server in servers.values()]):
            for server in servers.values():
                _warm_up(server.url)
            before = _live_heap_mib(servers)
            started = time.monotonic()
            _run_rounds(servers["ours"].url, rounds)
            ended = time.monotonic()
            print_progress(f"  {rounds} rounds took {ended - started:.0f} s")
            time.sleep(settle)
            soon, changes = (
                _live_heap_mib(servers),
                {name: _count_delta_instances(server) for name, server in servers.items()},
            )
            cpu, lines = _measure_idle_cost(servers, watched)
            time.sleep(max(0.0, ended + DELTA_RETENTION_SECONDS[size] + settle - time.monotonic()))
            after = _live_heap_mib(servers)
            answers = {name: server.count_cached_answers() for name, server in servers.items()}
    figures = {
        name: {
            "live heap, MiB": after[name],
            f"live heap {settle:g} s after the last request, MiB": soon[name],
            "changes that it tells clients of then": float(changes[name]),
            "live heap before the first request, MiB": before[name],
            "rendered lists in its caches": float(answers[name]),
            f"CPU seconds in {watched:g} s": cpu[name],
            "log lines a minute": lines[name] / watched * 60,
        }
        for name in servers
    }
    ratios = {
        "heap, ours to floor": after["ours"] / after["floor"],
        "CPU, ours to floor": cpu["ours"] / cpu["floor"],
        "heap before the first request, ours to floor": before["ours"] / before["floor"],
    }
    more_lines = figures["ours"]["log lines a minute"] - figures["floor"]["log lines a minute"]
    held = (
        ratios["heap, ours to floor"] <= HEAP_LIMIT
        and ratios["CPU, ours to floor"] <= CPU_LIMIT
        and more_lines < 1
    )
    return Result(
        id="P13",
        title=f"what {rounds} rounds of all that we do leave in a server of {INSTANCE_COUNT:,} instances",
        unit="MiB, seconds and log lines",
        bar=BAR,
        ours=figures["ours"],
        floor=figures["floor"],
        peers={},
        ratios=ratios,
        held=held,
        runs={name: [dict(each)] for name, each in figures.items()},
        notes=["the floor is a server with the same instances and clients to which we never spoke"],
    )


def _warm_up(url: str) -> None:
    """Send each kind of request once by hand, over as many connections as are used later.

    A server keeps buffers for each connection, and loads code with the first request of a kind, no matter who
    sends it.
    """

    def ask(number: int) -> None:
        prober = Prober(url)
        one = f"/apps/WARM/warm-{number}"
        document = {
            "instanceId": f"warm-{number}",
            "app": "WARM",
            "hostName": "192.0.2.1",
            "ipAddr": "192.0.2.1",
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "vipAddress": "warm",
            "dataCenterInfo": {
                "@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo",
                "name": "MyOwn",
            },
            "lastDirtyTimestamp": str(int(time.time() * 1000)),
        }
        prober.register("WARM", document)
        prober.register_all([document])
        together.wait(_READ_SECONDS)  # all at once
        for method, path in (
            ("GET", one),
            ("PUT", one),
            ("PUT", f"{one}/status?value=OUT_OF_SERVICE"),
            ("DELETE", f"{one}/status?value=UP"),
            ("GET", "/status"),
            ("GET", "/apps"),
            ("GET", "/../"),
            ("DELETE", one),
            ("GET", one),
        ):
            prober.request(method, path)
        prober.close()

    together = threading.Barrier(CONNECTIONS)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(ask, range(CONNECTIONS)))


def _live_heap_mib(servers: Mapping[str, EurekaServer]) -> dict[str, float]:
    """Return the live heap of each server after a collection, in MiB."""
    return {name: server.live_heap_bytes() / 2**20 for name, server in servers.items()}


def _count_delta_instances(server: EurekaServer) -> int:
    """Return how many instances the server's delta lists."""
    prober = Prober(server.url)
    status, body = prober.request("GET", "/apps/delta")
    prober.close()
    assert status == 200
    return len(instances_from_json(json.loads(body)))


class _RenewingClients:
    """The instances' own clients, which register 1,000 at each server, renew them twice a minute, and read
    the lists.
    """

    def __init__(self, urls: list[str]) -> None:
        self._peers = [Peer(url, Connection((url,))) for url in urls]
        self._held = make_instances(INSTANCE_COUNT)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clients", daemon=True)

    def __enter__(self) -> None:
        for peer in self._peers:
            for some in batch.chunks(self._held):
                peer.send_batch([batch.registration_item(each) for each in some])
        self._read_lists()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for peer in self._peers:
            peer.close()

    def _run(self) -> None:
        while not self._stopped.wait(RENEWAL_SECONDS):
            for peer in self._peers:
                for some in batch.chunks(self._held):
                    answers = peer.send_batch([batch.heartbeat_item(each) for each in some])
                    assert {answer.status_code for answer in answers} == {200}
            self._read_lists()

    def _read_lists(self) -> None:
        for peer in self._peers:
            prober = Prober(peer.url)
            for path in _LIST_PATHS:
                assert prober.request("GET", path)[0] == 200
            prober.close()


def _measure_idle_cost(
    servers: Mapping[str, EurekaServer], seconds: float
) -> tuple[dict[str, float], dict[str, int]]:
    """Return each server's processor seconds and log lines for a while after the rounds, when only the
    instances' own clients send requests.
    """
    cpu = {name: -process_cpu_seconds(server.pid or 0) for name, server in servers.items()}
    lines = {name: -_count_log_lines(server) for name, server in servers.items()}
    time.sleep(seconds)
    for name, server in servers.items():
        cpu[name] += process_cpu_seconds(server.pid or 0)
        lines[name] += _count_log_lines(server)
    return cpu, lines


def _count_log_lines(server: EurekaServer) -> int:
    return server.log.read_bytes().count(b"\n")


def _run_rounds(url: str, rounds: int) -> None:
    """Do all kinds of Eurekube's work at a server, ``rounds`` times, in several stacks at once."""

    def one(number: int) -> None:
        name = f"harm-{number}"
        state = _create(url, name)
        _refresh(state)
        state = _update(url, name, state)
        _run_doctor(url)
        _drain_and_undrain(url, state)
        _change_leader(url, name)
        _delete(state)

    os.environ["EUREKA_URL"] = url  # where a lookup finds its Eureka
    said = io.StringIO()
    try:
        with (
            redirect_stdout(said),
            redirect_stderr(said),
            _MirrorReader(url) as mirror,
            ThreadPoolExecutor(PARALLEL_STACKS) as pool,
        ):
            list(pool.map(one, range(rounds)))
        print_progress(
            f"  a mirror read {mirror.readings} times, and asked for {mirror.asked} that had vanished"
        )
    finally:
        del os.environ["EUREKA_URL"]


class _MirrorReader:
    """A mirror operator's reads for every application: each reading, and the search for vanished instances.

    The search is repeated at every reading, though a real mirror needs only one proof.
    """

    def __init__(self, url: str) -> None:
        cluster = Cluster("mirror", "mirror-uid")
        self._registry = EurekaRegistry(Peers(Connection((url,))), cluster, "mirror", MIRROR_SECONDS)
        self._registry.call_after_reads(self._search_vanished)
        self._seen: dict[InstanceKey, None] = {}
        self.readings = self.asked = 0

    def __enter__(self) -> Self:
        self._registry.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._registry.stop()

    def _search_vanished(self) -> None:
        listed = {one.key: None for one in self._registry.known_instances()}
        vanished = [key for key in self._seen if key not in listed][-INSTANCES_PER_APPLICATION:]
        self._registry.look_up_unlisted(vanished)
        self._seen |= listed
        self.readings += 1
        self.asked += len(vanished)


def _check_inputs(url: str, name: str, olds: Properties, **more: Any) -> Properties:
    """Return a program's inputs of its EurekaApplication, as the engine passes them."""
    news = {
        "application": name,
        "port": 8080,
        "instances": {
            f"i{number}": {"host_name": f"192.0.2.{number + 1}"}
            for number in range(INSTANCES_PER_APPLICATION)
        },
        "renewer": "eurekube",
        "service_url": url,
        "owner": f"stack/organization/bench/harm/{name}",
        **more,
    }
    checked = ApplicationProvider().check(olds, news)
    assert not checked.failures
    inputs: Properties = checked.inputs
    return inputs


def _create(url: str, name: str) -> Properties:
    """Run ``pulumi up`` of a new program, and return its state."""
    return ApplicationProvider().create(_check_inputs(url, name, {})).outs or {}


def _refresh(state: Properties) -> None:
    """Run ``pulumi refresh``, then ``eurekube drift``: both read all instances of the state."""
    for _ in range(2):
        found = ApplicationProvider().read("x", state)
        assert found.outs == state


def _update(url: str, name: str, state: Properties) -> Properties:
    """Run ``pulumi up`` of a changed program that also looks its application up; return the new state."""
    assert (
        len(get_application(name).instances) <= INSTANCES_PER_APPLICATION
    )  # a list may be half a minute old
    inputs = _check_inputs(url, name, state, metadata={"tier": "2"}, drain_seconds=1)
    assert ApplicationProvider().diff("x", state, inputs).changes
    return ApplicationProvider().update("x", state, inputs).outs or {}


def _run_doctor(url: str) -> None:
    """Read a Eureka as ``eurekube doctor`` does."""
    unseen: list[str] = []
    with closing(Peers(Connection((url,)))) as peers:
        assert read_eureka("default", peers, unseen).server_count == 1
    assert not unseen


def _drain_and_undrain(url: str, state: Properties) -> None:
    """Run ``eurekube drain`` and ``undrain`` of an instance."""
    instance_id = next(iter(DesiredState.from_properties(state).registrations.values())).instance.instance_id
    for command in (["drain", "--no-wait"], ["undrain"]):
        assert main([*command, instance_id, "--eureka-url", url]) == 0


def _change_leader(url: str, name: str) -> None:
    """Let an operator register ten endpoints and end; its standby takes over, and removes them."""
    owner = str(ClusterOwner("bench", "shop", name))
    ours = [
        Instance(
            application=f"{name}-pods",
            instance_id=f"pod-{number}.shop.bench:{name}-pods:8080",
            host_name=f"10.9.0.{number + 1}",
            ip_address=f"10.9.0.{number + 1}",
            port=Port(8080),
            metadata={OWNER_KEY: owner, CLUSTER_UID_KEY: "bench-uid"},
        )
        for number in range(INSTANCES_PER_APPLICATION)
    ]
    held: list[Instance] = []
    for desired in (ours, []):
        registry = EurekaRegistry(Peers(Connection((url,))), Cluster("bench", "bench-uid"), "bench", 60.0)
        registry.start()
        wait_until(lambda: registry.reachability.has_been_read, "the first reading", _READ_SECONDS)  # noqa: B023
        registry.start_leading(0)
        registry.refresh([one.key for one in ours])
        outcome = registry.apply(plan(desired, held, owner), owner)
        assert len(outcome.done) == INSTANCES_PER_APPLICATION
        held = [found for one in ours if (found := registry.peers.read(*one.key)) is not None]
        registry.stand_by()
        registry.stop()
    assert not held


def _delete(state: Properties) -> None:
    """Run ``pulumi destroy`` with a drain."""
    ApplicationProvider().delete("x", state)
