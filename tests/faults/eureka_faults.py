"""Faults of Eureka servers: kills, freezes, splits, slowness, and broken connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Self

from lab.peering import SERVER_COUNT
from lab.proxy import Proxy
from tests.faults.excuse import Excuse, without_peers, without_server
from tests.faults.fault import EUREKA, NAMED_EUREKA, Fault, Parts, Scale
from tests.faults.world import NAMED_NUMBER, World


@dataclass(frozen=True, slots=True)
class OneServer(Fault):
    """Base of faults that disturb one Eureka server."""

    number: int
    seconds: float
    takes: ClassVar[Parts] = frozenset({EUREKA})

    @property
    def excuses(self) -> tuple[Excuse, ...]:
        return without_server(self.number)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(random.randrange(SERVER_COUNT), scale.draw(random, 3, 40))


@dataclass(frozen=True, slots=True)
class PeerKilled(OneServer):
    """A Eureka server is killed and started again empty."""

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(random.randrange(SERVER_COUNT), random.choice([0.0, scale.draw(random, 1, 40)]))

    def begin(self, world: World) -> Callable[[], None]:
        server = world.eureka.servers[self.number]
        world.witness.begins_again(self.number)
        server.kill()
        world.witness.begins_again(self.number)
        return server.start


@dataclass(frozen=True, slots=True)
class PeerPaused(OneServer):
    """A Eureka server is frozen: it accepts connections and never answers."""

    def begin(self, world: World) -> Callable[[], None]:
        server = world.eureka.servers[self.number]
        server.pause()
        return server.resume


@dataclass(frozen=True, slots=True)
class PeerSplit(OneServer):
    """A Eureka server and its peers do not reach each other; clients reach all of them."""

    @property
    def excuses(self) -> tuple[Excuse, ...]:
        return without_peers()

    def begin(self, world: World) -> Callable[[], None]:
        world.eureka.isolate_server(self.number)
        return _healing(world.eureka.peer_proxies_of_server(self.number))


@dataclass(frozen=True, slots=True)
class PeerSlow(OneServer):
    """A Eureka server answers clients and peers late."""

    delay_seconds: float

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        delay = round(random.uniform(0.1, 4.0), 1)
        number = random.randrange(SERVER_COUNT)
        return cls(number, scale.draw(random, 3, 40), delay)

    def begin(self, world: World) -> Callable[[], None]:
        ways = [world.eureka.fronts[self.number], *world.eureka.peer_proxies_of_server(self.number)]
        for way in ways:
            way.delay(self.delay_seconds)
        return _healing(ways)


@dataclass(frozen=True, slots=True)
class PeerOutOfReach(OneServer):
    """Clients cannot use a Eureka server, in one of several ways; its peers reach it."""

    how: str

    WAYS: ClassVar[dict[str, Callable[[Proxy], None]]] = {
        "refuses": Proxy.refuse,
        "hangs": Proxy.hang,
        "cuts": Proxy.cut,
        "answers 500": lambda front: front.answer(500),
        "answers 503": lambda front: front.answer(503),
        "answers 401": lambda front: front.answer(401),
    }

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        number, how = random.randrange(SERVER_COUNT), random.choice(list(cls.WAYS))
        return cls(number, scale.draw(random, 3, 40), how)

    def begin(self, world: World) -> Callable[[], None]:
        front = world.eureka.fronts[self.number]
        self.WAYS[self.how](front)
        return front.heal


NAMED_WAYS: dict[str, Callable[[Proxy], None]] = {
    "hangs": Proxy.hang,
    "vanished": Proxy.vanish,
    "slow": lambda front: front.delay(3.0),
}


@dataclass(frozen=True, slots=True)
class NamedEurekaAway(Fault):
    """The Eureka server with its own connection name cannot be used; the other servers are not affected."""

    how: str
    seconds: float
    takes: ClassVar[Parts] = frozenset({NAMED_EUREKA})
    excused: ClassVar[tuple[Excuse, ...]] = tuple(
        replace(one, server=NAMED_NUMBER) for one in without_server(NAMED_NUMBER)
    )

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(random.choice(["paused", *NAMED_WAYS]), scale.draw(random, 10, 40))

    def begin(self, world: World) -> Callable[[], None]:
        server, front = world.named.server, world.named.front
        if self.how == "paused":
            server.pause()
            return server.resume
        NAMED_WAYS[self.how](front)
        return front.heal


def _healing(ways: list[Proxy]) -> Callable[[], None]:
    def heal() -> None:
        for way in ways:
            way.heal()

    return heal
