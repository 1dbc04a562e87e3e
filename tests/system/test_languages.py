"""The same program in every language of Pulumi: the SDK compiles, and the program registers at a real
Eureka.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from eurekube_provider.eureka.protocol.peer import Peer
from lab.listing import list_uncached
from scripts.sdks import LANGUAGES, PLUGIN_PATH, build_sdk
from tests.system.stacks import (
    ROOT,
    Stack,
    needs_language_host,
    needs_pulumi,
    needs_python_sdk,
    needs_yaml,
    own_pulumi,
)

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi]

WITH_PREVIEW = ("typescript", "yaml")


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test if the programs of a language are not installed."""
    ours = {"python": needs_python_sdk, "yaml": needs_yaml}
    is_missing = bool(LANGUAGES[name].missing_tools())
    reason = f"not all on PATH: {', '.join(LANGUAGES[name].tools)}"
    return ours.get(name) or pytest.mark.skipif(is_missing, reason=reason)


@pytest.mark.timeout(600)  # where a compiler's caches are empty
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in LANGUAGES])
def test_an_example_registers_and_looks_up(name: str, tmp_path: Path, plain: Peer) -> None:
    """The example registers a machine and an application of two instances, and exports Eureka's list,
    which its preview shows as unknown.
    """
    environment = own_pulumi(tmp_path)
    environment["PATH"] = f"{Path(sys.prefix) / 'bin'}:{environment['PATH']}"
    # Compilers keep what they have fetched and built where they always do.
    project = build_sdk(name, tmp_path, environment)
    if name == "python":
        environment["PYTHONPATH"] += f":{project / 'sdks' / 'python'}"
    if name == "go":
        # The language host would compile all of Pulumi again, with options of its own.
        described = yaml.safe_load((project / "Pulumi.yaml").read_text())
        described["runtime"] = {"name": "go", "options": {"binary": "./program"}}
        (project / "Pulumi.yaml").write_text(yaml.safe_dump(described))
    stack = Stack(project, environment)
    stack.pulumi("stack", "init", "dev")
    file = project / "Pulumi.dev.yaml"
    described = (yaml.safe_load(file.read_text()) if file.exists() else None) or {}
    file.write_text(yaml.safe_dump({**described, "config": {"eurekube:url": plain.url}}))
    # Each language compiles or loads its program once more for a preview: those of two kinds of SDK have one.
    stack.pulumi("up", "--yes", *(() if name in WITH_PREVIEW else ("--skip-preview",)))
    assert stack.outputs() == {
        "billing": True if name == "yaml" else "UP",
        "owner": f"stack/organization/native-{name}/dev/rating",
    }
    held = {each.host_name: each for app in ("billing", "rating") for each in list_uncached(plain.url, app)}
    ours = {host: each for host, each in held.items() if f"/native-{name}/" in (each.owner or "")}
    assert {host: each.port.number for host, each in ours.items()} == {
        "192.0.2.10": 8080,
        "192.0.2.11": 8080,
        "192.0.2.12": 9090,
    }
    assert dict(ours["192.0.2.10"].metadata)["tier"] == "1"
    stack.destroy()
    assert [*list_uncached(plain.url, "billing"), *list_uncached(plain.url, "rating")] == []
    shutil.rmtree(project)  # packages of npm are many


@needs_language_host("has uv make the environment")
@pytest.mark.skipif(not (Path(sys.prefix) / "bin" / "uv").exists(), reason="no uv beside the interpreter")
def test_a_project_of_uv_needs_no_pip(tmp_path: Path, plain: Peer) -> None:
    """The example's environment is made by uv from its lock file, and has no pip."""
    environment = own_pulumi(tmp_path)
    environment["PATH"] = f"{tmp_path / 'plugin'}:{environment['PATH']}"
    for name in ("VIRTUAL_ENV", "PYTHONPATH"):
        environment.pop(name, None)
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / PLUGIN_PATH.name).symlink_to(PLUGIN_PATH)
    stack = Stack(tmp_path / "native-uv", environment)
    shutil.copytree(ROOT / "examples" / "native-uv", stack.project)
    locked = (stack.project / "uv.lock").read_text()
    stack.pulumi("package", "add", str(PLUGIN_PATH))
    stack.pulumi("stack", "init", "dev")
    (stack.project / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": {"eurekube:url": plain.url}}))
    stack.up()
    assert stack.outputs() == {"owner": "stack/organization/native-uv/dev/billing"}
    assert [each.name for each in stack.project.glob(".venv/lib/*/site-packages/pip*")] == []
    versions = [line for line in locked.splitlines() if line.startswith(("name =", "version ="))]
    assert set(versions) <= set((stack.project / "uv.lock").read_text().splitlines())
    stack.destroy()
    assert list_uncached(plain.url, "billing") == []
