"""The writes to Services of mirrors, and the tests of their ownership.

A Service that a person owns is never written to, except to remove a mirror's owner reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.mirror import LAST_READ_ANNOTATION, Mirror, mirrored_application
from eurekube_provider.core.mirror_conditions import MirrorCondition, MirroredServiceCounts
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.mirrored_service import service_patch
from eurekube_provider.core.objects import is_mirrored, mirror_allowed_to_attach
from eurekube_provider.core.problem import Problem
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.mirror.concurrent_writes import Write
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from eurekube_provider.runtime.clock import format_utc_time

LAST_READ_UPDATE_SECONDS = 600.0
"""Seconds between updates of a Service's annotation of Eureka's last reading, while nothing else changes.

Each write is sent to every node, and a reader needs to tell only hours from minutes.
"""


@dataclass(slots=True)
class MirrorRound:
    """The inputs and the results so far of one reconcile of a mirror.

    :ivar mirror_object: the mirror as the API has it; ``mirror`` is its parsed spec.
    :ivar read_at: Unix time at which Eureka was read.
    :ivar services: the mirror's Services, by name.
    :ivar slices: the mirror's EndpointSlices, by their Service's name.
    :ivar slices_by_application: the slices by application; ``slice_names`` the names of all of them.
    :ivar server_urls: the URLs of the servers that are read, with spaces between them; empty where none are
        known.
    :ivar is_brake_released: True if a person allowed the removal of held endpoints.
    :ivar is_frozen: True if Eureka does not answer: then nothing is removed, and missing objects are
        restored.
    :ivar problems: the problems so far.
    :ivar shown_services: the Services that the mirror shows, with the counts of their endpoints.
    :ivar expired_instance_names: the instances whose endpoints were removed without proof that they left.
    :ivar uses_host_names: True if an instance is known by a host name, which must be looked up again.
    :ivar parts: the results of the applications for which something was decided, in the order of the
        decisions.
    """

    key: MirrorKey
    mirror_object: Object
    mirror: Mirror
    source: MirrorSource
    policy: AddressPolicy
    read_at: float | None
    services: dict[str, Object]
    slices: Mapping[str, Sequence[Object]]
    slices_by_application: Mapping[str, Sequence[Object]]
    slice_names: Sequence[str]
    server_urls: str = ""
    is_brake_released: bool = False
    is_frozen: bool = False
    problems: list[Problem] = field(default_factory=list)
    shown_services: list[MirroredServiceCounts] = field(default_factory=list)
    expired_instance_names: list[str] = field(default_factory=list)
    uses_host_names: bool = False
    parts: list[MirrorRound] = field(default_factory=list)

    def make_part(self) -> MirrorRound:
        """Return a copy of the round that collects the results of one application."""
        part = replace(self, problems=[], shown_services=[], expired_instance_names=[], parts=[])
        part.uses_host_names = False
        self.parts.append(part)
        return part

    def add_parts(self) -> None:
        """Add the results of the applications, from :meth:`make_part`, to the round."""
        for part in self.parts:
            self.problems += part.problems
            self.shown_services += part.shown_services
            self.expired_instance_names += part.expired_instance_names
            self.uses_host_names |= part.uses_host_names


class ServiceWriter:
    """The writer of mirrors' Services; any number of threads may share it, each with a mirror of its own.

    :param service: returns a Service from the operator's copy, by namespace and name.
    :param others_slices: returns the EndpointSlices of a Service that no mirror wrote, by namespace and name.
    """

    def __init__(
        self,
        objects: MirrorObjects,
        writer: MirrorWriter,
        service: Callable[[str, str], Object | None],
        others_slices: Callable[[str, str], Iterable[Object]] = lambda *_: (),
    ) -> None:
        self._objects, self._writer, self.service = objects, writer, service
        self._others_slices = others_slices

    def slice_names_taken_by_others(self, namespace: str, name: str) -> tuple[str, ...]:
        """Return, sorted, the slice names that are not free for a Service: those of its EndpointSlices that
        no mirror wrote, and those of its pattern that other writers have taken.
        """
        others = {str(one["metadata"]["name"]) for one in self._others_slices(namespace, name)}
        taken = {one for one in self._writer.taken_slice_names(namespace) if one.rsplit("-", 2)[0] == name}
        return tuple(sorted(others | taken))

    def is_owned_by_person(self, namespace: str, name: str) -> bool:
        """Return whether a Service of this name exists that no mirror made."""
        service = self.service(namespace, name)
        return service is not None and not is_mirrored(service)

    def remove_owner_reference(self, item: Object, name: str) -> None:
        """Remove the mirror's owner reference from a Service that a person took over.

        :param item: the mirror.
        :raises KubernetesError: among others 409 where the Service was changed since it was read.
        """
        service, uid = self.service(item["metadata"]["namespace"], name), item["metadata"].get("uid")
        if service is None or is_mirrored(service):
            return
        if any(one.get("uid") == uid for one in service["metadata"].get("ownerReferences") or ()):
            self._writer.remove_owner_reference(service, uid)

    def has_opted_in(self, key: MirrorKey, name: str) -> bool:
        """Return whether a person's Service allows this mirror to add slices to it."""
        service = self.service(key[0], name)
        return service is not None and mirror_allowed_to_attach(service) == key[1]

    def ensure_service(
        self, round_: MirrorRound, service: Object | None, wanted: Object, *, must_recreate: bool
    ) -> Object | None:
        """Create or patch a Service, and return it; return None where somebody else has just created a
        Service of its name.

        :param service: the present Service; None if it does not exist.
        :param must_recreate: True to delete the present Service first.
        """
        metadata = wanted["metadata"]
        name = metadata["name"]
        if service is not None and must_recreate:
            self._writer.require_creatable_service(wanted)  # else its callers would have none
            self._writer.delete_service(service)
            service = None
        if service is None:
            annotations = {**metadata["annotations"], **_last_read_annotation(round_.read_at)}
            body = {**wanted, "metadata": {**metadata, "annotations": annotations}}
            try:
                service = self._writer.create_service(body)
            except KubernetesError as error:
                if error.reason != "AlreadyExists":
                    raise
                application = mirrored_application(wanted)
                sentence = (
                    f"{application} would be the Service {name}, which was just created by somebody else"
                )
                round_.problems.append(Problem(MirrorCondition.NAME_TAKEN, sentence))
                return None
        elif patch := service_patch(service, wanted):
            service = self._writer.patch_service(service, patch)
        round_.services[name] = service
        return service

    def last_read_annotation_writes(
        self, services: Iterable[Object], read_at: float | None, *, is_exact: bool = False
    ) -> Iterator[Write]:
        """Yield writes that update the annotation with the time of Eureka's last reading, where it is
        outdated.

        :param is_exact: True if seconds count, as when Eureka does not answer any more.
        """
        if read_at is None:
            return
        for service in services:
            stands = str((service["metadata"].get("annotations") or {}).get(LAST_READ_ANNOTATION) or "")
            try:
                age = read_at - datetime.fromisoformat(stands).timestamp()
            except ValueError:
                age = LAST_READ_UPDATE_SECONDS
            if age >= (1.0 if is_exact else LAST_READ_UPDATE_SECONDS):
                patch = {"metadata": {"annotations": _last_read_annotation(read_at)}}
                yield partial(self._writer.patch_service, service, patch)


def _last_read_annotation(read_at: float | None) -> dict[str, str]:
    """Return the annotation with the time of Eureka's last reading; empty where Eureka was never read."""
    if read_at is None:
        return {}
    return {LAST_READ_ANNOTATION: format_utc_time(read_at)}
