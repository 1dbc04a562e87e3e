"""The Pulumi resource EurekaApplication: a thin shell around ``resources.registrations`` and ``roster``.

The import path of :class:`ApplicationProvider` is written into the state of every user: a wire format, frozen
by a test. As with :mod:`~eurekube_provider.resources.instance`, Pulumi's plugin process imports this module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NotRequired, TypedDict

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

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.resources import registrations, roster
from eurekube_provider.resources.bridge import LOOKS, REPLACED, peers_for, read_in, stack_owner, write_out
from eurekube_provider.resources.connections import DEFAULT_CONNECTION
from eurekube_provider.resources.instance import Default
from eurekube_provider.resources.members import ID_BASE, MEMBER_INPUTS, MEMBER_OUTPUTS, check_members, members
from eurekube_provider.resources.plugin import tell_sentences
from eurekube_provider.resources.program import program_connection, program_renewer
from eurekube_provider.resources.properties import Properties
from eurekube_provider.resources.registration import left_alone
from eurekube_provider.resources.roster import Roster


@dataclass(kw_only=True, slots=True)
class ApplicationInstanceArgs:
    """One instance of an EurekaApplication; what is not said here is the application's.

    :ivar host_name: where Spring calls it: a name or an address that callers can reach.
    :ivar ip_address: default ``host_name`` as given; nothing is resolved.
    :ivar instance_id: default ``<key>.<resource name>.<stack>.<project>:<application>:<port>``.
    :ivar metadata: added to the application's, and wins where both have a key.
    """

    host_name: pulumi.Input[str]
    ip_address: pulumi.Input[str] | None = None
    instance_id: pulumi.Input[str] | None = None
    port: pulumi.Input[int] | None = None
    port_enabled: pulumi.Input[bool] | None = None
    secure_port: pulumi.Input[int] | None = None
    secure_port_enabled: pulumi.Input[bool] | None = None
    vip_address: pulumi.Input[str] | None = None
    secure_vip_address: pulumi.Input[str] | None = None
    status: pulumi.Input[str] | None = None
    metadata: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    zone: pulumi.Input[str] | None = None
    renewal_interval_seconds: pulumi.Input[int] | None = None
    duration_seconds: pulumi.Input[int] | None = None
    home_page_url: pulumi.Input[str] | None = None
    status_page_url: pulumi.Input[str] | None = None
    health_check_url: pulumi.Input[str] | None = None
    secure_health_check_url: pulumi.Input[str] | None = None


class ApplicationInstanceArgsDict(TypedDict):
    """The same as a dictionary; see :class:`ApplicationInstanceArgs`."""

    host_name: pulumi.Input[str]
    ip_address: NotRequired[pulumi.Input[str] | None]
    instance_id: NotRequired[pulumi.Input[str] | None]
    port: NotRequired[pulumi.Input[int] | None]
    port_enabled: NotRequired[pulumi.Input[bool] | None]
    secure_port: NotRequired[pulumi.Input[int] | None]
    secure_port_enabled: NotRequired[pulumi.Input[bool] | None]
    vip_address: NotRequired[pulumi.Input[str] | None]
    secure_vip_address: NotRequired[pulumi.Input[str] | None]
    status: NotRequired[pulumi.Input[str] | None]
    metadata: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    zone: NotRequired[pulumi.Input[str] | None]
    renewal_interval_seconds: NotRequired[pulumi.Input[int] | None]
    duration_seconds: NotRequired[pulumi.Input[int] | None]
    home_page_url: NotRequired[pulumi.Input[str] | None]
    status_page_url: NotRequired[pulumi.Input[str] | None]
    health_check_url: NotRequired[pulumi.Input[str] | None]
    secure_health_check_url: NotRequired[pulumi.Input[str] | None]


Instances = Mapping[str, pulumi.Input[ApplicationInstanceArgs | ApplicationInstanceArgsDict]]
"""Instances by keys of the program's own, which Pulumi shows when they come, go and change."""


@dataclass(kw_only=True, slots=True)
class EurekaApplicationArgs:
    """What an EurekaApplication is made from.

    :ivar application: the application's name in Eureka. Another one is a replacement.
    :ivar instances: by keys without slash and space; may be empty.
    :ivar connection, renewer, on_conflict, drain_seconds: of all instances, as with
        :class:`~eurekube_provider.resources.instance.EurekaInstanceArgs`; so is what instances may have of
        their own, and have from here where they do not.
    """

    application: pulumi.Input[str]
    instances: pulumi.Input[Instances]
    port: pulumi.Input[int] | None = None
    port_enabled: pulumi.Input[bool] | None = None
    secure_port: pulumi.Input[int] | None = None
    secure_port_enabled: pulumi.Input[bool] | None = None
    vip_address: pulumi.Input[str] | None = None
    secure_vip_address: pulumi.Input[str] | None = None
    status: pulumi.Input[str] | None = None
    metadata: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    zone: pulumi.Input[str] | None = None
    renewal_interval_seconds: pulumi.Input[int] | None = None
    duration_seconds: pulumi.Input[int] | None = None
    home_page_url: pulumi.Input[str] | None = None
    status_page_url: pulumi.Input[str] | None = None
    health_check_url: pulumi.Input[str] | None = None
    secure_health_check_url: pulumi.Input[str] | None = None
    renewer: pulumi.Input[str] | Literal[Default.FROM_CONFIG] | None = Default.FROM_CONFIG
    on_conflict: pulumi.Input[str] | None = None
    drain_seconds: pulumi.Input[int] | None = None
    connection: str | None = None


class EurekaApplicationArgsDict(TypedDict):
    """The same as a dictionary; see :class:`EurekaApplicationArgs`."""

    application: pulumi.Input[str]
    instances: pulumi.Input[Instances]
    port: NotRequired[pulumi.Input[int] | None]
    port_enabled: NotRequired[pulumi.Input[bool] | None]
    secure_port: NotRequired[pulumi.Input[int] | None]
    secure_port_enabled: NotRequired[pulumi.Input[bool] | None]
    vip_address: NotRequired[pulumi.Input[str] | None]
    secure_vip_address: NotRequired[pulumi.Input[str] | None]
    status: NotRequired[pulumi.Input[str] | None]
    metadata: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    zone: NotRequired[pulumi.Input[str] | None]
    renewal_interval_seconds: NotRequired[pulumi.Input[int] | None]
    duration_seconds: NotRequired[pulumi.Input[int] | None]
    home_page_url: NotRequired[pulumi.Input[str] | None]
    status_page_url: NotRequired[pulumi.Input[str] | None]
    health_check_url: NotRequired[pulumi.Input[str] | None]
    secure_health_check_url: NotRequired[pulumi.Input[str] | None]
    renewer: NotRequired[pulumi.Input[str] | None]
    on_conflict: NotRequired[pulumi.Input[str] | None]
    drain_seconds: NotRequired[pulumi.Input[int] | None]
    connection: NotRequired[str | None]


class ApplicationProvider(ResourceProvider):
    """Checks, compares, registers, reads and removes for :class:`EurekaApplication`.

    Pickled by reference into every state: without attributes, and never renamed or moved.
    """

    serialize_as_secret_always = False  # there is nothing in it

    def configure(self, req: ConfigureRequest) -> None:
        """Keep the stack's configuration; credentials come from there, or from the environment."""
        self._config = req.config
        tell_sentences()

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Normalise the properties and refuse what Eureka could not hold; asks no server."""
        checked = check_members(read_in(_olds), read_in(news))
        return CheckResult(
            write_out(checked.properties),
            [CheckFailure(problem.property, problem.reason) for problem in checked.problems],
        )

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Compare as instances, never as dictionaries; asks no server."""
        difference = roster.diff(read_in(_olds), read_in(_news))
        return DiffResult(
            changes=difference.changes,
            replaces=list(difference.replaces),
            stables=["application", ID_BASE],
            delete_before_replace=difference.delete_before_replace,
        )

    def create(self, props: Properties) -> CreateResult:
        """Register all or none; idempotent."""
        news = read_in(props)
        wanted = Roster.from_properties(news)
        peers = self._peers(wanted)
        _forget_looks(wanted, peers)
        held, before = registrations.create(wanted, peers, LOOKS)
        REPLACED.add(peers, before)
        LOOKS.finish()
        return CreateResult(f"{wanted.application}/{news[ID_BASE]}", roster.outputs(news, wanted, held))

    def read(self, id_: str, props: Properties) -> ReadResult:
        """What Eureka holds. A blank id only where every server says that it holds none of them."""
        olds = read_in(props)
        previous = Roster.from_properties(olds)
        held = registrations.read(previous, self._peers(previous))
        if held is None:
            return ReadResult(id_="", outs={})
        outs = roster.outputs(olds, previous, held)
        return ReadResult(id_, outs, roster.inputs(outs))

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Register what came and changed, then remove what went; what failed is named, and stays as it is."""
        news = read_in(_news)
        previous, wanted = Roster.from_properties(read_in(_olds)), Roster.from_properties(news)
        peers = self._peers(wanted)
        _forget_looks(wanted, peers)
        held = registrations.update(previous, wanted, peers, LOOKS)
        LOOKS.finish()
        return UpdateResult(roster.outputs(news, wanted, held))

    def delete(self, _id: str, _props: Properties) -> None:
        """Remove all; idempotent. What belongs to somebody else by now is left alone, and that is said."""
        previous = Roster.from_properties(read_in(_props))
        peers = self._peers(previous)
        _, left = registrations.delete(previous, peers, lambda place: REPLACED.take(peers, place), LOOKS)
        LOOKS.finish()
        for instance in left:
            print(left_alone(instance), file=sys.stderr, flush=True)

    def _peers(self, of: Roster) -> Peers:
        return peers_for(getattr(self, "_config", None), of.connection, of.service_urls)


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
    ``held_by_others`` whom an instance belongs to that was taken from us.
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

    def __init__(
        self,
        name: str,
        args: EurekaApplicationArgs | EurekaApplicationArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        given: dict[str, Any] = {"renewer": Default.FROM_CONFIG, **_plain(args)}
        if given["renewer"] is Default.FROM_CONFIG:
            given["renewer"] = program_renewer()
        elif given["renewer"] is None:
            given["renewer"] = ""  # None would vanish on the way to the check, which says what is wrong
        connection = given.get("connection") or DEFAULT_CONNECTION
        # What is only known afterwards must be among the properties, or it never becomes an output.
        properties = {
            **dict.fromkeys((*MEMBER_INPUTS, *MEMBER_OUTPUTS)),
            **given,
            "instances": pulumi.Output.from_input(given.get("instances")).apply(_plain_instances)
            if isinstance(given.get("instances"), pulumi.Output)
            else _plain_instances(given.get("instances")),
            "connection": connection,
            "service_url": ",".join(program_connection(connection).service_urls),
            "owner": stack_owner(name),
        }
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
        key: value.apply(_plain) if isinstance(value, pulumi.Output) else _plain(value)
        for key, value in instances.items()
    }


def _plain(args: Any) -> Any:
    """Arguments in either form as a dictionary."""
    if isinstance(args, EurekaApplicationArgs | ApplicationInstanceArgs):
        return {field.name: getattr(args, field.name) for field in fields(args)}
    return args
