"""One registration that a stack owns, from checked properties to Eureka and back.

Neutral to Pulumi's dynamic interface: the dynamic provider, ``eurekube apply`` and a later native provider
are thin shells around these functions. Each is idempotent; what Eureka holds is always read past its caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from eurekube_provider.core.errors import (
    OwnershipConflict,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import (
    ENFORCED_KEY,
    INCARNATION_KEY,
    LEAVING_KEY,
    OWNER_KEY,
    RENEWER_KEY,
    SELF_RENEWED,
    are_of_one_stack,
)
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, plan, same_contents, whose
from eurekube_provider.eureka import apply
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.address_conflicts import NEIGHBOURS
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION
from eurekube_provider.registrations.defaults import completed, shortened
from eurekube_provider.registrations.draining import clear, drain, put_back
from eurekube_provider.registrations.properties import (
    ABSENT,
    ASKED_STATUS,
    DEFAULT_ID,
    HALF_DONE,
    INCARNATION,
    INPUTS,
    LEAVING,
    SEEN_INCARNATION,
    STILL_ENFORCED,
    UNKNOWN,
    URLS,
    OnConflict,
    Properties,
    contains_unknown,
)
from eurekube_provider.registrations.removal_checks import SecondLooks
from eurekube_provider.registrations.rollback import take_back, undo

_IDENTITY = ("application", "instance_id")
TOLD_WITHIN_SECONDS = 1.0
"""Servers tell each other within half a second what they have taken."""

_VERIFY_ATTEMPTS = 5


class Removal(Enum):
    """What became of a registration that was to be removed."""

    REMOVED = "removed"
    ABSENT = "absent"
    LEFT = "left"
    """It belongs to somebody else by now, or was registered anew since, and was left as it is."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What an update would do.

    :ivar replaces: the properties that need a new registration, which is made before the old one goes.
    """

    changes: bool
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """What checked properties, or a state's, ask for.

    :ivar instance: with owner, renewer and zone in its metadata; its status is UP where none is enforced.
    :ivar status: the status to enforce; None to start UP and to leave it to people from then on.
    :ivar incarnation: which creation of it this is, as its metadata say. Empty for one that was made before
        there were any; None where there is no state that could say: then every one of the owner's is meant.
    """

    instance: Instance
    owner: str
    service_urls: tuple[str, ...]
    status: Status | None
    on_conflict: OnConflict
    drain_seconds: int
    connection: str = DEFAULT_CONNECTION
    incarnation: str | None = ""
    asked_status: Status | None = None
    """The status that a state's program enforced; ``status`` is what Eureka held in its place."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Registration:
        """Read checked properties, or those of a state; nothing in them may be unknown.

        A state's ``status`` is what Eureka held. It counts as enforced only where ``status_is_enforced``
        says so. What has its fixed default may be missing.
        """
        properties = completed(properties)
        status = Status(properties["status"]) if properties.get("status") else None
        if properties.get("status_is_enforced") is False:
            status = None
        owner = str(properties["owner"])
        metadata = {str(key): str(value) for key, value in (properties.get("metadata") or {}).items()}
        if properties.get("zone"):
            metadata["zone"] = str(properties["zone"])
        metadata |= {OWNER_KEY: owner, RENEWER_KEY: str(properties["renewer"])}
        incarnation = str(properties.get(INCARNATION) or "")
        if incarnation:
            metadata[INCARNATION_KEY] = incarnation
        asked = Status(properties[ASKED_STATUS]) if properties.get(ASKED_STATUS) else status
        if asked not in (None, Status.UP):
            metadata[ENFORCED_KEY] = asked.value
        return cls(
            instance=Instance(
                application=properties["application"],
                instance_id=properties["instance_id"],
                host_name=properties["host_name"],
                ip_address=properties["ip_address"],
                port=Port(int(properties["port"]), bool(properties["port_enabled"])),
                secure_port=Port(int(properties["secure_port"]), bool(properties["secure_port_enabled"])),
                vip_address=properties["vip_address"],
                secure_vip_address=properties["secure_vip_address"],
                status=status or Status.UP,
                metadata=metadata,
                lease=EurekaLease(
                    int(properties["renewal_interval_seconds"]), int(properties["duration_seconds"])
                ),
                home_page_url=properties.get("home_page_url") or "",
                status_page_url=properties.get("status_page_url") or "",
                health_check_url=properties.get("health_check_url") or "",
                secure_health_check_url=properties.get("secure_health_check_url") or "",
            ),
            owner=owner,
            service_urls=tuple(str(properties["service_url"]).split(",")),
            status=status,
            on_conflict=OnConflict(properties["on_conflict"]),
            drain_seconds=int(properties["drain_seconds"]),
            connection=str(properties.get("connection") or DEFAULT_CONNECTION),
            incarnation=incarnation,
            asked_status=asked,
        )

    def __str__(self) -> str:
        return f"{self.instance.application} {self.instance.instance_id}"

    def is_it(self, held: Instance) -> bool:
        """Whether ``held`` is this registration, and no other one that the same owner made in its place."""
        return is_of(held, self.owner, self.incarnation)

    def without_state(self, held: Instance | None = None) -> Registration:
        """As asked for where there is no state: what the owner has there keeps its incarnation."""
        instance = self.instance
        if held is not None and held.owner == self.owner and held.incarnation:
            instance = replace(instance, metadata={**instance.metadata, INCARNATION_KEY: held.incarnation})
        return replace(self, instance=instance, incarnation=None)


def is_of(held: Instance, owner: str, incarnation: str | None) -> bool:
    """Whether ``held`` is what ``owner`` registered with ``incarnation``.

    Under another name of the same stack it is, too: an update that renamed it may have ended before the
    state was written.
    """
    if incarnation not in (None, held.incarnation):
        return False
    return held.owner == owner or (bool(incarnation) and are_of_one_stack(held.owner, owner))


def diff(olds: Mapping[str, Any], news: Mapping[str, Any]) -> Difference:
    """Compare what Eureka held when the state was written with what is asked for now.

    Another application or id is another registration, made before the old one is removed. So is one at
    other servers. Two lists of URLs without a common one may still lead to the same Eureka: the new one then
    stands in the old one's place with an incarnation of its own, and the removal of the old one leaves it.
    Lists that share a URL are the same Eureka and update in place; their order means nothing.

    :param olds: a state's outputs.
    :param news: checked properties; anything may still be unknown, and counts as a change.
    """
    replaces = [name for name in _IDENTITY if olds.get(name) != news.get(name)]
    if at_other_servers(olds, news):
        replaces.append("service_url")
    if contains_unknown(news):
        changes = True
    else:
        have = Registration.from_properties(olds)
        want = Registration.from_properties({**news, INCARNATION: have.incarnation})
        changes = (
            bool(replaces)
            or is_unfinished(olds, news)
            or not same_contents(want.instance, have.instance)
            or (want.status is None) != (have.status is None)
            or (want.status is not None and want.status != olds.get("status"))
            or olds.get("seen_owner", have.owner) != have.owner
            or olds.get(SEEN_INCARNATION, have.incarnation) != have.incarnation
            or (set(want.service_urls), want.connection, want.on_conflict, want.drain_seconds)
            != (set(have.service_urls), have.connection, have.on_conflict, have.drain_seconds)
        )
    return Difference(changes, tuple(replaces))


def is_unfinished(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Whether a refresh or the check found what an earlier run left, so that an update must see to it."""
    marks = (LEAVING, STILL_ENFORCED, ABSENT, HALF_DONE)
    return any(olds.get(mark) or news.get(mark) for mark in marks)


def at_other_servers(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Whether two lists of URLs have none in common, so that they may be two Eurekas."""
    url = news.get("service_url")
    return url is UNKNOWN or set(str(olds.get("service_url")).split(",")).isdisjoint(str(url).split(","))


def create(wanted: Registration, peers: Peers) -> Instance:
    """Register ``wanted``, or bring what is there already up to date where it is ours.

    What the same owner has registered there before, with another incarnation, is taken over: the removal of
    the resource that it belonged to then leaves it.

    :returns: the instance as Eureka holds it now.
    :raises OwnershipConflict: it is there and belongs to somebody else, and is not to be adopted.
    :raises RegistryError: Eureka did not do it, or said so and holds something else. What was sent is taken
        back, or the error says that it may be there.
    """
    before = peers.read(*wanted.instance.key)
    if wanted.incarnation is None:
        wanted = wanted.without_state(before)
    refusal = NEIGHBOURS.refusal(wanted.instance, wanted.owner, peers) if before is None else None
    if refusal is not None:
        raise OwnershipConflict(f"register {wanted}: {refusal.describe()}")
    try:
        return _put(wanted, before, peers, "register", {wanted.owner})
    except RegistryError as error:
        # What stood there as this very creation stays, and so does all where there is no state.
        if wanted.incarnation is None or (before is not None and wanted.is_it(before)):
            raise
        message = f"{error}; {take_back(wanted.instance, before, peers)}"
        raise type(error)(message, url=error.url, status_code=error.status_code) from error


def update(previous: Registration, wanted: Registration, peers: Peers) -> Instance:
    """Bring Eureka from ``previous`` to ``wanted``, which has the same application and id.

    An instance of the previous owner is ours too: a renamed stack updates in place. Otherwise as
    :func:`create`; after a failure that is the registration of the state again.
    """
    before = peers.read(*wanted.instance.key)
    sent = released(previous, wanted, before)
    owners = {previous.owner, wanted.owner}
    if before is None:
        refusal = NEIGHBOURS.refusal(wanted.instance, wanted.owner, peers)
        if refusal is not None:
            raise OwnershipConflict(f"update {wanted}: {refusal.describe()}")
    elif previous.is_it(before) and before.owner:
        owners.add(before.owner)
    try:
        return _put(sent, before, peers, "update", owners)
    except RegistryError as error:
        if before is None or not previous.is_it(before):
            raise
        message = f"{error}; {undo(wanted.instance, before, peers)}"
        raise type(error)(message, url=error.url, status_code=error.status_code) from error


def released(previous: Registration, wanted: Registration, have: Instance | None) -> Registration:
    """``wanted`` with the status that is to be brought about once: UP where ours is no longer asked for.

    What a person set since is left alone, as where nothing was ever enforced.
    """
    is_over = previous.asked_status is not None and wanted.status is None
    if is_over and have is not None and have.status is previous.asked_status:
        return replace(wanted, status=Status.UP)
    return wanted


def give_back(standing: Registration, leaving: Registration, peers: Peers) -> None:
    """Give ``standing`` its registration back where ``leaving``, which is to be removed, took it over.

    :raises RegistryError: Eureka cannot be asked, or did not do it.
    """
    held = peers.read(*standing.instance.key)
    if held is not None and leaving.is_it(held) and not standing.is_it(held):
        update(leaving, standing, peers)


def preview(wanted: Registration, have: Instance | None, peers: Peers | None = None) -> str:
    """What :func:`create` would do, as a line that begins with ``+``, ``~``, ``!`` or a space.

    :param have: what Eureka holds in its place.
    :param peers: asked who stands at its address; None where the caller has looked.
    """
    if peers is not None and have is None:
        refusal = NEIGHBOURS.refusal(wanted.instance, wanted.owner, peers)
        if refusal is not None:
            return f"! {refusal.describe()}"
    want = wanted.without_state(have).instance
    is_ours = have is not None and (have.is_leaving or have.is_enforced)
    if have is not None and wanted.status is None and not is_ours:
        want = replace(want, status=have.status)
    elif have is not None:
        have = replace(have, overridden_status=Status.UNKNOWN)  # enforced, also over a person's
    if have is not None and have.owner != wanted.owner and wanted.on_conflict is OnConflict.ADOPT:
        return Change(Action.UPDATE, want, have).describe()
    planned = plan([want], [] if have is None else [have], wanted.owner)
    if planned.refusals:
        return f"! {planned.refusals[0].describe()}"
    return planned.changes[0].describe() if planned else f"  {wanted}"


def read(previous: Registration, peers: Peers) -> Instance | None:
    """Look for the registration on every server.

    :returns: the newest version, whoever owns it; None only where every server answered and none holds it.
    :raises RegistryError: those that answered do not hold it, and not all answered.
    """
    sighting = peers.read_everywhere(*previous.instance.key)
    if sighting.found is not None or sighting.is_gone:
        return sighting.found
    failure = next(iter(sighting.failures.values()))
    if not sighting.instances:
        raise failure
    raise RegistryUnreachable(
        f"read {previous}: {', '.join(sighting.instances)} does not hold it, but whether"
        f" {', '.join(sighting.failures)} does is not known ({failure})",
        url=failure.url,
    )


def delete(
    previous: Registration,
    peers: Peers,
    wait: Callable[[float], None] = time.sleep,
    looks: SecondLooks | None = None,
    *,
    is_wanted: bool = False,
) -> Removal:
    """Remove the registration, after its drain, and look whether it is gone.

    One that meanwhile belongs to somebody else is left alone: it is no longer ours to remove. So is one that
    the same owner registered anew, as the new half of a replacement does.

    :param wait: sleeps so many seconds; what it raises ends the drain, and puts it back into service.
    :param looks: takes the second look, for whoever removes many and finishes it; None for taking it here.
    :param is_wanted: whether what is in its place must stay, since the program asks for it.
    :raises DrainInterrupted: ``wait`` was ended; nothing was removed.
    :raises RegistryError: no server answered, or one keeps holding it.
    """
    have = _held(previous, peers, wait)
    if have is not None and is_wanted:
        return Removal.LEFT
    if have is not None and previous.is_it(have) and previous.drain_seconds:
        drain([(peers, have)], previous.drain_seconds, wait)
        have = _held(previous, peers, wait)
    if have is None:
        return Removal.ABSENT
    if not previous.is_it(have):
        return Removal.LEFT
    apply.remove(peers, have)
    if have.renewer != SELF_RENEWED:
        second = looks or SecondLooks(wait)
        second.add(peers, have)
        if looks is None:
            second.finish()
    return Removal.REMOVED


def left_alone(instance: Instance) -> str:
    """A sentence for a person about what was not removed."""
    return (
        f"{instance.application} {instance.instance_id} was registered anew, is asked for by the program"
        " or belongs to somebody else by now, and was left as it is"
    )


def outputs(properties: Mapping[str, Any], actual: Instance) -> Properties:
    """The state of a registration: its checked properties, with what Eureka holds in their place.

    ``owner`` stays what the properties say: it is whom Eureka must name for us to change or remove the
    instance, and must never become somebody else's. ``seen_owner`` is whom Eureka names. A fixed default
    that Eureka holds is left out, unless the earlier state has it: a refresh is not to show that it went.

    :param properties: checked properties, or an earlier state.
    """
    given, properties = properties.keys(), completed(properties)
    enforced = properties.get("status_is_enforced", properties.get("status") is not None)
    asked = properties.get(ASKED_STATUS, properties.get("status"))
    held = {
        **{key: properties[key] for key in (*INPUTS, DEFAULT_ID) if key in properties},
        **seen(actual),
        "owner": properties["owner"],
        INCARNATION: properties.get(INCARNATION),
        SEEN_INCARNATION: _seen_incarnation(properties, actual),
        "overridden_status": actual.overridden_status.value,
        "last_updated": _iso(actual.last_updated_timestamp_ms),
        "seen_owner": actual.owner or "",
        "status_is_enforced": bool(enforced),
        LEAVING: True if actual.is_leaving else None,
        STILL_ENFORCED: True if is_still_enforced(actual, asked if enforced else None) else None,
        ASKED_STATUS: asked if enforced and asked != actual.status.value else None,
    }
    held = {key: value for key, value in held.items() if value is not None}
    return {**shortened(held), **{key: held[key] for key in given & held.keys()}}


def is_still_enforced(actual: Instance, asked: str | None) -> bool:
    """Whether ``actual`` carries the mark of another enforced status than the one that is asked for."""
    return actual.enforced not in ("", asked)


def inputs(properties: Mapping[str, Any], actual: Instance) -> Properties:
    """The inputs as if the program had asked for what Eureka holds, so that a preview shows drift."""
    held = outputs(properties, actual)
    wanted = {key: held[key] for key in (*INPUTS, DEFAULT_ID) if key in held}
    if not held["status_is_enforced"]:
        wanted.pop("status", None)
    return {**shortened(wanted), "owner": actual.owner or ""}


def seen(actual: Instance) -> Properties:
    metadata = dict(actual.metadata)
    metadata.pop(OWNER_KEY, None)
    metadata.pop(INCARNATION_KEY, None)
    metadata.pop(LEAVING_KEY, None)
    metadata.pop(ENFORCED_KEY, None)
    renewer = metadata.pop(RENEWER_KEY, "")
    zone = metadata.pop("zone", None)
    return {
        "application": actual.application,
        "instance_id": actual.instance_id,
        "host_name": actual.host_name,
        "ip_address": actual.ip_address,
        "port": actual.port.number,
        "port_enabled": actual.port.enabled,
        "secure_port": actual.secure_port.number,
        "secure_port_enabled": actual.secure_port.enabled,
        "vip_address": actual.vip_address,
        "secure_vip_address": actual.secure_vip_address,
        "status": actual.status.value,
        "metadata": dict(sorted(metadata.items())),
        "zone": zone,
        "renewal_interval_seconds": actual.lease.renewal_interval_seconds,
        "duration_seconds": actual.lease.duration_seconds,
        **{name: getattr(actual, name) or None for name in URLS},
        "renewer": renewer,
    }


def _seen_incarnation(properties: Mapping[str, Any], actual: Instance) -> str | None:
    """Another one than the state's, which then has to be written again; None for the same."""
    own = properties.get(INCARNATION) or ""
    is_other = actual.owner == properties["owner"] and actual.incarnation != own
    return actual.incarnation if is_other else None


def _iso(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put(wanted: Registration, have: Instance | None, peers: Peers, verb: str, owners: set[str]) -> Instance:
    if have is not None and have.owner not in owners and wanted.on_conflict is OnConflict.FAIL:
        raise OwnershipConflict(
            f"{verb} {wanted}: it is in Eureka already, {whose(have)} and was left as it is;"
            f' give this one another instance_id, or take it over with on_conflict="{OnConflict.ADOPT}"'
        )
    if have is not None and wanted.status is not Status.OUT_OF_SERVICE:
        have = put_back(peers, have)  # a drain that was interrupted
    status = status_to_reach(wanted, have)
    want = sent_first(wanted, have)
    if have is None or not same_contents(want, have) or want.status is not _own_status(have):
        apply.write(peers, want, have)
    held = _verified(want, peers, verb)
    former = being_lifted(have, status)
    if status is None or (held.status is status and former is None):
        return held
    if former is not None:
        clear(peers, held, former)  # where another server still holds it
    elif status is Status.OUT_OF_SERVICE:
        peers.set_status(held, status)
    elif status is Status.UP and held.is_enforced:
        clear(peers, held, held.status)
    else:
        if not held.is_overridden:
            # Taken out of service without an override: clearing does nothing where there is none.
            peers.set_status(held, status)
        peers.clear_status(held, status)
    held = _verified(want, peers, verb, status)
    if held.enforced == wanted.instance.enforced:
        return held
    if being_lifted(held, status) and peers.read_everywhere(*held.key).failures:
        return held  # a server that is away may hold what was lifted: the mark has the next run look again
    want = replace(wanted.instance, status=_status_to_send(status, held))
    apply.write(peers, want, held)
    return _verified(want, peers, verb, status)


def status_to_reach(wanted: Registration, have: Instance | None) -> Status | None:
    """The status to bring about; None where it is left to people.

    UP where a program enforced another one, and none asks for it any more. What a person set since stands,
    and STARTING is what it has on its way to OUT_OF_SERVICE.
    """
    if wanted.status is not None or have is None or not have.enforced:
        return wanted.status
    is_on_its_way = have.status is Status.STARTING and not have.is_overridden
    return Status.UP if have.is_enforced or is_on_its_way else None


def being_lifted(have: Instance | None, status: Status | None) -> Status | None:
    """The status that a run began to lift, where the server that was asked has it UP already; else None."""
    former, _, later = have.enforced.partition(" ") if have is not None else ("", "", "")
    is_lifted = have is not None and status is Status.UP is have.status and later == Status.UP
    return Status(former) if is_lifted else None


def may_be_out_elsewhere(wanted: Registration, have: Instance) -> bool:
    """Whether a drain was undone but at a server that was away: our mark stays until that one was asked."""
    return have.is_leaving and have.status is Status.UP and wanted.status is not Status.OUT_OF_SERVICE


def sent_first(wanted: Registration, have: Instance | None) -> Instance:
    """What to register before the status is set or cleared, where registering does not do that.

    A status of ours that stands until then, and the one that is to come, are both marked: whatever dies in
    between, neither passes for a person's. The mark of the first goes after its status has gone.
    """
    status = status_to_reach(wanted, have)
    sent = replace(wanted.instance, status=_status_to_send(status, have))
    if have is not None and may_be_out_elsewhere(wanted, have):
        sent = replace(sent, metadata={**sent.metadata, LEAVING_KEY: have.metadata[LEAVING_KEY]})
    if have is not None and being_lifted(have, status):
        return replace(sent, metadata={**sent.metadata, ENFORCED_KEY: have.enforced})
    if have is None or status is None or not have.is_enforced or have.status in (status, Status.UP):
        return sent
    if sent.status is status and not have.is_overridden:
        return sent  # it brings the status itself
    return replace(sent, metadata={**sent.metadata, ENFORCED_KEY: f"{have.status} {status}"})


def _status_to_send(wanted: Status | None, have: Instance | None) -> Status:
    """The status to register with, so that a person's override stays and callers see no state in between.

    The server believes DOWN and STARTING even over an override, and ignores a registration that comes or
    goes OUT_OF_SERVICE: that one is set afterwards.
    """
    if have is None:
        if wanted is Status.OUT_OF_SERVICE:
            return Status.STARTING
        return wanted or Status.UP
    if have.is_overridden or have.status is Status.UNKNOWN:
        return Status.UP
    if wanted is None or Status.OUT_OF_SERVICE in (wanted, have.status):
        return have.status
    return wanted


def _own_status(have: Instance) -> Status:
    """The instance's own status, as far as it can be known: under an override it is taken for UP."""
    return Status.UP if have.is_overridden else have.status


def _verified(want: Instance, peers: Peers, verb: str, status: Status | None = None) -> Instance:
    """Read back what was written; another server than the one written to may be half a second behind."""
    for attempt in range(_VERIFY_ATTEMPTS):
        held = peers.read(*want.key)
        if held is not None and same_contents(want, held) and status in (None, held.status):
            return held
        time.sleep(0.2 * (attempt + 1))
    urls = ", ".join(peers.connection.service_urls)
    holds = "does not hold it" if held is None else "holds something else"
    raise RegistryRejected(
        f"{verb} {want.application} {want.instance_id}: {urls} accepted it and {holds};"
        " somebody else may be registering or removing it at the same time",
        url=urls,
    )


def _held(previous: Registration, peers: Peers, wait: Callable[[float], None]) -> Instance | None:
    """What the servers that answer hold; one that is away shall not keep a stack from being removed.

    It may have taken a moment ago what stands in this one's place, and have told nobody yet.
    """
    sighting = peers.read_everywhere(*previous.instance.key)
    if sighting.failures and sighting.found is not None and previous.is_it(sighting.found):
        wait(TOLD_WITHIN_SECONDS)
        sighting = peers.read_everywhere(*previous.instance.key)
    if not sighting.instances:
        raise next(iter(sighting.failures.values()))
    return sighting.found
