"""Targets that a StackRefresh may name, from the operator's configuration file, and one run of a target.

Anyone who may write a StackRefresh must not be able to choose a URL, a directory or a stack: the file lists
those, with the namespaces that may use them.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.schedule import RunLimits
from eurekube_provider.core.stack_identity import PROJECT_FILE_NAMES, stack_identity
from eurekube_provider.core.stack_refresh import AddressesByService, StackAction, StackRefresh
from eurekube_provider.eureka.connection import read_secret
from eurekube_provider.operator.options import (
    HTTP_URL_TYPE,
    NAME_LIST_TYPE,
    SECONDS_TYPE,
    TEXT_TYPE,
    Option,
    SourcedText,
    ValueType,
    choice_type,
    make_checking_parser,
    option_field,
    options_of,
    parse_named_entries,
    texts_from_mapping,
)

DEFAULT_DEBOUNCE_SECONDS, DEFAULT_INTERVAL_SECONDS = 5.0, 60.0
"""Defaults of a StackRefresh's debounce and interval in seconds, where the target allows them."""


class WebhookFormat(StrEnum):
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
    form: WebhookFormat = WebhookFormat.EUREKUBE


@dataclass(frozen=True, slots=True)
class AutomationStack:
    """A stack that a worker process runs with a local Pulumi CLI.

    :ivar identity: the stack's identity, the same for any name and directory from which it is run.
    """

    stack: str
    work_dir: str
    identity: str = field(default="", compare=False)


RunMethod = PulumiStack | Webhook | AutomationStack
"""How a target's stack is run: by another operator, by a call of a URL, or by a process on this machine."""


def _parse_actions(text: str) -> frozenset[StackAction]:
    known = {str(action).lower(): action for action in StackAction}
    try:
        return frozenset(known[name.lower()] for name in NAME_LIST_TYPE.parse(text))
    except KeyError:
        raise ValueError("must be some of Refresh, Up and Preview") from None


@dataclass(frozen=True, slots=True)
class ConcurrencyLimit:
    """Limits on concurrent runs of a target.

    :ivar group: name shared by targets of one stack: of a group only one run is under way at a time.
    :ivar runs_local_process: True if a run is a process on this machine; False if it waits for another
        server.
    """

    group: str
    runs_local_process: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """One target; each option below is a key that every kind of target has."""

    name: str
    run_method: RunMethod
    namespaces: frozenset[str] = option_field(
        replace(NAME_LIST_TYPE, parse=lambda text: frozenset(NAME_LIST_TYPE.parse(text))),
        frozenset(),
        "whose StackRefreshes may name it; * is any",
    )
    actions: frozenset[StackAction] = option_field(
        replace(NAME_LIST_TYPE, parse=_parse_actions, metavar="ACTION[,ACTION...]"),
        frozenset(StackAction),
        "what may be asked of it",
        default_text="Refresh, Up, Preview",
    )
    timeout_seconds: float = option_field(SECONDS_TYPE, 600.0, "a run that takes longer is given up")
    shortest_debounce_seconds: float = option_field(SECONDS_TYPE, 1.0, "a StackRefresh must not ask for less")
    shortest_interval_seconds: float = option_field(
        SECONDS_TYPE, 10.0, "a StackRefresh must not ask for less"
    )

    @property
    def concurrency(self) -> ConcurrencyLimit:
        """Limits on the target's concurrent runs."""
        way = self.run_method
        if isinstance(way, PulumiStack):
            return ConcurrencyLimit(f"Stack {way.namespace}/{way.name}", runs_local_process=False)
        if isinstance(way, AutomationStack):
            return ConcurrencyLimit(f"stack {way.identity or (way.work_dir, way.stack)}")
        return ConcurrencyLimit(f"target {self.name}", runs_local_process=False)

    def run_limits_of(self, refresh: StackRefresh) -> RunLimits:
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
        return RunLimits(
            self._require_at_least(
                "debounceSeconds", refresh.debounce_seconds, debounce, DEFAULT_DEBOUNCE_SECONDS
            ),
            self._require_at_least(
                "minIntervalSeconds", refresh.min_interval_seconds, interval, DEFAULT_INTERVAL_SECONDS
            ),
        )

    def _require_at_least(
        self, key: str, requested_seconds: int | None, shortest: float, usual: float
    ) -> float:
        if requested_seconds is None:
            return max(usual, shortest)
        if requested_seconds < shortest:
            raise ConfigurationError(
                f"spec.{key} is {requested_seconds}, and the target {self.name!r} allows no less than "
                f"{shortest:g}"
            )
        return float(requested_seconds)


_parse_stack_namespace_and_name = make_checking_parser(
    re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?").fullmatch,
    "must be NAMESPACE/NAME of a Stack, such as pulumi/shop-prod",
    lambda text: text.split("/"),
)
_parse_directory = make_checking_parser(
    lambda text: Path(text).is_dir(),
    "is no directory: check the path, and what is mounted there",
    lambda text: str(Path(text).absolute()),
)
_PULUMI_STACK, _WEBHOOK, _AUTOMATION = "pulumiStack", "webhook", "automation"

_KIND_OPTION = Option(
    "kind", "KIND", choice_type(_PULUMI_STACK, _WEBHOOK, _AUTOMATION, read=str), None, "what it is"
)
_TARGET_OPTIONS = options_of(Target)
COMMON_TARGET_OPTIONS = (_KIND_OPTION, *_TARGET_OPTIONS.values())

OPTIONS_BY_TARGET_KIND = {
    _PULUMI_STACK: (
        Option("stack", "NAMESPACE/NAME", ValueType(_parse_stack_namespace_and_name), None, "the Stack"),
    ),
    _WEBHOOK: (
        Option("url", "URL", HTTP_URL_TYPE, None, "what is called", default_text="required, or url-file"),
        Option("url-file", "FILE", TEXT_TYPE, None, "file with the URL, where a part of it is a secret"),
        Option("secret-file", "FILE", TEXT_TYPE, None, "file with the key of the signature"),
        Option(
            "authorization-file", "FILE", TEXT_TYPE, None, "file with the value of the header Authorization"
        ),
        Option(
            "form",
            "eurekube|repository-dispatch",
            choice_type(*WebhookFormat),
            str(WebhookFormat.EUREKUBE),
            "the form of its input",
        ),
    ),
    _AUTOMATION: (
        Option("stack", "NAME", TEXT_TYPE, None, "the stack"),
        Option("work-dir", "DIRECTORY", ValueType(_parse_directory), None, "where its project is"),
    ),
}
REQUIRED_KEYS_BY_TARGET_KIND = {_PULUMI_STACK: ("stack",), _WEBHOOK: (), _AUTOMATION: ("stack", "work-dir")}
"""Keys that a target must have beside ``kind`` and ``namespaces``, by kind."""

SECRET_KEYS = ("secret", "authorization")
"""Keys whose values may be given only through a file, such as ``secret-file``."""


def parse_targets(written: Any, place: str) -> dict[str, Target]:
    """Return the targets of a configuration file, by name.

    :raises ConfigurationError: a target that cannot be used.
    """
    return {
        name: _parse_target(name, entries, f"{place}: {name}")
        for name, entries in parse_named_entries(written, place, "kind", "ci: {kind: webhook, ...}").items()
    }


def _parse_target(name: str, entries: Mapping[str, Any], place: str) -> Target:
    kind = _KIND_OPTION.read(
        texts_from_mapping(place, {"kind": entries.get("kind")}, (_KIND_OPTION,), ()).get("kind")
    )
    if kind is None:
        raise ConfigurationError(f"{place}: there is no kind: add one of {', '.join(OPTIONS_BY_TARGET_KIND)}")
    options = (*COMMON_TARGET_OPTIONS, *OPTIONS_BY_TARGET_KIND[kind])
    given = texts_from_mapping(place, entries, options, SECRET_KEYS)
    for key in ("namespaces", *REQUIRED_KEYS_BY_TARGET_KIND[kind]):
        if key not in given or not given[key].text:
            hint = ": name those that may use it, or '*' for any" if key == "namespaces" else ""
            raise ConfigurationError(f"{place}: there is no {key}{hint}")
    values = {one.name: one.read(given.get(one.name)) for one in options}
    common = {field_name: values[one.name] for field_name, one in _TARGET_OPTIONS.items()}
    return Target(name, _parse_run_method(kind, values, given, place), **common)


def _parse_run_method(
    kind: str, values: Mapping[str, Any], given: Mapping[str, SourcedText], place: str
) -> RunMethod:
    if kind == _PULUMI_STACK:
        return PulumiStack(*values["stack"])
    if kind == _AUTOMATION:
        return _read_automation_stack(values["stack"], values["work-dir"])
    url, where = _read_webhook_url_and_setting(given, place)
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
    return Webhook(url=url, form=WebhookFormat(values["form"]), **secrets)


def _read_webhook_url_and_setting(given: Mapping[str, SourcedText], place: str) -> tuple[str, str]:
    url, file = (one if (one := given.get(key)) and one.text else None for key in ("url", "url-file"))
    if url is not None and file is None:
        return url.text, url.where
    if file is None or url is not None:
        raise ConfigurationError(
            f"{place}: give url or, where a part of it is a secret, url-file: one of both"
        )
    try:
        return str(HTTP_URL_TYPE.parse(read_secret(file.text, file.where))), file.where
    except ValueError as error:
        raise ConfigurationError(f"{file.where}: the URL in {file.text} {error}") from None


def _read_automation_stack(stack: str, work_dir: str) -> AutomationStack:
    project: object = None
    for path in (Path(work_dir) / name for name in PROJECT_FILE_NAMES):
        with suppress(OSError, ValueError, yaml.YAMLError):  # the CLI says what is wrong with it
            project = yaml.safe_load(path.read_text())
            break
    settings = project if isinstance(project, Mapping) else {}
    backend = os.environ.get("PULUMI_BACKEND_URL", "")
    return AutomationStack(
        stack, work_dir, stack_identity(stack, settings, backend, str(Path(work_dir).resolve()))
    )


class StackRunOutcome(StrEnum):
    """The outcome of a run."""

    CHANGED = "Changed"
    """The run succeeded and changed something; a preview found something to change."""

    UNCHANGED = "Unchanged"
    """The run succeeded with nothing to change."""

    SUCCEEDED = "Succeeded"
    """The run succeeded; this kind of target does not say whether anything changed."""

    FAILED = "Failed"
    """The run failed, and is tried again."""

    LOCKED = "Locked"
    """Another process works on the stack; nothing was done."""

    PENDING = "Pending"
    """The requested run has not ended; the next try waits for the same run, and requests no new one."""

    @property
    def is_success(self) -> bool:
        return self not in (StackRunOutcome.FAILED, StackRunOutcome.LOCKED, StackRunOutcome.PENDING)


@dataclass(frozen=True, slots=True)
class StackRun:
    """One run of a target, as the target gets it.

    :ivar idempotency_key: equal for every try of the same run, also by another replica.
    :ivar attempt: the number of the try, from 1 on.
    :ivar timeout_seconds: seconds from now after which the run is given up.
    :ivar cancelled: set when the operator ends: give up soon, nobody waits for the result.
    """

    namespace: str
    name: str
    action: StackAction
    cluster: str
    addresses: AddressesByService
    idempotency_key: str
    attempt: int
    timeout_seconds: float
    cancelled: threading.Event


@dataclass(frozen=True, slots=True)
class StackRunResult:
    """The result of one run of a target.

    :ivar changes: number of resources by operation, e.g. ``{"create": 2}``; empty where not known.
    """

    outcome: StackRunOutcome
    message: str
    changes: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)

    @classmethod
    def failed(cls, message: str) -> StackRunResult:
        return cls(StackRunOutcome.FAILED, message)


StackRunner = Callable[[StackRun], StackRunResult]
"""Function that carries a run out on a thread of its own; an exception counts as a failure."""
