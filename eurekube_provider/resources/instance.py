"""The Pulumi resource EurekaInstance: a thin shell around ``registrations.registration``.

The import path of :class:`InstanceProvider` is written into the state of every user: a wire format, frozen
by a test. The class has no attributes before it is pickled, so that the state holds nothing but its name.
This module is imported by Pulumi's plugin process, outside of any program: it makes no resources and loads
no Kubernetes client. Its annotations are no texts: the SDK evaluates those of the outputs for each resource
anew.
"""

import secrets
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

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
from eurekube_provider.registrations import registration
from eurekube_provider.registrations.defaults import FIXED, shortened
from eurekube_provider.registrations.properties import (
    INCARNATION,
    SECRET_ID,
    URLS,
    Properties,
    bare_host,
    check,
    derived_secrets,
    without_secrets,
)
from eurekube_provider.registrations.registration import Registration, Removal
from eurekube_provider.registrations.renewer_check import RENEWERS, tell
from eurekube_provider.registrations.standing import STANDING
from eurekube_provider.registrations.waits import WAITS
from eurekube_provider.resources.arguments import EurekaInstanceArgs, EurekaInstanceArgsDict
from eurekube_provider.resources.bridge import (
    IN_UPDATE,
    LOOKS,
    Sought,
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
from eurekube_provider.resources.secrecy import with_instance_secrets


class InstanceProvider(ResourceProvider):
    """Checks, compares, registers, reads and removes for :class:`EurekaInstance`.

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
        checked = check(olds, written)
        properties = {**shortened(checked.properties), **derived_secrets(derived, checked.properties)}

        def sought() -> Sought:
            wanted = Registration.from_properties(properties)
            moved = registration.at_other_servers(olds, properties)
            there = None if moved else Registration.from_properties(olds).instance
            in_state = {there.key: there} if there else {}
            return self._peers(wanted), [wanted.instance], in_state

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
        difference = registration.diff(olds, read_in(_news))
        if not difference.replaces:
            STANDING.add(olds)
        return DiffResult(
            changes=difference.changes,
            replaces=list(difference.replaces),
            stables=["application", "instance_id"],
        )

    def create(self, props: Properties) -> CreateResult:
        """Register; idempotent."""
        news = {**read_in(props), INCARNATION: new_incarnation()}
        wanted = Registration.from_properties(news)
        peers = self._peers(wanted)
        LOOKS.forget(peers, wanted.instance.key)
        doubt = RENEWERS.look(peers, wanted.connection, str(news["renewer"]))
        held = registration.create(wanted, peers)
        tell(doubt)
        id_ = secrets.token_hex(16) if SECRET_ID in news else _id(wanted)
        return CreateResult(id_, registration.outputs(news, held))

    def read(self, id_: str, props: Properties) -> ReadResult:
        """What Eureka holds. A blank id only where every server holds nothing, or is abandoned."""
        olds = read_in(props)
        previous = Registration.from_properties(olds)
        peers = self._peers_to_leave(previous)
        with self._saying_the_way_out(previous):
            held = registration.read(previous, peers) if peers else None
        if held is None:
            return ReadResult(id_="", outs={})
        return ReadResult(id_, registration.outputs(olds, held), registration.inputs(olds, held))

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Register anew what changed; allowed where Eureka names the owner that the state names."""
        olds = read_in(_olds)
        # One of an earlier release stays without: a removal must know what an update that failed has written.
        news = {**read_in(_news), INCARNATION: olds.get(INCARNATION)}
        previous, wanted = Registration.from_properties(olds), Registration.from_properties(news)
        held = registration.update(previous, wanted, self._peers(wanted))
        return UpdateResult(registration.outputs(news, held))

    def delete(self, _id: str, _props: Properties) -> None:
        """Remove; idempotent. What belongs to somebody else by now is left alone, and that is said."""
        olds = read_in(_props)
        previous = Registration.from_properties(olds)
        STANDING.give_back([previous], self._peers)
        peers = self._peers_to_leave(previous)
        if peers is None:
            print(let_go(str(previous), previous.service_urls), file=sys.stderr, flush=True)
            return
        with self._saying_the_way_out(previous, is_leaving=True):
            is_wanted = bool(STANDING.wanted_of([previous]))
            wait = WAITS.of_this_call()
            removal = registration.delete(previous, peers, wait, LOOKS, is_wanted=is_wanted)
            LOOKS.finish()
        if removal is Removal.LEFT:
            print(printable(registration.left_alone(previous.instance)), file=sys.stderr, flush=True)

    def _peers(self, of: Registration) -> Peers:
        return peers_for(getattr(self, "_config", None), of.connection, of.service_urls)

    def _peers_to_leave(self, of: Registration) -> Peers | None:
        return peers_to_leave(getattr(self, "_config", None), of.connection, of.service_urls)

    def _saying_the_way_out(
        self, of: Registration, *, is_leaving: bool = False
    ) -> AbstractContextManager[None]:
        config = getattr(self, "_config", None)
        return saying_the_way_out(config, of.connection, of.service_urls, is_leaving=is_leaving)


class EurekaInstance(Resource, module="eurekube", name="EurekaInstance"):
    """One registration in Eureka that this stack owns and an operator renews.

    >>> EurekaInstance("billing", {"application": "billing", "host_name": "192.0.2.10", "port": 8080})

    Outputs are the inputs as Eureka holds them, and ``status`` (its own or a person's override),
    ``overridden_status``, ``last_updated`` (ISO 8601), ``owner``, ``service_url`` and ``incarnation``, which
    tells this registration from another one that the same resource made in its place.
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
    incarnation: pulumi.Output[str | None]

    def __init__(
        self,
        name: str,
        args: EurekaInstanceArgs | EurekaInstanceArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        check_options("EurekaInstance", name, opts, "get_instance")
        given = {key: value for key, value in given_properties(name, args).items() if value is not None}
        given = with_instance_secrets(given)
        # What is only known afterwards must be among the properties, or it never becomes an output. The SDK
        # keeps looking through the outputs of all resources: those that are known without it are left out.
        properties = {**dict.fromkeys(_TOLD), **given}
        if "secure_port" in given:
            properties.setdefault("secure_port_enabled", None)
        if "metadata" in given:
            properties.setdefault("zone", None)
        super().__init__(InstanceProvider(), name, properties, opts)
        for key in FIXED.keys() & given.keys() - {"metadata"}:
            value = given[key]
            if isinstance(value, pulumi.Output):  # it may turn out to be its default
                setattr(self, key, value.apply(partial(_or_default, key)))
            elif value == FIXED[key]:
                setattr(self, key, pulumi.Output.from_input(value))

    if not TYPE_CHECKING:  # a checker shall find misspelt names

        def __getattr__(self, name: str) -> pulumi.Output[Any]:
            """An output that has its default, and so is not in the state."""
            if name in FIXED or name in _ABSENT:
                return pulumi.Output.from_input(copy(FIXED.get(name)))
            if name == "ip_address":
                return self.host_name.apply(bare_host)
            if name == "vip_address":
                return self.application.apply(str.lower)
            if name == "secure_vip_address":
                return self.vip_address
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_TOLD = ("instance_id", "status", "overridden_status", "last_updated", "seen_owner", INCARNATION)
"""What Eureka tells, or the check."""

_ABSENT = frozenset({"zone", *URLS})
"""What an instance need not have."""


def _or_default(key: str, value: Any) -> Any:
    return FIXED[key] if value is None else value


def _id(of: Registration) -> str:
    return f"{of.instance.application}/{of.instance.instance_id}"
