"""P9: ``pulumi up`` of 1,000 registrations on a file backend, and a preview that finds nothing to do.

Every sample is a stack of its own on an Eureka that holds nothing. The floor is the same
engine with one EurekaInstance; the peer is a plain dynamic resource for each registration. Provider time is
what the plugin process alone takes for 1,000 single registrations: check and create over gRPC, four at once,
as many as it takes. Its floor is a provider that does nothing. Why its bar is no number of seconds:
docs/decisions/0007-three-requests-create-an-instance.md.

A thousand single resources take minutes, nearly all of them the engine's. So they and the peer have fewer
rounds than the rest, each in turn first, and no second round where the first one took very long.
"""

from __future__ import annotations

import os
import resource
import shutil
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
import yaml
from google.protobuf import struct_pb2
from pulumi.dynamic import ResourceProvider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from bench.harness import Result, Sample, Size, medians, raw, show
from bench.peers.empty_dynamic import EmptyProvider
from bench.peers.plain_dynamic import RegistrationProvider
from eurekube_provider.eureka import batch
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.resources.instance import InstanceProvider
from lab import Lab
from lab.listing import listed_at_once

BAR = (
    "one application resource: up <= floor + 3 s, unchanged preview <= floor + 1 s; 1,000 single resources:"
    " up <= 1.3x the peer, provider time above an empty one's <= 3x the peer's"
)
COUNT = {Size.FULL: 1_000, Size.QUICK: 100}
ROUNDS = {Size.FULL: 5, Size.QUICK: 1}
SLOW_ROUNDS = {Size.FULL: 2, Size.QUICK: 1}
SLOW_SECONDS = 300
"""Longer than this, a round of the slow ones is the last."""

ROOT = Path(__file__).parent.parent
PEER_MODULE = Path(__file__).parent / "peers" / "plain_dynamic.py"
_numbers = count(1)

SINGLE = """
import os
from eurekube_provider import EurekaInstance
for number in range(int(os.environ["BENCH_COUNT"])):
    EurekaInstance(f"r{number}", {
        "application": f"{os.environ['BENCH_APPLICATION']}-{number // 100}",
        "host_name": f"10.1.{number // 250}.{number % 250 + 1}",
        "port": 8080,
    })
"""

APPLICATION = """
import os
from eurekube_provider import EurekaApplication
EurekaApplication("all", {
    "application": os.environ["BENCH_APPLICATION"],
    "port": 8080,
    "instances": {
        f"r{number}": {"host_name": f"10.1.{number // 250}.{number % 250 + 1}"}
        for number in range(int(os.environ["BENCH_COUNT"]))
    },
})
"""


PEER = """
import plain_dynamic
plain_dynamic.main()
"""


class Stack:
    """A stack that is made for one sample."""

    def __init__(self, directory: Path, program: str, url: str, resources: int) -> None:
        application = f"bench{next(_numbers)}"
        self._project = directory / application
        self._project.mkdir()
        (self._project / "__main__.py").write_text(program)
        shutil.copy(PEER_MODULE, self._project)
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}}
        (self._project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "bench", "runtime": runtime}))
        (self._project / ".venv").symlink_to(sys.prefix)
        backend = directory / f"{application}-backend"
        backend.mkdir()
        foreign = ("PULUMI_", "EUREKA_", "EUREKUBE_")
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
            "PYTHONPATH": str(ROOT),
            "PULUMI_HOME": str(directory / "home"),
            "PULUMI_BACKEND_URL": backend.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "bench",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "EUREKA_URL": url,
            "BENCH_URL": url,
            "BENCH_APPLICATION": application,
            "BENCH_COUNT": str(resources),
        }
        self._run("stack", "init", "bench")

    def up(self) -> None:
        """Register."""
        self._run("up", "--yes", "--skip-preview")

    def preview(self) -> None:
        """Find nothing to do."""
        self._run("preview", "--expect-no-changes")

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=self._project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def run(size: Size) -> Result:
    """Measure in turn: the floor, one application, single registrations and the peer."""
    many = COUNT[size]
    assert shutil.which("pulumi"), "P9 needs a Pulumi CLI on PATH"
    contestants = {
        "floor": (SINGLE, 1),
        "one application": (APPLICATION, many),
        "single": (SINGLE, many),
        "plain dynamic resource": (PEER, many),
    }
    fast, slow = list(contestants)[:2], list(contestants)[2:]
    ups: dict[str, list[Sample]] = {name: [] for name in contestants}
    previews: dict[str, list[Sample]] = {name: [] for name in contestants}
    provider: dict[str, list[Sample]] = {name: [] for name in _PROVIDERS}
    with Lab(eureka=1, kubernetes=False, quick_view=True) as lab, tempfile.TemporaryDirectory() as scratch:
        (url,) = lab.eureka_urls
        # The warm-up: Pulumi's home, Python's bytecode, and a server that has seen batches before.
        for program, resources in ((SINGLE, 1), (APPLICATION, many)):
            Stack(Path(scratch), program, url, resources).up()
        _empty(url)

        def measure_all(names: list[str]) -> None:
            for name in names:
                program, resources = contestants[name]
                stack = Stack(Path(scratch), program, url, resources)
                ups[name].append(_timed(f"{name}: up", stack.up))
                previews[name].append(_timed(f"{name}: preview", stack.preview))
                _empty(url)

        for _ in range(ROUNDS[size]):
            measure_all(fast)
            for name in _PROVIDERS:
                provider[name].append(_provider_time(name, url, many))
                _empty(url)
        for number in range(SLOW_ROUNDS[size]):
            started = time.monotonic()
            measure_all(slow if number % 2 == 0 else slow[::-1])
            if time.monotonic() - started > SLOW_SECONDS:
                break
    up = {name: medians(runs)["wall_seconds"] for name, runs in ups.items()}
    preview = {name: medians(runs)["wall_seconds"] for name, runs in previews.items()}
    alone = {name: medians(runs)["wall_seconds"] for name, runs in provider.items()}
    figures = {name: {"up_seconds": up[name], "preview_seconds": preview[name]} for name in contestants}
    for name, seconds in alone.items():
        figures[name]["provider_seconds"] = seconds
    ratios = {
        "one application, up above the floor (s)": _above_floor(ups),
        "one application, preview above the floor (s)": _above_floor(previews),
        "peer to one application, up": up["plain dynamic resource"] / up["one application"],
        "single to peer, up": up["single"] / up["plain dynamic resource"],
        "single to peer, provider time above an empty one's": (alone["single"] - alone["floor"])
        / (alone["plain dynamic resource"] - alone["floor"]),
    }
    return Result(
        id="P9",
        title="pulumi up of 1,000 registrations, and an unchanged preview",
        unit="seconds",
        bar=BAR,
        ours={**figures["one application"]},
        floor=figures["floor"],
        peers={name: figures[name] for name in ("single", "plain dynamic resource")},
        ratios=ratios,
        held=ratios["one application, up above the floor (s)"] <= 3
        and ratios["one application, preview above the floor (s)"] <= 1
        and ratios["single to peer, up"] <= 1.3
        and ratios["single to peer, provider time above an empty one's"] <= 3,
        runs=raw(
            {f"{name}, up": runs for name, runs in ups.items()}
            | {f"{name}, preview": runs for name, runs in previews.items()}
            | {f"{name}, provider": runs for name, runs in provider.items()}
        ),
        notes=[
            "'single' is ours, too: an EurekaInstance for each",
            f"medians of {ROUNDS[size]} rounds, of {len(ups['single'])} for 'single' and the peer",
            "above the floor: the median of each round's difference, as machines change their speed",
        ],
    )


def _above_floor(runs: dict[str, list[Sample]]) -> float:
    """How many seconds longer than the floor of the same round one application takes: the median."""
    pairs = zip(runs["one application"], runs["floor"], strict=True)
    return statistics.median(ours.wall_seconds - floor.wall_seconds for ours, floor in pairs)


def _empty(url: str) -> None:
    """Remove everything, so that no sample pays for those before it: an application begins with a list."""
    peer = Peer(url, Connection.parse(url))
    with requests.Session() as session:
        for some in batch.portions(listed_at_once(url, session)):
            peer.batch([batch.cancel(each) for each in some])
    peer.close()


def _timed(name: str, work: Callable[[], None]) -> Sample:
    """One call; the processor time is that of the processes which it started and which ended."""
    started, before = time.perf_counter(), _children_seconds()
    work()
    sample = Sample(time.perf_counter() - started, _children_seconds() - before)
    show(f"  {name}: {sample.wall_seconds:.2f} s, CPU {sample.cpu_seconds:.2f} s")
    return sample


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ours(number: int, application: str, url: str) -> dict[str, Any]:
    """The inputs of one EurekaInstance, as a program sends them."""
    return {
        "application": f"{application}-{number // 100}",
        "host_name": f"10.1.{number // 250}.{number % 250 + 1}",
        "port": 8080,
        "renewer": "eurekube",
        "service_url": url,
        "owner": f"stack/organization/bench/provider/r{number}",
    }


def _plain(number: int, application: str, url: str) -> dict[str, Any]:
    """The inputs of one plain dynamic resource."""
    name = f"{application}-{number // 100}"
    return {
        "application": name,
        "instance_id": f"r{number}:{name}:8080",
        "host": f"10.1.{number // 250}.{number % 250 + 1}",
        "port": 8080,
        "url": url,
    }


_PROVIDERS: dict[str, tuple[ResourceProvider, Callable[[int, str, str], dict[str, Any]]]] = {
    "floor": (EmptyProvider(), _ours),
    "single": (InstanceProvider(), _ours),
    "plain dynamic resource": (RegistrationProvider(), _plain),
}
"""By contestant: its provider, and the inputs of one resource."""


def _provider_time(name: str, url: str, many: int) -> Sample:
    """Check and create so many in a plugin process of its own, without an engine around it."""
    provider, inputs = _PROVIDERS[name]
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
            stub.Configure(provider_pb2.ConfigureRequest(args=_struct({})))
            pickled, application = dynamic.serialize_provider(provider), f"bench{next(_numbers)}"

            def register(number: int) -> None:
                news = {"__provider": pickled, **inputs(number, application, url)}
                checked = stub.Check(provider_pb2.CheckRequest(olds=_struct({}), news=_struct(news)))
                assert not checked.failures
                stub.Create(provider_pb2.CreateRequest(properties=checked.inputs))

            def register_all() -> None:
                with ThreadPoolExecutor(4) as executor:
                    list(executor.map(register, range(many)))

            return _timed(f"{name}: provider", register_all)
    finally:
        process.kill()
        process.communicate()


def _struct(properties: dict[str, Any]) -> Any:
    message: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    message.update(properties)
    return message
