"""The explanation of an application's mirrors: the Service, and why it does not call an instance. Only the
operator knows its networks and what names resolve to: its messages come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eurekube_provider.comparison.managers import manager_of
from eurekube_provider.comparison.mirror_state import MirrorState, mirror_states, service_of_application
from eurekube_provider.comparison.ranked import RankedEnum
from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import APPLICATION_ANNOTATION
from eurekube_provider.core.mirror_conditions import MirrorCondition
from eurekube_provider.core.mirror_endpoints import (
    MirrorEndpoint,
    is_excluded_from_mirror,
    mirrored_endpoints,
)
from eurekube_provider.core.mirror_slices import endpoints_in_slices
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import MIRROR_LABEL, Object, conditions_of
from eurekube_provider.core.problem import Problem

_ALL_NETWORKS = parse_networks(["0.0.0.0/0", "::/0"])
_CONDITIONS_NAMING_INSTANCES = (
    MirrorCondition.ADDRESS_REFUSED,
    MirrorCondition.UNRESOLVABLE,
    MirrorCondition.NO_PORT,
    MirrorCondition.UNREADABLE,
)

_NOT_SHOWN_YET_TEXT = (
    "its operator has not shown it yet: a change takes up to half a minute in Eureka's lists"
)


class ServiceUse(RankedEnum):
    """How a mirrored Service treats an instance: the states, in the order in which instances are shown."""

    LEFT_OUT = "left out"
    """The instance has no endpoint."""

    NOT_CALLED = "not called"
    """The instance's endpoint is not ready, or the Service cannot call it."""

    HELD = "held"
    """The Service calls the instance although Eureka does not list it any more, or never did."""

    CALLED = "called"


@dataclass(frozen=True, slots=True)
class MirrorInventory:
    """A cluster's mirrors as they were read.

    :ivar mirror_objects: the EurekaMirrors; empty where the cluster does not know the kind.
    :ivar cluster_addresses: the addresses of the cluster's Services and pods, as far as they were read.
    """

    mirror_objects: Sequence[Object] = ()
    slices: Sequence[Object] = ()
    cluster_addresses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MirroredInstance:
    """One instance, and its use by a mirrored Service."""

    instance_id: str
    use: ServiceUse
    address: str = ""
    why: str = ""

    def to_dict(self) -> dict[str, str]:
        return {
            "instanceId": self.instance_id,
            "shown": str(self.use),
            "address": self.address,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class MirrorExplanation:
    """The explanation of how one mirror shows an application.

    :ivar service: the name of the application's Service; empty where none can be made.
    :ivar instances: the instances; those that are not called come first.
    """

    mirror_state: MirrorState
    application: str
    service: str
    instances: tuple[MirroredInstance, ...]

    def limited_to_instances(self, ids: Iterable[str]) -> MirrorExplanation:
        """Return a copy that explains only these instances."""
        wanted = set(ids)
        return replace(self, instances=tuple(one for one in self.instances if one.instance_id in wanted))

    def to_dict(self) -> dict[str, Any]:
        return {
            "mirror": f"{self.mirror_state.namespace}/{self.mirror_state.name}",
            "application": self.application,
            "service": self.service,
            "state": str(self.mirror_state.state),
            "why": self.mirror_state.problem_text,
            "instances": [one.to_dict() for one in self.instances],
        }


def explain_mirrors(
    inventory: MirrorInventory,
    cluster: Cluster,
    application: str,
    instances: Iterable[Instance],
    now_seconds: float,
) -> list[MirrorExplanation]:
    """Explain at a Unix time how each mirror shows an application (in upper case), worst first."""
    listed = list(instances)
    found = []
    for mirror_state in mirror_states(inventory.mirror_objects, now_seconds):
        if not mirror_state.shows_application(application):
            continue
        explainer = _MirrorExplainer(mirror_state, application, cluster, inventory)
        service = service_of_application(mirror_state.item, application)
        shown = sorted(explainer.explain_instances(listed), key=lambda one: (one.use.rank, one.instance_id))
        found.append(MirrorExplanation(mirror_state, application, service, tuple(shown)))
    return found


def find_mirrored_applications(inventory: MirrorInventory, name_or_id: str) -> set[str]:
    """Return the mirrored applications that have this name, in any case, or an instance with this id."""
    return {
        application
        for item in inventory.slices
        if (application := _application_of_slice(item)) == name_or_id.upper()
        or any(one.instance_id == name_or_id for one in endpoints_in_slices([item]))
    }


class _MirrorExplainer:
    """Explains, for one application in one mirror, how the Service treats each instance."""

    def __init__(
        self, mirror_state: MirrorState, application: str, cluster: Cluster, inventory: MirrorInventory
    ) -> None:
        self._mirror, self._mirror_state = mirror_state.mirror, mirror_state
        self._cluster = cluster
        self._policy = AddressPolicy(_ALL_NETWORKS, (), inventory.cluster_addresses)
        self._conditions: Mapping[str, Object] = conditions_of(mirror_state.item)
        self._endpoints = endpoints_in_slices(
            one for one in inventory.slices if _is_endpoint_slice_of_mirror(one, mirror_state, application)
        )
        self._holders = {one.address: one.instance_id for one in self._endpoints}

    def explain_instances(self, listed: Sequence[Instance]) -> Iterable[MirroredInstance]:
        """Yield each instance that Eureka lists, and each other one that the Service still shows."""
        by_id: dict[str, list[MirrorEndpoint]] = {}
        for one in self._endpoints:
            by_id.setdefault(one.instance_id, []).append(one)
        for instance in listed:
            yield self._explain_listed(instance, by_id.pop(instance.instance_id, []))
        for instance_id, endpoints in by_id.items():
            yield self._explain_unlisted(instance_id, endpoints)

    def _explain_listed(self, instance: Instance, endpoints: Sequence[MirrorEndpoint]) -> MirroredInstance:
        key, address = instance.instance_id, ", ".join(one.address for one in endpoints)
        if any(one.is_ready for one in endpoints):
            said = self._find_operator_message(instance, (MirrorCondition.NOT_CALLED,))
            use = ServiceUse.NOT_CALLED if said else ServiceUse.CALLED
            return MirroredInstance(key, use, address, said)
        if not endpoints:
            return MirroredInstance(
                key, ServiceUse.LEFT_OUT, instance.ip_address, self._why_no_endpoint(instance)
            )
        why = f"it is {instance.status}, and only what is UP is called"
        return MirroredInstance(
            key, ServiceUse.NOT_CALLED, address, _NOT_SHOWN_YET_TEXT if instance.status is Status.UP else why
        )

    def _explain_unlisted(self, instance_id: str, endpoints: Sequence[MirrorEndpoint]) -> MirroredInstance:
        address = ", ".join(one.address for one in endpoints)
        if not instance_id:
            why = "somebody wrote this endpoint by hand: the operator takes it out with its next reconcile"
            return MirroredInstance(instance_id, ServiceUse.HELD, address, why)
        if not any(one.is_ready for one in endpoints):
            return MirroredInstance(
                instance_id, ServiceUse.NOT_CALLED, address, "Eureka lists it no more: its endpoint goes next"
            )
        if self._has_true_condition(MirrorCondition.BRAKED):
            said = Problem.of(self._conditions[MirrorCondition.BRAKED]).text
            return MirroredInstance(instance_id, ServiceUse.HELD, address, f"Eureka does not list it: {said}")
        most = f", for {self._mirror.hold_seconds} s at most (spec.holdSeconds)" if self._mirror else ""
        why = f"Eureka lists it no more: it is called until a server says that it left{most}"
        return MirroredInstance(instance_id, ServiceUse.HELD, address, why)

    def _why_no_endpoint(self, instance: Instance) -> str:
        mirror = self._mirror
        if mirror is None:
            return self._mirror_state.problem_text
        if is_excluded_from_mirror(mirror, instance, self._cluster):
            return self._why_never_mirrored(instance)
        holder = self._holders.get(instance.ip_address)
        if holder is not None:
            return f"its address is shown for {holder} already: two registrations of one process"
        said = self._find_operator_message(instance, _CONDITIONS_NAMING_INSTANCES)
        if said:
            return said
        mapped = mirrored_endpoints(mirror, [instance], self._cluster, self._policy, {})
        for problem in mapped.problems:
            if problem.reason == MirrorCondition.UNRESOLVABLE and not self._has_true_condition(
                MirrorCondition.UNRESOLVABLE
            ):
                continue  # here nothing is resolved, and the operator has no trouble with names
            detail = problem.message.removeprefix(f"{instance.application} {instance.instance_id} ")
            return f"{problem.reason}: it {detail}"
        if self._mirror_state.problem_text:
            return f"its mirror is {self._mirror_state.state}: {self._mirror_state.problem_text}"
        return _NOT_SHOWN_YET_TEXT

    def _why_never_mirrored(self, instance: Instance) -> str:
        manager = manager_of(instance, self._cluster.name)
        if (instance.owner or "").startswith(f"cluster/{self._cluster.name}/"):
            return f"{manager} of this cluster registered it: what this cluster registers is never mirrored"
        return f"{manager} registered it: spec.includeOtherClusters is not true"

    def _has_true_condition(self, kind: MirrorCondition) -> bool:
        return (self._conditions.get(kind) or {}).get("status") == "True"

    def _find_operator_message(self, instance: Instance, kinds: Iterable[MirrorCondition]) -> str:
        """Return the operator's sentence about an instance in a condition of the mirror, of these kinds."""
        start = f"{instance.application} {instance.instance_id} "
        for kind in kinds:
            if not self._has_true_condition(kind):
                continue
            for sentence in Problem.of(self._conditions[kind]).message.split("; "):
                if sentence.startswith(start):
                    return f"{kind}: it {sentence.removeprefix(start)}"
        return ""


def _is_endpoint_slice_of_mirror(item: Object, mirror_state: MirrorState, application: str) -> bool:
    metadata = item["metadata"]
    return (
        metadata["namespace"] == mirror_state.namespace
        and (metadata.get("labels") or {}).get(MIRROR_LABEL) == mirror_state.name
        and _application_of_slice(item) == application
    )


def _application_of_slice(item: Object) -> str:
    return str((item["metadata"].get("annotations") or {}).get(APPLICATION_ANNOTATION) or "")
