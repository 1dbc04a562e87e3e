"""The Services of mirrors: which names are free, what is made, and what is added to.

A Service that a person owns is never written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.mirror import Mirror
from eurekube_provider.core.mirror_addresses import AddressPolicy
from eurekube_provider.core.mirror_conditions import MirrorCondition, MirroredService
from eurekube_provider.core.mirror_endpoints import named_after
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.objects import ATTACH_ANNOTATION, is_mirrored
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.wording import listed
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.mirror.concurrent_writes import Write
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from eurekube_provider.operator.mirror.mirrored_service import (
    has_form,
    last_read,
    last_read_patch,
    owner_reference,
    service_body,
    service_patch,
)

_MOST_NAMED = 5


@dataclass(slots=True)
class MirrorRound:
    """One reconcile of a mirror while it goes on.

    :ivar read_at: Unix time at which Eureka was read.
    :ivar services: the mirror's, by name; ``slices`` theirs.
    :ivar shown_before: the slices by application, each with its Service's name.
    :ivar problems: what was found so far; ``shown`` what is shown, ``expired`` what went without proof.
    :ivar uses_names: whether an instance is known by a host's name, so that it must be looked up again.
    """

    key: MirrorKey
    item: Object
    mirror: Mirror
    source: MirrorSource
    policy: AddressPolicy
    read_at: float | None
    services: dict[str, Object]
    slices: Mapping[str, list[Object]]
    shown_before: Mapping[str, list[tuple[str, Object]]]
    problems: list[Problem] = field(default_factory=list)
    shown: list[MirroredService] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    uses_names: bool = False

    def part(self) -> MirrorRound:
        """The same round for one application: what is found of it is noted apart from that of others."""
        return replace(self, problems=[], shown=[], expired=[], uses_names=False)

    def join(self, part: MirrorRound) -> None:
        """Take over what was found of an application."""
        self.problems += part.problems
        self.shown += part.shown
        self.expired += part.expired
        self.uses_names |= part.uses_names


class ServiceKeeper:
    """Keeps the Services of mirrors; any number of threads may share it, each with a mirror of its own.

    :param service: a Service as the operator watches it, by namespace and name.
    """

    def __init__(
        self,
        objects: MirrorObjects,
        writer: MirrorWriter,
        service: Callable[[str, str], Object | None],
    ) -> None:
        self._objects, self._writer, self.service = objects, writer, service

    def is_free(self, now: MirrorRound, application: str, name: str) -> bool:
        """Whether a Service of this name may be created."""
        other = self._objects.mirror_of(now.key[0], name)
        if other and other != now.key[1]:
            why = f"the mirror {other} has it"
        elif not other and self.service(now.key[0], name) is not None:
            why = "it is somebody's, and is left alone"
        else:
            return True
        sentence = f"{application} would be the Service {name}, of which there is one: {why}"
        now.problems.append(Problem(MirrorCondition.NAME_TAKEN, sentence))
        return False

    def is_persons(self, namespace: str, name: str) -> bool:
        """Whether there is a Service of this name that no mirror made."""
        service = self.service(namespace, name)
        return service is not None and not is_mirrored(service)

    def has_opted_in(self, key: MirrorKey, name: str) -> bool:
        """Whether a person's Service says that this mirror may add to it."""
        service = self.service(key[0], name)
        return service is not None and _opted_in(service) == key[1]

    def attached(self, now: MirrorRound, name: str) -> Mirror | None:
        """The mirror, with its ports named as those of the Service that it adds to; None if it may not."""
        service = self.service(now.key[0], name)
        if service is None:
            why, remedy = "there is no such Service", "create it, or correct spec.attachTo"
        elif is_mirrored(service):
            why, remedy = "it is a mirrored Service itself", "name another one in spec.attachTo"
        elif _opted_in(service) != now.key[1]:
            wanted = f"{ATTACH_ANNOTATION}={now.key[1]}"
            why, remedy = f"it does not have the annotation {wanted}", f"annotate it with {wanted}"
        else:
            ports = (service.get("spec") or {}).get("ports") or ()
            mirror = named_after(ports, now.mirror)
            names = {str(one.get("name") or "") for one in ports}
            if names & {mirror.port.name, mirror.secure_port.name}:
                return mirror
            why = f"it has no port named {mirror.port.name} (spec.portName)"
            remedy = f"set spec.portName to one of {listed(sorted(names), _MOST_NAMED)}"
        sentence = f"nothing is added to the Service {name}: {why}"
        now.problems.append(Problem(MirrorCondition.NOT_ATTACHED, sentence, remedy))
        return None

    def have_service(
        self,
        now: MirrorRound,
        application: str,
        name: str,
        service: Object | None,
        ports: list[dict[str, object]],
    ) -> Object | None:
        """The Service as it must be, made or changed; None where somebody else was faster."""
        owner = owner_reference(now.item, is_controller=True)
        wanted = service_body(now.mirror, owner, application, name, ports)
        if service is not None and not has_form(service, now.mirror.form):
            self._writer.delete_service(service)
            service = None
        if service is None:
            wanted["metadata"]["annotations"] |= last_read(now.read_at)
            try:
                created = self._writer.create_service(wanted)
            except KubernetesError as error:
                if error.reason != "AlreadyExists":
                    raise
                sentence = (
                    f"{application} would be the Service {name}, which was just created by somebody else"
                )
                now.problems.append(Problem(MirrorCondition.NAME_TAKEN, sentence))
                return None
            now.services[name] = created
            return created
        if patch := service_patch(service, wanted):
            service = now.services[name] = self._writer.patch_service(service, patch)
        return service

    def last_reads(self, now: MirrorRound) -> Iterator[Write]:
        """Have each Service say, now and then, when Eureka was last read."""
        shown = {one.service for one in now.shown}
        services = [service for name, service in now.services.items() if name in shown]
        return self._last_reads(services, now.read_at, is_exact=False)

    def exact_last_reads(self, services: Iterable[Object], read_at: float | None) -> Iterator[Write]:
        """Have Services say to the second when Eureka was last read, as it does not answer any more."""
        return self._last_reads(services, read_at, is_exact=True)

    def _last_reads(
        self, services: Iterable[Object], read_at: float | None, *, is_exact: bool
    ) -> Iterator[Write]:
        for service in services:
            if patch := last_read_patch(service, read_at, is_exact=is_exact):
                yield partial(self._patch, service, patch)

    def _patch(self, service: Object, patch: dict[str, Any]) -> None:
        self._writer.patch_service(service, patch)


def _opted_in(service: Object) -> str | None:
    found: str | None = (service["metadata"].get("annotations") or {}).get(ATTACH_ANNOTATION)
    return found
