"""The plan of one syncer: its desired instances against those that a registry is known to hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eurekube_provider.core.mapping import (
    DesiredInstances,
    registered_without_address,
    terminating_as_out_of_service,
)
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.plan import Plan, plan
from eurekube_provider.core.syncer import OnTermination, Syncer


def plan_syncer_changes(
    syncer: Syncer,
    desired: DesiredInstances,
    there: Sequence[Instance],
    application_instances: Iterable[Instance],
    owner: str,
    self_registered_by_key: Mapping[InstanceKey, Instance],
) -> Plan:
    """Return the changes for a syncer at the registry that it names.

    The caller may hold changes back: removals although more may be desired than is known, or all while the
    syncer is paused.

    :param there: the owner's instances at the registry.
    :param application_instances: all instances of the syncer's application at the registry, no matter who
        owns them.
    :param self_registered_by_key: instances that the syncer's pods registered themselves, see
        :func:`.self_registered.find_self_registered_instances`.
    """
    instances = desired.instances
    if desired.status_without_address or desired.pods_without_host_port:
        instances = (*instances, *registered_without_address(desired, there))
    if syncer.on_termination is OnTermination.OUT_OF_SERVICE:
        instances = (*instances, *terminating_as_out_of_service(desired, there))
    name = syncer.application.upper()
    elsewhere = (one for one in there if one.application != name)
    return plan(
        instances,
        [*application_instances, *elsewhere],
        owner,
        syncer.policy,
        self_registered_by_key=self_registered_by_key,
    )
