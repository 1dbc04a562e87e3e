"""Projects for the tests that run a real Pulumi CLI, with a home, a backend and a passphrase of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def own_pulumi(directory: Path) -> dict[str, str]:
    """The environment of a CLI that touches nothing outside of ``directory``, where its state lies, too."""
    foreign = ("PULUMI_", "EUREKA_", "EUREKUBE_", "KUBECONFIG")
    (directory / "backend").mkdir(exist_ok=True)
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
        "PYTHONPATH": str(ROOT),
        "PULUMI_HOME": str(directory / "home"),
        "PULUMI_BACKEND_URL": (directory / "backend").as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


class Example:
    """One of the example programs with a stack dev, on a copy, since the CLI writes into the stack's file."""

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        self.project = directory / "examples" / name
        shutil.copytree(ROOT / "examples" / name, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        interpreter = directory / ".venv"
        if not interpreter.exists():
            interpreter.symlink_to(sys.prefix)
        self.environment = dict(environment)

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

    def up(self, *, fails: bool = False) -> str:
        """``pulumi up`` without its preview."""
        return self.pulumi("up", "--yes", "--skip-preview", fails=fails)

    def destroy(self) -> None:
        """``pulumi destroy`` without its preview."""
        self.pulumi("destroy", "--yes", "--skip-preview")
