"""The Pulumi resource EurekaInstance, a thin shell around ``registrations.resource``.

The import path of :class:`InstanceProvider` is written into the state of every user: a wire format, frozen
by a test. The class has no attributes before it is pickled, so that the state holds nothing but its name.
This module is imported by Pulumi's plugin process, outside of any program: it makes no resources and loads
no Kubernetes client. Its annotations are no texts: the SDK evaluates those of the outputs for each resource
anew.
"""

from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from eurekube_provider.registrations.defaults import FIXED
from eurekube_provider.registrations.properties import INCARNATION, URLS, bare_host
from eurekube_provider.registrations.resource import INSTANCE
from eurekube_provider.resources.arguments import EurekaInstanceArgs, EurekaInstanceArgsDict
from eurekube_provider.resources.dynamic_provider import RegistrationProvider
from eurekube_provider.resources.program import check_options
from eurekube_provider.resources.program_inputs import given_properties
from eurekube_provider.resources.secrecy import with_instance_secrets


class InstanceProvider(RegistrationProvider):
    """Checks, compares, registers, reads and removes for :class:`EurekaInstance`.

    Pickled by reference into every state: without attributes, and never renamed or moved.
    """

    kind = INSTANCE


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
