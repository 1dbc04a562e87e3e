"""Delivered files: image and plugin have the tested versions, the image has no Pulumi, and the extras are
complete.
"""

from __future__ import annotations

import base64
import csv
import email
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider import __version__
from eurekube_provider.cli.commands import COMMAND_SUMMARIES
from scripts.chart_reference import CHART_FOLDER, PACKED_FOLDERS
from scripts.operator_package import write_operator_wheel

ROOT = Path(__file__).parents[2]


def locked(name: str) -> dict[str, set[str]]:
    """Return the hashes by requirement, with version and markers, of a lock file."""
    blocks = re.split(r"^(?=[a-zA-Z])", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {
        block.splitlines()[0].rstrip(" \\"): set(re.findall(r"--hash=(\S+)", block))
        for block in blocks
        if "==" in block
    }


def project() -> dict[str, Any]:
    """Return the content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    """Return the package names in requirements."""
    return {re.split(r"[<>=,\[ ]", each)[0] for each in requirements}


def test_the_image_has_what_the_extra_for_the_operator_has() -> None:
    """The image's packages are the core without Pulumi, and the extras operator and zookeeper."""
    said = project()
    extras = said["project"]["optional-dependencies"]
    extra = names(extras["operator"]) | names(extras["zookeeper"])
    core = names(said["project"]["dependencies"]) - {"pulumi"}
    assert names(said["dependency-groups"]["operator"]) == extra | core


def test_an_installation_for_registrations_has_nothing_of_kubernetes() -> None:
    """The core requires no Kubernetes package: Pulumi asks for its Kubernetes plugin wherever
    pulumi-kubernetes is installed.
    """
    assert names(project()["project"]["dependencies"]) == {"pulumi", "PyYAML", "requests", "urllib3"}


def test_the_plugin_of_a_repository_can_make_components() -> None:
    """The plugin's environment installs the extra kubernetes, which components need."""
    lines = (ROOT / "plugin" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["..[kubernetes]"]
    extra = names(project()["project"]["optional-dependencies"]["kubernetes"])
    assert extra == {"kubernetes", "pulumi-kubernetes"}


@pytest.mark.parametrize("name", PACKED_FOLDERS)
def test_the_chart_packs_what_stands_elsewhere(name: str) -> None:
    """The chart's copies of CRDs, alerts and dashboard equal their sources; else run `make chart`."""
    packed, written = (
        {file.name: file.read_text() for file in folder.iterdir()}
        for folder in (CHART_FOLDER / "files" / name, PACKED_FOLDERS[name])
    )
    assert packed == written
    assert len(packed) >= 2


def test_the_image_has_the_versions_that_are_tested() -> None:
    """Each package of the image has the version and hashes that `make lock` pinned for the tests."""
    everything, operator = locked("requirements.lock"), locked("requirements-operator.lock")
    versions = {name.partition(" ;")[0]: hashes for name, hashes in everything.items()}
    assert {name.partition("==")[0] for name in operator} >= {"kubernetes", "requests", "pyyaml"}
    for name, hashes in operator.items():
        assert hashes
        assert hashes == versions[name.partition(" ;")[0]]


def test_the_plugins_archives_have_the_versions_that_are_tested() -> None:
    """Each package of the plugin's archives has the version and hashes pinned for the tests."""
    everything, plugin = locked("requirements.lock"), locked("requirements-plugin.lock")
    assert {name.partition("==")[0] for name in plugin} >= {"kubernetes", "pulumi", "pulumi-kubernetes"}
    assert {name: everything.get(name) for name in plugin} == plugin


def test_no_pulumi_in_the_image() -> None:
    """The image has neither Pulumi nor packages that only Pulumi needs."""
    found = {name.partition("==")[0] for name in locked("requirements-operator.lock")}
    assert not found & {"pulumi", "pulumi-kubernetes", "grpcio", "dill", "protobuf"}


def test_the_wheel_carries_what_the_demo_deploys(tmp_path: Path) -> None:
    """The wheel has the demo's program, settings and stacks as in the repository."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    stacks = [f"stacks/{path.name}" for path in (ROOT / "stacks").iterdir()]
    with zipfile.ZipFile(wheel) as packed:
        for name in ("__main__.py", "Pulumi.yaml", *stacks):
            assert packed.read(f"eurekube_provider/program/{name}") == (ROOT / name).read_bytes()


@pytest.fixture(scope="module")
def operator_package(tmp_path_factory: pytest.TempPathFactory) -> tuple[zipfile.ZipFile, zipfile.ZipFile]:
    """Return the package's wheel, and the operator's wheel made from it."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel), zipfile.ZipFile(write_operator_wheel(wheel))


def test_the_operators_package_has_the_same_files_and_no_pulumi(
    operator_package: tuple[zipfile.ZipFile, zipfile.ZipFile],
) -> None:
    """The operator's wheel has the same files, and requires the image's packages and those of the
    commands.
    """
    everything, operator = (
        {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
        for wheel in operator_package
    )
    assert everything == operator
    _, made = operator_package
    message = email.message_from_bytes(made.read(f"eurekube_operator-{__version__}.dist-info/METADATA"))
    extras = project()["project"]["optional-dependencies"]
    required = message.get_all("Requires-Dist") or []
    wanted = names(project()["dependency-groups"]["operator"]) | names(extras["cli"])
    assert {each.lower() for each in names(required)} == {each.lower() for each in wanted}
    assert len(required) == len(set(required))
    assert (message["Name"], message["Version"]) == ("eurekube-operator", __version__)
    assert message.get_all("Provides-Extra") is None
    commands = made.read(f"eurekube_operator-{__version__}.dist-info/entry_points.txt").decode()
    assert "eurekube = eurekube_provider.cli.main:main" in commands
    assert "pulumi" not in commands


def test_the_operators_package_can_be_installed(
    operator_package: tuple[zipfile.ZipFile, zipfile.ZipFile], tmp_path: Path
) -> None:
    """pip installs the operator's wheel, whose record has the digest of each file."""
    wheel = Path(str(operator_package[1].filename))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(tmp_path), str(wheel)], check=True, capture_output=True)
    (described,) = tmp_path.glob("*.dist-info")
    assert PathDistribution(described).metadata["Name"] == "eurekube-operator"
    with operator_package[1] as archive:
        (record,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/RECORD"))
        reported = {path: digest for path, digest, _ in csv.reader(record.splitlines())}
        assert reported.keys() == set(archive.namelist())
        for path, digest in reported.items():
            found = base64.urlsafe_b64encode(hashlib.sha256(archive.read(path)).digest()).decode().rstrip("=")
            assert digest in ("", f"sha256={found}")


WITHOUT_PULUMI = """
import sys
sys.modules["pulumi"] = None
from eurekube_provider.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", COMMAND_SUMMARIES)
def test_a_command_works_without_pulumi_or_names_the_package(command: str) -> None:
    """Without Pulumi, as with the operator's package, commands that run programs name the package to install;
    others work.
    """
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PULUMI, command, "--help"], cwd=ROOT, capture_output=True, text=True
    )
    needs_it = command in ("apply", "drift", "remove", "render", "summary")
    assert (done.returncode, "eurekube-provider[" in done.stderr) == (int(needs_it), needs_it), done.stderr


def test_the_extra_for_the_demo_brings_what_its_processes_need() -> None:
    """The extra demo includes the extras for commands, operator and components."""
    extras = project()["project"]["optional-dependencies"]
    assert extras["demo"] == ["eurekube-provider[cli,kubernetes,operator]"]
    assert {"cli", "kubernetes", "operator"} <= extras.keys()


def test_only_what_the_dockerfile_copies_is_sent_to_the_builder() -> None:
    """.dockerignore admits only the paths that the Dockerfile copies, so that no secret gets into a layer."""
    ignored, *kept = (ROOT / ".dockerignore").read_text().split()
    (copied,) = re.findall(r"^COPY (.+) /build/$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert ignored == "*"
    assert {line.removeprefix("!") for line in kept} == set(copied.split())


def test_the_base_image_is_pinned_by_digest() -> None:
    """Both stages use a base image pinned by tag and digest, which a bot can update."""
    text = (ROOT / "Dockerfile").read_text()
    (image,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", text, flags=re.MULTILINE)
    assert re.fullmatch(r"[\w./-]+:3\.\d+-slim@sha256:[0-9a-f]{64}", image)
    assert set(re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)) == {"${PYTHON_IMAGE}"}


BOT = {
    "docker": ("Dockerfile",),
    "github-actions": (".github/workflows/*.yml",),
    "gomod": ("lab/go/*/go.mod",),
    "maven": ("lab/*/pom.xml",),
    "npm": ("lab/*/package.json",),
    "pip": ("pyproject.toml",),
}
"""Files with pinned versions, by the bot's name for their ecosystem."""


def test_a_bot_proposes_updates_of_whatever_is_pinned() -> None:
    """The bot's configuration names exactly the folders that have pinned versions."""
    document = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    found: dict[str, set[str]] = {}
    for one in document:
        for pattern in one.get("directories") or [one["directory"]]:
            folders = ROOT.glob(pattern.strip("/")) if pattern != "/" else [ROOT]
            found.setdefault(one["package-ecosystem"], set()).update(
                str(folder.relative_to(ROOT)) for folder in folders
            )
    pinned = {
        kind: {str(file.parent.relative_to(ROOT)) for pattern in patterns for file in ROOT.glob(pattern)}
        for kind, patterns in BOT.items()
    }
    pinned["github-actions"] = {"."}  # what the bot's documentation calls the place of the workflows
    assert found == pinned


def test_the_workflow_tests_each_python_that_is_supported() -> None:
    """The workflow tests each Python of the package's metadata: one with all tests, the others with the
    unit tests.
    """
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    (whole,) = (
        step["with"]["python-version"] for step in jobs["python"]["steps"] if "setup-python" in str(step)
    )
    said = [one.rpartition(" ")[2] for one in project()["project"]["classifiers"] if ":: 3." in one]
    assert [whole, *jobs["unit"]["strategy"]["matrix"]["python-version"]] == said
    assert any(step.get("run", "").startswith("make unit") for step in jobs["unit"]["steps"])


def test_the_workflow_runs_what_ci_runs() -> None:
    """Each test step of .ci/run is a job of the workflow, and only one job builds servers."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    steps = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    asked = {name: re.findall(r"make (test[\w-]*)", said) for name, said in steps.items()}
    assert (asked["python"], asked["real"]) == (["test"], ["test-real"])
    called = re.findall(r"make (test[\w-]*)|lab (fetch --pulumi)", (ROOT / ".ci" / "run").read_text())
    assert {target for target, _ in called if target} == {"test", "test-real"}
    assert ("", "fetch --pulumi") in called
    assert [name for name, said in steps.items() if "lab fetch" in said] == ["real"]
    assert "make site" in (ROOT / ".ci" / "run").read_text()
    assert "make site" in steps["site"]
