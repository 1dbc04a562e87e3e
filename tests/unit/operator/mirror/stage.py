"""A mirror's reconciler over an API server in memory and a Eureka whose answers a test sets."""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.durations import Distribution
from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance, InstanceKey, Port
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.registry import Figures, Healthy, RegistryCondition, RegistryServer
from eurekube_provider.dev.kubernetes.patches import apply_merge_patch
from eurekube_provider.kube.access import MIRRORS
from eurekube_provider.kube.reflector import ReflectorGroup
from eurekube_provider.operator.mirror.host_names import HostNameCache
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_reconciler import MirrorReconciler, MirrorResult
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter

Object = dict[str, Any]
KEY = ("shop", "legacy")


class Api:
    """An API server in memory, as far as mirrors use it.

    :ivar writes: each write that was carried out, as ``POST services/review``.
    :ivar fails: the error that is raised instead of the next write.
    """

    server = "api"

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[str] = []
        self.fails: KubernetesError | None = None
        self._versions = itertools.count(1)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        """Return a copy of one object, or raise 404; with a query, list the objects below a path."""
        if query is not None:
            return next(self.pages(path, query))
        if path not in self.objects:
            raise KubernetesError("there is none", status_code=404)
        return copy.deepcopy(self.objects[path])

    def pages(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Object]:
        """List the objects below a path; a query with a field selector selects one name."""
        name = (query or {}).get("fieldSelector", "").removeprefix("metadata.name=")
        items = [
            copy.deepcopy(item)
            for where, item in self.objects.items()
            if where.startswith(f"{path}/{name}") and (not name or where.endswith(f"/{name}"))
        ]
        yield {"metadata": {"resourceVersion": "1"}, "items": items}

    def request(self, method: str, path: str, query: object = None, body: Any = None, **__: object) -> Object:
        """Carry out a write as Kubernetes does; nothing of a dry run."""
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        if query == {"dryRun": "All"}:
            return copy.deepcopy(body)
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise KubernetesError("there is one", status_code=409, reason="AlreadyExists")
            stands: Object = {"metadata": {"uid": f"uid-{next(self._versions)}"}}
        else:
            if path.removesuffix("/status") not in self.objects:
                raise KubernetesError("there is none", status_code=404)
            stands = self.objects[path.removesuffix("/status")]
        if method == "DELETE":
            refuse_another(body["preconditions"], stands)
            self._note(method, path)
            return self.objects.pop(path)
        if method in ("PUT", "PATCH"):
            refuse_another(body.get("metadata") or {}, stands)
        self._note(method, path)
        changed = (
            apply_merge_patch(copy.deepcopy(stands), body)
            if method in ("PATCH", "POST")
            else copy.deepcopy(body)
        )
        changed["metadata"]["uid"] = stands["metadata"]["uid"]
        changed["metadata"]["resourceVersion"] = str(next(self._versions))
        path = path.removesuffix("/status")
        self.objects[path] = changed
        return copy.deepcopy(changed)

    def edited(self, path: str, item: Object) -> Object:
        """Store an object with a new resource version, as a write of another client does."""
        item = copy.deepcopy(item)
        item["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[path] = item
        return copy.deepcopy(item)

    def _note(self, method: str, path: str) -> None:
        self.writes.append(f"{method} {'/'.join(path.split('/')[-2:])}")


def refuse_another(named: Mapping[str, Any], stands: Object) -> None:
    """Raise 409 if a write names another UID or resource version than the stored object has."""
    for field in ("uid", "resourceVersion"):
        held = stands["metadata"].get(field)
        if named.get(field, held) != held:
            raise KubernetesError("it was changed meanwhile", status_code=409, reason="Conflict")


class Source:
    """A Eureka as mirrors read it, with answers that a test sets.

    :ivar listed: its list; ``hidden``: instances that a server holds beside that; ``gone``: those that left.
    :ivar absent: instances that no server holds, and of which none says that it ever did.
    :ivar asked: the keys of the instances about which every server was asked.
    :ivar urls: the servers that are read.
    :ivar was_restarted_lately: True if one of them may have lost its memory.
    """

    def __init__(self) -> None:
        self.listed: list[Instance] = []
        self.hidden: list[Instance] = []
        self.gone: set[InstanceKey] = set()
        self.absent: set[InstanceKey] = set()
        self.urls: tuple[str, ...] = ()
        self.asked: list[InstanceKey] = []
        self.state: RegistryCondition = Healthy()
        self.read_at: float | None = 1_000_000.0
        self.is_silent = self.was_restarted_lately = False
        self.was_read: Callable[[], None] = lambda: None

    def call_after_reads(self, was_read: Callable[[], None]) -> None:
        """Keep the callback that reports a reading."""
        self.was_read = was_read

    def condition(self) -> RegistryCondition:
        """Return the condition that the test has set."""
        return self.state

    def known_instances(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the listed instances."""
        assert not owner
        return [one for one in self.listed if application in ("", one.application)]

    def instances_by_application(self) -> dict[str, list[Instance]]:
        """Return the listed instances by application."""
        return group_by_application(self.listed)

    def look_up_unlisted(self, keys: Iterable[InstanceKey]) -> UnlistedInstances:
        """Return what the test has set for these instances: registered, gone or absent."""
        keys = list(keys)
        self.asked += keys
        if self.is_silent:
            raise RegistryUnreachable("no server answers")
        registered = tuple(one for one in self.hidden if one.key in keys)
        gone, absent = frozenset(self.gone & {*keys}), frozenset(self.absent & {*keys})
        return UnlistedInstances(registered, gone | absent, absent)

    def figures(self, *, in_full: bool = False) -> Figures:
        """Return the servers and the time of the last reading."""
        assert not in_full
        servers = [RegistryServer(url, True, 0.0, "", None, {}, Distribution()) for url in self.urls]
        return Figures(servers, read_at=self.read_at, may_have_lost_memory=self.was_restarted_lately)


def group_by_application(instances: Iterable[Instance]) -> dict[str, list[Instance]]:
    """Return instances by their application, in their order."""
    found = defaultdict[str, list[Instance]](list)
    for one in instances:
        found[one.application].append(one)
    return dict(found)


def instance(number: int = 1, application: str = "review", address: str = "", **more: Any) -> Instance:
    """Return an instance that runs on a machine; the number makes its id and default address."""
    address = address or f"192.0.2.{number}"
    return Instance(application, f"vm-{number}", address, address, Port(8080), **more)


class Stage:
    """A mirror that a test reconciles step by step.

    :ivar persons: the Services that no mirror made, by namespace and name.
    :ivar others_slices: the EndpointSlices that no mirror wrote, by namespace and Service.
    :ivar addresses: the addresses of host names, by the last good answer; ``failures``: why the last lookup
        failed.
    :param writers: how many writes may be under way at once; by default one, so that they have an order.
    """

    def __init__(self, writers: int = 1, api: Api | None = None, **spec: Any) -> None:
        self.api, self.source = api or Api(), Source()
        self.sources = {"default": self.source}
        self.now = 1000.0
        self.policy = AddressPolicy(parse_networks(["192.0.2.0/24", "2001:db8::/32"]))
        self.persons: dict[tuple[str, str], Object] = {}
        self.others_slices: dict[tuple[str, str], list[Object]] = {}
        self.addresses: dict[str, tuple[str, ...]] = {}
        self.failures: dict[str, str] = {}
        self.concerned: list[MirrorKey] = []
        self.objects = MirrorObjects(self.api, (), self.concerned.append)  # type: ignore[arg-type]
        self.writer = MirrorWriter(self.api, self.objects)  # type: ignore[arg-type]
        names = HostNameCache(lambda: None)
        names.addresses_of = self.addresses.get  # type: ignore[method-assign,assignment]
        names.failure_text_of = lambda name: self.failures.get(name, "")  # type: ignore[method-assign]
        self.reconciler = MirrorReconciler(
            Cluster("eks", "uid"),
            self.objects,
            self.writer,
            self.sources,
            lambda: self.policy,
            names,
            lambda namespace, name: self.persons.get((namespace, name)),
            lambda: self.now,
            writers,
            lambda *place: self.others_slices.get(place, []),
            names,
        )
        for group in (self.objects.mirrors, self.objects.services, self.objects.slices):
            one(group).replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": []}])
        self.edited(**(spec or {"application": "review"}))

    def edited(self, name: str = "legacy", **spec: Any) -> None:
        """Store a EurekaMirror with this spec, as a person who creates or edits one does."""
        metadata = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
        item = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaMirror",
            "metadata": {**metadata, "finalizers": ["eurekube.io/mirror"]},
            "spec": spec,
        }
        self.api.objects[MIRRORS.path("shop", name)] = item
        one(self.objects.mirrors).apply_event("MODIFIED", item)

    def deleted(self) -> None:
        """Mark the mirror as deleted, as ``kubectl delete`` does."""
        item = copy.deepcopy(self.api.objects[MIRRORS.path(*KEY)])
        item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.api.objects[MIRRORS.path(*KEY)] = item
        one(self.objects.mirrors).apply_event("MODIFIED", item)

    def reconcile(self, name: str = "legacy") -> MirrorResult:
        """Forget the recorded writes, and reconcile a mirror."""
        self.api.writes.clear()
        return self.reconciler.reconcile(("shop", name))

    def problem(self, kind: str, name: str = "legacy") -> str:
        """Reconcile a mirror, and return the message of a problem of this kind; empty if the report has
        none.
        """
        report = self.reconcile(name).report
        assert report is not None
        found = report.problems.get(kind)
        return found.text if found else ""

    def service(self, name: str = "review") -> Object | None:
        """Return a Service as the API server holds it, or None."""
        return self.api.objects.get(f"/api/v1/namespaces/shop/services/{name}")

    def shows(self, service: str = "review") -> dict[str, bool]:
        """Return the addresses in a Service's EndpointSlices, each with its condition ``ready``."""
        return {
            each["addresses"][0]: each["conditions"]["ready"]
            for path, item in self.api.objects.items()
            if "/endpointslices/" in path
            and item["metadata"]["labels"]["kubernetes.io/service-name"] == service
            for each in item["endpoints"]
        }


def one(group: ReflectorGroup) -> Any:
    """Return the only reflector of a group."""
    (reflector,) = group.reflectors
    return reflector
