"""The plan of one syncer: what it wants against what a registry is known to hold. Pure."""

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
    """Decide what must change for a syncer at the registry that it names.

    Anyone who carries it out may hold changes back: what is removed although more may be desired than is
    known, or while the syncer is paused.

    :param there: the owner's instances there.
    :param of_application: everything there that has the syncer's application, no matter who owns it.
    :param twins: instances that its pods registered themselves, see :func:`.self_registered.twins_of`.
    """
    instances = desired.instances
    if desired.standing:
        instances = (*instances, *standing(desired, there))
    if syncer.on_termination is OnTermination.OUT_OF_SERVICE:
        instances = (*instances, *leaving(desired, there))
    name = syncer.application.upper()
    elsewhere = (one for one in there if one.application != name)
    return plan(instances, [*of_application, *elsewhere], owner, syncer.policy, twins=twins)
