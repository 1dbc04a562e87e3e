"""Faults of workloads, namespaces and whole clusters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import NAMESPACES, NODES, PODS, SERVICES, SYNCERS
from lab.workloads import wait_for
from tests.faults.excuse import Excuse, without_operators
from tests.faults.fault import API, LEASES, OPERATORS, WEST, WORKLOADS, Fault, Parts, Scale, nothing
from tests.faults.world import (
    APPS,
    EAST_CLUSTER,
    EDITED,
    ELSEWHERE,
    GUEST,
    MARKET,
    SHOP,
    WEST_CLUSTER,
    World,
    edited_syncer,
)


def _of(namespace: str, *apps: str) -> tuple[tuple[str, str], ...]:
    return tuple((namespace, app) for app in apps)


_MARKET = _of(MARKET, *APPS[MARKET])


@dataclass(frozen=True, slots=True)
class PodsUnready(Fault):
    """Some pods of an application fail their readiness probe for a while."""

    namespace: str
    app: str
    count: int
    seconds: float
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API})

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        namespace, app = random.choice([*_of(SHOP, "rating", "catalog", "front", ELSEWHERE), *_MARKET])
        return cls(namespace, app, random.randint(1, APPS[namespace][app][0]), scale.draw(random, 3, 40))

    def begin(self, world: World) -> Callable[[], None]:
        pods = world.insist(lambda: world.east.pods(self.namespace, self.app))[: self.count]
        names = {pod["metadata"]["name"] for pod in pods}
        world.unready |= names
        for pod in pods:
            world.insist(lambda pod=pod: world.east.set_ready(pod, ready=False))  # type: ignore[misc]

        def end() -> None:
            world.unready -= names  # the kubelets do the rest

        return end


@dataclass(frozen=True, slots=True)
class RolledOut(Fault):
    """A Deployment is rolled out, and scaled up and down meanwhile."""

    namespace: str
    app: str
    more: int
    seconds: float
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API})
    targets: ClassVar[tuple[tuple[str, str], ...]] = _of(SHOP, "rating", "catalog", ELSEWHERE)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(*random.choice(cls.targets), random.randint(0, 8), scale.draw(random, 2, 20))

    def begin(self, world: World) -> Callable[[], None]:
        replicas, version = APPS[self.namespace][self.app][0], f"v{time.monotonic_ns()}"

        def scale(number: int) -> None:
            world.insist(lambda: world.deployment(self.namespace, self.app, number, version))

        scale(replicas + self.more)
        return lambda: scale(replicas)


@dataclass(frozen=True, slots=True)
class GatedRolledOut(RolledOut):
    """Pods with the readiness gate are rolled out, and scaled up and down meanwhile."""

    targets: ClassVar[tuple[tuple[str, str], ...]] = _MARKET


@dataclass(frozen=True, slots=True)
class MassDelete(Fault):
    """All pods of an application are deleted at once, and the Deployment replaces them."""

    namespace: str
    app: str
    seconds: float = 0.0
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API})

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:  # noqa: ARG003 - it takes no time
        return cls(*random.choice([*_of(SHOP, "rating", "catalog"), *_MARKET]))

    def begin(self, world: World) -> Callable[[], None]:
        query = {"labelSelector": f"app={self.app}"}
        world.insist(lambda: world.east.access.request("DELETE", PODS.path(self.namespace), query))
        return nothing


@dataclass(frozen=True, slots=True)
class NodeLost(Fault):
    """A node is lost with its pods, which nobody sees terminating."""

    number: int
    seconds: float
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API})

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(random.randint(1, 2), scale.draw(random, 5, 40))

    def begin(self, world: World) -> Callable[[], None]:
        node = f"node-{self.number}"
        world.insist(lambda: world.east.delete(NODES, node))
        for pod in world.insist(lambda: world.east.access.get(PODS.path())["items"]):
            if pod["spec"].get("nodeName") == node:
                metadata = pod["metadata"]
                path = PODS.path(metadata["namespace"], metadata["name"])
                world.insist(lambda path=path: _delete_now(world, path))  # type: ignore[misc]
        return lambda: world.lab.kubernetes.add_node(self.number)


@dataclass(frozen=True, slots=True)
class ServiceDeleted(Fault):
    """A Service is deleted, and created again before or after the brake ends."""

    namespace: str
    app: str
    seconds: float
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API})

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(*random.choice([*_of(SHOP, "rating", "front"), *_MARKET]), scale.draw(random, 2, 80))

    def begin(self, world: World) -> Callable[[], None]:
        world.insist(lambda: world.east.delete(SERVICES, self.app, self.namespace))
        return lambda: world.insist(lambda: world.service(self.namespace, self.app))


@dataclass(frozen=True, slots=True)
class ServiceLeaves(Fault):
    """A Service leaves its namespace's syncer and joins it again, faster than the operator can follow, and
    then by the last word for a while.

    :ivar words: the values of its annotation; None for no annotation, which counts after a minute.
    """

    app: str
    words: tuple[str | None, ...]
    pause_seconds: float
    seconds: float
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API})

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        known: list[str | None] = ["true", "pod", "service", "false", None]
        words = [random.choice(known) for _ in range(random.randint(0, 5))]
        last: str | None = random.choice(["false", None])
        return cls(
            random.choice(list(APPS[MARKET])),
            (*words, last),
            round(random.uniform(0.0, 1.5), 2),
            round(random.uniform(0.0, scale.left_seconds), 1),
        )

    def begin(self, world: World) -> Callable[[], None]:
        for word in self.words:
            world.insist(lambda word=word: world.join(self.app, word))  # type: ignore[misc]
            time.sleep(self.pause_seconds)
        return lambda: world.insist(lambda: world.join(self.app, "true"))


@dataclass(frozen=True, slots=True)
class NamespaceDeleted(Fault):
    """A namespace is deleted with its syncers, must disappear, and is created again with other pods."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API, LEASES})

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(scale.draw(random, 0, 5))

    def begin(self, world: World) -> Callable[[], None]:
        world.insist(lambda: world.east.delete(NAMESPACES, GUEST))
        return lambda: _namespace_returns(world)


@dataclass(frozen=True, slots=True)
class NamespaceDeletedUnseen(Fault):
    """A namespace is deleted while no operator runs: it waits for an operator, which removes the
    instances.
    """

    seconds: float
    takes: ClassVar[Parts] = frozenset({WORKLOADS, OPERATORS})
    needs: ClassVar[Parts] = frozenset({API, LEASES})
    excused: ClassVar[tuple[Excuse, ...]] = without_operators(EAST_CLUSTER)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(scale.draw(random, 3, 25))

    def begin(self, world: World) -> Callable[[], None]:
        for operator in world.east_operators:
            operator.kill()
        world.insist(lambda: world.east.delete(NAMESPACES, GUEST))

        def end() -> None:
            for operator in world.east_operators:
                operator.launch()
            _namespace_returns(world)

        return end


@dataclass(frozen=True, slots=True)
class SyncerEdited(Fault):
    """A person changes a syncer's selector and mode repeatedly, faster than the operator can follow."""

    edits: tuple[tuple[str, str], ...]
    pause_seconds: float
    seconds: float = 0.0
    takes: ClassVar[Parts] = frozenset({WORKLOADS})
    needs: ClassVar[Parts] = frozenset({API})

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:  # noqa: ARG003 - it takes no time of its own
        edits = [
            (random.choice(["blue", "green"]), random.choice(["pod", "service"]))
            for _ in range(random.randint(2, 8))
        ]
        return cls(tuple(edits), round(random.uniform(0.0, 1.5), 2))

    def begin(self, world: World) -> Callable[[], None]:

        def edit(app: str, mode: str) -> None:
            world.witness.unsettle("east", EDITED)
            world.insist(lambda: world.patch(SYNCERS.path(*EDITED), edited_syncer(app, mode)))
            world.witness.unsettle("east", EDITED)

        for app, mode in self.edits:
            edit(app, mode)
            time.sleep(self.pause_seconds)
        return lambda: edit("blue", "pod")


@dataclass(frozen=True, slots=True)
class WestLost(Fault):
    """A cluster is lost with its operator, and rebuilt from its YAML with the same name and another UID."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({WEST})
    excused: ClassVar[tuple[Excuse, ...]] = without_operators(WEST_CLUSTER)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(scale.draw(random, 0, 20))

    def begin(self, world: World) -> Callable[[], None]:
        operator = world.west_operator
        operator.kill()
        operator.may_take_over(False)
        world.west_plane.delete_all_data()

        def end() -> None:
            world.west_plane.start_etcd_and_api_server()
            world.insist(world.apply_west)
            said = world.operator_refuses(operator)
            if "is in use by another cluster" not in said:
                raise AssertionError(f"an operator worked under the name of another cluster:\n{said}")
            operator.may_take_over(True)
            operator.launch()

        return end


def _delete_now(world: World, path: str) -> None:
    """Delete an object at once; it may be gone already."""
    try:
        world.east.access.request("DELETE", path, {"gracePeriodSeconds": "0"})
    except KubernetesError as error:
        if error.status_code != 404:
            raise


def _namespace_returns(world: World) -> None:
    """Wait until the namespace is gone, and create it again."""

    def is_gone() -> bool:
        return world.insist(lambda: world.east.get(NAMESPACES, GUEST) is None)

    what = f"the end of namespace {GUEST}, whose syncers wait for an operator"
    wait_for(is_gone, what, world.patience_seconds)
    world.insist(lambda: world.populate(GUEST))
