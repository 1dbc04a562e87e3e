"""A model of two clusters at one Eureka, with the real plans of syncers and the real reconciles of
mirrors.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.decision import plan_syncer_changes
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mapping import desired_instances
from eurekube_provider.core.mirror_endpoints import MirrorEndpoint
from eurekube_provider.core.mirror_slices import endpoints_in_slices
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance, InstanceKey, Port, Status
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import (
    ATTACH_MIRROR_ANNOTATION,
    MIRROR_LABEL,
    SERVICE_NAME_LABEL,
    is_mirrored,
)
from eurekube_provider.core.plan import Action, plan
from eurekube_provider.core.registry import Figures, Healthy, RegistryCondition
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.eureka_server import EurekaServer
from eurekube_provider.dev.eureka.virtual_clock import Clock
from eurekube_provider.eureka.protocol.codec import instance_to_json_object, instances_from_json
from eurekube_provider.kube.access import MIRRORS
from eurekube_provider.operator.index import ServiceIndex
from eurekube_provider.operator.mirror.host_names import HostNameCache
from eurekube_provider.operator.mirror.mirror_objects import MirrorObjects
from eurekube_provider.operator.mirror.mirror_reconciler import MirrorReconciler
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from tests.unit.operator.mirror.stage import Api, Object, group_by_application, one

SHOP = "shop"
APPLICATIONS = ("REVIEW", "RATING", "ORDER")
POLICY = AddressPolicy(parse_networks(["192.0.2.0/24", "10.0.0.0/8"]))
"""An address policy that allows pods' networks, too, so that addresses alone do not prevent an echo."""


class Eureka:
    """A model of one Eureka server without a cache.

    :ivar writes: how many changes were sent to it.
    """

    def __init__(self) -> None:
        self._server = EurekaServer("http://eureka/eureka", Clock(), use_read_only_cache=False)
        self._server.open()
        self.writes = 0

    def listed(self) -> list[Instance]:
        """Return all instances that the server lists."""
        answer = self._server.handle(ServerRequest("GET", ("apps",), headers={"Accept": "application/json"}))
        return instances_from_json(answer.json)

    def register(self, instance: Instance) -> None:
        """Register an instance, and replace one of the same id."""
        self.remove(instance.key)
        body = {"instance": instance_to_json_object(instance)}
        assert (
            self._server.handle(ServerRequest("POST", ("apps", instance.application), body=body)).status_code
            == 204
        )

    def remove(self, key: InstanceKey) -> None:
        """Remove an instance."""
        self._server.handle(ServerRequest("DELETE", ("apps", *key)))

    def carry_out(self, action: Action, instance: Instance) -> None:
        """Carry out a change of a plan."""
        self.writes += 1
        if action is Action.DEREGISTER:
            self.remove(instance.key)
        elif action in (Action.REGISTER, Action.UPDATE):
            self.register(instance)
        else:
            path = ("apps", *instance.key, "status")
            self._server.handle(ServerRequest("PUT", path, {"value": str(instance.status)}))


class Source:
    """The Eureka as mirrors read it: an instance that its only server does not list is gone."""

    def __init__(self, eureka: Eureka) -> None:
        self._eureka = eureka

    def call_after_reads(self, _: object) -> None:
        """Ignore the callback."""

    def condition(self) -> RegistryCondition:
        """Return that the server answers."""
        return Healthy()

    def known_instances(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the listed instances."""
        assert not owner
        return [one for one in self._eureka.listed() if application in ("", one.application)]

    def instances_by_application(self) -> dict[str, list[Instance]]:
        """Return the listed instances by application."""
        return group_by_application(self._eureka.listed())

    def look_up_unlisted(self, keys: Iterable[InstanceKey]) -> UnlistedInstances:
        """Return the instances that are gone."""
        there = {one.key for one in self._eureka.listed()}
        return UnlistedInstances((), frozenset(key for key in keys if key not in there))

    def figures(self, *, in_full: bool = False) -> Figures:
        """Return a fixed time of reading."""
        assert not in_full
        return Figures(read_at=1_800_000_000.0)


class OneCluster:
    """A cluster with its operator.

    :ivar retries: how often a reconcile must be tried again.
    """

    def __init__(self, name: str, number: int, eureka: Eureka) -> None:
        self.cluster = Cluster(name, f"uid-{name}")
        self.number, self.eureka = number, eureka
        self.api = Api()
        self.retries = 0
        self.syncers: dict[str, Object] = {}
        self._objects = MirrorObjects(self.api, (), lambda _: None)  # type: ignore[arg-type]
        self._reconciler = MirrorReconciler(
            self.cluster,
            self._objects,
            MirrorWriter(self.api, self._objects),  # type: ignore[arg-type]
            {"default": Source(eureka)},
            lambda: POLICY,
            HostNameCache(lambda: None),
            lambda namespace, name: self.api.objects.get(f"/api/v1/namespaces/{namespace}/services/{name}"),
            writers=1,
        )

    # --- what is there

    def service(self, name: str, pods: int, **annotations: str) -> None:
        """Create a person's Service, and a slice with this number of pods."""
        labels = {"app": name}
        spec = {"selector": labels, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}
        metadata = {"namespace": SHOP, "name": name, "labels": labels, "annotations": annotations}
        self._put("/api/v1/namespaces/shop/services", {"metadata": metadata, "spec": spec})
        item = {
            "metadata": {"namespace": SHOP, "name": f"{name}-pods", "labels": {SERVICE_NAME_LABEL: name}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [
                {
                    "addresses": [f"10.{self.number}.{len(name)}.{pod + 1}"],
                    "conditions": {"ready": True},
                    "targetRef": {"kind": "Pod", "name": f"{name}-{pod}"},
                }
                for pod in range(pods)
            ],
        }
        self._put("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", item)

    def syncer(self, name: str, **selector: Any) -> None:
        """Create a syncer of the application of this name."""
        spec = {"mode": "pod", "application": name, "selector": selector}
        self.syncers[name] = {"metadata": {"namespace": SHOP, "name": name}, "spec": spec}

    def mirror(self, name: str, **spec: Any) -> None:
        """Create a mirror, and replace one of the same name."""
        self.remove("eurekamirrors", name)
        metadata = {"namespace": SHOP, "name": name, "finalizers": ["eurekube.io/mirror"]}
        item = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaMirror",
            "metadata": metadata,
            "spec": spec,
        }
        self._put(MIRRORS.path(SHOP), item)

    def of_kind(self, kind: str) -> list[Object]:
        """Return all objects of a kind, given as its plural."""
        return [item for path, item in self.api.objects.items() if path.split("/")[-2] == kind]

    def shown(self) -> list[tuple[str, MirrorEndpoint]]:
        """Return all mirrored endpoints, each with its mirror's name."""
        return [
            (item["metadata"]["labels"][MIRROR_LABEL], endpoint)
            for item in self.of_kind("endpointslices")
            if is_mirrored(item)
            for endpoint in endpoints_in_slices([item])
        ]

    def pods(self) -> set[str]:
        """Return the addresses of the cluster's pods."""
        return {
            endpoint["addresses"][0]
            for item in self.of_kind("endpointslices")
            if not is_mirrored(item)
            for endpoint in item["endpoints"]
        }

    def remove(self, kind: str, name: str) -> None:
        """Delete an object as a person does; a Service's slices go with it."""
        for path, item in list(self.api.objects.items()):
            labels = item["metadata"].get("labels") or {}
            is_of = kind == "services" and labels.get(SERVICE_NAME_LABEL) == name
            if path.endswith(f"/{kind}/{name}") or is_of:
                del self.api.objects[path]

    # --- what its operator does

    def works(self) -> Iterator[tuple[str, str]]:
        """Yield each work of a round: a syncer, a mirror, or the clean-up after deleted syncers."""
        yield from (("syncer", name) for name in self.syncers)
        yield from (("mirror", item["metadata"]["name"]) for item in self.of_kind("eurekamirrors"))
        yield ("leftovers", "")

    def reconcile(self, kind: str, name: str) -> None:
        """Reconcile a syncer or a mirror, or clean up after deleted syncers."""
        if kind == "mirror":
            self._deliver_objects()
            try:
                self._reconciler.reconcile((SHOP, name))
            except KubernetesError as error:
                if error.reason != "AlreadyExists":
                    raise
                # There is another mirror's slice, which that one takes away.
                self.retries += 1
        elif kind == "syncer":
            self._sync(Syncer.from_object(self.syncers[name]))
        else:
            self._clean_up()

    def _sync(self, syncer: Syncer) -> None:
        index = ServiceIndex()
        for item in self.of_kind("services"):
            index.update_service(None, item)
        for item in self.of_kind("endpointslices"):
            index.update_slice(None, item)
        services, slices = index.services_and_slices(syncer.selector)
        desired = desired_instances(syncer, services, slices, self.cluster)
        listed, owner = self.eureka.listed(), syncer.owner(self.cluster)
        there = [each for each in listed if each.owner == owner]
        named = [each for each in listed if each.application == syncer.application.upper()]
        for change in plan_syncer_changes(syncer, desired, there, named, owner, {}).changes:
            self.eureka.carry_out(change.action, change.instance)

    def _clean_up(self) -> None:
        """Deregister the instances of syncers that no longer exist."""
        owners = {each.owner for each in self.eureka.listed() if each.owner}
        for owner in owners:
            ours = self.cluster.parse_syncer_of_this_cluster(owner)
            if ours is not None and ours.syncer not in self.syncers:
                there = [each for each in self.eureka.listed() if each.owner == owner]
                for change in plan((), there, owner).changes:
                    self.eureka.carry_out(change.action, change.instance)

    def _deliver_objects(self) -> None:
        """Give the mirrors all current objects, after Kubernetes' garbage collection of objects without an
        owner.
        """
        uids = {item["metadata"]["uid"] for item in self.api.objects.values()}
        for path, item in list(self.api.objects.items()):
            owners = item["metadata"].get("ownerReferences") or ()
            if owners and not uids.intersection(each["uid"] for each in owners):
                del self.api.objects[path]
        objects = self._objects
        for group, items in (
            (objects.mirrors, self.of_kind("eurekamirrors")),
            (objects.services, [item for item in self.of_kind("services") if _label(item)]),
            (objects.slices, [item for item in self.of_kind("endpointslices") if is_mirrored(item)]),
        ):
            one(group).replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": items}])

    def _put(self, path: str, item: Object) -> None:
        self.api.request("POST", path, body=item)


def _label(item: Object) -> bool:
    return MIRROR_LABEL in (item["metadata"].get("labels") or {})


class TwoClusters:
    """Two clusters and one Eureka, in any state that a seed draws."""

    def __init__(self, seed: int) -> None:
        self._draw = draw = random.Random(seed)  # noqa: S311 - a test
        self.eureka = Eureka()
        self.clusters = [OneCluster(name, number, self.eureka) for number, name in ((1, "eks"), (2, "gke"))]
        for cluster in self.clusters:
            self._furnish(cluster)
        for number in range(draw.randint(2, 8)):
            status = draw.choice((Status.UP, Status.UP, Status.DOWN, Status.OUT_OF_SERVICE))
            self._register(number, f"192.0.2.{number}", status)
        for number in range(10, 10 + draw.randint(0, 6)):
            # What operators registered before, of pods that may still be there, and of syncers that may not.
            cluster = draw.choice(self.clusters)
            owner = f"cluster/{cluster.cluster.name}/{SHOP}/{draw.choice((*APPLICATIONS, 'GONE')).lower()}"
            self._register(number, f"10.{cluster.number}.6.{number}", Status.UP, owner)
        self._register(20, "192.0.2.200", Status.UP, "stack/o/p/s/x")

    def come_to_rest(self, most_rounds: int = 8) -> bool:
        """Reconcile everything in random order until a whole round changes nothing; return False if it
        never does.
        """
        for _ in range(most_rounds):
            works = [(cluster, work) for cluster in self.clusters for work in cluster.works()]
            self._draw.shuffle(works)
            before = self._writes()
            for cluster, work in works:
                cluster.reconcile(*work)
            if self._writes() == before:
                return True
        return False

    def change(self) -> None:
        """Change a random part of the objects and instances."""
        draw = self._draw
        for cluster in self.clusters:
            for kind in ("services", "eurekamirrors"):
                for item in cluster.of_kind(kind):
                    if draw.random() < 0.3:
                        cluster.remove(kind, item["metadata"]["name"])
            for name in list(cluster.syncers):
                if draw.random() < 0.3:
                    del cluster.syncers[name]
            self._furnish(cluster)
        for listed in self.eureka.listed():
            if draw.random() < 0.2:
                self.eureka.remove(listed.key)
        for number in range(30, 30 + draw.randint(0, 4)):
            self._register(number, f"192.0.2.{number}", Status.UP)

    def _writes(self) -> int:
        return self.eureka.writes + sum(
            len(cluster.api.writes) + cluster.retries for cluster in self.clusters
        )

    def _furnish(self, cluster: OneCluster) -> None:
        draw = self._draw
        for application in APPLICATIONS:
            name = application.lower()
            if draw.random() < 0.5:
                cluster.remove("services", name)
                opted_in = {ATTACH_MIRROR_ANNOTATION: "attached"} if draw.random() < 0.5 else {}
                cluster.service(name, draw.randint(0, 3), **opted_in)
            if draw.random() < 0.7:
                selector = {"app": name} if draw.random() < 0.7 else {"matchLabels": {MIRROR_LABEL: "all"}}
                cluster.syncer(name, **selector)
        others = {"includeOtherClusters": draw.random() < 0.5}
        if draw.random() < 0.7:
            cluster.mirror("named", application=draw.choice(APPLICATIONS), **others)
        if draw.random() < 0.7:
            cluster.mirror("all", pattern="*", allow=[*APPLICATIONS], headless=draw.random() < 0.5, **others)
        if draw.random() < 0.5:
            application = draw.choice(APPLICATIONS)
            cluster.mirror("attached", application=application, attachTo=application.lower(), **others)

    def _register(self, number: int, address: str, status: Status, owner: str = "") -> None:
        metadata = {"eurekube.owner": owner} if owner else {}
        application = self._draw.choice(APPLICATIONS)
        self.eureka.register(
            Instance(
                application, f"i-{number}", address, address, Port(8080), status=status, metadata=metadata
            )
        )
