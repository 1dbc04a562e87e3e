"""The operator's unchanged MirrorReconciler and EurekaRegistry, driven by one loop and its writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.errors import KubernetesError, LeadershipLost, RegistryError
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import (
    ATTACH_MIRROR_ANNOTATION,
    MIRROR_LABEL,
    MIRROR_SLICE_MANAGER,
    SLICE_MANAGED_BY_LABEL,
)
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.kube.access import ENDPOINT_SLICES, MIRRORS, SERVICES, ApiResource, KubeAccess
from eurekube_provider.kube.reflector import Reflector
from eurekube_provider.operator.mirror.concurrent_writes import MOST_CONCURRENT_WRITES
from eurekube_provider.operator.mirror.host_names import HostNameCache
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_reconciler import MirrorReconciler, MirrorResult
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from tests.explore.operator.kube import Change
from tests.explore.operator.rules import CLUSTER
from tests.explore.operator.stepwise import Stepwise
from tests.explore.operator.threads import Process, Task
from tests.explore.operator.world import World

POLICY = AddressPolicy(parse_networks(["192.0.2.0/24"]))

RESYNC_SECONDS, RETRY_SECONDS = 15.0, 1.0

WRITERS_DRAWN = (2, MOST_CONCURRENT_WRITES)
"""Possible limits on simultaneous writes: the smaller one is below the number of applications, so that
some writes come later.
"""

Object = dict[str, Any]


class MirrorReplica:
    """The parts of an operator that serve mirrors.

    :ivar hears: True if its watches report changes.
    """

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        assert isinstance(world.scheduler, Stepwise)
        self._scheduler: Stepwise = world.scheduler
        self._task = Task(self._scheduler, process, "loop", lambda: None)
        self._due: dict[MirrorKey, float] = {}
        self._services: dict[MirrorKey, Object] = {}
        self._seen = 0
        self._reads_at = 0.0
        self._lists_again = True
        self.hears = True
        with self._scheduler.within(self._task):
            self._access = access = KubeAccess.load(None).with_write_check(lambda: not process.is_dead)
            self._registry = EurekaRegistry.from_connection(
                Connection(world.cluster.urls), CLUSTER, "eurekube", RESYNC_SECONDS
            )
            self._registry.call_after_reads(self._all)
            self._registry.renewals.stand_by()
            self._objects = MirrorObjects(access, (), self._add)
            self._reconciler = MirrorReconciler(
                CLUSTER,
                self._objects,
                MirrorWriter(access, self._objects),
                {"default": self._registry},
                lambda: POLICY,
                HostNameCache(lambda: None),
                lambda namespace, name: self._services.get((namespace, name)),
                writers=process.random.choice(WRITERS_DRAWN),
            )

    def step(self) -> bool:
        """Do one due task, chosen at random; return False if none is due."""
        if self._process.is_dead:
            return False
        now = self._now
        due: list[MirrorKey | None] = [None] if self._reads_at <= now else []
        if not self._lists_again and self._registry.reachability.has_been_read:
            due += [key for key, at in self._due.items() if at <= now]
        if not due:
            return False
        chosen = self._process.random.choice(due)
        with self._scheduler.within(self._task):
            try:
                if chosen is None:
                    self._look_around()
                else:
                    self._reconcile(chosen)
            except Exception as error:  # noqa: BLE001 - shown as a violation
                self._process.errors.append(error)
                self._process.is_dead = True
        return True

    def deliver_watches(self) -> None:
        """Hand over the changes that the API server's watches report."""
        if self._process.is_dead or self._lists_again or not self.hears:
            return
        kube = self._world.kube
        news = [one for one in kube.changes if one.version > self._seen]
        self._seen = kube.version
        with self._scheduler.within(self._task):
            for change in news:
                self._take(change)

    # --- inside

    def _look_around(self) -> None:
        """Read Eureka, and list the cluster if that has not been done."""
        self._reads_at = self._now + RETRY_SECONDS
        if self._lists_again:
            version = self._world.kube.version
            try:
                listed = list(self._access.pages(SERVICES.path()))
                for resource, reflector, labels in self._groups:
                    query = {"labelSelector": labels} if labels else None
                    reflector.replace_from_list(self._access.pages(resource.path(), query=query))
            except KubernetesError:
                return
            for item in (one for page in listed for one in page["items"]):
                self._services[item["metadata"]["namespace"], item["metadata"]["name"]] = item
            self._seen, self._lists_again = version, False
            self.deliver_watches()
        try:
            self._registry.reader.read()
            self._reads_at = self._now + RESYNC_SECONDS
        except RegistryError as error:
            self._registry.reachability.note_failure_and_check_lasting(error)

    def _reconcile(self, key: MirrorKey) -> None:
        del self._due[key]
        try:
            result = self._reconciler.reconcile(key)
        except (KubernetesError, LeadershipLost):
            self._due[key] = self._now + RETRY_SECONDS
            result = MirrorResult()
        assert not self._process.tasks, "writers go on though their reconcile has ended"
        if result.requeue_after_seconds is not None:
            self._due.setdefault(key, self._now + result.requeue_after_seconds)

    def _take(self, change: Change) -> None:
        place = change.key
        if change.kind == "services":
            self._services.pop(place, None)
            if change.type != "DELETED":
                self._services[place] = change.item
            self._service_changed(change.item)
        for resource, reflector, labels in self._groups:
            if resource.plural == change.kind:
                # A watch by a label tells of the end of what has it no more.
                type_ = change.type if _fits(change.item, labels) else "DELETED"
                reflector.apply_event(type_, change.item)

    def _service_changed(self, item: Mapping[str, Any]) -> None:
        metadata = item["metadata"]
        opted_in = (metadata.get("annotations") or {}).get(ATTACH_MIRROR_ANNOTATION)
        if opted_in:
            self._add((metadata["namespace"], opted_in))
        for mirror in self._objects.mirrors.objects(metadata["namespace"]):
            if (mirror.get("spec") or {}).get("attachTo") == metadata["name"]:
                self._add((mirror["metadata"]["namespace"], mirror["metadata"]["name"]))

    def _add(self, key: MirrorKey) -> None:
        self._due[key] = self._now

    def _all(self) -> None:
        for key in self._objects.mirror_keys():
            self._add(key)

    @property
    def _groups(self) -> Iterator[tuple[ApiResource, Reflector, str]]:
        for resource, group, labels in (
            (MIRRORS, self._objects.mirrors, ""),
            (SERVICES, self._objects.services, MIRROR_LABEL),
            (ENDPOINT_SLICES, self._objects.slices, f"{SLICE_MANAGED_BY_LABEL}={MIRROR_SLICE_MANAGER}"),
        ):
            (reflector,) = group.reflectors
            yield resource, reflector, labels

    @property
    def _now(self) -> float:
        return self._world.now_ms / 1000


def _fits(item: Mapping[str, Any], labels: str) -> bool:
    name, _, value = labels.partition("=")
    held = item["metadata"].get("labels") or {}
    return not name or (name in held and value in ("", held[name]))
