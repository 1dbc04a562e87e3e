"""The operator's configuration file: targets of StackRefreshes, named connections, and their secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.resources.arguments import as_dictionary
from eurekube_provider.resources.labels import OPERATOR_APP_NAME

CONFIG_OBJECTS_NAME = f"{OPERATOR_APP_NAME}-targets"
"""The name of the ConfigMap with the configuration file, and of the Secret with its secrets."""

CONFIG_DIRECTORY = "/etc/eurekube-targets"
"""The directory of file and secrets in the container; a ``secret-file`` begins with it."""

CONFIG_FILE_NAME = "operator.yaml"
CONFIG_CHECKSUM_ANNOTATION = "eurekube.io/targets-checksum"


@dataclass(kw_only=True, slots=True)
class TargetArgs:
    """Arguments of a StackRefresh's target; docs/guides/triggers.md says what each kind needs.

    :ivar kind: ``pulumiStack``, ``webhook`` or ``automation``.
    :ivar namespaces: the namespaces whose StackRefreshes may name it; ``*`` is any.
    :ivar actions: the actions that may be asked of it: ``Refresh``, ``Up``, ``Preview``; default all of them.
    :ivar timeout_seconds: a run that takes longer is given up; default 600.
    :ivar shortest_debounce_seconds: a StackRefresh must not ask for less; default 1.
    :ivar shortest_interval_seconds: a StackRefresh must not ask for less; default 10.
    :ivar stack: of kind ``pulumiStack`` NAMESPACE/NAME of a Stack, of kind ``automation`` the stack's name.
    :ivar url: of kind ``webhook``, what is called; without credentials and query, since it stands in clear.
    :ivar url_file: of kind ``webhook``, instead of ``url`` the file with it, where a part of it is a secret.
    :ivar secret_file: of kind ``webhook``, the file with the key of the signature; one of ``target_secrets``
        is ``/etc/eurekube-targets/NAME``.
    :ivar authorization_file: of kind ``webhook``, the file with the value of the header Authorization.
    :ivar form: of kind ``webhook``, the form of its input: ``eurekube``, the default, or
        ``repository-dispatch``.
    :ivar work_dir: of kind ``automation``, the directory of the project.
    """

    kind: str
    namespaces: Sequence[str] = ()
    actions: Sequence[str] = ()
    timeout_seconds: int | None = None
    shortest_debounce_seconds: int | None = None
    shortest_interval_seconds: int | None = None
    stack: str | None = None
    url: str | None = None
    url_file: str | None = None
    secret_file: str | None = None
    authorization_file: str | None = None
    form: str | None = None
    work_dir: str | None = None


TargetArgsDict = Mapping[str, Any]
"""A dictionary with the keys of :class:`TargetArgs`, or with those of the operator's file."""

Targets = Mapping[str, TargetArgs | TargetArgsDict]
"""Targets of StackRefreshes, by name."""


ConfigFileContent = Mapping[str, Any]
"""Content of the operator's configuration file: ``targets``, ``connections``; empty for no file."""


def config_file_text(content: ConfigFileContent) -> str:
    """Return the text of the operator's configuration file."""
    return yaml.safe_dump(_as_plain_yaml_value(content), sort_keys=True)


def target_file_entries(targets: Targets) -> dict[str, Any]:
    """Return the targets with the keys of the operator's file, whichever form they were written in."""
    return {
        name: {key.replace("_", "-"): value for key, value in given.items() if value not in (None, ())}
        if isinstance(given := as_dictionary(target), Mapping)
        else target
        for name, target in targets.items()
    }


def names_of_pulumi_stack_targets(targets: Targets) -> list[tuple[str, str]]:
    """Return namespace and name of each Stack that is a target."""
    entries = target_file_entries(targets).values()
    found = [each["stack"] for each in entries if each.get("kind") == "pulumiStack"]
    return sorted({(namespace, name) for namespace, _, name in (stack.partition("/") for stack in found)})


def check_targets(targets: Targets, secrets: Collection[str]) -> None:
    """Refuse targets with which the operator could not start, as far as the program can tell.

    :raises ConfigurationError: one sentence that names the argument.
    """
    for name, target in target_file_entries(targets).items():
        where = f"targets: {name}"
        if not isinstance(target, Mapping) or not isinstance(target.get("kind"), str):
            raise ConfigurationError(f"{where} must be an object with a kind, as in docs/guides/triggers.md")
        stack = target.get("stack")
        if target["kind"] == "pulumiStack" and not all(str(stack or "").partition("/")):
            raise ConfigurationError(f"{where}: stack must be NAMESPACE/NAME of a Stack, not {stack!r}")
        if re.search("[@?#]", str(target.get("url") or "")):
            raise ConfigurationError(
                f"{where}: url must have neither credentials nor a query, which would stand in clear in a"
                " ConfigMap: put the whole URL into target_secrets, and name it with url_file:"
                f" {CONFIG_DIRECTORY}/NAME"
            )
        for key in ("url-file", "secret-file", "authorization-file"):
            file = str(target.get(key, ""))
            named = file.removeprefix(f"{CONFIG_DIRECTORY}/")
            if named != file and named not in secrets:
                raise ConfigurationError(f"{where}: {key} is {file}: add {named!r} to target_secrets")
        _refuse_incomplete_target(where, target)
    if secrets and not targets:
        raise ConfigurationError("target_secrets means nothing without targets")
    if CONFIG_FILE_NAME in secrets:
        raise ConfigurationError(
            f"target_secrets must not have {CONFIG_FILE_NAME!r}, which is the file with the targets"
        )


def _refuse_incomplete_target(where: str, target: Mapping[str, Any]) -> None:
    """Refuse a target that lacks a key without which the operator would exit."""
    if not target.get("namespaces"):
        raise ConfigurationError(
            f"{where}: there is no namespaces: name those that may use it, or '*' for any"
        )
    if target["kind"] == "webhook":
        if bool(target.get("url")) == bool(target.get("url-file")):
            raise ConfigurationError(
                f"{where}: give url or, where a part of it is a secret, url_file: one of both"
            )
        if not target.get("secret-file") and not target.get("authorization-file"):
            raise ConfigurationError(
                f"{where}: the receiver must be able to tell that it was us: add a secret_file, an "
                "authorization_file, or both"
            )


def _as_plain_yaml_value(value: Any) -> Any:
    """Return a value with plain dictionaries and lists, in place of the SDK's classes."""
    if isinstance(value, Mapping):
        return {str(key): _as_plain_yaml_value(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_plain_yaml_value(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
