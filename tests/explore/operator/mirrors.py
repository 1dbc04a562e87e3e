"""Exploration of mirrors between two models: changes to them, faults meanwhile, and rules that must hold.

At each request of the operator to Eureka or to the Kubernetes API the operator is killed, the answer is lost,
or others act; another operator begins two seconds later with nothing but the contents of the cluster and
Eureka. Writes for several applications are under way at once, and overtake each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eurekube_provider.core.mirror import APPLICATION_PLACEHOLDER, mirrored_application
from eurekube_provider.core.objects import (
    ATTACH_MIRROR_ANNOTATION,
    MIRROR_LABEL,
    SERVICE_NAME_LABEL,
    is_mirrored,
)
from eurekube_provider.dev.eureka.cluster import NoAnswer
from eurekube_provider.dev.eureka.documents import ServerRequest
from tests.explore.operator.explorer import RESTART_MS, Outcome
from tests.explore.operator.interleaved import Interleaved
from tests.explore.operator.kube import Change
from tests.explore.operator.mirror_replica import MirrorReplica
from tests.explore.operator.threads import Process
from tests.explore.operator.world import Happening, World
from tests.model.commands import DATA_CENTER, amazon

if TYPE_CHECKING:
    from tests.explore.operator.mirror_edits import MirrorEdit, Step

SHOP, MIRROR, APP = "shop", "legacy", "REVIEW"

APPS = (APP, "ORDER", "PRICE")
"""The applications of the edits in which one mirror shows several."""

MACHINES = (1, 2, 3)
"""Numbers of each application's machines at the start."""

NAMELESS = ("i-1", "i-2")
STRANGERS = ("vm/4", *NAMELESS)
"""Further machines of each application, throughout: one with an id that no request can address, and two
without an id and with one host name.
"""

STEADY_SECONDS, WINDOW_SECONDS, CALM_SECONDS = 70.0, 50.0, 410.0
"""Seconds from the start until everything is shown; in which faults may come; and from the last
disturbance to the end.
"""

REST_SECONDS = 30.0
"""Seconds before the end in which the operator must write nothing."""

MOST_STRAYS = 3
"""The most slices that a person's new Service may still get: writes under way, and one more."""

HOLD_SECONDS = 60
SETTLED_MS = 60_000
"""Milliseconds UP after which an instance is in every list."""

COLLECTED_MS = 300
"""Milliseconds after its owner until the garbage collector removes an object."""

Object = dict[str, Any]


@dataclass(slots=True)
class Machine:
    """An application on a machine, which registers and renews itself.

    :ivar name: the host name, which another application's machine may have as well.
    :ivar is_nameless: True if it sends no id, so that its data centre names it.
    :ivar up_since_ms: since when it is UP without a break; None where it is not.
    """

    name: str
    application: str
    address: str
    status: str = "UP"
    is_running: bool = True
    is_nameless: bool = False
    up_since_ms: int | None = None


class MirrorsExplored:
    """One edit of a mirror with its faults, from the start to the final comparison."""

    def __init__(
        self, edit: MirrorEdit, faults: Mapping[int, Happening], servers: int = 1, *, seed: int = 0
    ) -> None:
        self._edit, self._faults = edit, faults
        self.world = world = World.of(servers, seed, Interleaved)
        self.outcome = Outcome(world.trace, world.places)
        self.machines: dict[tuple[str, str], Machine] = {}
        self.replicas: list[MirrorReplica] = []
        self._is_person = False
        self._may_lose: set[str] = set()
        self._strays: Counter[str] = Counter()
        self._kept: set[str] = set()
        scheduler = world.scheduler
        assert isinstance(scheduler, Interleaved)
        scheduler.step = self._step
        world.act = lambda act: act(self)
        world.killed = self._killed
        world.kube.changed = self._changed

    def run(self) -> Outcome:
        """Run the edit, and return its outcome."""
        world = self.world
        for application in self._edit.applications:
            for number in MACHINES:
                self.machine(number, application)
            for name in STRANGERS:
                self._machine(name, application, is_nameless=name in NAMELESS)
        clock = world.cluster.clock
        clock.run_every(world.now_ms + 25_000, 25_000, self._renew)
        self._edit.begin(self)
        self._start()
        self._pass(STEADY_SECONDS)
        world.begin_faults(self._faults)
        self._may_lose |= set(self._edit.loses)
        for wait, step in self._edit.steps:
            self._take(step, round(wait * 1000))
        world.disturb()
        self._pass(WINDOW_SECONDS)
        world.end_faults()
        world.note("-- calm")
        for replica in self.replicas:
            replica.hears = True
            replica.deliver_watches()
        self._pass(CALM_SECONDS - REST_SECONDS + max(0, world.disturbed_ms - world.now_ms) / 1000)
        asked = len(world.trace)
        self._pass(REST_SECONDS)
        writes = Counter(line.split(maxsplit=2)[2] for line in world.trace[asked:] if "  GET " not in line)
        for write, times in writes.items():
            if times > 1 or not write.startswith(
                "PATCH services"
            ):  # once in ten minutes: when Eureka was read
                self._violated(f"it does not come to rest: {write}")
        self._compare()
        return self.outcome

    @property
    def last_application(self) -> str:
        """The last of several applications, which no act of others concerns."""
        return self._edit.applications[-1]

    # --- what people and machines do

    def mirror(self, **spec: Any) -> None:
        """Write the mirror of one application as a person would."""
        self._write_mirror({"application": APP, **spec})

    def mirror_all(self, **spec: Any) -> None:
        """Write the mirror of several applications as a person would."""
        self._write_mirror({"pattern": "*", "allow": [*self._edit.applications], **spec})

    def put(self, kind: str, item: Object) -> None:
        """Write an object as a person would."""
        self._is_person = True
        self.world.kube.put(kind, item)
        self._is_person = False

    def delete(self, kind: str, name: str) -> None:
        """Delete an object as a person would."""
        self._is_person = True
        self.world.kube.delete(kind, SHOP, name)
        self._is_person = False

    def person_service(self, name: str = "review", **annotations: str) -> None:
        """Create a Service as a person would."""
        metadata = {"namespace": SHOP, "name": name, "labels": {"team": "a"}, "annotations": annotations}
        ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
        self.put("services", {"metadata": metadata, "spec": {"ports": ports, "selector": {"app": "x"}}})

    def machine(self, number: int, application: str = APP, status: str = "UP") -> None:
        """Run a machine, or change its status."""
        self._machine(f"vm-{number}", application, status)

    def _machine(self, name: str, application: str, status: str = "UP", *, is_nameless: bool = False) -> None:
        address = f"192.0.2.{len(self.machines) + 1}"
        made = Machine(name, application, address, is_nameless=is_nameless)
        one = self.machines.setdefault((application, name), made)
        one.status, one.is_running = status, True
        one.up_since_ms = self.world.now_ms if status == "UP" else None
        self._register(one)

    def stop(self, number: int, application: str = APP, *, deregisters: bool = True) -> None:
        """Stop a machine."""
        one = self.machines[application, f"vm-{number}"]
        one.is_running, one.up_since_ms = False, None
        if deregisters:
            self._ask(ServerRequest("DELETE", ("apps", application, one.name)))

    def wishes(self) -> None:
        """Note that a person's act may remove endpoints of the application :data:`APP`."""
        self._may_lose.add(APP)
        self.world.disturb()

    def keep(self, service: str) -> None:
        """Note that a person took over a Service, which must exist at the end."""
        self._kept.add(service)

    def another_replica(self) -> None:
        """Start a second replica, which also believes that it leads."""
        self._start()

    def _write_mirror(self, spec: Object) -> None:
        wanted = {"holdSeconds": HOLD_SECONDS, **spec}
        self.put("eurekamirrors", {"metadata": {"namespace": SHOP, "name": MIRROR}, "spec": wanted})

    def _register(self, one: Machine) -> None:
        document = {
            "instanceId": one.name,
            "app": one.application,
            "hostName": one.address,
            "ipAddr": one.address,
            "status": one.status,
            "port": {"$": 8080, "@enabled": "true"},
            "vipAddress": one.application.lower(),
            "dataCenterInfo": DATA_CENTER,
            "metadata": {},
            "lastDirtyTimestamp": str(self.world.now_ms),
        }
        if one.is_nameless:
            del document["instanceId"]
            document |= {"hostName": "vm", "dataCenterInfo": amazon(one.name)}
        self._ask(ServerRequest("POST", ("apps", one.application), body={"instance": document}))

    def _renew(self) -> None:
        for one in self.machines.values():
            if one.is_running and not self._ask(ServerRequest("PUT", ("apps", one.application, one.name))):
                self._register(one)

    def _ask(self, request: ServerRequest) -> bool:
        cluster = self.world.cluster
        for url in cluster.urls:
            try:
                return cluster.request(url, request).status_code in (200, 204)
            except NoAnswer:
                continue
        return True  # they try again

    # --- the operator

    def _start(self) -> None:
        process = self.world.begin_process()
        self.replicas.append(MirrorReplica(self.world, process))

    def _killed(self, _: Process) -> None:
        self.world.cluster.clock.run_after(RESTART_MS, self._restart)

    def _restart(self) -> None:
        self.world.note("-- the operator starts again")
        self.world.disturb()
        self._start()

    def _step(self) -> bool:
        done = [replica.step() for replica in self.replicas]
        return any(done)

    def _take(self, step: Step, wait_ms: int) -> None:
        """Do a step of the edit when its time has come, even in the middle of an operator's request."""

        def take() -> None:
            self.world.note("-- a step of the edit")
            step(self)

        if wait_ms:
            self.world.cluster.clock.run_after(wait_ms, take)
            self._pass((wait_ms + 1) / 1000)
        else:
            take()

    def _pass(self, seconds: float) -> None:
        self.world.scheduler.run(self.world.now_ms + round(seconds * 1000))

    # --- what must hold

    def _changed(self, change: Change) -> None:
        clock = self.world.cluster.clock
        clock.run_after(self.world.kube.lag_ms, self._tell)
        if change.type in ("ADDED", "DELETED"):
            clock.run_after(COLLECTED_MS, self._collect)
        before = change.before
        is_persons = change.kind == "services" and before is not None and not is_mirrored(before)
        if is_persons and not self._is_person and not _is_disowned(change):
            self._violated(f"a person's Service {change.key[1]} was written to")
        if change.kind == "endpointslices":
            self._look_at_loss(change)
            if change.type == "ADDED" and not self._is_person:
                self._look_at_strays(change.item)

    def _tell(self) -> None:
        for replica in self.replicas:
            replica.deliver_watches()

    def _collect(self) -> None:
        """Delete objects whose owner is gone, as the garbage collector does."""
        kube = self.world.kube
        uids = {
            item["metadata"]["uid"]
            for kind in ("services", "eurekamirrors")
            for item in kube.objects[kind].values()
        }
        self._is_person = True
        for kind in ("services", "endpointslices"):
            for key, item in list(kube.objects[kind].items()):
                owners = item["metadata"].get("ownerReferences") or ()
                if owners and not uids.intersection(one["uid"] for one in owners):
                    kube.delete(kind, *key)
        self._is_person = False

    def _look_at_loss(self, change: Change) -> None:
        """Check that a change of slices removes no endpoint of a machine that is UP."""
        if change.before is None:
            return
        lost = _ready([change.before]) - _ready(self._slices())
        known = self.world.now_ms - SETTLED_MS
        for one in self.machines.values():
            is_missed = (one.application, one.address) in lost and one.application not in self._may_lose
            if is_missed and one.up_since_ms is not None and one.up_since_ms <= known:
                self._violated(f"{one.application} {one.name} is UP and is not called any more")

    def _look_at_strays(self, added: Object) -> None:
        """Check that a mirror stops soon to add slices to a Service that has become a person's."""
        name = added["metadata"]["labels"][SERVICE_NAME_LABEL]
        if name in self._persons() and not self._is_opted_in(name):
            self._strays[name] += 1
            if self._strays[name] > MOST_STRAYS:
                self._violated(f"slices are added again and again to a person's Service {name}")

    def _is_opted_in(self, name: str) -> bool:
        service = self.world.kube.get("services", SHOP, name) or {"metadata": {}}
        return (service["metadata"].get("annotations") or {}).get(ATTACH_MIRROR_ANNOTATION) == MIRROR

    def _slices(self) -> list[Object]:
        return [item for item in self.world.kube.objects["endpointslices"].values() if is_mirrored(item)]

    def _compare(self) -> None:
        """Check that at the end the cluster shows what Eureka holds, and contains no other objects of
        ours.
        """
        for process in self.world.processes:
            for error in process.errors:
                self._violated(f"{process.name} ended: {error!r}")
        for line in self.world.logged:
            self._violated(f"logged: {line}")
        kube = self.world.kube
        for name in self._kept.difference(self._persons()):
            self._violated(f"the Service {name}, which a person took over, is gone")
        ours = [item for item in kube.objects["services"].values() if is_mirrored(item)]
        item = kube.get("eurekamirrors", SHOP, MIRROR)
        wanted = self._wanted()
        if item is not None and "deletionTimestamp" in item["metadata"]:
            self._violated("the deleted mirror is still there")
        names = sorted(one["metadata"]["name"] for one in ours)
        expected = sorted({*wanted.values()} - self._persons())
        if names != expected:
            self._violated(f"the Services of mirrors are {names}, and should be {expected}")
        shown: Counter[tuple[str, str]] = Counter()
        for one in self._slices():
            service = one["metadata"]["labels"][SERVICE_NAME_LABEL]
            is_wanted = wanted.get(mirrored_application(one)) == service
            if not is_wanted or one["metadata"]["labels"].get(MIRROR_LABEL) != MIRROR:
                self._violated(f"the slice {one['metadata']['name']} is left")
            shown.update((service, endpoint["addresses"][0]) for endpoint in one["endpoints"])
        doubled = sorted(place for place, times in shown.items() if times > 1)
        if doubled:
            self._violated(f"{doubled} stand in several slices")
        ready, up = _ready(self._slices()), {one for one in self._up() if one[0] in wanted}
        machines = self.machines.values()
        runs = {(one.application, one.address) for one in machines if one.up_since_ms is not None}
        # Of who left a server that informed no other one, the servers say different things: both will do.
        if not up & runs <= ready <= up:
            self._violated(f"called are {sorted(ready)}, and UP {sorted(up)}")

    def _wanted(self) -> dict[str, str]:
        """Return the Service that must show each application at the end.

        An application has none if a person's Service has the name, unless it keeps its earlier Service.
        """
        item = self.world.kube.get("eurekamirrors", SHOP, MIRROR)
        if item is None:
            return {}
        spec = item["spec"]
        if attach_to := spec.get("attachTo"):
            return {APP: attach_to} if self._is_opted_in(attach_to) else {}
        known = {one.application for one in self.machines.values()}
        meant = {APP} if "application" in spec else known.intersection(spec["allow"])
        template = spec.get("serviceName") or APPLICATION_PLACEHOLDER
        names = {
            one: template.replace(APPLICATION_PLACEHOLDER, one.lower()).replace("_", "-")
            for one in meant.difference(self._edit.refused)
        }
        persons = self._persons()
        ours = [item for item in self.world.kube.objects["services"].values() if is_mirrored(item)]
        kept = {mirrored_application(item): str(item["metadata"]["name"]) for item in ours}
        names = {one: kept.get(one, "") if name in persons else name for one, name in names.items()}
        return {application: name for application, name in names.items() if name}

    def _persons(self) -> set[str]:
        services = self.world.kube.objects["services"].values()
        return {item["metadata"]["name"] for item in services if not is_mirrored(item)}

    def _up(self) -> set[tuple[str, str]]:
        return {
            (lease.holder.app, str(lease.holder.fields["ipAddr"]))
            for url, server in self.world.cluster.servers.items()
            if url not in self.world.cluster.down
            for lease in server.registry.all_leases()
            if lease.holder.status == "UP"
        }

    def _violated(self, rule: str) -> None:
        if rule not in self.outcome.violations:
            self.outcome.violations.append(rule)
            self.world.note(f"!! {rule}")


def _is_disowned(change: Change) -> bool:
    """Return whether a change removed only the mirror's ownership of an object."""

    def rest(item: Object) -> Object:
        metadata = {
            key: value
            for key, value in item["metadata"].items()
            if key not in ("ownerReferences", "resourceVersion")
        }
        return {**item, "metadata": metadata}

    before, after = change.before, change.item
    return (
        change.type == "MODIFIED"
        and before is not None
        and rest(before) == rest(after)
        and not after["metadata"].get("ownerReferences")
    )


def _ready(slices: Iterable[Object]) -> set[tuple[str, str]]:
    """Return the ready addresses in the slices, each with its application."""
    return {
        (mirrored_application(item), endpoint["addresses"][0])
        for item in slices
        if is_mirrored(item)
        for endpoint in item.get("endpoints") or ()
        if endpoint["conditions"]["ready"]
    }
