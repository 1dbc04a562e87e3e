"""The Pulumi resource EurekaInstance: a thin shell around :mod:`~eurekube_provider.resources.registration`.

The import path of :class:`InstanceProvider` is written into the state of every user: a wire format, frozen
by a test. The class has no attributes before it is pickled, so that the state holds nothing but its name.
This module is imported by Pulumi's plugin process, outside of any program: it makes no resources and loads
no Kubernetes client.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
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
from eurekube_provider.resources import registration
from eurekube_provider.resources.bridge import LOOKS, REPLACED, peers_for, read_in, stack_owner, write_out
from eurekube_provider.resources.connections import DEFAULT_CONNECTION
from eurekube_provider.resources.plugin import tell_sentences
from eurekube_provider.resources.program import program_connection, program_renewer
from eurekube_provider.resources.properties import INPUTS, OUTPUTS, Properties, check
from eurekube_provider.resources.registration import Registration, Removal


class Default(Enum):
    """Stands for an argument that the stack's configuration decides."""

    FROM_CONFIG = "from-config"


@dataclass(kw_only=True, slots=True)
class EurekaInstanceArgs:
    """What an EurekaInstance is made from.

    :ivar application: the application's name in Eureka, which upper-cases it.
    :ivar host_name: where Spring calls it: a name or an address that callers can reach.
    :ivar port: 1 to 65535.
    :ivar ip_address: default ``host_name`` as given; nothing is resolved.
    :ivar instance_id: default ``<resource name>.<stack>.<project>:<application>:<port>``. Another id or
        application is a replacement.
    :ivar port_enabled: default True.
    :ivar secure_port: default 443, disabled; naming one enables it.
    :ivar secure_port_enabled: Spring calls https whenever it is enabled.
    :ivar vip_address: by which Spring finds it; default the application in lower case.
    :ivar secure_vip_address: default ``vip_address``.
    :ivar status: unset: UP at first, and then a person's override is left alone. Set: enforced.
    :ivar metadata: texts; keys of letters, digits, dots and dashes that do not start with ``eurekube.``.
    :ivar zone: the zone as Spring and Netflix clients read it, ``metadata.zone``.
    :ivar renewal_interval_seconds: default 30.
    :ivar duration_seconds: how long it stays without a renewal, default 90.
    :ivar renewer: the name of the operator that renews it, by default ``eurekube:operatorName`` or else
        ``eurekube``; ``self`` where the application sends its own renewals.
    :ivar on_conflict: ``fail`` (the default) or ``adopt``: what to do where the instance is there already
        and belongs to somebody else. An adopted one is removed on destroy like any other.
    :ivar drain_seconds: on removal, how long it stays OUT_OF_SERVICE before; default 0.
    :ivar connection: the name of one of ``eurekube:connections``; default the one of ``eurekube:url``.
    """

    application: pulumi.Input[str]
    host_name: pulumi.Input[str]
    port: pulumi.Input[int]
    ip_address: pulumi.Input[str] | None = None
    instance_id: pulumi.Input[str] | None = None
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


class EurekaInstanceArgsDict(TypedDict):
    """The same as a dictionary; see :class:`EurekaInstanceArgs`."""

    application: pulumi.Input[str]
    host_name: pulumi.Input[str]
    port: pulumi.Input[int]
    ip_address: NotRequired[pulumi.Input[str] | None]
    instance_id: NotRequired[pulumi.Input[str] | None]
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


class InstanceProvider(ResourceProvider):
    """Checks, compares, registers, reads and removes for :class:`EurekaInstance`.

    Pickled by reference into every state: without attributes, and never renamed or moved.
    """

    serialize_as_secret_always = False  # there is nothing in it

    def configure(self, req: ConfigureRequest) -> None:
        """Keep the stack's configuration; credentials come from there, or from the environment."""
        self._config = req.config
        tell_sentences()

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Normalise the properties and refuse what Eureka could not hold; asks no server."""
        checked = check(read_in(_olds), read_in(news))
        return CheckResult(
            write_out(checked.properties),
            [CheckFailure(problem.property, problem.reason) for problem in checked.problems],
        )

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Compare as instances, never as dictionaries; asks no server."""
        difference = registration.diff(read_in(_olds), read_in(_news))
        return DiffResult(
            changes=difference.changes,
            replaces=list(difference.replaces),
            stables=["application", "instance_id"],
            delete_before_replace=difference.delete_before_replace,
        )

    def create(self, props: Properties) -> CreateResult:
        """Register; idempotent."""
        news = read_in(props)
        wanted = Registration.from_properties(news)
        peers = self._peers(wanted)
        LOOKS.forget(peers, wanted.instance.key)
        before = peers.read(*wanted.instance.key)
        held = registration.create(wanted, peers)
        if before is not None and before.owner == wanted.owner:
            REPLACED.add(peers, [wanted.instance.key])
        return CreateResult(_id(wanted), registration.outputs(news, held))

    def read(self, id_: str, props: Properties) -> ReadResult:
        """What Eureka holds. A blank id only where every server says that it holds nothing."""
        olds = read_in(props)
        previous = Registration.from_properties(olds)
        held = registration.read(previous, self._peers(previous))
        if held is None:
            return ReadResult(id_="", outs={})
        return ReadResult(id_, registration.outputs(olds, held), registration.inputs(olds, held))

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Register anew what changed; allowed where Eureka names the owner that the state names."""
        news = read_in(_news)
        previous, wanted = Registration.from_properties(read_in(_olds)), Registration.from_properties(news)
        held = registration.update(previous, wanted, self._peers(wanted))
        return UpdateResult(registration.outputs(news, held))

    def delete(self, _id: str, _props: Properties) -> None:
        """Remove; idempotent. What belongs to somebody else by now is left alone, and that is said."""
        previous = Registration.from_properties(read_in(_props))
        peers = self._peers(previous)
        if REPLACED.take(peers, previous.instance.key):
            return
        removal = registration.delete(previous, peers, looks=LOOKS)
        LOOKS.finish()
        if removal is Removal.LEFT:
            print(registration.left_alone(previous.instance), file=sys.stderr, flush=True)

    def _peers(self, of: Registration) -> Peers:
        return peers_for(getattr(self, "_config", None), of.connection, of.service_urls)


class EurekaInstance(Resource, module="eurekube", name="EurekaInstance"):
    """One registration in Eureka that this stack owns and an operator renews.

    >>> EurekaInstance("billing", {"application": "billing", "host_name": "192.0.2.10", "port": 8080})

    Outputs are the inputs as Eureka holds them, and ``status`` (its own or a person's override),
    ``overridden_status``, ``last_updated`` (ISO 8601), ``owner`` and ``service_url``.
    """

    application: pulumi.Output[str]
    instance_id: pulumi.Output[str]
    host_name: pulumi.Output[str]
    ip_address: pulumi.Output[str]
    port: pulumi.Output[int]
    port_enabled: pulumi.Output[bool]
    secure_port: pulumi.Output[int]
    secure_port_enabled: pulumi.Output[bool]
    vip_address: pulumi.Output[str]
    secure_vip_address: pulumi.Output[str]
    status: pulumi.Output[str]
    metadata: pulumi.Output[Mapping[str, str]]
    zone: pulumi.Output[str | None]
    renewal_interval_seconds: pulumi.Output[int]
    duration_seconds: pulumi.Output[int]
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
    overridden_status: pulumi.Output[str]
    last_updated: pulumi.Output[str | None]
    seen_owner: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: EurekaInstanceArgs | EurekaInstanceArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        given: dict[str, Any] = (
            {field.name: getattr(args, field.name) for field in fields(args)}
            if isinstance(args, EurekaInstanceArgs)
            else {"renewer": Default.FROM_CONFIG, **args}
        )
        if given["renewer"] is Default.FROM_CONFIG:
            given["renewer"] = program_renewer()
        elif given["renewer"] is None:
            given["renewer"] = (
                ""  # None would vanish on the way to the check, which says what is wrong with it
            )
        connection = given.get("connection") or DEFAULT_CONNECTION
        # What is only known afterwards must be among the properties, or it never becomes an output.
        properties = {
            **dict.fromkeys((*INPUTS, *OUTPUTS)),
            **given,
            "connection": connection,
            "service_url": ",".join(program_connection(connection).service_urls),
            "owner": stack_owner(name),
        }
        super().__init__(InstanceProvider(), name, properties, opts)


def _id(of: Registration) -> str:
    return f"{of.instance.application}/{of.instance.instance_id}"
