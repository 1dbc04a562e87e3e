"""Targets that a StackRefresh may name: the targets of the operator's configuration file.

Anyone who may write a StackRefresh must not be able to choose a URL, a directory or a stack: the file lists
those, with the namespaces that may use them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.schedule import Pace
from eurekube_provider.core.stack_identity import PROJECT_FILES, stack_identity
from eurekube_provider.core.stack_refresh import StackAction, StackRefresh
from eurekube_provider.eureka.connection import read_secret
from eurekube_provider.operator.options import (
    HTTP_URL,
    NAMES,
    SECONDS,
    TEXT,
    Option,
    SourcedText,
    ValueType,
    checked,
    choice,
    from_file,
    named_entries,
    option,
    options_of,
)

USUAL_DEBOUNCE_SECONDS, USUAL_INTERVAL_SECONDS = 5.0, 60.0
"""Defaults of a StackRefresh's debounce and interval in seconds, where the target allows them."""


class Payload(StrEnum):
    """The format of a webhook call's body."""

    EUREKUBE = "eurekube"
    """Eurekube's own format, which includes the addresses."""

    REPOSITORY_DISPATCH = "repository-dispatch"
    """Body for GitHub's endpoint ``/repos/OWNER/NAME/dispatches``, with numbers for the addresses."""


@dataclass(frozen=True, slots=True)
class PulumiStack:
    """A ``Stack`` of the Pulumi Kubernetes Operator."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that the operator calls to run a stack.

    :ivar secret: key of the HMAC signature; empty for no signature.
    :ivar authorization: value of the header ``Authorization``; empty for none.
    """

    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    form: Payload = Payload.EUREKUBE


@dataclass(frozen=True, slots=True)
class Automation:
    """A stack that a worker process runs with a local Pulumi CLI.

    :ivar work_dir: the directory of its project.
    :ivar identity: the stack's identity, the same for any name and directory from which it is run.
    """

    stack: str
    work_dir: str
    identity: str = field(default="", compare=False)


Way = PulumiStack | Webhook | Automation


def _actions(text: str) -> frozenset[StackAction]:
    known = {str(action).lower(): action for action in StackAction}
    try:
        return frozenset(known[name.lower()] for name in NAMES.parse(text))
    except KeyError:
        raise ValueError("must be some of Refresh, Up and Preview") from None


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Limits on concurrent runs of a target.

    :ivar group: name shared by targets of one stack: of a group only one run is under way at a time.
    :ivar is_heavy: True if a run is a process that wants a processor, and no wait for somebody else's.
    """

    group: str
    is_heavy: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """One target; each option below is a key that every kind of target has."""

    name: str
    way: Way
    namespaces: frozenset[str] = option(
        ValueType(lambda text: frozenset(NAMES.parse(text)), NAMES.accepts, NAMES.word, NAMES.metavar),
        frozenset(),
        "whose StackRefreshes may name it; * is any",
    )
    actions: frozenset[StackAction] = option(
        ValueType(_actions, NAMES.accepts, NAMES.word, "ACTION[,ACTION...]"),
        frozenset(StackAction),
        "what may be asked of it",
        shown="Refresh, Up, Preview",
    )
    timeout_seconds: float = option(SECONDS, 600.0, "a run that takes longer is given up")
    shortest_debounce_seconds: float = option(SECONDS, 1.0, "a StackRefresh must not ask for less")
    shortest_interval_seconds: float = option(SECONDS, 10.0, "a StackRefresh must not ask for less")

    @property
    def concurrency(self) -> Concurrency:
        """Limits on the target's concurrent runs."""
        way = self.way
        if isinstance(way, PulumiStack):
            return Concurrency(f"Stack {way.namespace}/{way.name}", is_heavy=False)
        if isinstance(way, Automation):
            return Concurrency(f"stack {way.identity or (way.work_dir, way.stack)}")
        return Concurrency(f"target {self.name}", is_heavy=False)

    def pace_of(self, refresh: StackRefresh) -> Pace:
        """Return how often a StackRefresh may run this target.

        :raises ConfigurationError: it may not use this target, or not with its action or times.
        """
        if not self.namespaces & {refresh.namespace, "*"}:
            raise ConfigurationError(
                f"spec.target is {self.name!r}, which the namespace {refresh.namespace} may not use: add it"
                " to the target's namespaces in the operator's configuration"
            )
        if refresh.action not in self.actions:
            allowed = ", ".join(sorted(self.actions))
            raise ConfigurationError(
                f"spec.action is {refresh.action}, and the target {self.name!r} allows {allowed} only"
            )
        debounce, interval = self.shortest_debounce_seconds, self.shortest_interval_seconds
        return Pace(
            self._at_least("debounceSeconds", refresh.debounce_seconds, debounce, USUAL_DEBOUNCE_SECONDS),
            self._at_least("minIntervalSeconds", refresh.interval_seconds, interval, USUAL_INTERVAL_SECONDS),
        )

    def _at_least(self, key: str, said: int | None, shortest: float, usual: float) -> float:
        if said is None:
            return max(usual, shortest)
        if said < shortest:
            raise ConfigurationError(
                f"spec.{key} is {said}, and the target {self.name!r} allows no less than {shortest:g}"
            )
        return float(said)


_stack_name = checked(
    re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?").fullmatch,
    "must be NAMESPACE/NAME of a Stack, such as pulumi/shop-prod",
    lambda text: text.split("/"),
)
_directory = checked(
    lambda text: Path(text).is_dir(),
    "is no directory: check the path, and what is mounted there",
    lambda text: str(Path(text).absolute()),
)
_PULUMI_STACK, _WEBHOOK, _AUTOMATION = "pulumiStack", "webhook", "automation"

_KIND = Option("kind", "KIND", choice(_PULUMI_STACK, _WEBHOOK, _AUTOMATION, read=str), None, "what it is")
_OF_TARGETS = options_of(Target)
COMMON_KEYS = (_KIND, *_OF_TARGETS.values())
KEYS_OF_KIND = {
    _PULUMI_STACK: (Option("stack", "NAMESPACE/NAME", ValueType(_stack_name), None, "the Stack"),),
    _WEBHOOK: (
        Option("url", "URL", HTTP_URL, None, "what is called", shown="required, or url-file"),
        Option("url-file", "FILE", TEXT, None, "file with the URL, where a part of it is a secret"),
        Option("secret-file", "FILE", TEXT, None, "file with the key of the signature"),
        Option("authorization-file", "FILE", TEXT, None, "file with the value of the header Authorization"),
        Option(
            "form",
            "eurekube|repository-dispatch",
            choice(*Payload),
            str(Payload.EUREKUBE),
            "the form of its input",
        ),
    ),
    _AUTOMATION: (
        Option("stack", "NAME", TEXT, None, "the stack"),
        Option("work-dir", "DIRECTORY", ValueType(_directory), None, "where its project is"),
    ),
}
REQUIRED_KEYS = {_PULUMI_STACK: ("stack",), _WEBHOOK: (), _AUTOMATION: ("stack", "work-dir")}
SECRET_KEYS = ("secret", "authorization")
"""Keys whose values may be given only through a file, such as ``secret-file``."""


def targets_from(written: Any, place: str) -> dict[str, Target]:
    """Return the targets of a configuration file, by name.

    :param written: the value of the file's key ``targets``.
    :param place: the file and that key, for errors.
    :raises ConfigurationError: a target that cannot be used.
    """
    return {
        name: _target(name, entries, f"{place}: {name}")
        for name, entries in named_entries(written, place, "kind", "ci: {kind: webhook, ...}").items()
    }


def _target(name: str, entries: Mapping[str, Any], place: str) -> Target:
    kind = _KIND.read(from_file(place, {"kind": entries.get("kind")}, (_KIND,), ()).get("kind"))
    if kind is None:
        raise ConfigurationError(f"{place}: there is no kind: add one of {', '.join(KEYS_OF_KIND)}")
    options = (*COMMON_KEYS, *KEYS_OF_KIND[kind])
    given = from_file(place, entries, options, SECRET_KEYS)
    for key in ("namespaces", *REQUIRED_KEYS[kind]):
        if key not in given or not given[key].text:
            hint = ": name those that may use it, or '*' for any" if key == "namespaces" else ""
            raise ConfigurationError(f"{place}: there is no {key}{hint}")
    values = {one.name: one.read(given.get(one.name)) for one in options}
    common = {field_name: values[one.name] for field_name, one in _OF_TARGETS.items()}
    return Target(name, _parse_way(kind, values, given, place), **common)


def _parse_way(kind: str, values: Mapping[str, Any], given: Mapping[str, SourcedText], place: str) -> Way:
    if kind == _PULUMI_STACK:
        return PulumiStack(*values["stack"])
    if kind == _AUTOMATION:
        return _automation(values["stack"], values["work-dir"])
    url, where = _url(given, place)
    secrets = {
        key: read_secret(one.text, one.where)
        for key in SECRET_KEYS
        if (one := given.get(f"{key}-file")) is not None and one.text
    }
    if not secrets:
        raise ConfigurationError(
            f"{where}: the receiver must be able to tell that it was us: add a secret-file,"
            " an authorization-file, or both"
        )
    if not secrets.get("authorization", "").isascii():
        raise ConfigurationError(f"{given['authorization-file'].where}: a header can carry ASCII only")
    return Webhook(url=url, form=Payload(values["form"]), **secrets)


def _url(given: Mapping[str, SourcedText], place: str) -> tuple[str, str]:
    """Return the URL that a webhook calls, and the setting that names it."""
    url, file = (one if (one := given.get(key)) and one.text else None for key in ("url", "url-file"))
    if url is not None and file is None:
        return url.text, url.where
    if file is None or url is not None:
        raise ConfigurationError(
            f"{place}: give url or, where a part of it is a secret, url-file: one of both"
        )
    try:
        return str(HTTP_URL.parse(read_secret(file.text, file.where))), file.where
    except ValueError as error:
        raise ConfigurationError(f"{file.where}: the URL in {file.text} {error}") from None


def _automation(stack: str, work_dir: str) -> Automation:
    project: object = None
    for path in (Path(work_dir) / name for name in PROJECT_FILES):
        with suppress(OSError, ValueError, yaml.YAMLError):  # the CLI says what is wrong with it
            project = yaml.safe_load(path.read_text())
            break
    settings = project if isinstance(project, Mapping) else {}
    backend = os.environ.get("PULUMI_BACKEND_URL", "")
    return Automation(
        stack, work_dir, stack_identity(stack, settings, backend, str(Path(work_dir).resolve()))
    )
