"""Instances and Applications of the native provider: adds owner and servers, which follow from the resource's
URN and the provider's configuration, to a program's properties.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import NATIVE_INSTANCE_TYPE, StackOwner, parse_owner
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.stack_identity import DEFAULT_ORGANIZATION
from eurekube_provider.provider.configuration import Configuration
from eurekube_provider.provider.wire import PropertyPath, ReceivedProperties
from eurekube_provider.registrations.connections import (
    DEFAULT_CONNECTION_NAME,
    DEFAULT_OPERATOR_NAME,
    configured_connection,
)
from eurekube_provider.registrations.defaults import with_defaults, without_derivable, without_fixed_defaults
from eurekube_provider.registrations.members import ID_BASE_PROPERTY, instance_ids
from eurekube_provider.registrations.names import path_in_camel_case
from eurekube_provider.registrations.properties import (
    ID_IS_DEFAULT_PROPERTY,
    INCARNATION_PROPERTY,
    MEMBER_DERIVATION_SOURCES,
    SECRET_ID_MARK,
    SECRET_PLACEHOLDER,
    Properties,
)
from eurekube_provider.registrations.property_check import CheckedProperties, CheckFailure
from eurekube_provider.registrations.resource import (
    APPLICATION_REGISTRATION_KIND,
    INSTANCE_REGISTRATION_KIND,
    RegistrationKind,
    RegistrationResource,
)
from eurekube_provider.registrations.values import UNKNOWN

# pulumi do makes registrations without a state, or without a project. Everybody has the same URN there, and
# the engine passes any instance that was read to a deletion. So its user gives an owner as eurekube:doOwner,
# and only that owner's instances are changed or removed.

_STATELESS_PROJECT_NAME = "pulumi:do"
"""The project part of these owners. Pulumi allows no colon in a project's name, so that no stack has it."""

_CLI_GLOBAL_PROJECT_NAME = "default-global-project"
"""The project in which the CLI runs ``pulumi do`` outside of a project; do_global.go of pulumi/pulumi."""

_OWNER_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.\-]+")


def stateless_owner(configuration: Configuration, application: str, instance_id: str) -> StackOwner:
    """Return the owner of one registration without a state. Each has its own, since an update removes its
    owner's other instances. Application and id are normalised as in the check.
    """
    organization = configuration("organization") or DEFAULT_ORGANIZATION
    name = f"{application.strip().upper()}/{instance_id.strip()}"
    return StackOwner(organization, _STATELESS_PROJECT_NAME, configuration("doOwner") or "nobody", name)


def refuse_stack_shared_by_everybody(configuration: Configuration, project: str) -> None:
    """Refuse ``pulumi do`` outside of a project without an organization: everybody has that stack."""
    if project == _CLI_GLOBAL_PROJECT_NAME and not configuration("organization"):
        raise ConfigurationError(
            "outside of a project pulumi do has a stack that everybody has, so that two people would take"
            " each other's registrations: run it in a project, or set organization to a name of your own"
            " (--eurekube:organization NAME)"
        )


def require_do_owner(configuration: Configuration, token: str) -> None:
    """Require a usable ``doOwner`` for a registration without a state, and one instance as the resource."""
    owner = configuration("doOwner")
    if not owner:
        raise ConfigurationError(
            "pulumi do --stateless gives everybody one URN, so that nobody could tell whose a registration"
            " is: leave out --stateless, and a stack owns it, or set doOwner to a name of your own"
            " (--eurekube:do-owner NAME, or doOwner in the file of --provider-file)"
        )
    if not _OWNER_NAME_PATTERN.fullmatch(owner):
        raise ConfigurationError("doOwner must be letters, digits, dots, dashes and underscores")
    if "/" in (configuration("organization") or ""):  # this command checks no configuration
        raise ConfigurationError("organization must have no slash, which separates an owner's parts")
    if token != NATIVE_INSTANCE_TYPE:
        raise ConfigurationError(
            f"without a state nobody could tell which registrations a {token} has: leave out --stateless, or"
            f" use {NATIVE_INSTANCE_TYPE} for each"
        )


def require_default_connection(properties: Properties) -> None:
    """Require the provider's own Eureka for a registration without a state: later commands know no other."""
    if properties.get("connection") not in (None, DEFAULT_CONNECTION_NAME):
        raise ConfigurationError(
            "without a state nothing remembers a connection: leave it out, and give the provider the URL of"
            " that Eureka (--eurekube:url URL), for each command alike"
        )


def require_instance_id(properties: Properties) -> None:
    """Require an instance id for a registration without a state: others would have the default one, too."""
    if with_defaults(properties)[ID_IS_DEFAULT_PROPERTY]:
        raise ConfigurationError(
            "without a state instanceId must be given, since many would have a default one"
        )


INSTANCE_IDS_OUTPUT = "instance_ids"
"""An Application's output, computed from its state, by which a program finds its instances."""

_OUTPUTS_UNCHANGED_BY_UPDATES = (INCARNATION_PROPERTY, "created")

NAMES_ADDED_BY_PROVIDER = ("owner", "service_url", ID_BASE_PROPERTY)
"""Properties that the provider adds and a program must not write."""


@dataclass(frozen=True, slots=True)
class UrnParts:
    """The parts of a resource's URN: ``urn:pulumi:<stack>::<project>::<types>::<name>``."""

    stack: str
    project: str
    types: str
    name: str

    @classmethod
    def parse(cls, text: str) -> UrnParts:
        """Parse a resource's URN, whose name may hold colons."""
        return cls(*text.removeprefix("urn:pulumi:").split("::", 3))


def resource_type(request: Any) -> str:
    """Return the type of a request's resource; an older engine sends it in the URN only."""
    found: str = request.type or request.urn.split("::")[2].rpartition("$")[2]
    return found


RESOURCE_KINDS_BY_TOKEN = {
    each.token: each for each in (INSTANCE_REGISTRATION_KIND, APPLICATION_REGISTRATION_KIND)
}


class NativeResource:
    """The Instances or the Applications of one provider.

    :ivar kind: the kind of these resources.
    """

    def __init__(
        self,
        kind: RegistrationKind,
        configuration: Configuration,
        warn: Callable[[str], None] | None = None,
        show_progress: Callable[[str], None] | None = None,
    ) -> None:
        self.kind = kind
        self._configuration = configuration
        self.registration = RegistrationResource(kind, configuration, warn, show_progress)

    def check(
        self, urn: UrnParts, olds: ReceivedProperties, news: ReceivedProperties
    ) -> tuple[CheckedProperties, frozenset[PropertyPath]]:
        """Complete and normalise properties; return the inputs, and the paths of all secrets."""
        given = dict(news.properties)
        kept = _pop_values_from_state(given, olds.properties)
        if self._configuration.is_stateless:
            kept.clear()  # of any read, no matter whose it is
        own = [name for name in NAMES_ADDED_BY_PROVIDER if name in given]
        if own:
            reason = "follows from the resource's name and the provider's configuration; leave it out"
            return CheckedProperties({}, tuple(CheckFailure(name, reason) for name in own)), news.secrets
        derived = set(self._paths_derived_from_secrets(given, news))
        for path in derived:
            _set_at_path(given, path, SECRET_PLACEHOLDER)
        try:
            given |= self._owner_properties(urn, olds.properties, given) | kept
        except ConfigurationError as error:
            problem = CheckFailure(
                "connection", str(error), "there is no such connection, or it cannot be used"
            )
            return CheckedProperties({}, (_hide_secret_in_problem(problem, news.secrets),)), news.secrets
        is_asked = bool(olds.properties) and not self._configuration.is_offline
        checked = self.registration.check(olds.properties, given, is_update=is_asked, mark=urn.types)
        secrets = news.secrets | derived
        return replace(
            checked, problems=tuple(_hide_secret_in_problem(each, secrets) for each in checked.problems)
        ), secrets

    def preview_outputs(self, olds: Properties, news: Properties) -> Properties:
        """Return the outputs of a preview, in which values that only the update can know are unknown."""
        known = without_fixed_defaults(with_defaults(news)) if self.kind is INSTANCE_REGISTRATION_KIND else {}
        follows = self.kind.derivable_outputs if olds else ()
        unknown = {name: UNKNOWN for name in self.kind.known_afterwards if name not in follows}
        unknown |= {name: olds[name] for name in _OUTPUTS_UNCHANGED_BY_UPDATES if name in olds}
        return self.as_outputs({**known, **news, **unknown})

    def as_inputs(self, properties: Properties, kept: Container[str]) -> Properties:
        """Return checked properties as the engine's inputs: ``kept``, and what follows from no others."""
        return without_derivable(properties, self.kind.derivable_inputs, kept)

    def as_outputs(self, properties: Properties, kept: Container[str] = ()) -> Properties:
        """Return a state as outputs for the engine."""
        if self.kind is APPLICATION_REGISTRATION_KIND:
            instances = properties.get("instances")
            ids = UNKNOWN if instances is UNKNOWN else instance_ids(properties)
            properties = {**properties, INSTANCE_IDS_OUTPUT: ids}
        return without_derivable(properties, self.kind.derivable_outputs, kept)

    def output_secret_paths(self, secrets: frozenset[PropertyPath]) -> frozenset[PropertyPath]:
        """Return the paths of secrets in the outputs, with the ids that are derived from one."""
        if self.kind is not APPLICATION_REGISTRATION_KIND:
            return secrets
        found = set(secrets)
        for path in secrets:
            name, *within = path
            if name in ("application", "port", ID_BASE_PROPERTY) or path == ("instances",):
                found.add((INSTANCE_IDS_OUTPUT,))
            elif name == "instances" and (within[1:] == [] or within[1] in ("port", "instance_id")):
                found.add((INSTANCE_IDS_OUTPUT, within[0]))
        return frozenset(found)

    def is_state_of_earlier_release(self, olds: Properties) -> bool:
        """Return whether an earlier release wrote the state, which then lacks ``instance_ids``."""
        return self.kind is APPLICATION_REGISTRATION_KIND and INSTANCE_IDS_OUTPUT not in olds

    def _owner_properties(self, urn: UrnParts, olds: Properties, given: Properties) -> Properties:
        connection = given.get("connection") or DEFAULT_CONNECTION_NAME
        if connection is UNKNOWN:
            raise ConfigurationError("the name of a connection must be known before anything is created")
        urls = configured_connection(self._configuration, name=connection).service_urls
        owner = self.owner(urn, str(given.get("application")), str(given.get("instance_id")), olds)
        found: Properties = {"service_url": ",".join(urls), "owner": str(owner)}
        if given.get("renewer") is None:
            found["renewer"] = self._configuration("operatorName") or DEFAULT_OPERATOR_NAME
        return found

    def owner(
        self, urn: UrnParts, application: str, instance_id: str, olds: Mapping[str, Any] = EMPTY_MAPPING
    ) -> StackOwner:
        """Return the owner of a resource: the configured organization, else the state's, so that the owner of
        its registrations stays. Without a state each registration has an owner of its own.
        """
        if self._configuration.is_stateless:
            return stateless_owner(self._configuration, application, instance_id)
        said = self._configuration("organization")
        before = parse_owner(str(olds.get("owner")))
        if not said and isinstance(before, StackOwner) and before.project == urn.project:
            said = before.organization
        return StackOwner(said or DEFAULT_ORGANIZATION, urn.project, urn.stack, urn.name)

    def _paths_derived_from_secrets(
        self, given: Properties, news: ReceivedProperties
    ) -> Iterable[PropertyPath]:
        """Yield the paths of properties that the check derives from a secret, and that are secrets, too."""
        for name, others in self.kind.derivation_sources.items():
            if given.get(name) is None and any(news.contains_secret(other) for other in others):
                yield (name,)
        instances = given.get("instances")
        for key, member in instances.items() if isinstance(instances, dict) else ():
            for name, others in MEMBER_DERIVATION_SOURCES.items():
                is_secret = any(
                    path[:3] == ("instances", key, other) for path in news.secrets for other in others
                )
                if is_secret and isinstance(member, dict) and member.get(name) is None:
                    yield ("instances", key, name)


def _pop_values_from_state(given: Properties, olds: Properties) -> Properties:
    """Remove from ``given``, and return, what no program writes: by `ignoreChanges` the state's."""
    kept = {
        name: given.pop(name)
        for name in NAMES_ADDED_BY_PROVIDER
        if name in given and given[name] == olds.get(name)
    }
    if SECRET_ID_MARK in olds:
        given.pop(SECRET_ID_MARK, None)
    if (
        kept
        and given.get("instance_id") == olds.get("instance_id")
        and with_defaults(olds).get(ID_IS_DEFAULT_PROPERTY)
    ):
        given.pop("instance_id", None)
    return kept


def _hide_secret_in_problem(problem: CheckFailure, secrets: Iterable[PropertyPath]) -> CheckFailure:
    """Return a problem without a secret's value and name: the engine shows a named property's value."""
    if not _overlaps_secret(problem.property, secrets):
        return problem
    return CheckFailure("", f"{path_in_camel_case(problem.property)}: {problem.reason_without_value()}")


def _overlaps_secret(written: str, secrets: Iterable[PropertyPath]) -> bool:
    """Return whether the property at a dotted path is a secret, is part of one, or contains one."""
    for path in secrets:
        name = ".".join(path)
        if f"{written}.".startswith(f"{name}.") or name.startswith(f"{written}."):
            return True
    return False


def _set_at_path(properties: Properties, path: PropertyPath, value: object) -> None:
    """Set the value at a path, in copies of the dictionaries on the way."""
    name, *rest = path
    if rest:
        properties[name] = dict(properties[name])
        _set_at_path(properties[name], tuple(rest), value)
    else:
        properties[name] = value
