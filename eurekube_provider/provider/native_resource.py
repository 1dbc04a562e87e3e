"""Instances and Applications of the native provider: adds owner and servers to a program's properties.

A program gives neither owner nor servers. They follow from the resource's URN and the provider's
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import (
    NATIVE_APPLICATION_TYPE,
    NATIVE_INSTANCE_TYPE,
    StackOwner,
    parse_owner,
)
from eurekube_provider.core.stack_identity import DEFAULT_ORGANIZATION
from eurekube_provider.provider.configuration import Configuration
from eurekube_provider.provider.stateless_owner import owner_of
from eurekube_provider.provider.wire import Path, Received
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION, configured_connection
from eurekube_provider.registrations.defaults import (
    NOT_AMONG_INPUTS,
    NOT_AMONG_OUTPUTS,
    completed,
    shortened,
    without_derivable,
)
from eurekube_provider.registrations.members import ID_BASE, MEMBER_OUTPUTS, instance_ids
from eurekube_provider.registrations.names import path_as_written
from eurekube_provider.registrations.properties import (
    APPLICATION_DERIVED,
    BOOKKEEPING,
    DEFAULT_ID,
    FROM_SECRET,
    INCARNATION,
    INSTANCE_DERIVED,
    MARKS,
    MEMBER_DERIVED,
    OUTPUTS,
    SECRET_ID,
    Properties,
)
from eurekube_provider.registrations.property_check import Checked, CheckFailure
from eurekube_provider.registrations.resource import APPLICATION, INSTANCE, RegistrationResource, ResourceType
from eurekube_provider.registrations.values import UNKNOWN

INSTANCE_IDS = "instance_ids"
"""The output of an Application by which a program finds its instances; computed from the rest of its
state.
"""

_KEPT = (INCARNATION, "created")
"""Properties that come from Eureka, and that no update changes."""

OURS = ("owner", "service_url", ID_BASE)
"""Properties that the provider adds, and no program writes."""


@dataclass(frozen=True, slots=True)
class Urn:
    """The parts of a resource's URN: ``urn:pulumi:<stack>::<project>::<types>::<name>``."""

    stack: str
    project: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Urn:
        """Parse a resource's URN, whose name may hold colons."""
        stack, project, _types, name = text.removeprefix("urn:pulumi:").split("::", 3)
        return cls(stack, project, name)


@dataclass(frozen=True, slots=True)
class NativeKind:
    """A kind of resource, and its type token.

    :ivar derived: properties that only Eureka knows, unknown in a preview.
    :ivar not_among_inputs, not_among_outputs: properties left out of inputs and outputs where they follow
        from the rest.
    """

    token: str
    kind: ResourceType
    derived: tuple[str, ...]
    not_among_inputs: tuple[str, ...] = ()
    not_among_outputs: tuple[str, ...] = ()


INSTANCE_KIND = NativeKind(
    NATIVE_INSTANCE_TYPE,
    INSTANCE,
    tuple(name for name in OUTPUTS if name not in BOOKKEEPING),
    NOT_AMONG_INPUTS,
    NOT_AMONG_OUTPUTS,
)
APPLICATION_KIND = NativeKind(NATIVE_APPLICATION_TYPE, APPLICATION, MEMBER_OUTPUTS)
KINDS = {each.token: each for each in (INSTANCE_KIND, APPLICATION_KIND)}


class NativeResource:
    """The Instances or the Applications of one provider."""

    def __init__(
        self,
        kind: NativeKind,
        configuration: Configuration,
        tell: Callable[[str], None] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._kind = kind
        self._configuration = configuration
        self.registration = RegistrationResource(kind.kind, configuration, tell, show)

    def check(self, urn: Urn, olds: Received, news: Received) -> tuple[Checked, frozenset[Path]]:
        """Complete and normalise a program's properties.

        :returns: the inputs, and the paths of the secrets in them, derived ones included.
        """
        given = dict(news.properties)
        kept = _take_engine_values(given, olds.properties)
        if self._configuration.is_stateless:
            kept.clear()  # of any read, no matter whose it is
        own = [name for name in OURS if name in given]
        if own:
            reason = "follows from the resource's name and the provider's configuration; leave it out"
            return Checked({}, tuple(CheckFailure(name, reason) for name in own)), news.secrets
        derived = set(self._derived_from_secrets(given, news))
        for path in derived:
            _set_at(given, path, FROM_SECRET)
        try:
            given |= self._owner_properties(urn, olds.properties, given) | kept
        except ConfigurationError as error:
            problem = CheckFailure(
                "connection", str(error), "there is no such connection, or it cannot be used"
            )
            return Checked({}, (_without_secret(problem, news.secrets),)), news.secrets
        is_asked = bool(olds.properties) and not self._configuration.is_offline
        checked = self.registration.check(olds.properties, given, is_update=is_asked)
        secrets = news.secrets | derived
        return replace(
            checked, problems=tuple(_without_secret(each, secrets) for each in checked.problems)
        ), secrets

    def previewed(self, olds: Properties, news: Properties) -> Properties:
        """Return the state as far as a preview knows it; values that the update writes anew are unknown."""
        known = shortened(completed(news)) if self._kind is INSTANCE_KIND else {}
        follows = self._kind.not_among_outputs if olds else ()
        unknown = {name: UNKNOWN for name in self._kind.derived if name not in follows}
        unknown |= {name: olds[name] for name in _KEPT if name in olds}
        return self.as_outputs({**known, **news, **unknown})

    def as_inputs(self, properties: Properties, kept: Container[str]) -> Properties:
        """Return checked properties as inputs for the engine: ``kept``, and those that do not follow from
        the rest.
        """
        return without_derivable(properties, self._kind.not_among_inputs, kept)

    def as_outputs(self, properties: Properties, kept: Container[str] = ()) -> Properties:
        """Return a state as outputs for the engine."""
        if self._kind is APPLICATION_KIND:
            instances = properties.get("instances")
            ids = UNKNOWN if instances is UNKNOWN else instance_ids(properties)
            properties = {**properties, INSTANCE_IDS: ids}
        return without_derivable(properties, self._kind.not_among_outputs, kept)

    def secrets_of_outputs(self, secrets: frozenset[Path]) -> frozenset[Path]:
        """Return the paths of secrets in the outputs, with the ids that are derived from one."""
        if self._kind is not APPLICATION_KIND:
            return secrets
        found = set(secrets)
        for path in secrets:
            name, *within = path
            if name in ("application", "port", ID_BASE) or path == ("instances",):
                found.add((INSTANCE_IDS,))
            elif name == "instances" and (within[1:] == [] or within[1] in ("port", "instance_id")):
                found.add((INSTANCE_IDS, within[0]))
        return frozenset(found)

    def is_older(self, olds: Properties) -> bool:
        """Return whether an earlier release wrote a state, without properties that every state has now."""
        return self._kind is APPLICATION_KIND and INSTANCE_IDS not in olds

    def _owner_properties(self, urn: Urn, olds: Properties, given: Properties) -> Properties:
        connection = given.get("connection") or DEFAULT_CONNECTION
        if connection is UNKNOWN:
            raise ConfigurationError("the name of a connection must be known before anything is created")
        urls = configured_connection(self._configuration, name=connection).service_urls
        if self._configuration.is_stateless:
            owner = owner_of(
                self._configuration, str(given.get("application")), str(given.get("instance_id"))
            )
        else:
            owner = StackOwner(self._organization(urn, olds), urn.project, urn.stack, urn.name)
        found: Properties = {"service_url": ",".join(urls), "owner": str(owner)}
        if given.get("renewer") is None:
            found["renewer"] = self._configuration.operator_name
        return found

    def _organization(self, urn: Urn, olds: Properties) -> str:
        """Return the configured organization, else the state's, whose registrations must stay ours."""
        said = self._configuration.organization
        before = parse_owner(str(olds.get("owner")))
        if not said and isinstance(before, StackOwner) and before.project == urn.project:
            return before.organization
        return said or DEFAULT_ORGANIZATION

    def _derived_from_secrets(self, given: Properties, news: Received) -> Iterable[Path]:
        """Yield the paths of properties that the check derives from a secret, and that are secrets, too."""
        sources = INSTANCE_DERIVED if self._kind.kind is INSTANCE else APPLICATION_DERIVED
        for name, others in sources.items():
            if given.get(name) is None and any(news.is_secret(other) for other in others):
                yield (name,)
        instances = given.get("instances")
        for key, member in instances.items() if isinstance(instances, dict) else ():
            for name, others in MEMBER_DERIVED.items():
                is_secret = any(
                    path[:3] == ("instances", key, other) for path in news.secrets for other in others
                )
                if is_secret and isinstance(member, dict) and member.get(name) is None:
                    yield ("instances", key, name)


def _take_engine_values(given: Properties, olds: Properties) -> Properties:
    """Remove from ``given``, and return, the values that no program writes.

    Such values come back from the state with `ignoreChanges`, which may name every property. Marks of
    leftovers are removed from ``given``, too, since the check looks for leftovers again.
    """
    kept = {name: given.pop(name) for name in OURS if name in given and given[name] == olds.get(name)}
    for name in (*MARKS, SECRET_ID):
        if name in given and name in olds:
            del given[name]
    if kept and given.get("instance_id") == olds.get("instance_id") and completed(olds).get(DEFAULT_ID):
        given.pop("instance_id", None)
    return kept


def _without_secret(problem: CheckFailure, secrets: Iterable[Path]) -> CheckFailure:
    """Return a problem without a secret's value and property: the engine shows the value of a named
    property.
    """
    if not _is_secret(problem.property, secrets):
        return problem
    return CheckFailure("", f"{path_as_written(problem.property)}: {problem.without_value()}")


def _is_secret(written: str, secrets: Iterable[Path]) -> bool:
    """Return whether the property of a problem is a secret, is part of one, or contains one."""
    for path in secrets:
        name = ".".join(path)
        if f"{written}.".startswith(f"{name}.") or name.startswith(f"{written}."):
            return True
    return False


def _set_at(properties: Properties, path: Path, value: object) -> None:
    """Set the value at a path, in copies of the dictionaries on the way."""
    name, *rest = path
    if rest:
        properties[name] = dict(properties[name])
        _set_at(properties[name], tuple(rest), value)
    else:
        properties[name] = value
