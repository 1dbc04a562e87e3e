"""Stacks of a real Pulumi CLI, with a home, a backend and a passphrase of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import Lab

ROOT = Path(__file__).parents[2]

needs_pulumi_and_kubernetes = pytest.mark.skipif(
    not all(map(shutil.which, ("pulumi", "pulumi-resource-kubernetes"))),
    reason="no Pulumi CLI with its Kubernetes provider on PATH",
)
needs_pulumi = pytest.mark.skipif(shutil.which("pulumi") is None, reason="no Pulumi CLI on PATH")


def own_pulumi(directory: Path, package: Path = ROOT) -> dict[str, str]:
    """The environment of a CLI that touches nothing outside of ``directory``, where its state lies, too.

    :param package: where ``eurekube_provider`` is imported from.
    """
    foreign = ("PULUMI_", "EUREKA_", "EUREKUBE_", "KUBECONFIG")
    (directory / "backend").mkdir(exist_ok=True)
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
        "PYTHONPATH": str(package),
        "PULUMI_HOME": str(directory / "home"),
        "PULUMI_BACKEND_URL": (directory / "backend").as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


class Stack:
    """One stack of a project."""

    def __init__(self, project: Path, environment: Mapping[str, str]) -> None:
        self.project = project
        self.environment = dict(environment)

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """Run the CLI; what it printed."""
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )
        output = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, output
        assert "Traceback" not in output
        return output

    def up(self, *arguments: str, fails: bool = False) -> str:
        """``pulumi up`` without its preview."""
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, fails=fails)

    def refresh(self, *arguments: str, fails: bool = False) -> str:
        """``pulumi refresh`` without its preview."""
        return self.pulumi("refresh", "--yes", "--skip-preview", *arguments, fails=fails)

    def destroy(self, *arguments: str, fails: bool = False) -> str:
        """``pulumi destroy`` without its preview."""
        return self.pulumi("destroy", "--yes", "--skip-preview", *arguments, fails=fails)

    def state(self) -> dict[str, dict[str, Any]]:
        """The registrations' resources in the state, by name."""
        exported = json.loads(self.pulumi("stack", "export"))["deployment"].get("resources", [])
        ours = (each for each in exported if each["type"].startswith("pulumi-python:dynamic/eurekube:"))
        return {each["urn"].rpartition("::")[2]: each for each in ours}


class Shop(Stack):
    """A stack of the project ``shop`` with a program of the test's, which makes what wanted.json says.

    :param config: what follows ``eurekube:``, e.g. ``url=http://...``.
    """

    def __init__(self, directory: Path, program: str, name: str, *config: str) -> None:
        project = directory / "project"
        project.mkdir()
        (project / "__main__.py").write_text(program)
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}}
        (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "shop", "runtime": runtime}))
        (project / ".venv").symlink_to(sys.prefix)
        super().__init__(project, own_pulumi(directory))
        self.name = name
        self._file = project / f"Pulumi.{name}.yaml"
        self.pulumi("stack", "init", name)
        for setting in config:
            key, _, value = setting.partition("=")
            self.configure(key, value)

    def configure(self, key: str, value: str, *flags: str) -> None:
        """``pulumi config set --path``; what is no secret is written into the stack's file directly."""
        if flags:
            self.pulumi("config", "set", "--path", *flags, f"eurekube:{key}", value)
            return
        document = yaml.safe_load(self._file.read_text()) if self._file.exists() else {}
        *above, last = f"eurekube:{key}".split(".")
        place = document.setdefault("config", {})
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
        self._file.write_text(yaml.safe_dump(document))

    def wants(self, *wanted: dict[str, Any]) -> None:
        """Change what the program makes."""
        (self.project / "wanted.json").write_text(json.dumps(wanted))


class Example(Stack):
    """One of the example programs with a stack dev, on a copy, since the CLI writes into the stack's file."""

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        super().__init__(directory / "examples" / name, environment)
        shutil.copytree(ROOT / "examples" / name, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        project = yaml.safe_load((self.project / "Pulumi.yaml").read_text())
        interpreter = self.project / project["runtime"]["options"]["virtualenv"]
        if not interpreter.exists():
            interpreter.symlink_to(sys.prefix)

    def init(self, config: Mapping[str, Any]) -> None:
        """Make the stack and configure it."""
        self.pulumi("stack", "init", "dev")
        self.configure(config)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Change keys of the stack's configuration: the project's own, or Eurekube's as ``eurekube:url``."""
        project = yaml.safe_load((self.project / "Pulumi.yaml").read_text())["name"]
        file = self.project / "Pulumi.dev.yaml"
        document = (yaml.safe_load(file.read_text()) if file.exists() else None) or {}
        written = {key if ":" in key else f"{project}:{key}": value for key, value in config.items()}
        document["config"] = {**document.get("config", {}), **written}
        file.write_text(yaml.safe_dump(document))


def endpoints_example(lab: Lab, namespace: str, service: str, directory: Path) -> Example:
    """The example that registers a Service's endpoints, set up for this one."""
    stack = Example("endpoints", directory, own_pulumi(directory))
    stack.init(
        {
            "namespace": namespace,
            "service": service,
            "eurekube:url": lab.eureka_urls[0],
            "eurekube:kubeconfig": str(lab.kubeconfig),
        }
    )
    return stack
