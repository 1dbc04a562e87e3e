"""The kinds of registries, and the properties in which decisions and sentences differ between them."""

from __future__ import annotations

from dataclasses import dataclass

from eurekube_provider.core.model import Instance


@dataclass(frozen=True, slots=True)
class RegistryKind:
    """The properties of a kind of registry that decisions depend on, or that people ask for.

    :ivar name: its name, for people. Instances of a registry other than Eureka have it as their data centre.
    :ivar schemes: the schemes of its URLs.
    :ivar client_off_setting: the setting with which an application does not register itself there.
    :ivar undrain_instruction: how a person clears a status that was set over an instance's own; ``{}`` is the
        id.
    :ivar renewals: True if the registry forgets an instance that nobody renews. Else an instance stays until
        it is removed.
    :ivar overrides: True if a status can be set over an instance's own, and cleared separately.
    :ivar self_preservation: True if the registry stops forgetting while many renewals are missing.
    :ivar callers_heed_status: True if all callers leave out instances that are not UP.
    :ivar names_in_any_case: True if a name is the same in upper and lower case.
    :ivar lists_lag: True if a list may be half a minute old.
    :ivar stacks: True if stacks register there, and can import existing instances.
    :ivar drains: True if people drain there by ``eurekube drain``, and syncers by OUT_OF_SERVICE.
    :ivar mirrors: True if mirrors can show the registry.
    """

    name: str
    schemes: tuple[str, ...]
    client_off_setting: str
    undrain_instruction: str
    renewals: bool = False
    overrides: bool = False
    self_preservation: bool = False
    callers_heed_status: bool = False
    names_in_any_case: bool = False
    lists_lag: bool = False
    stacks: bool = False
    drains: bool = False
    mirrors: bool = False


EUREKA = RegistryKind(
    "Eureka",
    ("http", "https"),
    "eureka.client.register-with-eureka=false",
    "eurekube undrain {}",
    renewals=True,
    overrides=True,
    self_preservation=True,
    callers_heed_status=True,
    names_in_any_case=True,
    lists_lag=True,
    stacks=True,
    drains=True,
    mirrors=True,
)

ZOOKEEPER = RegistryKind(
    "ZooKeeper",
    ("zookeeper", "zookeepers"),
    "spring.cloud.zookeeper.discovery.register=false",
    "write into the metadata of its node, as instance_status, what eurekube.status says there",
)

REGISTRY_KINDS = (EUREKA, ZOOKEEPER)

_KIND_BY_NAME = {one.name: one for one in REGISTRY_KINDS}
_KIND_BY_SCHEME = {scheme: one for one in REGISTRY_KINDS for scheme in one.schemes}


def registry_kind_of_instance(instance: Instance) -> RegistryKind:
    """Return the kind of registry that an instance was read from."""
    return _KIND_BY_NAME.get(instance.data_center.name, EUREKA)


def registry_kind_of_url(url: str) -> RegistryKind:
    """Return the kind of registry that a URL leads to; Eureka for a URL with another scheme."""
    return _KIND_BY_SCHEME.get(url.partition("://")[0].strip(), EUREKA)
