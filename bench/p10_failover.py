"""P10: fail-over: the time from the leader's end until the next leader's first change in Eureka."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from bench.age import OPERATOR_PATHS
from bench.contestant import Contestant
from bench.field import BenchLab, Key, endpoint
from bench.harness import Result, Size, median_and_p99, print_progress
from bench.prober import Prober, wait_until
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import LEASES
from eurekube_provider.kube.elector import ElectionTiming
from lab import Lab

TIMING = ElectionTiming()
KILL_LIMIT_SECONDS = TIMING.lease_duration_seconds + 2 * TIMING.retry_period_seconds
STOP_LIMIT_SECONDS = 1.0
BAR = (
    f"SIGKILL: <= Lease duration + 2x retry period ({KILL_LIMIT_SECONDS:g} s), 0 lapsed Eureka leases;"
    f" SIGTERM: <= {STOP_LIMIT_SECONDS:g} s"
)
MEASURES = OPERATOR_PATHS
INSTANCE_COUNT = {Size.FULL: 1000, Size.QUICK: 200}
ROUNDS = {Size.FULL: (6, 10), Size.QUICK: (1, 2)}
"""Number of times that the leader is killed, and that it is asked to end."""

REPLICAS = 3
NAMESPACE = "shop"
_LONGEST_SECONDS = 60.0


def run(size: Size) -> Result:
    """End the leader of three replicas again and again, and each time add an endpoint for the next leader
    to register.
    """
    count = INSTANCE_COUNT[size]
    killed, stopped = ROUNDS[size]
    with Lab(eureka=1) as lab:
        field = BenchLab(lab)
        field.create_namespace(NAMESPACE)
        field.create_services(NAMESPACE, range(count), syncers=True)
        team = OperatorReplicas(field)
        try:
            keys = field.instance_keys(NAMESPACE, range(count))
            team.prober.wait_until_registered(keys)
            since = team.read_registration_times(keys)
            numbers = itertools.count(count)
            runs = {
                name: [{"seconds": team.measure_take_over(end, next(numbers))} for _ in range(rounds)]
                for name, end, rounds in (
                    ("SIGKILL", Contestant.kill, killed),
                    ("SIGTERM", Contestant.stop, stopped),
                )
            }
            now = team.read_registration_times(keys)
        finally:
            team.kill_all()
    lapsed = sum(now.get(key) != at for key, at in since.items())
    ours = {
        f"{name}, {figure.removesuffix('_ms')}_seconds": value / 1000
        for name, found in runs.items()
        for figure, value in median_and_p99([one["seconds"] * 1000 for one in found]).items()
    }
    worst = {name: max(one["seconds"] for one in found) for name, found in runs.items()}
    ours |= {f"{name}, longest_seconds": seconds for name, seconds in worst.items()}
    ours["lapsed"] = float(lapsed)
    return Result(
        id="P10",
        title=f"the end of the leader of {REPLICAS} replicas until the next change; {count:,} instances",
        unit="seconds",
        bar=BAR,
        ours=ours,
        floor={"SIGKILL, longest_seconds": TIMING.lease_duration_seconds},
        peers={},
        ratios={"SIGKILL, ours to the Lease duration": worst["SIGKILL"] / TIMING.lease_duration_seconds},
        held=worst["SIGKILL"] <= KILL_LIMIT_SECONDS
        and worst["SIGTERM"] <= STOP_LIMIT_SECONDS
        and lapsed == 0,
        runs=runs,
        notes=["lapsed: Eureka leases that are not the ones of the beginning any more"],
    )


class OperatorReplicas:
    """Replicas of the operator, of which one leads; a replica that is ended is replaced.

    :param environment: environment variables besides their names.
    """

    def __init__(self, field: BenchLab, replicas: int = REPLICAS, **environment: str) -> None:
        self.prober = Prober(field.lab.eureka_urls[0])
        self._field = field
        self._environment = environment
        self._numbers = itertools.count()
        self._replicas: dict[str, Contestant] = {}
        for _ in range(replicas):
            self._start()

    def measure_take_over(self, end: Callable[[Contestant], None], number: int) -> float:
        """End the leader, add an endpoint, and return the seconds until the next leader has registered it."""
        leader = self.wait_for_leader()
        replica = self._replicas.pop(leader)
        started = time.perf_counter()
        end(replica)
        name = "app-0"
        change = {"op": "add", "path": "/endpoints/-", "value": endpoint(number)}
        self._field.patch_slice(NAMESPACE, name, [change])
        key = (name.upper(), self._field.instance_id(NAMESPACE, name, number))
        seconds = wait_until(lambda: self.prober.shows(key), str(key), _LONGEST_SECONDS, 0.005) - started
        print_progress(f"  {end.__name__}: {seconds:.2f} s")
        self._start()
        return seconds

    def read_registration_times(self, keys: list[Key]) -> dict[Key, int]:
        """Return the server's time at which each Eureka lease began; a lapsed lease has a new beginning."""
        found = {}
        for key in keys:
            instance = self.prober.read(key)
            if instance is not None:
                found[key] = int(instance["leaseInfo"]["registrationTimestamp"])
        return found

    def kill_all(self) -> None:
        """Kill all replicas."""
        for replica in self._replicas.values():
            replica.kill()

    def _start(self) -> None:
        name = f"replica-{next(self._numbers)}"
        replica = self._field.start_operator(POD_NAME=name, WEB_ADDRESS="127.0.0.1:0", **self._environment)
        self._replicas[name] = replica
        replica.wait_for("operator is ready")

    def wait_for_leader(self) -> str:
        """Wait until a replica leads, and return its name."""
        path = LEASES.path("default", "eurekube-leader")
        found: list[str] = []

        def leads() -> bool:
            try:
                holder = str(self._field.access.get(path)["spec"].get("holderIdentity") or "")
            except KubernetesError:
                return False
            found[:] = [name for name in self._replicas if holder.rpartition("_")[0] == name]
            return bool(found) and "became the leader" in self._replicas[found[0]].log.read_text()

        wait_until(leads, "a leader", _LONGEST_SECONDS, 0.1)
        return found[0]
