"""Stacks under a real Pulumi CLI, with a home, a backend and a passphrase of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from eurekube_provider.core.identity import DYNAMIC_APPLICATION_TYPE, DYNAMIC_INSTANCE_TYPE
from eurekube_provider.registrations.resource import APPLICATION_REGISTRATION_KIND, INSTANCE_REGISTRATION_KIND
from lab import Lab
from lab.cache import cache_folder
from lab.programs import PULUMI_PYTHON_SDK, find_kubectl
from lab.pulumi import pulumi_search_path, write_inline_cli
from scripts import sdks

os.environ["PATH"] = pulumi_search_path()  # for all tests: what the lab has built is there as well

ROOT = Path(__file__).parents[2]
UV = Path(sys.prefix) / "bin" / "uv"
HAS_LANGUAGE_HOST = shutil.which("pulumi-language-python") is not None

_UV_PROJECT = {
    "pyproject.toml": """\
[project]
name = "shop"
version = "0.0.0"
requires-python = ">=3.11"
dependencies = []
""",
    "uv.lock": """\
version = 1
revision = 3
requires-python = ">=3.11"

[[package]]
name = "shop"
version = "0.0.0"
source = { virtual = "." }
""",
}
"""Files that `uv init` and `uv lock` write for a project without dependencies."""

REGISTRATIONS = (
    DYNAMIC_INSTANCE_TYPE,
    DYNAMIC_APPLICATION_TYPE,
    INSTANCE_REGISTRATION_KIND.token,
    APPLICATION_REGISTRATION_KIND.token,
)
"""Types that a registration has in a state: those of the dynamic and those of the native provider."""

needs_pulumi = pytest.mark.skipif(shutil.which("pulumi") is None, reason="no Pulumi CLI")
needs_kubernetes_plugin = pytest.mark.skipif(
    shutil.which("pulumi-resource-kubernetes") is None, reason="no Kubernetes plugin of Pulumi"
)
needs_kubectl = pytest.mark.skipif(find_kubectl() is None, reason="no kubectl")
needs_yaml = pytest.mark.skipif(
    shutil.which("pulumi-language-yaml") is None, reason="no language host of Pulumi for YAML"
)

needs_linking_yaml = pytest.mark.skipif(
    str(cache_folder()) in (shutil.which("pulumi-language-yaml") or str(cache_folder())),
    reason="no language host of Pulumi for YAML that links packages, as 1.25.0 does not",
)


def needs_language_host(why: str) -> pytest.MarkDecorator:
    """Skip a test if Pulumi's language host for Python is missing; ``why`` says what the test needs it
    for.
    """
    return pytest.mark.skipif(
        not HAS_LANGUAGE_HOST, reason=f"no language host of Pulumi for Python, which {why}"
    )


HAS_PYTHON_SDK = HAS_LANGUAGE_HOST or shutil.which(PULUMI_PYTHON_SDK) is not None
needs_python_sdk = pytest.mark.skipif(
    not HAS_PYTHON_SDK, reason=f"no language host of Pulumi for Python, and no {PULUMI_PYTHON_SDK} of the lab"
)


def own_pulumi(directory: Path, package: Path = ROOT) -> dict[str, str]:
    """Return the environment of a Pulumi CLI that writes nothing outside of ``directory``; states lie there,
    too.

    Where there is no language host for Python, programs in Python run inline.

    :param package: where ``eurekube_provider`` is imported from.
    """
    foreign = ("PULUMI_", "EUREKA_", "EUREKUBE_", "KUBECONFIG")
    (directory / "backend").mkdir(exist_ok=True)
    tools = directory / "tools"
    if not tools.exists():
        tools.mkdir()
        if UV.exists():
            (tools / UV.name).symlink_to(UV)
        if not HAS_LANGUAGE_HOST:
            (tools / "pulumi").symlink_to(write_inline_cli(Path(str(shutil.which("pulumi")))))
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(package),
        "PULUMI_HOME": str(directory / "home"),
        "PULUMI_BACKEND_URL": (directory / "backend").as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def python_sdk(folder: Path) -> Path:
    """Have the CLI make the native provider's SDK for Python; return its folder, as pip would install it."""
    return sdks.generate_python_sdk(folder, own_pulumi(folder))


def lay_plugin_folder(folder: Path) -> Path:
    """Copy the plugin's folder, and the files of a clone that are installed into its environment; return
    the copy.
    """
    left_out = shutil.ignore_patterns("venv", "__pycache__")
    for name in ("eurekube_provider", "plugin", "crds", "stacks", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out, dirs_exist_ok=True)
    program = ("__main__.py", "Pulumi.yaml")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", *program):
        shutil.copy(ROOT / name, folder)
    return folder / "plugin"


def python_project(folder: Path, program: str) -> Path:
    """Create a project ``shop`` whose program runs in the interpreter of the tests.

    If uv is installed the project uses it, because the CLI reads the program's requirements from uv's files
    at once, where pip takes long in a large environment. The project names no packages, so that nothing is
    installed: the interpreter has them. The examples use pip.
    """
    folder.mkdir()
    (folder / "__main__.py").write_text(program)
    (folder / ".venv").symlink_to(sys.prefix)
    has_uv = UV.exists()
    options = {"toolchain": "uv" if has_uv else "pip", "virtualenv": ".venv"}
    if has_uv:
        for name, text in _UV_PROJECT.items():
            (folder / name).write_text(text)
    runtime = {"name": "python", "options": options}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "shop", "runtime": runtime}))
    return folder


class Stack:
    """One stack of a Pulumi project."""

    def __init__(self, project: Path, environment: Mapping[str, str]) -> None:
        self.project = project
        self.environment = dict(environment)

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """Run the CLI; return its output, without warnings if a JSON document was asked for."""
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
        )
        output = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, output
        assert "Traceback" not in output
        return done.stdout if "--json" in arguments else output

    def up(self, *arguments: str, fails: bool = False) -> str:
        """Run ``pulumi up`` without its preview."""
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, fails=fails)

    def refresh(self, *arguments: str, fails: bool = False) -> str:
        """Run ``pulumi refresh`` without its preview."""
        return self.pulumi("refresh", "--yes", "--skip-preview", *arguments, fails=fails)

    def destroy(self, *arguments: str, fails: bool = False) -> str:
        """Run ``pulumi destroy`` without its preview."""
        return self.pulumi("destroy", "--yes", "--skip-preview", *arguments, fails=fails)

    def state(self) -> dict[str, dict[str, Any]]:
        """The registrations in the state, by resource name."""
        ours = (each for each in self.resources() if each["type"] in REGISTRATIONS)
        return {each["urn"].rpartition("::")[2]: each for each in ours}

    def resources(self) -> list[dict[str, Any]]:
        """All resources in the state, with encrypted secrets."""
        found: list[dict[str, Any]] = (
            json.loads(self.state_text())["checkpoint"]["latest"].get("resources") or []
        )
        return found

    def outputs(self) -> dict[str, Any]:
        """Return the program's outputs."""
        (stack,) = (each for each in self.resources() if each["type"] == "pulumi:pulumi:Stack")
        found: dict[str, Any] = stack.get("outputs", {})
        return found

    def state_text(self) -> str:
        """Return the text of the stack's state, as ``pulumi stack export`` would print it."""
        return self._state_file().read_text()

    def state_is_at_rest(self) -> bool:
        """Return whether the state is whole, and was not written within the last 3 seconds."""
        file = self._state_file()
        try:
            json.loads(file.read_text())
        except ValueError:
            return False
        return time.time() - file.stat().st_mtime > 3

    def write_state(self, resources: Sequence[Mapping[str, Any]]) -> None:
        """Replace the resources in the stack's state, as ``pulumi stack import --force`` does."""
        file = self._state_file()
        document = json.loads(file.read_text())
        document["checkpoint"]["latest"]["resources"] = resources
        file.write_text(json.dumps(document))

    def _state_file(self) -> Path:
        """Return the newest state file of the project, which is that of the selected stack."""
        project = str(yaml.safe_load((self.project / "Pulumi.yaml").read_text())["name"])
        folder = Path(unquote(urlsplit(self.environment["PULUMI_BACKEND_URL"]).path))
        return max(
            (folder / ".pulumi" / "stacks" / project).glob("*.json"), key=lambda file: file.stat().st_mtime
        )


class Shop(Stack):
    """A stack of the project ``shop``, whose program the test gives and which makes what wanted.json says.

    :param config: the text after ``eurekube:``, e.g. ``url=http://...``.
    """

    def __init__(self, directory: Path, program: str, name: str, *config: str) -> None:
        project = python_project(directory / "project", program)
        super().__init__(project, own_pulumi(directory))
        self.name = name
        self._file = project / f"Pulumi.{name}.yaml"
        self.pulumi("stack", "init", name)
        for setting in config:
            key, _, value = setting.partition("=")
            self.configure(key, value)

    def configure(self, key: str, value: str, *flags: str) -> None:
        """Set a configuration value; without flags it is written into the stack's file, else by ``pulumi
        config set --path``.
        """
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
        """Change the resources that the program makes."""
        (self.project / "wanted.json").write_text(json.dumps(wanted))


class Example(Stack):
    """A stack ``dev`` of an example program, in a copy of its project, since the CLI writes into the
    stack's file.
    """

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        super().__init__(directory / "examples" / name, environment)
        shutil.copytree(ROOT / "examples" / name, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        project = yaml.safe_load((self.project / "Pulumi.yaml").read_text())
        interpreter = self.project / project["runtime"]["options"]["virtualenv"]
        if not interpreter.exists():
            interpreter.symlink_to(sys.prefix)

    def init(self, config: Mapping[str, Any]) -> None:
        """Create the stack, and set its configuration."""
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
    """Return a stack of the example that registers a Service's endpoints, configured for this Service."""
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
