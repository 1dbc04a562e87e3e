"""Many registrations of one application that a stack owns as one: what is asked for, and what Eureka holds.

Neutral to Pulumi's dynamic interface. :mod:`~eurekube_provider.registrations.many` makes the one so as
the other says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import MEMBER_KEY, SELF_RENEWED
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import same_contents
from eurekube_provider.eureka.bulk import take_stock
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import Stocktaking, look_for
from eurekube_provider.registrations.draining import unmarked
from eurekube_provider.registrations.members import MEMBER_INPUTS, fitted, members
from eurekube_provider.registrations.properties import (
    INCARNATION,
    LEAVING,
    SEEN_INCARNATION,
    STILL_ENFORCED,
    OnConflict,
    Properties,
    contains_unknown,
)
from eurekube_provider.registrations.registration import (
    Difference,
    Registration,
    at_other_servers,
    is_of,
    is_still_enforced,
    is_unfinished,
    seen,
)

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Roster:
    """What checked properties, or a state's, ask for.

    :ivar registrations: by the keys that the program gave them; each carries its key in its metadata.
    :ivar incarnation: that of each of them, as for a single one.
    """

    application: str
    owner: str
    service_urls: tuple[str, ...]
    connection: str
    on_conflict: OnConflict
    drain_seconds: int
    renewer: str
    registrations: Mapping[str, Registration]
    incarnation: str | None = ""

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Roster:
        """Read checked properties, or those of a state; nothing in them may be unknown."""
        incarnation = str(properties.get(INCARNATION) or "")
        found = {
            key: _member(key, {**full, INCARNATION: incarnation}) for key, full in members(properties).items()
        }
        for key in (properties.get("statuses") or {}).keys() & found.keys():
            found[key] = replace(found[key], asked_status=None)  # another one than the program's was found
        return cls(
            application=str(properties["application"]),
            owner=str(properties["owner"]),
            service_urls=tuple(str(properties["service_url"]).split(",")),
            connection=str(properties["connection"]),
            on_conflict=OnConflict(properties["on_conflict"]),
            drain_seconds=int(properties["drain_seconds"]),
            renewer=str(properties["renewer"]),
            registrations=found,
            incarnation=incarnation,
        )

    @property
    def keys(self) -> dict[Key, str]:
        """The program's key of each place in Eureka."""
        return {each.instance.key: key for key, each in self.registrations.items()}

    @property
    def instances(self) -> dict[Key, Instance]:
        """What is asked for at each place in Eureka."""
        return {each.instance.key: each.instance for each in self.registrations.values()}

    def is_its(self, held: Instance) -> bool:
        """Whether ``held`` was registered by this creation, and by no other one of the same owner."""
        return is_of(held, self.owner, self.incarnation)

    def without_state(self, held: Held | None = None) -> Roster:
        """As asked for where there is no state: what the owner has there keeps its incarnation."""
        ours = held.ours if held else {}
        kept = {
            key: each.without_state(ours.get(each.instance.key)) for key, each in self.registrations.items()
        }
        return replace(self, registrations=kept, incarnation=None)


@dataclass(frozen=True, slots=True)
class Held:
    """What Eureka holds of a roster at this moment.

    :ivar ours: everything that is registered for one of the owners, by place.
    :ivar others: what somebody else has in a place of ours.
    :ivar neighbours: what else is in the application.
    :ivar unsure: servers that did not answer, and why; what nobody holds may be there.
    """

    ours: dict[Key, Instance]
    others: dict[Key, Instance]
    neighbours: tuple[Instance, ...]
    unsure: dict[str, RegistryError]

    def surplus(self, wanted: Roster) -> list[Instance]:
        """What is ours, and was registered by an earlier call that is not asked for any more."""
        keys = wanted.keys
        return [each for key, each in self.ours.items() if key not in keys]


def diff(olds: Mapping[str, Any], news: Mapping[str, Any]) -> Difference:
    """Compare what Eureka held when the state was written with what is asked for now.

    Another application is a replacement. So are other servers, see the same for a single one. Everything
    else updates in place: an instance with another id is registered before the old one goes.

    :param olds: a state's outputs.
    :param news: checked properties; anything may still be unknown, and counts as a change.
    """
    replaces = ["application"] if olds.get("application") != news.get("application") else []
    if at_other_servers(olds, news):
        replaces.append("service_url")
    changes = bool(replaces) or contains_unknown(news) or bool(olds.get("held_by_others"))
    changes = changes or SEEN_INCARNATION in olds or is_unfinished(olds, news)
    if not changes and _projected(olds) != _projected(news):
        have = Roster.from_properties(olds)
        want = Roster.from_properties({**news, INCARNATION: have.incarnation})
        changes = (
            _as_one(have) != _as_one(want)
            or have.registrations.keys() != want.registrations.keys()
            or any(_differs(have.registrations[key], each) for key, each in want.registrations.items())
            or _host_names(olds) != _host_names(news)  # which an earlier version wrote otherwise
        )
    return Difference(changes, tuple(replaces))


def look(
    roster: Roster,
    owners: Sequence[str],
    peers: Peers,
    listed: Sequence[Instance] | None = None,
    also: Iterable[Key] = (),
    *,
    writes: bool = False,
) -> Held:
    """Read past the servers' caches what is in the roster's places, and what else its owners have.

    Which places these are is known from the program, the state and Eureka's list. That one is up to 30 s old:
    what a call that failed left a moment ago may be found by a later look only.

    :param listed: what is in the application, where that was asked a moment ago.
    :param also: places that a state knows.
    :param writes: the roster is about to be written or removed, or was a moment ago. Where others renew it,
        many of its places are then read in batches, which cost the servers little and renew what they find:
        what is ours, or what came since the list was made, if anything did. Other looks renew nothing.
    :raises RegistryError: no server answered.
    """
    if listed is None:
        listed = [each for each in peers.list_instances() if each.application == roster.application]
    own = roster.keys

    def is_ours(each: Instance) -> bool:
        return each.owner in owners or (roster.incarnation is not None and roster.is_its(each))

    suggested = (each.key for each in listed if is_ours(each) and MEMBER_KEY in each.metadata)
    places = dict.fromkeys((*own, *also, *suggested))
    addresses = {_address(each.instance) for each in roster.registrations.values()}
    others = [each for each in listed if each.key not in places]
    near = {each.key for each in others if _address(each) in addresses}
    renewed = _renewed(roster, owners, listed) if writes else []
    stock = _read(peers, dict.fromkeys((*places, *near)), renewed)
    held = {key: found for key in places if (found := stock.newest(key)) is not None}
    neighbours = (stock.newest(each.key) if each.key in near else each for each in others)
    return Held(
        ours={
            key: found
            for key, found in held.items()
            # Elsewhere than the roster says, only what was registered as a member of it.
            if is_ours(found) and (key in own or MEMBER_KEY in found.metadata)
        },
        others={key: found for key, found in held.items() if not is_ours(found)},
        neighbours=tuple(each for each in neighbours if each is not None),
        unsure=stock.failures,
    )


def _renewed(roster: Roster, owners: Sequence[str], listed: Sequence[Instance]) -> list[Instance]:
    """Of a roster that others renew, the places where a renewal does no harm: no stranger is listed there."""
    if roster.renewer == SELF_RENEWED:
        return []
    kept = {each.key for each in listed if each.owner not in owners or each.renewer == SELF_RENEWED}
    wanted = (each.instance for each in roster.registrations.values())
    return [instance for instance in wanted if instance.key not in kept]


def _read(peers: Peers, keys: Iterable[Key], renewed: Sequence[Instance]) -> Stocktaking:
    """Read past the servers' caches, of which ``renewed`` in batches if they are many."""
    if not renewed or not peers.uses_batches(len(renewed)):
        return look_for(peers, keys)
    done = {each.key for each in renewed}
    left = [key for key in keys if key not in done]
    stock = take_stock(peers, renewed)
    return stock.joined(look_for(peers, left)) if left else stock


def outputs(properties: Mapping[str, Any], roster: Roster, held: Held) -> Properties:
    """The state of a roster: what was written, with what Eureka holds where that differs.

    :param properties: checked properties, or an earlier state.
    """
    kept = {key: properties[key] for key in MEMBER_INPUTS if key in properties}
    instances: dict[str, Properties] = {}
    statuses: dict[str, str] = {}
    found_before = properties.get("statuses") or {}
    others: dict[str, str] = {}
    seen_incarnation: dict[str, str] = {}
    is_marked = is_enforced = False
    for key, each in roster.registrations.items():
        place = each.instance.key
        actual = held.ours.get(place) or held.others.get(place)
        if actual is None:
            continue
        is_marked = is_marked or actual.is_leaving
        asked = each.asked_status or each.status
        is_enforced = is_enforced or is_still_enforced(actual, asked and asked.value)
        actual = unmarked(actual)
        if actual.owner != roster.owner:
            others[key] = actual.owner or ""
        elif not roster.is_its(actual):
            seen_incarnation = {SEEN_INCARNATION: actual.incarnation}
        # What an earlier refresh found stands among the inputs by now, and is somebody else's all the same.
        if actual.status is not (each.status or Status.UP) or found_before.get(key) == actual.status.value:
            statuses[key] = actual.status.value
        is_settled = same_contents(each.instance, actual) and each.status in (None, actual.status)
        instances[key] = (
            dict(properties["instances"][key])
            if is_settled
            else fitted(properties, key, _full(actual, with_status=each.status is not None))
        )
    for extra in held.surplus(roster):
        # Left by a call that failed: shown, so that the next one removes it.
        key = name_of(extra, {})
        if key in instances:
            key = f"{key} {extra.instance_id}"
        instances[key] = fitted(properties, key, _full(extra, with_status=False))
    kept |= {name: properties[name] for name in ("created", INCARNATION) if properties.get(name)}
    if is_marked:
        kept[LEAVING] = True
    if is_enforced:
        kept[STILL_ENFORCED] = True
    told = {"instances": instances, "statuses": statuses, "held_by_others": others}
    return {**kept, **told, **seen_incarnation}


def inputs(outs: Mapping[str, Any]) -> Properties:
    """The inputs as if the program had asked for what Eureka holds, so that a preview shows drift."""
    return {key: outs[key] for key in MEMBER_INPUTS if key in outs}


def name_of(instance: Instance, keys: Mapping[Key, str]) -> str:
    """By which key the program, now or once, called an instance."""
    return keys.get(instance.key) or instance.metadata.get(MEMBER_KEY) or instance.instance_id


def _address(instance: Instance) -> tuple[str, int]:
    """Where callers of an instance end up."""
    return instance.ip_address, instance.port.number


def _member(key: str, full: Properties) -> Registration:
    made = Registration.from_properties(full)
    return replace(
        made, instance=replace(made.instance, metadata={**made.instance.metadata, MEMBER_KEY: key})
    )


def _full(actual: Instance, *, with_status: bool) -> Properties:
    full = seen(actual)
    full["metadata"].pop(MEMBER_KEY, None)
    if not with_status:
        del full["status"]
    return full


def _as_one(roster: Roster) -> Roster:
    """What is the same for all of its registrations, and can be compared."""
    return replace(roster, registrations={}, service_urls=tuple(sorted(roster.service_urls)))


def _host_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each.get("host_name") for key, each in (properties.get("instances") or {}).items()}


def _projected(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: properties[key] for key in MEMBER_INPUTS if properties.get(key) not in (None, {})}


def _differs(have: Registration, want: Registration) -> bool:
    return not same_contents(have.instance, want.instance) or (
        have.status is not want.status or have.instance.key != want.instance.key
    )
