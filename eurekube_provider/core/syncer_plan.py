"""The plan of one syncer: its desired instances against those that a registry is known to hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eurekube_provider.core.mapping import Desired, leaving, standing
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.plan import Plan, plan
from eurekube_provider.core.syncer import OnTermination, Syncer


def plan_of_syncer(
    syncer: Syncer,
    desired: Desired,
    there: Sequence[Instance],
    of_application: Iterable[Instance],
    owner: str,
    twins: Mapping[Key, Instance],
) -> Plan:
    """Return the changes for a syncer at the registry that it names.

    The caller may hold changes back: removals although more may be desired than is known, or all while the
    syncer is paused.

    :param there: the owner's instances at the registry.
    :param of_application: all instances of the syncer's application at the registry, no matter who owns them.
    :param twins: instances that the syncer's pods registered themselves, see
        :func:`.self_registered.twins_of`.
    """
    instances = desired.instances
    if desired.standing or desired.kept_pods:
        instances = (*instances, *standing(desired, there))
    if syncer.on_termination is OnTermination.OUT_OF_SERVICE:
        instances = (*instances, *leaving(desired, there))
    name = syncer.application.upper()
    elsewhere = (one for one in there if one.application != name)
    return plan(instances, [*of_application, *elsewhere], owner, syncer.policy, twins=twins)
