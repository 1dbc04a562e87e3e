"""The Pulumi resource EurekaApplication: a thin shell around ``resources.registrations`` and ``roster``.

The import path of :class:`ApplicationProvider` is written into the state of every user: a wire format, frozen
by a test. As with :mod:`~eurekube_provider.resources.instance`, Pulumi's plugin process imports this module.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import pulumi
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)

from eurekube_provider.core.quoting import printable
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations import many, registration, roster
from eurekube_provider.registrations.members import (
    ID_BASE,
    MEMBER_INPUTS,
    MEMBER_OUTPUTS,
    check_members,
    members,
)
from eurekube_provider.registrations.properties import (
    INCARNATION,
    SECRET_ID,
    Properties,
    derived_secrets,
    without_secrets,
)
from eurekube_provider.registrations.registration import Registration, left_alone
from eurekube_provider.registrations.renewer_check import RENEWERS, tell
from eurekube_provider.registrations.roster import Key, Roster
from eurekube_provider.registrations.standing import STANDING
from eurekube_provider.registrations.waits import WAITS
from eurekube_provider.resources.arguments import (
    EurekaApplicationArgs,
    EurekaApplicationArgsDict,
    as_dictionary,
)
from eurekube_provider.resources.bridge import (
    IN_UPDATE,
    LOOKS,
    Sought,
    as_secret,
    given_properties,
    is_asked_for,
    let_go,
    new_incarnation,
    peers_for,
    peers_to_leave,
    read_in,
    saying_the_way_out,
    tell_of,
    unfinished,
    write_out,
)
from eurekube_provider.resources.plugin import set_up
from eurekube_provider.resources.program import check_options
from eurekube_provider.resources.secrecy import with_application_secrets, with_member_secrets

_TOLD_OF_MANY = 3
"""So many that were not removed are named."""


class ApplicationProvider(ResourceProvider):
    """Checks, compares, registers, reads and removes for :class:`EurekaApplication`.

    Pickled by reference into every state: without attributes, and never renamed or moved.
    """

    serialize_as_secret_always = False  # there is nothing in it

    def configure(self, req: ConfigureRequest) -> None:
        """Keep the stack's configuration; credentials come from there, or from the environment."""
        self._config = req.config
        set_up()

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Normalise the properties and refuse what Eureka could not hold.

        A preview's asks no server. An update's looks what an earlier run left.
        """
        olds, given = read_in(_olds), read_in(news)
        written, derived = without_secrets({key: value for key, value in given.items() if key != IN_UPDATE})
        checked = check_members(olds, written)
        properties = {**checked.properties, **derived_secrets(derived, checked.properties)}

        def sought() -> Sought:
            wanted = Roster.from_properties(properties)
            moved = registration.at_other_servers(olds, properties)
            in_state = {} if moved else Roster.from_properties(olds).instances
            return self._peers(wanted), [each.instance for each in wanted.registrations.values()], in_state

        tell_of(checked, str(properties.get("owner")))
        if olds:
            properties |= unfinished(given, checked, sought)
            if is_asked_for(given, checked):
                STANDING.ask_for(properties)
        return CheckResult(
            write_out(properties),
            [CheckFailure(problem.property, problem.reason) for problem in checked.problems],
        )

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Compare as instances, never as dictionaries; asks no server."""
        olds = read_in(_olds)
        difference = roster.diff(olds, read_in(_news))
        if not difference.replaces:
            STANDING.add(olds)
        return DiffResult(
            changes=difference.changes,
            replaces=list(difference.replaces),
            stables=["application", ID_BASE],
        )

    def create(self, props: Properties) -> CreateResult:
        """Register all or none; idempotent."""
        news = {**read_in(props), INCARNATION: new_incarnation()}
        wanted = Roster.from_properties(news)
        peers = self._peers(wanted)
        _forget_looks(wanted, peers)
        doubt = RENEWERS.look(peers, wanted.connection, wanted.renewer)
        held = many.create(wanted, peers, LOOKS, WAITS.of_this_call())
        tell(doubt)
        LOOKS.finish()
        created = datetime.now(UTC).isoformat()
        outs = roster.outputs({**news, "created": created}, wanted, held)
        id_ = secrets.token_hex(16) if SECRET_ID in news else f"{wanted.application}/{news[ID_BASE]}"
        return CreateResult(id_, outs)

    def read(self, id_: str, props: Properties) -> ReadResult:
        """What Eureka holds. A blank id only where every server holds none of them, or is abandoned."""
        olds = read_in(props)
        previous = Roster.from_properties(olds)
        peers = self._peers_to_leave(previous)
        with self._saying_the_way_out(previous):
            held = many.read(previous, peers) if peers else None
        if held is None:
            return ReadResult(id_="", outs={})
        outs = roster.outputs(olds, previous, held)
        # What no program names may hold what was a secret of one, and no state says so.
        instances = {
            key: each if key in previous.registrations else as_secret(each)
            for key, each in outs["instances"].items()
        }
        outs["instances"] = instances
        return ReadResult(id_, outs, roster.inputs(outs))

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Register what came and changed, then remove what went; what failed is named, and stays as it is."""
        olds = read_in(_olds)
        # One of an earlier release stays without: a removal must know what an update that failed has written.
        kept = {"created": olds.get("created"), INCARNATION: olds.get(INCARNATION)}
        news = {**read_in(_news), **kept}
        previous, wanted = Roster.from_properties(olds), Roster.from_properties(news)
        peers = self._peers(wanted)
        _forget_looks(wanted, peers)
        held = many.update(previous, wanted, peers, LOOKS, WAITS.of_this_call())
        LOOKS.finish()
        return UpdateResult(roster.outputs(news, wanted, held))

    def delete(self, _id: str, _props: Properties) -> None:
        """Remove all; idempotent. What belongs to somebody else by now is left alone, and that is said."""
        olds = read_in(_props)
        previous = Roster.from_properties(olds)
        STANDING.give_back(previous.registrations.values(), self._peers)
        wanted = STANDING.wanted_of(previous.registrations.values())
        kept: set[Key] = set()

        def must_stay(key: Key) -> bool:
            if key in wanted:
                kept.add(key)
            return key in wanted

        peers = self._peers_to_leave(previous)
        if peers is None:
            print(let_go(previous.application, previous.service_urls), file=sys.stderr, flush=True)
            return
        with self._saying_the_way_out(previous, is_leaving=True):
            wait = WAITS.of_this_call()
            _, left = many.delete(previous, peers, must_stay, LOOKS, wait)
            LOOKS.finish()
        left += [each.instance for each in previous.registrations.values() if each.instance.key in kept]
        for instance in left[:_TOLD_OF_MANY]:
            print(printable(left_alone(instance)), file=sys.stderr, flush=True)
        if len(left) > _TOLD_OF_MANY:
            print(f"and so were {len(left) - _TOLD_OF_MANY} more", file=sys.stderr, flush=True)

    def _peers(self, of: Roster | Registration) -> Peers:
        return peers_for(getattr(self, "_config", None), of.connection, of.service_urls)

    def _peers_to_leave(self, of: Roster) -> Peers | None:
        return peers_to_leave(getattr(self, "_config", None), of.connection, of.service_urls)

    def _saying_the_way_out(self, of: Roster, *, is_leaving: bool = False) -> AbstractContextManager[None]:
        config = getattr(self, "_config", None)
        return saying_the_way_out(config, of.connection, of.service_urls, is_leaving=is_leaving)


class EurekaApplication(Resource, module="eurekube", name="EurekaApplication"):
    """Many registrations of one application that this stack owns and an operator renews.

    >>> EurekaApplication(
    ...     "billing",
    ...     {
    ...         "application": "billing",
    ...         "port": 8080,
    ...         "instances": {"a": {"host_name": "192.0.2.10"}, "b": {"host_name": "192.0.2.11"}},
    ...     },
    ... )

    Its name must be its own among the stack's EurekaApplications of one application. ``statuses`` has, by
    key, what Eureka holds in place of UP or of the status that is asked for, as a person's OUT_OF_SERVICE;
    ``held_by_others`` whom an instance belongs to that was taken from us, ``created`` when it was made
    (ISO 8601), ``incarnation`` what tells its registrations from others that the same resource made.
    """

    application: pulumi.Output[str]
    instances: pulumi.Output[Mapping[str, Any]]
    port: pulumi.Output[int | None]
    port_enabled: pulumi.Output[bool | None]
    secure_port: pulumi.Output[int | None]
    secure_port_enabled: pulumi.Output[bool | None]
    vip_address: pulumi.Output[str | None]
    secure_vip_address: pulumi.Output[str | None]
    status: pulumi.Output[str | None]
    metadata: pulumi.Output[Mapping[str, str] | None]
    zone: pulumi.Output[str | None]
    renewal_interval_seconds: pulumi.Output[int | None]
    duration_seconds: pulumi.Output[int | None]
    home_page_url: pulumi.Output[str | None]
    status_page_url: pulumi.Output[str | None]
    health_check_url: pulumi.Output[str | None]
    secure_health_check_url: pulumi.Output[str | None]
    renewer: pulumi.Output[str]
    on_conflict: pulumi.Output[str]
    drain_seconds: pulumi.Output[int]
    connection: pulumi.Output[str]
    service_url: pulumi.Output[str]
    owner: pulumi.Output[str]
    id_base: pulumi.Output[str]
    statuses: pulumi.Output[Mapping[str, str]]
    held_by_others: pulumi.Output[Mapping[str, str]]
    created: pulumi.Output[str | None]
    incarnation: pulumi.Output[str | None]

    def __init__(
        self,
        name: str,
        args: EurekaApplicationArgs | EurekaApplicationArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        check_options("EurekaApplication", name, opts, "get_application")
        given = given_properties(name, args)
        instances = given.get("instances")
        given["instances"] = (
            instances.apply(_plain_instances)
            if isinstance(instances, pulumi.Output)
            else _plain_instances(instances)
        )
        given = with_application_secrets(given)
        # What is only known afterwards must be among the properties, or it never becomes an output.
        properties = {**dict.fromkeys((*MEMBER_INPUTS, *MEMBER_OUTPUTS)), **given}
        super().__init__(ApplicationProvider(), name, properties, opts)

    @property
    def instance_ids(self) -> pulumi.Output[Mapping[str, str]]:
        """The id of each instance in Eureka, by key; made from other outputs, so that no state holds it."""
        names = ("instances", "application", "port", ID_BASE)
        values = {name: getattr(self, name) for name in names}
        return pulumi.Output.all(**values).apply(
            lambda known: {key: str(full["instance_id"]) for key, full in members(known).items()}
        )


def _forget_looks(wanted: Roster, peers: Peers) -> None:
    for each in wanted.registrations.values():
        LOOKS.forget(peers, each.instance.key)


def _plain_instances(instances: Any) -> Any:
    if not isinstance(instances, Mapping):
        return instances
    return {
        key: value.apply(as_dictionary)
        if isinstance(value, pulumi.Output)
        else with_member_secrets(as_dictionary(value))
        for key, value in instances.items()
    }
