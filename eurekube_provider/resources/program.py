"""Access of a running Pulumi program to its stack's configuration.

The module imports little: the dynamic provider imports it, too.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from types import TracebackType

import pulumi
from pulumi.runtime import get_config, is_config_secret
from pulumi.runtime.config import CONFIG, get_config_env

from eurekube_provider.core.errors import ConfigurationError, EurekubeError
from eurekube_provider.core.wording import suggest_name
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.registrations.connections import (
    CONFIG_NAMESPACE,
    CONFIGURATION_KEY_NAMES,
    DEFAULT_CONNECTION_NAME,
    DEFAULT_OPERATOR_NAME,
    OFFLINE_VARIABLE,
    configured_connection,
    connection_problems,
)

Options = pulumi.ResourceOptions | None

runs_without_engine: ContextVar[bool] = ContextVar("runs_without_engine", default=False)
"""True while the program runs without an engine, see :mod:`~eurekube_provider.stateless.render`."""


class ProgramError(ConfigurationError, pulumi.RunError):
    """A setting of the program is missing or wrong. Pulumi shows its one sentence and no traceback."""


class ConvertToProgramError(ContextDecorator):
    """A context that turns our errors into :class:`ProgramError`; ``where`` comes before their sentence."""

    def __init__(self, where: str = "") -> None:
        self._where = where

    def __enter__(self) -> None: ...

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, EurekubeError) and not isinstance(error, ProgramError):
            raise ProgramError(f"{self._where}{error}") from None


def program_setting(key: str) -> str | None:
    """Return the value of ``eurekube:<key>``, None where it is not set, past :class:`pulumi.Config`, which
    warns of secrets that are read in clear: callers must keep secrets out of properties.
    """
    value = get_config(f"{CONFIG_NAMESPACE}:{key}")
    return str(value) if value not in (None, "") else None


def program_connection(name: str | None = None) -> Connection:
    """Return the connection to this stack's Eureka, or to the one of ``eurekube:connections`` with this name.

    :raises ProgramError: no connection is configured, or the settings of any connection are wrong.
    """
    with ConvertToProgramError():
        if problems := connection_problems(program_setting):
            raise ConfigurationError("; ".join(problems))
        return configured_connection(program_setting, name=name or DEFAULT_CONNECTION_NAME)


def default_renewer() -> str:
    """Return the renewer of resources that name none: ``eurekube:operatorName``, else ``eurekube``."""
    return program_setting("operatorName") or DEFAULT_OPERATOR_NAME


def program_organization() -> str:
    """Return the organization in the owner of the stack's registrations: ``eurekube:organization``, without
    which people who share a bucket would be one owner, else Pulumi's. ProgramError: it has a slash.
    """
    said = program_setting("organization") or pulumi.get_organization() or "organization"
    if "/" in said:
        raise ProgramError(f"{CONFIG_NAMESPACE}:organization: {said!r} must have no slash")
    return said


def refuse_unsupported_options(kind: str, name: str, options: Options, lookup: str) -> None:
    """Refuse, by ProgramError, resource options that Pulumi's dynamic resources do not support."""
    if options is None:
        return
    if options.id is not None:
        raise ProgramError(f"{kind} {name!r}: ResourceOptions(id=...) cannot look one up; use {lookup}()")
    if options.import_ is not None:
        raise ProgramError(
            f"{kind} {name!r}: ResourceOptions(import_=...) does not work with dynamic resources; take over"
            ' what is there with on_conflict="adopt"'
        )
    if options.custom_timeouts is not None:
        pulumi.log.warn(
            f"{kind} {name!r}: custom_timeouts are ignored, since Pulumi hands them to no dynamic resource; a"
            " removal takes as long as its drain_seconds and the servers' time-outs"
        )


_NATIVE_COMPONENT_NAME_BY_TYPE: Mapping[str, str] = {
    f"eurekube:index:{python}": native
    for python, native in {
        "EurekaMirror": "Mirror",
        "EurekaSyncer": "Syncer",
        "EurekubeOperator": "Operator",
    }.items()
}
"""The name of the native provider's component, by the type of the Python component."""


def refuse_aliases_of_native_component(type_: str, name: str, options: Options) -> None:
    """Refuse, by ProgramError, a Python component with an alias of the native provider's."""
    native = _NATIVE_COMPONENT_NAME_BY_TYPE.get(type_)
    for alias in (options.aliases if options is not None else None) or ():
        named = alias.type_ if isinstance(alias, pulumi.Alias) else alias
        if native and isinstance(named, str) and f"eurekube:index:{native}" in re.split(r"::|\$", named):
            raise ProgramError(
                f"{type_.rpartition(':')[2]} {name!r}: a state moves from a component of Python to the native"
                f" provider's eurekube.{native}, not back: keep eurekube.{native} in the program"
            )


def is_offline_preview() -> bool:
    """Return whether this is a preview that must ask nobody, by ``eurekube:offline`` or EUREKUBE_OFFLINE.

    :raises ProgramError: a value is neither true nor false.
    """
    given = {
        f"{CONFIG_NAMESPACE}:offline": program_setting("offline"),
        OFFLINE_VARIABLE: os.environ.get(OFFLINE_VARIABLE),
    }
    for where, text in given.items():
        if text and text.lower() not in ("true", "1", "false", "0"):
            raise ProgramError(f"{where}: {text!r} must be true or false")
    said = any(text and text.lower() in ("true", "1") for text in given.values())
    return said and pulumi.runtime.is_dry_run()


def warn_of_plaintext_credentials() -> None:
    """Warn where ``eurekube:url`` carries credentials in clear, which the state would then hold, too."""
    url = program_setting("url") or ""
    if "@" in url and not is_config_secret(f"{CONFIG_NAMESPACE}:url"):
        pulumi.log.warn(
            f"{CONFIG_NAMESPACE}:url carries credentials in clear: set {CONFIG_NAMESPACE}:user and, with "
            f"--secret, {CONFIG_NAMESPACE}:password instead"
        )
    for key in ("password", "token"):
        if program_setting(key) and not is_config_secret(f"{CONFIG_NAMESPACE}:{key}"):
            pulumi.log.warn(
                f"{CONFIG_NAMESPACE}:{key} stands in clear: pulumi config set --secret "
                f"{CONFIG_NAMESPACE}:{key} ..."
            )
    connections = program_setting("connections") or ""
    if any(f'"{key}"' in connections for key in ("password", "token")) and not is_config_secret(
        f"{CONFIG_NAMESPACE}:connections"
    ):
        pulumi.log.warn(
            f"{CONFIG_NAMESPACE}:connections has credentials in clear: pulumi config set --path --secret"
            f" {CONFIG_NAMESPACE}:connections.NAME.password ..."
        )


_is_warned_of_unknown_keys: ContextVar[bool] = ContextVar("is_warned_of_unknown_keys", default=False)


def warn_of_unknown_keys() -> None:
    """Warn, once in a run, of each key ``eurekube:...`` of the stack that nothing reads."""
    if _is_warned_of_unknown_keys.get():
        return
    _is_warned_of_unknown_keys.set(True)
    for written in sorted({*CONFIG.get(), *get_config_env()}):
        namespace, _, key = written.partition(":")
        if namespace == CONFIG_NAMESPACE and key not in CONFIGURATION_KEY_NAMES:
            hint = suggest_name(key, sorted(CONFIGURATION_KEY_NAMES))
            pulumi.log.warn(f"{written} is ignored: there is no such key; {hint}")


def leave_quietly_when_interrupted() -> None:
    """End the program without a message on SIGINT, which Pulumi sends as soon as a resource fails: two
    tracebacks would stand above the one sentence that matters.

    In another thread, an inline program's, do nothing: signals are its process's concern.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(1))
