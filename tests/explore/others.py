"""Acts of others while a stack is changed: of people, other stacks, applications, operators and servers.

The results are recorded, so that the explorer can check afterwards that they still stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from eurekube_provider.dev.eureka.cluster import EurekaCluster, NoAnswer
from eurekube_provider.dev.eureka.documents import ServerRequest, instance_info_document
from eurekube_provider.dev.eureka.eureka_server import EurekaServer
from eurekube_provider.dev.eureka.instance_registry import UNKNOWN, Document, InstanceInfo
from eurekube_provider.dev.eureka.replication import MAX_TASK_LIFE_MS
from tests.model.commands import DATA_CENTER, amazon

Place = tuple[str, str]
"""An application and an instance's id."""

OWNER = "eurekube.owner"
LEAVING = "eurekube.leaving"
ENFORCED = "eurekube.enforced"
ANOTHER_STACK = "stack/organization/explored/prod/i"

A_MOMENT_MS, A_MOMENT_OF_SEVERAL_MS = 1_000, 3_000
"""Milliseconds in which a write of ours may overwrite an act of others that came after our read: Eureka
cannot compare and swap.

The second value is for several servers, which replicate our write later still.
"""

STRANGERS: Sequence[Place] = (("BILLING", "10.9.9.8/vm:billing:8080"), ("BILLING", "i-8"), ("BILLING", "i-9"))
"""Machines beside the instances of the programs: one with an id that no request can address, and two
without an id and with one host name. They lapse unless they are registered again.
"""

CUT_MS, LONG_CUT_MS, LATE_MS = 5_000, 60_000, 3_000


class Deed(Enum):
    """An act of others just before a request is sent."""

    PERSON_TAKES_OUT = "a person sets OUT_OF_SERVICE"
    PERSON_PUTS_BACK = "a person clears the status"
    PERSON_REMOVES = "a person removes the instance"
    STACK_TAKES = "another stack adopts the instance"
    REGISTERS_ITSELF = "the application registers itself under the same id"
    NEIGHBOUR = "the application registers itself at the same address under an id of its own"
    STRANGERS = "machines register themselves under an id that no request can name, and without one"
    RENEWED = "a renewal comes"
    RESTARTED = "the server restarts, and has forgotten everything"
    RENDERED = "the servers render their lists, which lack what changes meanwhile"

    COPIED = "a server restarts with a copy of its neighbour"
    CUT = "the servers do not reach each other for 5 s"
    LONG_CUT = "the servers do not reach each other for a minute"
    LATE = "what the servers tell each other is 3 s late"
    OVERTAKEN = "what the servers tell each other next is overtaken by what comes after it"

    @property
    def needs_several(self) -> bool:
        """True if the act needs several servers."""
        return self in (Deed.COPIED, Deed.CUT, Deed.LONG_CUT, Deed.LATE, Deed.OVERTAKEN)

    @property
    def is_about_one(self) -> bool:
        """True if the act concerns a single instance."""
        return not self.needs_several and self not in (
            Deed.RENEWED,
            Deed.RESTARTED,
            Deed.RENDERED,
            Deed.STRANGERS,
        )


@dataclass(frozen=True, slots=True)
class Act:
    """A deed, and the number of the instance that it concerns among those of the programs."""

    deed: Deed
    number: int = 0

    @property
    def value(self) -> str:
        """The act in words."""
        return f"{self.deed.value} ({self.number})" if self.deed.is_about_one else self.deed.value

    @property
    def is_loss(self) -> bool:
        """False, since an act does not lose the request."""
        return False


@dataclass(slots=True)
class Others:
    """The acts of others, and the instances that must survive them.

    :ivar places: the places that the programs name.
    :ivar theirs: instances that belong to others by now, as they left them.
    :ivar out: instances that a person took out of service, and that our code must not put back.
    :ivar doubtful: instances whose status by a person may be lost, or may have met a drain of ours.
    :ivar contested: instances that others wrote between our read and our write, which no server can tell
        apart.
    :ivar beside: instances that registered themselves at an address of ours.
    :ivar strangers: those of :data:`STRANGERS` that registered themselves, as they left them.
    :ivar removed: instances that others removed, which are missing until the stack is refreshed.
    """

    cluster: EurekaCluster
    places: Sequence[Place]
    theirs: dict[Place, tuple[Any, ...]] = field(default_factory=dict)
    out: set[Place] = field(default_factory=set)
    doubtful: set[Place] = field(default_factory=set)
    removed: set[Place] = field(default_factory=set)
    contested: set[Place] = field(default_factory=set)
    beside: Place | None = None
    strangers: dict[Place, tuple[Any, ...]] = field(default_factory=dict)
    _taken_ms: dict[Place, int] = field(default_factory=dict)

    def act(self, act: Act) -> None:
        """Carry out an act."""
        place = self.places[act.number % len(self.places)] if self.places else ("NOTHING", "nothing")
        _DEEDS[act.deed](self, place)

    @property
    def stand_in_the_way(self) -> bool:
        """True if instances of others may make one of our programs fail."""
        return len(self._taken_ms) > 1  # one stood there from the beginning

    def calm(self) -> None:
        """End all network faults, and have every server get the renewals of all instances."""
        self.cluster.cut.clear()
        held: dict[Place, str] = {}
        for url, server in self.cluster.servers.items():
            for link in server.links.values():
                link.delay_ms, link.is_next_batch_overtaken = 0, False
            for lease in server.registry.all_leases():
                held.setdefault((lease.holder.app, lease.holder.id), url)
        if len(self.cluster.urls) > 1:
            for place, url in held.items():
                self.cluster.request(url, ServerRequest("PUT", ("apps", *place)))

    def changed(self, server: EurekaServer) -> list[Place]:
        """Return others' instances that a server holds with other contents than they were registered with."""
        changed = [
            place
            for place, contents in self.theirs.items()
            if (info := server.registry.get(*place)) is None or _contents(info) != contents
        ]
        moment_ms = A_MOMENT_MS if len(self.cluster.urls) == 1 else A_MOMENT_OF_SEVERAL_MS
        since_ms = self.cluster.clock.now_ms - moment_ms
        for place in [one for one in changed if self._taken_ms[one] > since_ms]:
            changed.remove(place)
            del self.theirs[place]
            self.contested.add(place)
        standing = ((place, server.registry.get(*place)) for place in self.strangers)
        touched = (place for place, info in standing if info and _contents(info) != self.strangers[place])
        return [*changed, *touched]

    def register_strangers(self, _: Place = ("", "")) -> None:
        """Register the machines of :data:`STRANGERS` themselves, now and again later."""
        for number, place in enumerate(STRANGERS):
            document: Document = {
                **({"instanceId": place[1]} if "/" in place[1] else {}),
                "app": place[0],
                "hostName": "vm",
                "ipAddr": f"10.9.9.{number + 1}",
                "status": "UP",
                "dataCenterInfo": DATA_CENTER if "/" in place[1] else amazon(place[1]),
                "lastDirtyTimestamp": "1",
            }
            self.ask(ServerRequest("POST", ("apps", place[0]), body={"instance": document}))
            info = self.held(place)
            if info is not None:
                self.strangers[place] = _contents(info)

    def register(self, place: Place, address: str, owner: str = "") -> None:
        """Register an instance of another owner, which must then stay unchanged."""
        document: Document = {
            "instanceId": place[1],
            "app": place[0],
            "hostName": address,
            "ipAddr": address,
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "vipAddress": place[0].lower(),
            "dataCenterInfo": DATA_CENTER,
            "metadata": {OWNER: owner} if owner else {"a": "b"},
            "lastDirtyTimestamp": str(self.cluster.clock.now_ms + 1),
        }
        self.ask(ServerRequest("POST", ("apps", place[0]), body={"instance": document}))
        info = self.held(place)
        if info is not None:
            self.theirs[place] = _contents(info)
            self._taken_ms[place] = self.cluster.clock.now_ms
            self.out.discard(place)

    def ask(self, request: ServerRequest) -> None:
        """Send a request to the first server that answers."""
        for url in self.cluster.urls:
            try:
                self.cluster.request(url, request)
            except NoAnswer:
                continue
            return

    def held(self, place: Place) -> InstanceInfo | None:
        """Return an instance as the first answering server holds it."""
        up = [url for url in self.cluster.urls if url not in self.cluster.down]
        return self.cluster.servers[up[0]].registry.get(*place) if up else None

    def take_out(self, place: Place) -> None:
        info = self.held(place)
        if info is None or place in self.theirs:
            return
        # What was out already, as by a drain of ours, is not distinguished from what a person meant.
        if is_leaving(info) or info.status != "UP":
            self.doubtful.add(place)
        else:
            self.out.add(place)
        self.ask(ServerRequest("PUT", ("apps", *place, "status"), {"value": "OUT_OF_SERVICE"}))

    def put_back(self, place: Place) -> None:
        info = self.held(place)
        if info is None or place in self.theirs or info.overridden == UNKNOWN:
            return
        self.out.discard(place)
        self.ask(ServerRequest("DELETE", ("apps", *place, "status"), {"value": "UP"}))

    def remove(self, place: Place) -> None:
        if self.held(place) is None or place in self.theirs:
            return
        self.removed.add(place)
        self.out.discard(place)
        self.ask(ServerRequest("DELETE", ("apps", *place)))

    def take_over(self, place: Place) -> None:
        if self.held(place) is not None:
            self.register(place, "10.0.0.1", ANOTHER_STACK)

    def register_itself(self, place: Place) -> None:
        self.register(place, "10.0.0.1")

    def stand_beside(self, place: Place) -> None:
        app, _ = place
        address = "10.0.0.1" if app == "BILLING" else "10.0.1.1"
        self.beside = (app, f"{address}:{app.lower()}:8080")
        self.register(self.beside, address)

    def renew(self, _: Place) -> None:
        url = self.cluster.urls[-1]
        for app, instance_id in self.places:
            if url not in self.cluster.down:
                self.cluster.request(url, ServerRequest("PUT", ("apps", app, instance_id)))

    def restart(self, _: Place) -> None:
        """Restart the first server empty; instances that renew themselves register again at once."""
        url = self.cluster.urls[0]
        registry = self.cluster.servers[url].registry
        ours = set(self.places) - self.theirs.keys()
        back = [
            lease.holder for lease in registry.all_leases() if (lease.holder.app, lease.holder.id) not in ours
        ]
        self.removed |= {place for place in ours if registry.get(*place) is not None}
        self.doubtful |= self.out
        self.out.clear()
        self._lose_unsent_changes()
        self.cluster.restart(url)
        for info in back:
            document = {"instance": instance_info_document(info, None)}
            self.cluster.request(url, ServerRequest("POST", ("apps", info.app), body=document))

    def render(self, _: Place) -> None:
        for server in self.cluster.servers.values():
            server.caches.copy_with_slow_rendering()

    def restart_with_copy(self, _: Place) -> None:
        self._lose_unsent_changes()
        self.cluster.restart(self.cluster.urls[0], copy_from=self.cluster.urls[-1])

    def _lose_unsent_changes(self) -> None:
        """Mark as contested the changes that a restarting server has not yet replicated."""
        here, there = self.cluster.urls[0], self.cluster.urls[-1]
        self.contested |= {
            place for place in self.places if self._version(here, place) != self._version(there, place)
        }

    def _version(self, url: str, place: Place) -> tuple[Any, ...] | None:
        info = self.cluster.servers[url].registry.get(*place)
        return _contents(info) if info is not None else None

    def cut(self, milliseconds: int) -> None:
        """Cut the servers off from each other for some time.

        After half a minute a status set meanwhile is never replicated, not even by renewals.
        """
        if milliseconds > MAX_TASK_LIFE_MS:
            self.doubtful.update(self.places)
        pairs = {(one, other) for one in self.cluster.urls for other in self.cluster.urls if one != other}
        self.cluster.cut |= pairs
        self.cluster.clock.run_after(milliseconds, lambda: self.cluster.cut.difference_update(pairs))

    def delay(self, *, only_next: bool) -> None:
        for server in self.cluster.servers.values():
            for link in server.links.values():
                if only_next:
                    link.is_next_batch_overtaken = True
                else:
                    link.delay_ms = LATE_MS


_DEEDS: dict[Deed, Callable[[Others, Place], None]] = {
    Deed.PERSON_TAKES_OUT: Others.take_out,
    Deed.PERSON_PUTS_BACK: Others.put_back,
    Deed.PERSON_REMOVES: Others.remove,
    Deed.STACK_TAKES: Others.take_over,
    Deed.REGISTERS_ITSELF: Others.register_itself,
    Deed.NEIGHBOUR: Others.stand_beside,
    Deed.STRANGERS: Others.register_strangers,
    Deed.RENEWED: Others.renew,
    Deed.RESTARTED: Others.restart,
    Deed.RENDERED: Others.render,
    Deed.COPIED: Others.restart_with_copy,
    Deed.CUT: lambda others, _: others.cut(CUT_MS),
    Deed.LONG_CUT: lambda others, _: others.cut(LONG_CUT_MS),
    Deed.LATE: lambda others, _: others.delay(only_next=False),
    Deed.OVERTAKEN: lambda others, _: others.delay(only_next=True),
}


def metadata(info: InstanceInfo) -> Document:
    """Return an instance's metadata; empty if it has none."""
    return info.fields.get("metadata") or {}


def is_leaving(info: InstanceInfo) -> bool:
    """Return whether the instance carries our mark of a drain."""
    return LEAVING in metadata(info)


def _contents(info: InstanceInfo) -> tuple[Any, ...]:
    return (info.status, info.overridden, info.dirty_ms, sorted(metadata(info).items()))
