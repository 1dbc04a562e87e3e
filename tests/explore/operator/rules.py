"""Rules that must always hold: checked after each change in Eureka, each second, and after the final calm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eurekube_provider.core.derived_syncer import (
    Membership,
    derived_syncer,
    derived_syncer_name,
    is_namespace_syncer,
    membership_of_service,
    name_and_uid_of_parent_syncer,
)
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.gate import (
    declares_gate,
    is_gate_open,
    is_held_by_gate,
    is_ready_or_becoming_ready,
    mark_held_pods_ready,
)
from eurekube_provider.core.identity import (
    OWNER_KEY,
    Cluster,
    ClusterOwner,
    default_cluster_name,
    parse_owner,
    pod_and_namespace_of_id,
)
from eurekube_provider.core.mapping import desired_instances
from eurekube_provider.core.model import Instance, same_contents_but_status
from eurekube_provider.core.objects import is_terminating
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.syncer import FINALIZER, Syncer, has_finalizer
from eurekube_provider.dev.eureka.documents import ServerRequest, instance_info_document
from eurekube_provider.dev.eureka.eureka_server import EurekaServer
from eurekube_provider.dev.eureka.instance_registry import InstanceInfo
from eurekube_provider.eureka.protocol.codec import instance_from_json
from eurekube_provider.operator.watches import trim_service, trim_slice
from tests.explore.explorer import ORDINARY_KEYS
from tests.explore.operator.kube import KUBE_SYSTEM_UID, Change
from tests.explore.operator.workloads import APP, SHOP
from tests.explore.operator.world import OTHER_URL, World
from tests.model.commands import DATA_CENTER, amazon

CLUSTER = Cluster(default_cluster_name(KUBE_SYSTEM_UID), KUBE_SYSTEM_UID)

SETTLED_MS = 10_000
"""Milliseconds from the moment that an instance is wanted UP until the servers must show it."""

BEHIND_MS = 40_000
"""As :data:`SETTLED_MS`, where the API server may have sent the change late."""

LISTED_MS = 45_000
"""Milliseconds from a write until the operator has read it in a list."""

REPORTED_MS = 5_000
"""Milliseconds until servers have replicated a status."""

TERMINATED_MS = 20_000
"""The longest time in milliseconds for which a terminating pod may be UP without a disturbance."""

TAKE_OVER_MS = 60_000
"""Milliseconds until a new leader has read a list that it trusts: 35 s until it trusts lists, and up to 15
s until the next one.
"""

BRAKE_MS = 62_000
"""The longest time in milliseconds for which the brake holds."""

BEHIND_FROZEN_MS = 120_000
"""Milliseconds by which the brake may last longer if a server is frozen while another one loses its memory.

It begins again for instances that only the frozen server has.
"""

DOUBLED_MS = 120_000
"""Milliseconds for which an endpoint may be registered twice: lists are trusted 90 s after a read that
contradicts them, and read every 15 s.
"""

Key = tuple[str, str]

Place = tuple[str, str, str]
"""The connection, the application and the id of an instance."""

PUBLISHED = ("rating", "stars")
"""The names under which syncers may register."""

NAMELESS: tuple[Key, ...] = (("RATING", "i-1"), ("RATING", "i-2"))
"""Machines that send no id: their data centre names them, and they have one host name."""

FOREIGN: tuple[Key, ...] = (
    ("RATING", "foreign:rating:8080"),
    ("BILLING", "billing-0"),
    ("RATING", "ip-10-9-9-2/10.9.9.2:rating:8080"),  # which no request can name
    *NAMELESS,
)

STACKS: Key = ("LEGACY", "legacy-0")
"""A stack's registration that the operator must renew."""


@dataclass(slots=True)
class Standing:
    """An instance as the cluster wants it.

    :ivar wanted: the wanted instance; None if it must not be registered.
    :ivar since_ms: since when the cluster wants it so.
    :ivar seen_terminating: True if its pod was last seen terminating.
    :ivar is_kept: True if it may be left as it is: its syncer is paused, or removes nothing.
    """

    wanted: Instance | None
    since_ms: int
    seen_terminating: bool = False
    is_kept: bool = False


class Witness:
    """The checker of the rules, which reads Eureka and the cluster.

    It translates instances and owners to the cluster's first name, whatever name they are registered under.

    :ivar violations: the violated rules, in the order in which they were seen.
    :ivar cluster: the cluster with its current name; ``names`` are all that it had.
    :ivar overridden: the overrides that a person has set.
    """

    def __init__(self, world: World, keeps: tuple[str, ...] = ()) -> None:
        self.world = world
        self.violations: list[str] = []
        self.cluster, self.names = CLUSTER, [CLUSTER.name]
        self.standings: dict[Place, Standing] = {}
        self.overridden: dict[Place, str] = {}
        self.brake_ms = 0
        self.take_over_ms = 0
        self.is_behind = False
        self.hides_terminations = False  # what was not selected any more ended unseen
        self._keeps = keeps
        self._serves: dict[str, set[Place]] = {url: set() for url in (*world.cluster.urls, OTHER_URL)}
        self._excused_until: dict[Place, int] = {}
        self._terminated: set[tuple[str, str]] = set()
        self._ended: set[Place] = set()  # were not wanted for a while, and what a person set may have gone
        self._claims: dict[Place, list[Instance]] = {}  # by several syncers, of which the first has it
        self._refused: set[str] = set()
        self._paused: set[str] = set()
        self._may_lack: set[Place] = set()
        self._ready: set[str] = set()
        self._restarted_ms: dict[str, int] = {}
        self._removed_by_stack: set[str] = set()
        self._taken_out_ms: dict[Place, int] = {}
        self._put_back_ms: dict[Place, int] = {}
        self._own: dict[Key, tuple[str, str]] = {}  # what pods registered themselves, with name and address
        self._doubled_since: dict[tuple[str, Key], int] = {}
        self._is_forgotten = False  # the only server lost its memory
        self._stacks_may_be_either = False  # a server that forgets makes a removal and a loss look alike
        world.kube.changed = self._cluster_changed
        world.changed = world.cluster.on_batch = self.look

    def watch(self) -> None:
        """Check the rules each second from now on."""
        now = self.world.now_ms
        self.world.cluster.clock.run_every(now + 1000, 1000, self._tick)

    def register_foreign(self) -> None:
        """Register instances of others, which renew themselves, and a stack's registration."""
        for number in range(len(FOREIGN)):
            self._register_foreign(number)
        self._register(STACKS, "10.9.8.1", {OWNER_KEY: "stack/o/p/s/legacy", "eurekube.renewer": "eurekube"})
        clock = self.world.cluster.clock
        clock.run_every(clock.now_ms + 25_000, 25_000, self._renew_foreign)

    def _register_foreign(self, number: int) -> None:
        self._register(FOREIGN[number], f"10.9.9.{number}", {"a": "b"})

    def pod_registers_itself(self, name: str, address: str) -> None:
        """Register a pod as its own client does, and renew it every 25 seconds while the pod lives."""
        key = (APP.upper(), f"{name}:{APP}:8080")
        self._own[key] = (name, address)
        self._register(key, address, {})
        clock = self.world.cluster.clock
        clock.run_every(clock.now_ms + 25_000, 25_000, lambda: self._renew_own(key))

    def _may_stand_twice(self, key: Key) -> bool:
        """Return whether an instance's pod lives and registers itself, so that a syncer's earlier
        registration may stay beside it.
        """
        name = pod_and_namespace_of_id(key[1])[0]
        lives = (SHOP, name) in self.world.kube.objects["pods"]
        return lives and name in {own for own, _ in self._own.values()}

    def _renew_own(self, key: Key) -> None:
        name, address = self._own[key]
        if (SHOP, name) in self.world.kube.objects["pods"] and not self._ask(
            ServerRequest("PUT", ("apps", *key), {"lastDirtyTimestamp": "1"})
        ):
            self._register(key, address, {})

    def _register(self, key: Key, address: str, metadata: Mapping[str, str]) -> None:
        app, instance_id = key
        document = {
            "instanceId": instance_id,
            "app": app,
            "hostName": address,
            "ipAddr": address,
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "vipAddress": app.lower(),
            "dataCenterInfo": DATA_CENTER,
            "metadata": dict(metadata),
            "lastDirtyTimestamp": "1",
        }
        if key in NAMELESS:
            del document["instanceId"]
            document |= {"hostName": "vm", "dataCenterInfo": amazon(instance_id)}
        self._ask(ServerRequest("POST", ("apps", app), body={"instance": document}))

    def _ask(self, request: ServerRequest) -> bool:
        """Send a request of another client; return whether it succeeded."""
        cluster = self.world.cluster
        url = next((url for url in cluster.urls if url not in cluster.down), None)
        return url is None or cluster.request(url, request).status_code < 300

    def name_cluster(self, name: str) -> None:
        """Note the cluster's new name."""
        self.cluster = replace(CLUSTER, name=name)
        self.names = list(dict.fromkeys((*self.names, name)))

    def _found(self, server: EurekaServer, key: Key) -> InstanceInfo | None:
        """Return an endpoint's instance at a server, under any of the cluster's names; of two, the one
        that is UP.
        """
        ids = [key[1].replace(f".{CLUSTER.name}:", f".{name}:") for name in self.names]
        found = [info for one in dict.fromkeys(ids) if (info := server.registry.get(key[0], one))]
        return next((one for one in found if one.status == "UP"), next(iter(found), None))

    def _key(self, info: InstanceInfo) -> Key:
        """Return the key that an instance has under the cluster's first name."""
        name = next((one for one in self.names if f".{one}:" in info.id), CLUSTER.name)
        return info.app, info.id.replace(f".{name}:", f".{CLUSTER.name}:")

    def _as_first_named(self, found: Instance, *, may_be_former: bool) -> Instance:
        """Return an instance as under the cluster's first name; an owner with an unexpected name is changed,
        so that the comparison fails.

        :param may_be_former: True if its owner may still have a former name.
        """
        owner, metadata = parse_owner(found.owner), dict(found.metadata)
        names = self.names if may_be_former else (self.cluster.name,)
        if isinstance(owner, ClusterOwner):
            name = CLUSTER.name if owner.cluster in names else f"formerly {owner.cluster}"
            metadata[OWNER_KEY] = str(replace(owner, cluster=name))
        return replace(found, metadata=metadata)

    def excuse(self, place: Place, milliseconds: int) -> None:
        """Note that others removed an instance, which may be missing for so long."""
        self._excused_until[place] = self.world.now_ms + milliseconds
        self._may_lack_kept([place])
        for serves in self._serves.values():
            serves.discard(place)

    def taken_out(self, place: Place) -> None:
        """Note that a person has set OUT_OF_SERVICE; a server that is cut off may never hear of it."""
        self.overridden[place] = "OUT_OF_SERVICE"
        self._taken_out_ms[place] = self.world.now_ms
        if self.world.cluster.cut or self.world.cluster.down:
            self.parted()
        if any(self._found(server, place[1:]) is None for _, server in self._reachable()):
            self._ended.add(place)  # one that was restarted has nothing whose status it could set

    def put_back(self, place: Place) -> None:
        """Note that a person has cleared the status; a server that is cut off keeps it."""
        if self.world.cluster.cut or self.world.cluster.down:
            self._ended.add(place)
        else:
            self._put_back_ms[place] = self.world.now_ms
            del self.overridden[place]

    def removed(self, place: Place) -> None:
        """Note that a person has removed an instance and its override.

        With several servers a renewal that is being replicated may bring back both.
        """
        if place in self.overridden and len(self.world.cluster.urls) > 1:
            self._ended.add(place)
        elif self.overridden.pop(place, None) is not None:
            self._put_back_ms[place] = self.world.now_ms

    def parted(self) -> None:
        """Note that servers are cut off, and may never hear of statuses that a person has just set or
        cleared.
        """
        self.world.was_silent, now = True, self.world.now_ms
        if self.brake_ms and self._restarted_ms and self.world.cluster.down:
            self.brake_ms += BEHIND_FROZEN_MS
        for place in [place for place, at_ms in self._put_back_ms.items() if now - at_ms < REPORTED_MS]:
            self.overridden[place] = "OUT_OF_SERVICE"
            self._taken_out_ms[place] = now
        self._ended |= {place for place, at_ms in self._taken_out_ms.items() if now - at_ms < REPORTED_MS}

    def stack_removed(self, url: str) -> None:
        """Note that a stack has removed its registration at this server.

        It must not come back there, unless a server or the operator has lost what it knew.
        """
        self._removed_by_stack.add(url)

    def led_again(self) -> None:
        """Note that another leader begins, which does not know of losses that only the former one had
        seen.
        """
        self.take_over_ms = TAKE_OVER_MS
        if self._is_forgotten:
            (server,) = self.world.cluster.servers.values()
            self._may_lack_kept([place for place in self.standings if not self._found(server, place[1:])])

    def restarted(self, url: str) -> None:
        """Note that a server has lost its memory."""
        self._serves[url].clear()
        self._restarted_ms[url] = self.world.now_ms
        self._stacks_may_be_either = True
        self._is_forgotten |= len(self.world.cluster.urls) == 1
        if self.brake_ms and self.world.cluster.down:
            self.brake_ms += BEHIND_FROZEN_MS
        for place, at_ms in (*self._taken_out_ms.items(), *self._put_back_ms.items()):
            if self._is_forgotten and self.world.now_ms - at_ms < LISTED_MS:
                self.overridden[place] = "OUT_OF_SERVICE"
                self._ended.add(place)  # nobody else has heard that it was set, or is not any more
        if len(self.world.cluster.urls) == 1 and (self.take_over_ms or len(self.world.processes) > 1):
            # Who comes to lead does not know what stood there for a syncer that registers nothing.
            self._may_lack_kept(list(self.standings))

    def _may_lack_kept(self, places: list[Place]) -> None:
        """Allow that these instances are missing if their syncer is refused or paused, and so does not
        register them again.
        """
        for place in places:
            standing = self.standings.get(place)
            keeps = self._refused | self._paused
            if standing is not None and standing.wanted and standing.wanted.owner in keeps:
                self._may_lack.add(place)

    def look(self, what: str = "") -> None:
        """Check the rules that hold at every moment."""
        now = self.world.now_ms
        settled_ms = BEHIND_MS if self.is_behind else SETTLED_MS
        for url, server in self._reachable():
            serves = self._serves[url]
            for place, standing in self._standings_at(url):
                wanted, key = standing.wanted, place[1:]
                if wanted is None or wanted.status != "UP" or now - standing.since_ms < settled_ms:
                    continue
                info = self._found(server, key)
                if info is not None and info.status == "UP":
                    serves.add(place)
                elif (
                    place in serves
                    and place not in self.overridden
                    and self._excused_until.get(place, 0) < now
                    and place not in self._may_lack
                ):
                    is_now = "gone" if info is None else info.status
                    self._violated(f"{key[1]} serves, and is {is_now} at {url}", what)
            self._look_at_others(server, what)
            self._look_at_stacks(url, server, what)
        # Nobody else knows of it while the one that was informed is silent.
        self._stacks_may_be_either |= bool(self._removed_by_stack & self.world.cluster.down)

    def _look_at_stacks(self, url: str, server: EurekaServer, what: str) -> None:
        info = server.registry.get(*STACKS)
        if info is not None and (info.status, info.overridden) != ("UP", "UNKNOWN"):
            self._violated(f"a stack's registration is {info.status} at {url}", what)
        if self._removed_by_stack:
            knows = not (self._stacks_may_be_either or self.take_over_ms)
            if knows and info is not None and url in self._removed_by_stack:
                self._violated(f"a stack's registration that was removed is back at {url}", what)
            return
        if info is not None:
            self._serves[url].add(("default", *STACKS))
        elif ("default", *STACKS) in self._serves[url]:
            self._violated(f"a stack's registration has lapsed at {url}", what)

    def _reachable(self) -> list[tuple[str, EurekaServer]]:
        """Return the servers of both Eurekas that answer."""
        world = self.world
        servers = [*world.cluster.servers.items(), *world.other.servers.items()]
        return [(url, server) for url, server in servers if url not in world.cluster.down]

    def _standings_at(self, url: str) -> list[tuple[Place, Standing]]:
        """Return what the cluster wants at the Eureka of this server, by place."""
        connection = _connection_of(url)
        return [(place, one) for place, one in self.standings.items() if place[0] == connection]

    def _look_at_others(self, server: EurekaServer, what: str) -> None:
        strange = server.caches.read_only.keys() - ORDINARY_KEYS
        if strange:
            self._violated(f"Eureka's cache holds {min(strange)[:4]}", what)
        for key in FOREIGN:
            info = server.registry.get(*key)
            if info is not None and (info.status, info.dirty_ms, info.overridden) != ("UP", 1, "UNKNOWN"):
                self._violated(f"somebody else's {key[1]} was changed", what)
        for key, (name, _) in self._own.items():
            info, lives = server.registry.get(*key), (SHOP, name) in self.world.kube.objects["pods"]
            if info is not None:
                self._serves[server.url].add(("own", *key))
            elif lives and ("own", *key) in self._serves[server.url]:
                self._violated(f"what the pod {name} registered itself was removed", what)

    def _tick(self) -> None:
        self.look("a second")
        now = self.world.now_ms
        for url, server in self._reachable():
            self._look_at_doubles(url, server)
            for lease in server.registry.all_leases():
                info = lease.holder
                key = self._key(info)
                standing = self.standings.get((_connection_of(url), *key))
                if info.status != "UP" or not _is_ours(info):
                    continue
                if standing is not None and (standing.is_kept or _is_up(standing.wanted)):
                    continue
                if self._may_stand_twice(key):
                    continue
                if server.registry.get(info.app, info.id) is None:
                    continue
                since = max(standing.since_ms if standing else 0, self.world.disturbed_ms)
                terminated = (
                    standing is not None and standing.seen_terminating and not self.hides_terminations
                )
                patience = max(TERMINATED_MS, self.take_over_ms, self.doubled_ms)
                patience += 0 if terminated else self.brake_ms
                if now - since > patience:
                    self._violated(f"{key[1]} is gone from the cluster, and UP at {url}")

    def _look_at_doubles(self, url: str, server: EurekaServer) -> None:
        """Check that no endpoint is UP under two names of the cluster for longer than a removed one may
        be.
        """
        now = self.world.now_ms
        up = Counter(
            self._key(one.holder)
            for one in server.registry.all_leases()
            if one.holder.status == "UP" and _is_ours(one.holder) and server.registry.get(*_id(one.holder))
        )
        for key in [key for place, key in self._doubled_since if place == url and up[key] < 2]:
            del self._doubled_since[url, key]
        for key in [key for key, count in up.items() if count > 1]:
            since = max(self._doubled_since.setdefault((url, key), now), self.world.disturbed_ms)
            patience = max(TERMINATED_MS, self.take_over_ms, self.doubled_ms)
            if now - since > patience and not self._is_claimed_twice(url, key):
                self._violated(f"{key[1]} is UP by two names of the cluster at {url}")

    def _is_claimed_twice(self, url: str, key: Key) -> bool:
        """Return whether two syncers want an endpoint: each may have it under another name."""
        return len(self._claims.get((_connection_of(url), *key), ())) > 1

    @property
    def doubled_ms(self) -> int:
        """Milliseconds for which an endpoint may be registered under two names: an instance under the former
        name may be missed, where a server does not answer or a renewal asks one that has not heard of it yet.
        """
        return DOUBLED_MS if len(self.names) > 1 else 0

    def compare(self) -> None:
        """Check after the calm that Eureka holds what the cluster wants."""
        for url, server in self._reachable():
            self._compare_at(url, server)
        for process in self.world.processes:
            self.violations += [f"{process.name} ended: {error!r}" for error in process.errors]
        for line in self.world.logged:
            self._violated(f"logged: {line}")
        for _, name in (key for key, pod in self.world.kube.objects["pods"].items() if is_held_by_gate(pod)):
            self._violated(f"the gate of {name} is closed in the end")
        for syncer in self.world.kube.objects["eurekasyncers"].values():
            metadata = syncer["metadata"]
            if "deletionTimestamp" in metadata:
                self._violated(f"the deleted syncer {metadata['name']} is still there")
            elif is_namespace_syncer(syncer):
                self._compare_derived(syncer)
            else:
                self._compare_syncer(syncer)

    def _compare_derived(self, parent: Mapping[str, Any]) -> None:
        """Each Service that joins a namespace's syncer has its own, as it asks for, and no other has one."""
        objects, parent_name = self.world.kube.objects, parent["metadata"]["name"]
        wanted, refused = {}, set[str]()
        for service in objects["services"].values():
            if membership_of_service(parent, service) is Membership.MEMBER:
                name = derived_syncer_name(parent_name, service["metadata"]["name"])
                try:
                    wanted[name] = derived_syncer(parent, service)["spec"]
                except ConfigurationError:
                    refused.add(name)
        found = {
            item["metadata"]["name"]: item["spec"]
            for item in objects["eurekasyncers"].values()
            if name_and_uid_of_parent_syncer(item)[0] == parent_name
            and item["metadata"]["name"] not in refused
        }
        if found != wanted:
            self._violated(f"derived from {parent_name} are {found} and not {wanted}")
        counts = (parent.get("status") or {}).get("applications") or {}
        if (counts.get("total"), counts.get("refused")) != (len(wanted) + len(refused), len(refused)):
            self._violated(f"the status of {parent_name} counts {counts}")

    def _compare_syncer(self, syncer: Mapping[str, Any]) -> None:
        """Check that a syncer's finalizer and status are as if nothing had ever happened."""
        name = syncer["metadata"]["name"]
        owner = f"cluster/{CLUSTER.name}/{SHOP}/{name}"
        if owner not in self._refused and FINALIZER not in syncer["metadata"].get("finalizers", ()):
            self._violated(f"the syncer {name} has no finalizer")
        conditions = (syncer.get("status") or {}).get("conditions") or ()
        ready = next((one for one in conditions if one["type"] == "Ready"), {"status": "missing"})
        contested = {one.owner for claims in self._claims.values() if len(claims) > 1 for one in claims}
        lacking = {
            one.wanted.owner for place in self._may_lack if (one := self.standings.get(place)) and one.wanted
        }
        # What a person took out may leave none that is UP; of what is not registered again changes wait.
        is_clear = owner not in contested | lacking and not self.overridden
        if is_clear and ready["status"] != str(owner in self._ready):
            said = f"Ready: {ready['status']} ({ready.get('message')})"
            self._violated(f"the syncer {name} is {said} in the end")
        if ready.get("observedGeneration") != syncer["metadata"]["generation"]:
            self._violated(f"the status of the syncer {name} is of an older generation in the end")

    def _compare_at(self, url: str, server: EurekaServer) -> None:
        ours = [lease for lease in server.registry.all_leases() if _is_ours(lease.holder)]
        held = {self._key(lease.holder): lease for lease in ours}
        twice = {key for key, count in Counter(self._key(one.holder) for one in ours).items() if count > 1}
        if any(not self._is_claimed_twice(url, key) for key in twice):
            ids = sorted(lease.holder.id for lease in ours)
            self._violated(f"an endpoint stands at {url} by two names of the cluster in the end: {ids}")
        standings = {place[1:]: one for place, one in self._standings_at(url)}
        wanted = {key: one.wanted for key, one in standings.items() if one.wanted is not None}
        for key in held.keys() - wanted.keys():
            standing = standings.get(key)
            if (standing is None or not standing.is_kept) and not self._may_stand_twice(key):
                self._violated(f"{key[1]} is left at {url} in the end")
        for key, instance in wanted.items():
            lease = held.get(key)
            place = (_connection_of(url), *key)
            if lease is None and place in self._may_lack:
                continue
            if lease is None:
                self._violated(f"{key[1]} is missing at {url} in the end")
                continue
            status = self.overridden.get(place, instance.status)
            if lease.holder.status != status and not (
                place in self._ended and lease.holder.status == instance.status
            ):
                self._violated(f"{key[1]} is {lease.holder.status} and not {status} at {url} in the end")
            found = self._as_first_named(
                instance_from_json(instance_info_document(lease.holder, lease)),
                may_be_former=instance.owner in self._paused,
            )
            claims = self._claims.get((_connection_of(url), *key), [])
            claim = next((one for one in claims if one.owner == found.owner), instance)
            if found.owner != claim.owner:
                self._violated(f"{key[1]} is {found.owner}'s and not {claim.owner}'s in the end")
            elif not same_contents_but_status(found, claim):
                self._violated(f"{key[1]} has other contents at {url} in the end")
        for key, (name, _) in self._own.items() if url != OTHER_URL else ():
            lives = (SHOP, name) in self.world.kube.objects["pods"]
            if lives != (server.registry.get(*key) is not None):
                self._violated(f"the pod {name} {'lives' if lives else 'is gone'}, unlike {key[1]} at {url}")
        for key in (*FOREIGN, STACKS) if url != OTHER_URL else ():
            if key == STACKS and (self._removed_by_stack or (self._is_forgotten and self.take_over_ms)):
                continue  # who comes to lead after the only server forgot knows of no stack's
            if server.registry.get(*key) is None:
                self._violated(f"somebody else's {key[1]} is gone at {url} in the end")

    def _cluster_changed(self, change: Change) -> None:
        if change.kind == "pods" and declares_gate(change.item.get("spec") or {}):
            self._look_at_gate(change)
        elif change.kind not in ("eurekasyncers", "services", "endpointslices"):
            return
        if change.kind == "eurekasyncers":
            self._look_at_namespace_syncer(change)
        now = self.world.now_ms
        if change.kind == "endpointslices" and change.type != "DELETED":
            for endpoint in change.item["endpoints"]:
                name = (endpoint["targetRef"]["name"], change.item["metadata"]["namespace"])
                self._terminated.discard(name)
                if is_terminating(endpoint):
                    self._terminated.add(name)
        wanted, kept = self._wanted()
        for place in wanted.keys() | self.standings.keys():
            before, instance = self.standings.get(place), wanted.get(place)
            endpoint = pod_and_namespace_of_id(place[2])
            if instance is None and before is not None and self._stays(before, endpoint):
                before.is_kept = True
                if endpoint[::-1] not in self.world.kube.objects["pods"] and endpoint[0] not in self._keeps:
                    self._may_lack.add(place)  # a pod that is gone may be taken out, seen on its way or not
                continue
            terminated, is_kept = endpoint in self._terminated, place[1] in kept
            if before is None or _status(before.wanted) != _status(instance):
                self.standings[place] = Standing(instance, now, terminated, is_kept)
                if instance is None:
                    self._ended.add(place)
                for serves in self._serves.values():
                    serves.discard(place)
            else:
                before.wanted, before.seen_terminating = instance, terminated
                if before.is_kept and not is_kept:
                    before.since_ms = now  # from now on somebody may take it out
                before.is_kept = is_kept

    def _look_at_gate(self, change: Change) -> None:
        """Check that a gate is not closed again, and opens only if each server shows the pod, where callers
        have another one.
        """
        name, before = change.key[1], change.before
        is_open = is_gate_open(change.item)
        if before is None or change.type != "MODIFIED" or is_gate_open(before) == is_open:
            return
        if not is_open:
            self._violated(f"the gate of {name} is closed again")
            return
        settled = self.world.now_ms - (BEHIND_MS if self.is_behind else SETTLED_MS)
        slices = self.world.kube.objects["endpointslices"].values()
        endpoints = [one for item in slices for one in item["endpoints"]]
        ready = {one["targetRef"]["name"] for one in endpoints if one["conditions"]["ready"]}
        for place, standing in self.standings.items():
            is_waited_for = _is_up(standing.wanted) and standing.since_ms <= settled and ready - {name}
            if pod_and_namespace_of_id(place[2])[0] != name or not is_waited_for:
                continue
            for url, server in self._reachable():
                info = self._found(server, place[1:])
                is_asked = _connection_of(url) == place[0] and self._restarted_ms.get(url, 0) <= settled
                if is_asked and (info is None or info.status != "UP"):
                    self._violated(f"the gate of {name} opens, and {url} does not show it")

    def _look_at_namespace_syncer(self, change: Change) -> None:
        """Check that a syncer is derived from one that has the finalizer, and that none outlives it."""
        name, uid = name_and_uid_of_parent_syncer(change.item)
        parent = self.world.kube.get("eurekasyncers", SHOP, name)
        if uid and change.type == "ADDED" and not (parent and has_finalizer(parent)):
            self._violated(f"{change.key[1]} is derived from a syncer without a finalizer")
        if change.type == "DELETED" and is_namespace_syncer(change.item):
            ours = (change.key[1], change.item["metadata"]["uid"])
            left = [
                key[1]
                for key, one in self.world.kube.objects["eurekasyncers"].items()
                if name_and_uid_of_parent_syncer(one) == ours
            ]
            if left:
                self._violated(f"the syncer {change.key[1]} is gone before {sorted(left)}")

    def _stays(self, before: Standing, endpoint: tuple[str, str]) -> bool:
        """Return whether an endpoint's instance stays though it is in no slice: its pods are meant to
        serve, or its syncer is refused and it was not seen terminating.
        """
        is_refused = before.wanted is not None and before.wanted.owner in self._refused
        return endpoint[0] in self._keeps or (is_refused and endpoint not in self._terminated)

    def _wanted(self) -> tuple[dict[Place, Instance], set[str]]:
        """Return the wanted instances, and the applications that must lose none."""
        objects = self.world.kube.objects
        services = [trim_service(one) for one in objects["services"].values()]
        slices = [trim_slice(one) for one in objects["endpointslices"].values()]
        waiting = {
            key
            for key, pod in objects["pods"].items()
            if is_held_by_gate(pod) or is_ready_or_becoming_ready(pod)
        }
        slices = mark_held_pods_ready(slices, waiting)
        wanted: dict[Place, Instance] = {}
        kept: set[str] = set()
        self._claims.clear()
        self._refused.clear()
        self._paused.clear()
        self._ready.clear()
        for item in objects["eurekasyncers"].values():
            if "deletionTimestamp" in item["metadata"]:
                continue
            try:
                syncer = Syncer.from_object(item)
            except ConfigurationError:
                continue
            # Whose names are another Service's is not known where there is no Service.
            is_named = any(syncer.selector.selects(service) for service in services)
            is_reserved = is_named and syncer.application not in PUBLISHED
            if syncer.eureka not in ("default", "other") or syncer.needs_routes or is_reserved:
                self._refused.add(syncer.owner(CLUSTER))
                continue
            desired = desired_instances(syncer, services, slices, CLUSTER)
            if not desired.problems and (not desired.instances or any(map(_is_up, desired.instances))):
                self._ready.add(syncer.owner(CLUSTER))
            if syncer.is_paused:
                self._paused.add(syncer.owner(CLUSTER))
            if syncer.is_paused or syncer.policy is not Policy.SYNC or desired.may_be_incomplete:
                kept.add(syncer.application.upper())
            own = {address for _, address in self._own.values()}
            for instance in (one for one in desired.instances if one.ip_address not in own):
                wanted.setdefault((syncer.eureka, *instance.key), instance)
                self._claims.setdefault((syncer.eureka, *instance.key), []).append(instance)
        return wanted, kept

    def _renew_foreign(self) -> None:
        """Renew the instances of others, and register an unknown one again, as Netflix's client does."""
        for number, key in enumerate(FOREIGN):
            if not self._ask(ServerRequest("PUT", ("apps", *key), {"lastDirtyTimestamp": "1"})):
                self._register_foreign(number)

    def _violated(self, rule: str, what: str = "") -> None:
        line = f"{rule}, after {what}" if what else rule
        if rule not in {one.split(", after ")[0] for one in self.violations}:
            self.violations.append(line)
            self.world.note(f"!! {rule}")


def _connection_of(url: str) -> str:
    return "other" if url == OTHER_URL else "default"


def _status(instance: Instance | None) -> str:
    """Return the wanted status of an instance; empty if it is not wanted."""
    return "" if instance is None else str(instance.status)


def _is_up(instance: Instance | None) -> bool:
    return instance is not None and instance.status == "UP"


def _id(info: InstanceInfo) -> Key:
    return info.app, info.id


def _is_ours(info: InstanceInfo) -> bool:
    metadata: Mapping[str, Any] = info.fields.get("metadata") or {}
    return str(metadata.get(OWNER_KEY, "")).startswith("cluster/")
