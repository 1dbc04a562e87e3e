"""An installation from a wheel without extras: it has no Kubernetes package, and asks for no Kubernetes
plugin.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest
import yaml

from tests.system.stacks import ROOT, Stack, needs_language_host, needs_pulumi, own_pulumi

pytestmark = [pytest.mark.pulumi, needs_pulumi]

PROGRAM = """
import importlib.util

from eurekube_provider import EurekaApplication, EurekaInstance

assert not any(map(importlib.util.find_spec, ("kubernetes", "pulumi_kubernetes", "jinja2", "rich")))
EurekaInstance("billing", {"application": "billing", "host_name": "192.0.2.10", "port": 8080})
EurekaApplication("rating", {"application": "rating", "port": 80, "instances": {"a": {"host_name": "a"}}})
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a virtual environment with the built wheel and only the packages that it requires."""
    folder = tmp_path_factory.mktemp("core")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(venv / "bin" / "python"),
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (described,) = packages.glob("eurekube_provider-*.dist-info")
    for name in sorted({"pip", *required(PathDistribution(described))}):
        link(name, packages)
    subprocess.run(
        [*pip, "check"], check=True, stdout=subprocess.DEVNULL
    )  # nothing that is required is missing
    return venv


def required(described: PathDistribution) -> set[str]:
    """Return the names of the packages that a distribution requires without extras, directly or not."""
    found: set[str] = set()
    asked = list(described.requires or ())
    while asked:
        name, _, marker = asked.pop().partition(";")
        name = re.split(r"[^\w.-]", name.strip())[0]
        if name in found or "extra ==" in marker or "python_version <" in marker:
            continue
        found.add(name)
        asked += distribution(name).requires or ()
    return found


def link(name: str, packages: Path) -> None:
    """Link an installed package of this interpreter into another environment."""
    there = distribution(name)
    for top in {path.parts[0] for path in there.files or ()} - {"..", "__pycache__"}:
        target = packages / top
        if not target.exists():
            target.symlink_to(Path(str(there.locate_file(top))))


@pytest.fixture
def stack(installed: Path, tmp_path: Path) -> Stack:
    """Create a project whose program only registers, for a CLI that finds no plugin and must not download
    one.
    """
    environment = own_pulumi(tmp_path)
    del environment["PYTHONPATH"]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("", "-language-python", "-language-python-exec", "-resource-pulumi-python"):
        if found := shutil.which(f"pulumi{name}", path=environment["PATH"]):
            (programs / f"pulumi{name}").symlink_to(found)
    environment["PATH"] = f"{programs}:/usr/bin:/bin"
    environment["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] = "true"
    project = tmp_path / "project"
    project.mkdir()
    (project / "__main__.py").write_text(PROGRAM)
    runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": str(installed)}}
    (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "core", "runtime": runtime}))
    made = Stack(project, environment)
    made.pulumi("stack", "init", "dev")
    made.pulumi("config", "set", "eurekube:url", "http://127.0.0.1:9/eureka")
    return made


@needs_language_host("says which plugins a program needs")
def test_a_program_that_only_registers_asks_for_no_kubernetes(stack: Stack, installed: Path) -> None:
    """The preview runs without a Kubernetes plugin; with pulumi-kubernetes installed it would want one."""
    assert "3 to create" in stack.pulumi("preview")
    assert "kubernetes" not in stack.pulumi("about", "--json").partition('"host"')[0]

    (packages,) = installed.glob("lib/python*/site-packages")
    before = set(packages.iterdir())
    link("pulumi-kubernetes", packages)
    try:
        assert "kubernetes" in stack.pulumi("about", "--json").partition('"host"')[0]
    finally:
        for path in set(packages.iterdir()) - before:
            path.unlink()


def test_the_native_provider_needs_no_more(stack: Stack, installed: Path) -> None:
    """The CLI reads the native provider's schema from the program that the wheel installs."""
    plugin = installed / "bin" / "pulumi-resource-eurekube"
    assert '"eurekube:index:Instance"' in stack.pulumi("package", "get-schema", str(plugin))


def test_a_component_is_refused_in_a_sentence(stack: Stack) -> None:
    """The error of a component names the missing package, and how to install it."""
    (stack.project / "__main__.py").write_text("from eurekube_provider import EurekubeOperator\n")
    output = stack.pulumi("preview", fails=True)
    assert "EurekubeOperator needs the package pulumi-kubernetes, which is not installed" in output
    assert "pip install 'eurekube-provider[kubernetes]'" in output


def test_the_operator_is_refused_in_a_sentence(installed: Path) -> None:
    """The error of the operator names the missing extra, not the module that was not found."""
    command = [str(installed / "bin" / "python"), "-m", "eurekube_provider.operator", "--once"]
    done = subprocess.run(command, cwd=installed, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "eurekube operator: the operator needs the package kubernetes, which is not installed:"
        " pip install 'eurekube-provider[operator]'\n"
    )
