"""A Pulumi project's files, read without Pulumi, and so without secrets: only the engine has their key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Project:
    """The settings of a project's Pulumi.yaml.

    :ivar program: the file that is run as the project's program.
    :ivar stack_directory: the directory of the stacks' files, such as ``Pulumi.dev.yaml``.
    :ivar defaults: the configuration for all stacks, by key with its namespace.
    """

    name: str
    program: Path
    stack_directory: Path
    defaults: Mapping[str, str]

    @classmethod
    def load(cls, directory: Path) -> Project:
        """Read ``Pulumi.yaml``; raise ConfigurationError where the file is missing, or is no Pulumi.yaml."""
        directory = directory.resolve()
        file = directory / "Pulumi.yaml"
        document = _read_yaml(file, "is this the project's directory? Use --project")
        name = document.get("name")
        if not isinstance(name, str):
            raise ConfigurationError(f"{file} has no name")
        program = directory / str(document.get("main") or ".")
        return cls(
            name=name,
            program=program if program.suffix == ".py" else program / "__main__.py",
            stack_directory=directory / str(document.get("stackConfigDir") or "."),
            defaults=_default_settings(name, _config_of(document, file)),
        )

    def configuration(self, stack: str, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return the stack's configuration as a program sees it: texts, with lists and objects as JSON.

        :param overrides: values that win over the stack's file; the only way to give a secret.
        :raises ConfigurationError: no such stack, or a secret without an override.
        """
        file = self.stack_directory / f"Pulumi.{stack}.yaml"
        if not file.is_file():
            files = self.stack_directory.glob("Pulumi.*.yaml")
            names = sorted(each.name.removeprefix("Pulumi.").removesuffix(".yaml") for each in files)
            known = ", ".join(names) or "none"
            raise ConfigurationError(
                f"there is no stack {stack!r}: {file} does not exist; there are {known}. Name another with"
                " --stack, or make that file; an empty one will do"
            )
        written = {
            _qualified_key(self.name, key): value for key, value in _config_of(_read_yaml(file), file).items()
        }
        given = {_qualified_key(self.name, key): value for key, value in overrides.items()}
        for key, value in written.items():
            if key not in given and _has_secret(value):
                raise ConfigurationError(
                    f"{key} is a secret in {file}, which only Pulumi can read: give it with"
                    f" --config {key}=..., or in the environment (EUREKA_PASSWORD) after"
                    f" --config {key}="
                )
        stacked = {key: _setting_text(value) for key, value in written.items() if key not in given}
        return dict(sorted({**self.defaults, **stacked, **given}.items()))


def _read_yaml(file: Path, hint: str = "") -> dict[str, Any]:
    try:
        document = yaml.load(file.read_text("utf-8"), _PulumiYamlLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read ({error.strerror}){f'; {hint}' if hint else ''}"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document or {}, dict):
        raise ConfigurationError(f"{file} must be an object")
    return document or {}


def _config_of(document: Mapping[str, Any], file: Path) -> dict[str, Any]:
    config = document.get("config") or {}
    if not isinstance(config, dict):
        raise ConfigurationError(f"{file}: config must be an object, such as eurekube:url: http://...")
    return {str(key): value for key, value in config.items()}


def _default_settings(project: str, declared: Mapping[str, Any]) -> dict[str, str]:
    """Return Pulumi.yaml's values for all stacks: a declared key's value or default, or a plain scalar."""
    defaults: dict[str, str] = {}
    for key, declaration in declared.items():
        value = declaration
        if isinstance(declaration, dict):
            value = declaration.get("value", declaration.get("default"))
        if value is not None:
            defaults[_qualified_key(project, key)] = _setting_text(value)
    return defaults


def _qualified_key(project: str, key: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _has_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return "secure" in value or any(_has_secret(item) for item in value.values())
    return isinstance(value, list) and any(_has_secret(item) for item in value)


def _setting_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


class _PulumiYamlLoader(yaml.SafeLoader):
    """A YAML loader that reads scalars as Pulumi does: ``yes`` and ``12:30`` are texts, ``1e3`` a number."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as PyYAML declares it

    def construct_timestamp(self, node: yaml.ScalarNode) -> str:
        """Return a YAML date as the text that Go prints for it."""
        try:
            found = self.construct_yaml_timestamp(node)
        except ValueError:
            return str(node.value)  # no such day
        if not isinstance(found, datetime):
            return f"{found} 00:00:00 +0000 UTC"
        zone = f"{found:%z} {found:%z}" if found.utcoffset() else "+0000 UTC"
        fraction = f"{found:.%f}".rstrip("0") if found.microsecond else ""
        return f"{found:%Y-%m-%d %H:%M:%S}{fraction} {zone}"

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a float, or an integer where it has no fraction, as in JSON."""
        found = float(self.construct_yaml_float(node))
        return int(found) if found.is_integer() else found


_YAML_TAG_PREFIX = "tag:yaml.org,2002:"
_TIMESTAMP_PATTERN = dict(yaml.SafeLoader.yaml_implicit_resolvers["0"])[_YAML_TAG_PREFIX + "timestamp"]
_INTEGER_PATTERN = re.compile(r"[-+]?(0b[01][01_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT_PATTERN = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$")

for _tag, _pattern, _first in (
    ("bool", re.compile("(true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    ("null", re.compile("(~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("merge", re.compile("<<$"), "<"),
    ("timestamp", _TIMESTAMP_PATTERN, "0123456789"),
    ("int", _INTEGER_PATTERN, "-+0123456789"),
    ("float", _FLOAT_PATTERN, "-+.0123456789"),
):
    _PulumiYamlLoader.add_implicit_resolver(_YAML_TAG_PREFIX + _tag, _pattern, list(_first))
_PulumiYamlLoader.add_constructor(_YAML_TAG_PREFIX + "timestamp", _PulumiYamlLoader.construct_timestamp)
_PulumiYamlLoader.add_constructor(_YAML_TAG_PREFIX + "float", _PulumiYamlLoader.construct_number)
