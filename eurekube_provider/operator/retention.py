"""What stays registered of a syncer that registers nothing anew: one that is refused, paused or in doubt.

Nothing of it is changed, and what a registry forgot is put back as it stood. But its pods go on ending all
the same: what was seen terminating, or ended unseen, must leave Eureka, since renewed any longer it would be
called for as long as the syncer is refused.

A pod that ended while nobody watched was never seen terminating, and its address may be another application's
by then. So the cluster is asked as certainly as it can be: such a pod stands in no EndpointSlice of its
namespace, and the API server has no pod of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster, endpoint_of
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, is_ready, service_of
from eurekube_provider.core.plan import Action, Change, Plan, Policy, plan
from eurekube_provider.core.registry import Registry
from eurekube_provider.kube.access import PODS, KubeAccess
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.sources import Sources
from eurekube_provider.operator.watches import EndpointName

MOST_ASKED = 20
"""Pods that one reconcile asks the API server for; the next one asks for the rest."""


@dataclass(frozen=True, slots=True)
class Retained:
    """What a refused syncer has registered at one Eureka.

    :ivar leaves: to be removed.
    :ivar lapses: to be renewed no more: the syncer's policy removes nothing.
    :ivar stays: to be renewed as it stands.
    """

    leaves: Plan
    lapses: tuple[Instance, ...]
    stays: tuple[Instance, ...]


class Retention:
    """Judges by what is known of the cluster, and asks it for single pods; threads may share it."""

    def __init__(self, cluster: Cluster, access: KubeAccess, sources: Sources) -> None:
        self._cluster = cluster
        self._access = access
        self._sources = sources
        self._found_there: dict[SyncerKey, frozenset[str]] = {}  # the ids of which the last answers were so

    def forget(self, key: SyncerKey) -> None:
        """The syncer is gone."""
        self._found_there.pop(key, None)

    def of_refused(
        self, syncer: Object, owner: str, owned: Mapping[str, Collection[Instance]]
    ) -> dict[str, Retained]:
        """Divide what a syncer has at each registry.

        :param syncer: the custom resource, of which only the two fields that limit removals are believed.
        """
        spec = syncer.get("spec") or {}
        may_go: frozenset[str] = frozenset()
        if not spec.get("paused"):
            held = [one for there in owned.values() for one in there]
            seen = (one.instance_id for one in held if self._sources.seen_terminating(one.instance_id))
            may_go = frozenset(seen) | self.ended(key_of(syncer), held)
        removes = (spec.get("policy") or Policy.SYNC) == Policy.SYNC
        found = {}
        for name, there in owned.items():
            gone = tuple(one for one in there if one.instance_id in may_go)
            stays = tuple(one for one in there if one.instance_id not in may_go)
            leaves = plan((), gone, owner) if removes else Plan()
            found[name] = Retained(leaves, () if removes else gone, stays)
        return found

    def ended(self, key: SyncerKey, held: Collection[Instance]) -> frozenset[str]:
        """The ids of a syncer's pods that the cluster has no more, though none was seen terminating."""
        near = pods_of(self._sources.slices_of(key))
        places = (endpoint_of(one.instance_id, self._cluster.name) for one in held)
        if all((namespace, name) in near or not is_pod(name) for name, namespace in places):
            self.forget(key)
            return frozenset()  # as a rule, and without going through the slices of whole namespaces
        namespaces = self._namespaces(held)
        if any(self._sources.slices.without_list(one) for one in namespaces):
            return frozenset()

        def is_there(namespace: str, name: str) -> bool:
            # A list, since the operator may list pods; of this selector the API server reads one object.
            query = {"fieldSelector": f"metadata.name={name}"}
            return bool(self._access.get(PODS.path(namespace), query)["items"])

        missing = vanished(held, self._slices(namespaces), self._cluster.name)
        before = self._found_there.get(key, frozenset())
        # Those that were there the last time come again when all the others were asked for.
        rest = [one for one in missing if one.instance_id not in before]
        asked = (rest or missing)[:MOST_ASKED]
        try:
            gone = ended(asked, self._cluster.name, is_there)
        except KubernetesError:
            return frozenset()  # in doubt they stay
        there = frozenset(one.instance_id for one in asked) - gone
        self._found_there[key] = there | before if rest else there
        return gone

    def restored(self, key: SyncerKey, registry: Registry, owner: str) -> tuple[Change, ...]:
        """What a registry forgot of what a syncer keeps, as it stood, where nobody else stands."""
        forgotten = registry.forgotten(owner)
        lost = [one for one in forgotten if not self._sources.seen_terminating(one.instance_id)]
        if not lost:
            return ()
        back = restorable(lost, self._sources.slices_of(key), self._cluster.name)
        if len(back) < len(lost):
            back = restorable(lost, self._slices(self._namespaces(lost)), self._cluster.name)
        names = {one.application for one in back}
        there = [one for name in names for one in registry.known(application=name)]
        return plan(back, there, owner, Policy.UPSERT_ONLY).of(Action.REGISTER)

    def _namespaces(self, instances: Iterable[Instance]) -> set[str]:
        return {endpoint_of(one.instance_id, self._cluster.name)[1] for one in instances}

    def _slices(self, namespaces: Iterable[str]) -> list[Object]:
        return [item for one in namespaces for item in self._sources.slices.objects(one)]


def restorable(lost: Iterable[Instance], slices: Iterable[Object], cluster: str) -> list[Instance]:
    """The instances whose endpoint is still in the cluster, ready and at the same address, as they stood.

    :param slices: the EndpointSlices as they are now. For the instance of a whole Service any ready endpoint
        of it will do.
    :param cluster: the name that stands in the ids.
    """
    left = [one for one in lost if not one.is_leaving]
    if not left:
        return []
    ready: set[tuple[str, str, str]] = set()
    serving: set[tuple[str, str]] = set()
    for namespace, endpoint, item in _endpoints(slices):
        if is_ready(endpoint):
            address, service = endpoint["addresses"][0], service_of(item)
            name = (endpoint.get("targetRef") or {}).get("name") or address
            ready.add((namespace, name, address))
            if service:
                serving.add((namespace, service))

    def is_there(one: Instance) -> bool:
        name, namespace = endpoint_of(one.instance_id, cluster)
        service, mark, _ = name.partition(".svc")
        if (namespace, name, one.ip_address) in ready:
            return True
        return bool(mark) and (namespace, service) in serving

    # What a person had set over the status is the registry's to remember.
    return [replace(one, status=Status.UP) if one.is_overridden else one for one in left if is_there(one)]


def vanished(held: Collection[Instance], slices: Iterable[Object], cluster: str) -> list[Instance]:
    """Pods that stand in no slice by name or address, while fellow pods of their application still do.

    Where none does, the source may be broken. Whole Services, and endpoints that are no pods, are left aside.

    :param slices: all of the namespaces in question.
    :param cluster: the name that stands in the ids.
    """
    items = list(slices)
    pods = pods_of(items)
    names: set[tuple[str, str]] = set()
    for namespace, endpoint, _ in _endpoints(items):
        target = endpoint.get("targetRef") or {}
        if target.get("kind") != "Pod" or not target.get("name"):
            names |= {(namespace, one) for one in (target.get("name"), *endpoint["addresses"]) if one}
    found: list[Instance] = []
    siblings: set[tuple[str, str]] = set()
    for one in held:
        name, namespace = endpoint_of(one.instance_id, cluster)
        if (namespace, name) in pods:
            siblings.add((namespace, one.application))
        elif is_pod(name) and not {(namespace, name), (namespace, one.ip_address)} & names:
            found.append(one)
    return [one for one in found if (endpoint_of(one.instance_id, cluster)[1], one.application) in siblings]


def _endpoints(slices: Iterable[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Each endpoint of these slices: its namespace, itself, and its slice."""
    for item in slices:
        for endpoint in item.get("endpoints") or ():
            yield item["metadata"]["namespace"], endpoint, item


def pods_of(slices: Iterable[Object]) -> set[EndpointName]:
    """Namespace and name of the pods that stand in these slices."""
    return {
        (namespace, target["name"])
        for namespace, endpoint, _ in _endpoints(slices)
        if (target := endpoint.get("targetRef") or {}).get("kind") == "Pod" and target.get("name")
    }


def ended(asked: Iterable[Instance], cluster: str, is_there: Callable[[str, str], bool]) -> frozenset[str]:
    """The ids of those of which there is no pod any more.

    :param is_there: asks the API server whether a namespace has a pod of a name.
    """
    return frozenset(
        one.instance_id for one in asked if not is_there(*reversed(endpoint_of(one.instance_id, cluster)))
    )


def is_pod(name: str) -> bool:
    """Whether this is no address, and no Service's mark in an id."""
    if ".svc" in name or not name:
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False
