"""A Pulumi project's files, read without Pulumi: its name, and a stack's configuration.

As much of Pulumi.yaml as the program needs; secrets of a stack cannot be read, since only the engine has
their key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Project:
    """A project's directory and what its Pulumi.yaml says."""

    directory: Path
    name: str
    program: Path
    stack_directory: Path
    defaults: Mapping[str, str]

    @classmethod
    def load(cls, directory: Path) -> Project:
        """Read ``Pulumi.yaml``.

        :raises ConfigurationError: there is none, or it is not one.
        """
        directory = directory.resolve()
        document = _document(directory / "Pulumi.yaml", "is this the project's directory? Use --project")
        name = document.get("name")
        if not isinstance(name, str):
            raise ConfigurationError(f"{directory / 'Pulumi.yaml'} has no name")
        program = directory / str(document.get("main") or ".")
        return cls(
            directory=directory,
            name=name,
            program=program if program.suffix == ".py" else program / "__main__.py",
            stack_directory=directory / str(document.get("stackConfigDir") or "."),
            defaults=_defaults(name, document.get("config") or {}),
        )

    @property
    def stacks(self) -> list[str]:
        """The stacks that have a file, by name."""
        files = self.stack_directory.glob("Pulumi.*.yaml")
        return sorted(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files)

    def configuration(self, stack: str, overrides: Mapping[str, str]) -> dict[str, str]:
        """The stack's configuration as a program sees it: texts, lists and objects as JSON.

        :param overrides: win over the stack's file; the only way to give what is a secret there.
        :raises ConfigurationError: no such stack, or a secret without an override.
        """
        file = self.stack_directory / f"Pulumi.{stack}.yaml"
        if not file.is_file():
            known = ", ".join(self.stacks) or "none"
            raise ConfigurationError(f"there is no stack {stack!r}: {file} does not exist; there are {known}")
        written = {
            _key(self.name, key): value for key, value in (_document(file).get("config") or {}).items()
        }
        given = {_key(self.name, key): value for key, value in overrides.items()}
        for key, value in written.items():
            if key not in given and _has_secret(value):
                raise ConfigurationError(
                    f"{key} is a secret in {file}, which only Pulumi can read: give it with"
                    f" --config {key}=..., or in the environment (EUREKA_PASSWORD) after"
                    f" --config {key}="
                )
        stacked = {key: _text(value) for key, value in written.items() if key not in given}
        return dict(sorted({**self.defaults, **stacked, **given}.items()))


def _document(file: Path, hint: str = "") -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read ({error.strerror}){f'; {hint}' if hint else ''}"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document or {}, dict):
        raise ConfigurationError(f"{file} must be an object")
    return document or {}


def _defaults(project: str, declared: Mapping[str, Any]) -> dict[str, str]:
    """What Pulumi.yaml gives to every stack: a declared key's default, a value, or a plain scalar."""
    defaults: dict[str, str] = {}
    for key, declaration in declared.items():
        value = declaration
        if isinstance(declaration, dict):
            value = declaration.get("value", declaration.get("default"))
        if value is not None:
            defaults[_key(project, key)] = _text(value)
    return defaults


def _key(project: str, key: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _has_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return "secure" in value or any(_has_secret(item) for item in value.values())
    return isinstance(value, list) and any(_has_secret(item) for item in value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
