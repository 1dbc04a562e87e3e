"""P9: ``pulumi up`` of 1,000 registrations on a file backend, and a preview that finds nothing to do.

Every sample is a stack of its own on an empty Eureka. The floor is the same engine with one EurekaInstance;
the peer is a plain dynamic resource for each registration. Provider time is the plugin process' own time for
1,000 single registrations: check and create over gRPC, four at once. Its floor is a provider that does
nothing. Why its bar is no number of seconds: docs/decisions/0007-three-requests-create-an-instance.md.

A thousand single resources take minutes, nearly all of them the engine's. So they and their peers have fewer
rounds than the rest, in turn forwards and backwards, and no second round where the first one took very long.
Those of the native provider stand beside one that does nothing: the same program, by the same SDK or in YAML,
which needs none, with a state of the same size.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pulumi.dynamic.dynamic as dynamic
import requests
from google.protobuf import struct_pb2
from pulumi.dynamic import ResourceProvider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from bench.age import STACK_PATHS
from bench.harness import Result, Sample, Size, medians, print_progress, samples_to_json
from bench.peers.empty_dynamic import EmptyProvider
from bench.peers.plain_dynamic import RegistrationProvider
from bench.stacks import (
    APPLICATION_PROGRAM,
    NATIVE_PROGRAM,
    PEER_PROGRAM,
    ROOT,
    SINGLE_PROGRAM,
    YAML_PROGRAM_MARKER,
    Stack,
    install_empty_plugin,
)
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.resources.instance import InstanceProvider
from lab import Lab
from lab.listing import list_in_one_request
from scripts.sdks import generate_python_sdk

BAR = (
    "one application resource: up <= floor + 3 s, unchanged preview <= floor + 1 s; 1,000 single resources: "
    "up <= 1.3x the peer, provider time above an empty one's <= 3x the peer's; 1,000 single resources of the "
    "native provider, by processor time: up <= 1.15x a native one that does nothing, in Python and in YAML, "
    "and <= 1.1x the peer, unchanged preview in Python <= 1.5x that of the one that does nothing; state <= "
    "1.2 kB each"
)
MEASURES = STACK_PATHS
PROGRAMS = ("pulumi", "pulumi-language-python", "pulumi-language-yaml")
"""Programs that must be on PATH: checked first, so that a run of an hour does not end for want of one."""

INSTANCE_COUNT = {Size.FULL: 1_000, Size.QUICK: 100}
ROUNDS = {Size.FULL: 5, Size.QUICK: 1}
SLOW_ROUNDS = {Size.FULL: 2, Size.QUICK: 1}
PREVIEW_COUNT = {Size.FULL: 3, Size.QUICK: 1}
"""Number of previews of each stack of a thousand: a Python program's wait for its tasks varies by half."""
SLOW_SECONDS = 300
"""Seconds after which a round of the slow contestants is the last."""

PLAIN_DYNAMIC = "plain dynamic resource"
EMPTY_NATIVE = "native that does nothing"
NATIVE_YAML = "native, in YAML"
EMPTY_NATIVE_YAML = "native that does nothing, in YAML"
OFFLINE_PREVIEW = "native, offline"
"""Name of a preview that does not ask Eureka about an earlier run's remains."""

_numbers = count(1)


def run(size: Size) -> Result:
    """Measure in turn: the floor, one application, single registrations and the peer."""
    many = INSTANCE_COUNT[size]
    contestants = {
        "floor": (SINGLE_PROGRAM, 1),
        "one application": (APPLICATION_PROGRAM, many),
        "single": (SINGLE_PROGRAM, many),
        PLAIN_DYNAMIC: (PEER_PROGRAM, many),
        "native": (NATIVE_PROGRAM, many),
        EMPTY_NATIVE: (NATIVE_PROGRAM, many),
        NATIVE_YAML: (YAML_PROGRAM_MARKER, many),
        EMPTY_NATIVE_YAML: (YAML_PROGRAM_MARKER, many),
    }
    fast, slow = list(contestants)[:2], list(contestants)[2:]
    ups: dict[str, list[Sample]] = {name: [] for name in contestants}
    previews: dict[str, list[Sample]] = {name: [] for name in (*contestants, OFFLINE_PREVIEW)}
    provider: dict[str, list[Sample]] = {name: [] for name in _PROVIDER_CONTESTANTS}
    state: dict[str, list[float]] = {name: [] for name in contestants}
    with (
        Lab(eureka=1, kubernetes=False, uncached_lists=True) as lab,
        tempfile.TemporaryDirectory() as scratch,
    ):
        (url,) = lab.eureka_urls
        folder = Path(scratch)
        plugins = dict.fromkeys((EMPTY_NATIVE, EMPTY_NATIVE_YAML), install_empty_plugin(folder / "empty"))
        own = {"PULUMI_HOME": str(folder / "home"), "PULUMI_BACKEND_URL": folder.as_uri()}
        sdk = generate_python_sdk(folder / "sdk", {**os.environ, **own, "PULUMI_SKIP_UPDATE_CHECK": "true"})
        # The warm-up: Pulumi's home, Python's bytecode, and a server that has seen batches before.
        for name, resources in (("floor", 1), ("one application", many), ("native", 1), (EMPTY_NATIVE, 1)):
            Stack(folder, contestants[name][0], url, resources, sdk, plugins.get(name)).up()
        _remove_all_instances(url)

        def measure_all(names: list[str], preview_count: int = 1) -> None:
            for name in names:
                program, resources = contestants[name]
                stack = Stack(folder, program, url, resources, sdk, plugins.get(name))
                ups[name].append(_time_call(f"{name}: up", stack.up))
                for _ in range(preview_count):
                    previews[name].append(_time_call(f"{name}: preview", stack.preview))
                    if name == "native":
                        previews[OFFLINE_PREVIEW].append(
                            _time_call(f"{OFFLINE_PREVIEW}: preview", stack.offline_preview)
                        )
                state[name].append(stack.state_bytes())
                _remove_all_instances(url)

        for _ in range(ROUNDS[size]):
            measure_all(fast)
            for name in _PROVIDER_CONTESTANTS:
                provider[name].append(_measure_provider(name, url, many))
                _remove_all_instances(url)
        for number in range(SLOW_ROUNDS[size]):
            started = time.monotonic()
            measure_all(slow if number % 2 == 0 else slow[::-1], PREVIEW_COUNT[size])
            if time.monotonic() - started > SLOW_SECONDS:
                break
    up = {name: medians(runs)["wall_seconds"] for name, runs in ups.items()}
    preview = {name: medians(runs)["wall_seconds"] for name, runs in previews.items()}
    alone = {name: medians(runs)["wall_seconds"] for name, runs in provider.items()}
    size_of = {name: statistics.median(found) for name, found in state.items()}
    figures = {
        name: {"up_seconds": up[name], "preview_seconds": preview[name], "state_bytes_each": size_of[name]}
        for name in contestants
    }
    for name, seconds in alone.items():
        figures[name]["provider_seconds"] = seconds
    ratios = {
        "one application, up above the floor (s)": _seconds_above_floor(ups),
        "one application, preview above the floor (s)": _seconds_above_floor(previews),
        "peer to one application, up": up[PLAIN_DYNAMIC] / up["one application"],
        "single to peer, up": up["single"] / up[PLAIN_DYNAMIC],
        "single to peer, provider time above an empty one's": (alone["single"] - alone["floor"])
        / (alone[PLAIN_DYNAMIC] - alone["floor"]),
        "native to a native one that does nothing, up": up["native"] / up[EMPTY_NATIVE],
        "native to a native one that does nothing, state": size_of["native"] / size_of[EMPTY_NATIVE],
        "native to peer, up": up["native"] / up[PLAIN_DYNAMIC],
        "native to peer, preview": preview["native"] / preview[PLAIN_DYNAMIC],
        **_processor_time_ratios(ups, previews),
    }
    return Result(
        id="P9",
        title="pulumi up of 1,000 registrations, and an unchanged preview",
        unit="seconds",
        bar=BAR,
        ours={**figures["one application"]},
        floor=figures["floor"],
        peers={name: figures[name] for name in slow},
        ratios=ratios,
        held=ratios["one application, up above the floor (s)"] <= 3
        and ratios["one application, preview above the floor (s)"] <= 1
        and ratios["single to peer, up"] <= 1.3
        and ratios["single to peer, provider time above an empty one's"] <= 3
        and ratios[f"native to {EMPTY_NATIVE}, up, processor time"] <= 1.15
        and ratios[f"{NATIVE_YAML} to {EMPTY_NATIVE_YAML}, up, processor time"] <= 1.15
        and ratios["native to peer, up, processor time"] <= 1.1
        and ratios[f"native to {EMPTY_NATIVE}, preview, processor time"] <= 1.5
        and size_of["native"] <= 1_200,
        runs=samples_to_json(
            {f"{name}, up": runs for name, runs in ups.items()}
            | {f"{name}, preview": runs for name, runs in previews.items()}
            | {f"{name}, provider": runs for name, runs in provider.items()}
        ),
        notes=[
            "'single' and 'native' are ours, too: a EurekaInstance and an eurekube.Instance for each",
            f"medians of {ROUNDS[size]} rounds, for single resources {len(ups['single'])} with more previews",
            "the state without what Pulumi's SDK says of the program's lines, which none can leave out",
            "above the floor: the median of each round's difference, as machines change their speed",
        ],
    )


def _processor_time_ratios(
    ups: dict[str, list[Sample]], previews: dict[str, list[Sample]]
) -> dict[str, float]:
    """Return ratios that hold on a busy machine: by processor time of the CLI and all that it starts.

    No provider can need less than one that does nothing.
    """
    found: dict[str, float] = {}
    for what, runs in (("up", ups), ("preview", previews)):
        spent = {name: medians(samples)["cpu_seconds"] for name, samples in runs.items()}
        for one, other in (
            ("native", EMPTY_NATIVE),
            (NATIVE_YAML, EMPTY_NATIVE_YAML),
            (OFFLINE_PREVIEW, EMPTY_NATIVE),
        ):
            if one not in spent:
                continue  # an `up` asks in any case
            found[f"{one} to {other}, {what}, processor time"] = spent[one] / spent[other]
        for one in ("native", NATIVE_YAML, EMPTY_NATIVE, EMPTY_NATIVE_YAML):
            found[f"{one} to peer, {what}, processor time"] = spent[one] / spent[PLAIN_DYNAMIC]
    return found


def _seconds_above_floor(runs: dict[str, list[Sample]]) -> float:
    """Return the median of how many seconds longer one application takes than the floor of the same round."""
    pairs = zip(runs["one application"], runs["floor"], strict=True)
    return statistics.median(ours.wall_seconds - floor.wall_seconds for ours, floor in pairs)


def _remove_all_instances(url: str) -> None:
    """Remove all instances, so that no sample pays for those before it: an application begins with a list."""
    peer = Peer(url, Connection.parse(url))
    with requests.Session() as session:
        for some in batch.chunks(list_in_one_request(url, session)):
            peer.send_batch([batch.cancellation_item(each) for each in some])
    peer.close()


def _time_call(name: str, work: Callable[[], None]) -> Sample:
    """Time one call; its processor time is that of the processes which it started and which ended."""
    started, before = time.perf_counter(), _children_cpu_seconds()
    work()
    sample = Sample(time.perf_counter() - started, _children_cpu_seconds() - before)
    print_progress(f"  {name}: {sample.wall_seconds:.2f} s, CPU {sample.cpu_seconds:.2f} s")
    return sample


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _eureka_instance_inputs(number: int, application: str, url: str) -> dict[str, Any]:
    """Return the inputs of one EurekaInstance, as a program sends them."""
    return {
        "application": f"{application}-{number // 100}",
        "host_name": f"10.1.{number // 250}.{number % 250 + 1}",
        "port": 8080,
        "renewer": "eurekube",
        "service_url": url,
        "owner": f"stack/organization/bench/provider/r{number}",
    }


def _plain_resource_inputs(number: int, application: str, url: str) -> dict[str, Any]:
    """Return the inputs of one plain dynamic resource."""
    name = f"{application}-{number // 100}"
    return {
        "application": name,
        "instance_id": f"r{number}:{name}:8080",
        "host": f"10.1.{number // 250}.{number % 250 + 1}",
        "port": 8080,
        "url": url,
    }


_PROVIDER_CONTESTANTS: dict[str, tuple[ResourceProvider, Callable[[int, str, str], dict[str, Any]]]] = {
    "floor": (EmptyProvider(), _eureka_instance_inputs),
    "single": (InstanceProvider(), _eureka_instance_inputs),
    PLAIN_DYNAMIC: (RegistrationProvider(), _plain_resource_inputs),
}
"""By contestant: its provider, and a function that returns the inputs of one resource."""


def _measure_provider(name: str, url: str, many: int) -> Sample:
    """Time check and create of ``many`` resources in a plugin process of its own, without an engine."""
    provider, inputs = _PROVIDER_CONTESTANTS[name]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.dynamic"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        address = f"127.0.0.1:{int(process.stdout.readline())}"
        with grpc.insecure_channel(address) as channel:  # type: ignore[no-untyped-call]
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(provider_pb2.ConfigureRequest(args=_to_struct({})))
            pickled, application = dynamic.serialize_provider(provider), f"bench{next(_numbers)}"

            def register(number: int) -> None:
                news = {"__provider": pickled, **inputs(number, application, url)}
                checked = stub.Check(provider_pb2.CheckRequest(olds=_to_struct({}), news=_to_struct(news)))
                assert not checked.failures
                stub.Create(provider_pb2.CreateRequest(properties=checked.inputs))

            def register_all() -> None:
                with ThreadPoolExecutor(4) as executor:
                    list(executor.map(register, range(many)))

            return _time_call(f"{name}: provider", register_all)
    finally:
        process.kill()
        process.communicate()


def _to_struct(properties: dict[str, Any]) -> Any:
    message: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    message.update(properties)
    return message
