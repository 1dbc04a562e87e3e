"""What is delivered is what was tested: the image has the lock file's packages, no Pulumi; extras add up."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.chart_reference import CHART, PACKED

ROOT = Path(__file__).parents[2]


def locked(name: str) -> dict[str, set[str]]:
    """Hashes by requirement, version and markers included."""
    blocks = re.split(r"^(?=[a-zA-Z])", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {
        block.splitlines()[0].rstrip(" \\"): set(re.findall(r"--hash=(\S+)", block))
        for block in blocks
        if "==" in block
    }


def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    """The packages of requirements."""
    return {re.split(r"[<>=,\[ ]", each)[0] for each in requirements}


def test_the_image_has_what_the_extra_for_the_operator_has() -> None:
    """With the core, but without Pulumi."""
    said = project()
    extra = names(said["project"]["optional-dependencies"]["operator"])
    core = names(said["project"]["dependencies"]) - {"pulumi"}
    assert names(said["dependency-groups"]["operator"]) == extra | core


def test_an_installation_for_registrations_has_nothing_of_kubernetes() -> None:
    """Pulumi asks for its Kubernetes plugin wherever pulumi-kubernetes is installed."""
    assert names(project()["project"]["dependencies"]) == {"pulumi", "PyYAML", "requests", "urllib3"}


def test_the_plugin_of_a_repository_can_make_components() -> None:
    """Its environment has the extra that they need."""
    lines = (ROOT / "plugin" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["..[kubernetes]"]
    extra = names(project()["project"]["optional-dependencies"]["kubernetes"])
    assert extra == {"kubernetes", "pulumi-kubernetes"}


@pytest.mark.parametrize("name", PACKED)
def test_the_chart_packs_what_stands_elsewhere(name: str) -> None:
    """Custom resources, alerts and dashboard: else `make chart`."""
    packed, written = (
        {file.name: file.read_text() for file in folder.iterdir()}
        for folder in (CHART / "files" / name, PACKED[name])
    )
    assert packed == written
    assert len(packed) >= 2


def test_the_image_has_the_versions_that_are_tested() -> None:
    """`make lock` pins both from one solution; each package has hashes."""
    everything, operator = locked("requirements.lock"), locked("requirements-operator.lock")
    versions = {name.partition(" ;")[0]: hashes for name, hashes in everything.items()}
    assert {name.partition("==")[0] for name in operator} >= {"kubernetes", "requests", "pyyaml"}
    for name, hashes in operator.items():
        assert hashes
        assert hashes == versions[name.partition(" ;")[0]]


def test_no_pulumi_in_the_image() -> None:
    """Neither it nor what only it needs."""
    found = {name.partition("==")[0] for name in locked("requirements-operator.lock")}
    assert not found & {"pulumi", "pulumi-kubernetes", "grpcio", "dill", "protobuf"}


def test_the_wheel_carries_what_the_demo_deploys(tmp_path: Path) -> None:
    """The program, its settings and its stacks, as they stand in the repository."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    stacks = [f"stacks/{path.name}" for path in (ROOT / "stacks").iterdir()]
    with zipfile.ZipFile(wheel) as packed:
        for name in ("__main__.py", "Pulumi.yaml", *stacks):
            assert packed.read(f"eurekube_provider/program/{name}") == (ROOT / name).read_bytes()


def test_the_extra_for_the_demo_brings_what_its_processes_need() -> None:
    """The commands, the operator, and the program's components."""
    extras = project()["project"]["optional-dependencies"]
    assert extras["demo"] == ["eurekube-provider[cli,kubernetes,operator]"]
    assert {"cli", "kubernetes", "operator"} <= extras.keys()


def test_only_what_the_dockerfile_copies_is_sent_to_the_builder() -> None:
    """No secret of a working directory gets into a layer."""
    ignored, *kept = (ROOT / ".dockerignore").read_text().split()
    (copied,) = re.findall(r"^COPY (.+) /build/$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert ignored == "*"
    assert {line.removeprefix("!") for line in kept} == set(copied.split())


def test_the_workflow_runs_what_ci_runs() -> None:
    """Each step of the tests is a job, and only one of the jobs builds servers."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    steps = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    asked = {name: re.findall(r"make (test[\w-]*)", said) for name, said in steps.items()}
    assert (asked["python"], asked["real"]) == (["test"], ["test-real"])
    called = re.findall(r"make (test[\w-]*)|lab (fetch --pulumi)", (ROOT / ".ci" / "run").read_text())
    assert {target for target, _ in called if target} == {"test", "test-real"}
    assert ("", "fetch --pulumi") in called
    assert [name for name, said in steps.items() if "lab fetch" in said] == ["real"]
