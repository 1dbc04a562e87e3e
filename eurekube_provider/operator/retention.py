"""What becomes of the instances of a syncer that is refused: its pods go on ending all the same.

Nothing new is registered for it and nothing is changed; what Eureka forgot is put back, see :mod:`.lost`. But
what said goodbye must leave Eureka: renewed any longer, it would be called for as long as it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Action, Change, Plan, Policy


@dataclass(frozen=True, slots=True)
class Remains:
    """What a refused syncer has registered at one Eureka.

    :ivar leaves: to be removed.
    :ivar lapses: to be renewed no more: the syncer's policy removes nothing.
    :ivar stays: to be renewed as it stands.
    """

    leaves: Plan
    lapses: tuple[Instance, ...]
    stays: tuple[Instance, ...]


def remains(syncer: Object, there: Iterable[Instance], seen_terminating: Callable[[str], bool]) -> Remains:
    """Divide what is registered.

    :param syncer: the custom resource, of which nothing but the two fields that limit removals is believed.
    :param seen_terminating: whether an instance id's endpoint was seen terminating and is not back.
    """
    spec = syncer.get("spec") or {}
    held = tuple(there)
    leaving = set() if spec.get("paused") else {one.key for one in held if seen_terminating(one.instance_id)}
    gone = tuple(one for one in held if one.key in leaving)
    stays = tuple(one for one in held if one.key not in leaving)
    if (spec.get("policy") or Policy.SYNC) == Policy.SYNC:
        return Remains(Plan(tuple(Change(Action.DEREGISTER, one, one) for one in gone)), (), stays)
    return Remains(Plan(), gone, stays)
