"""The plugin's folder under another Python than that of the tests: the CLI makes the environment with pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eurekube_provider.eureka.protocol.peer import Peer
from scripts.plugin_archives import PYTHON_VERSIONS, this_machine
from tests.system.shells import held
from tests.system.stacks import (
    Stack,
    lay_plugin_folder,
    needs_language_host,
    needs_pulumi,
    needs_yaml,
    own_pulumi,
)

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(900)]


def other_python() -> tuple[str, str]:
    """Return the minor version and the path of the newest other Python on PATH that runs; empty if there
    is none.
    """
    for minor in reversed(PYTHON_VERSIONS):
        found = shutil.which(f"python{minor}")
        asked = "import sys, venv, ensurepip; print(sys.executable)"
        if minor != this_machine().python and found:
            done = subprocess.run([found, "-c", asked], capture_output=True, text=True)
            if done.returncode == 0:
                return minor, done.stdout.strip()
    return "", ""


MINOR, OTHER = other_python()


@needs_yaml
@needs_language_host("makes the plugin's environment and runs the plugin")
@pytest.mark.skipif(not OTHER, reason="no other Python on PATH that the plugin runs under")
def test_the_first_python_on_path_runs_the_plugin(tmp_path: Path, plain: Peer) -> None:
    """The CLI installs requirements.txt from the package index for the first Python on PATH, and the
    plugin registers.
    """
    environment = own_pulumi(tmp_path)
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    first = tmp_path / "first"
    first.mkdir()
    (first / "python3").symlink_to(OTHER)
    ours = str(Path(sys.prefix) / "bin")
    path = [each for each in environment["PATH"].split(os.pathsep) if each != ours]
    environment["PATH"] = os.pathsep.join((str(first), *path))
    clone = tmp_path / "clone"
    clone.mkdir()
    plugin = lay_plugin_folder(clone)
    stack = Stack(tmp_path / "project", environment)
    stack.project.mkdir()
    billing = {"application": "billing", "hostName": "192.0.2.10", "port": 8080}
    described = {
        "name": "shop",
        "runtime": "yaml",
        "plugins": {"providers": [{"name": "eurekube", "path": str(plugin)}]},
        "resources": {"billing": {"type": "eurekube:Instance", "properties": billing}},
    }
    (stack.project / "Pulumi.yaml").write_text(yaml.safe_dump(described))
    stack.pulumi("package", "get-schema", str(plugin))
    stack.pulumi("stack", "init", "dev")
    stack.pulumi("config", "set", "eurekube:url", plain.url)
    stack.up()
    assert held(plain, "billing")["billing"].owner == "stack/organization/shop/dev/billing"
    assert list(plugin.glob(f"venv/lib/python{MINOR}/site-packages/eurekube_provider/__init__.py"))
    stack.destroy()
    assert held(plain, "billing") == {}
