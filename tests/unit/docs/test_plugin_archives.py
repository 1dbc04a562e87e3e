"""Archives of the plugin, which run only with their own Python, and the download URL in a release's
schema.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eurekube_provider.provider.served_schema import COMMITTED_SCHEMA_FILE, package_schema_json
from scripts.plugin_archives import (
    PLATFORM_TAGS,
    PYTHON_VERSIONS,
    STARTER_FOLDER,
    Target,
    missing_requirements,
    release_targets,
)
from scripts.release import ROOT

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize("program", ["start.py", "pulumi-resource-eurekube"])
@pytest.mark.parametrize("offered", [True, False])
def test_under_another_python_one_sentence_names_the_right_archive(
    tmp_path: Path, program: str, offered: bool
) -> None:
    """Under another Python the plugin ends, before any import, with one sentence that names the right archive
    or says that none exists.
    """
    for each in STARTER_FOLDER.iterdir():
        shutil.copy(each, tmp_path)
    (tmp_path / "python-version").write_text("3.1")
    right = f"pulumi-resource-eurekube-v1.2.3-linux-amd64-cp{MINOR.replace('.', '')}.tar.gz"
    (tmp_path / "archives").write_text(f"other-cp31.tar.gz\n{right if offered else ''}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    command = [sys.executable, "-I"] if program == "start.py" else []
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(
        [*command, tmp_path / program], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"libraries for Python 3.1, and the first Python on PATH is {MINOR}" in done.stderr
    assert (f"install {right} in its place" if offered else f"there is none for {MINOR}") in done.stderr


def test_there_is_an_archive_for_each_system_and_python() -> None:
    """Each Python of the package's metadata has an archive, with a name of its own, for each platform."""
    named = (ROOT / "pyproject.toml").read_text()
    assert all(f"Python :: {python}" in named for python in PYTHON_VERSIONS)
    assert named.count("Programming Language :: Python :: 3.") == len(PYTHON_VERSIONS)
    assert len({each.archive_name for each in release_targets()}) == len(PYTHON_VERSIONS) * len(PLATFORM_TAGS)
    page = (ROOT / "docs" / "reference" / "native-provider.md").read_text()
    assert f"A release has {len(release_targets())} archives" in page


def test_an_archive_has_all_that_its_own_target_needs(tmp_path: Path) -> None:
    """Missing dependencies of an archive are found with environment markers evaluated for its target, not for
    this machine.
    """
    for name, version, *requires in (
        (
            "eurekube-provider",
            "1.2.3",
            "grpcio>=1.60",
            "kubernetes; extra == 'kubernetes'",
            "uv; extra == 'x'",
        ),
        ("grpcio", "1.76.0", "typing_extensions; python_version < '3.13'", "winio; sys_platform == 'win32'"),
        ("typing-extensions", "4.0"),
        ("kubernetes", "36.0", "darwinio; platform_machine == 'arm64'", "typing-extensions>4.1"),
    ):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        folder.joinpath("METADATA").write_text("\n".join(lines))
    lacking = {target: missing_requirements(tmp_path, target) for target in release_targets()}
    assert {len(each) for each in lacking.values()} == {1, 2}
    assert all("typing-extensions>4.1" in each for each in lacking.values())
    assert any("winio" in each for each in lacking[Target("windows-amd64", "3.12")])
    assert any("darwinio" in each for each in lacking[Target("darwin-arm64", "3.14")])
    shutil.rmtree(tmp_path / "grpcio-1.76.0.dist-info")
    assert "grpcio>=1.60" in missing_requirements(tmp_path, Target("linux-amd64", "3.11"))


def test_a_release_says_where_it_lies_and_a_tree_nothing() -> None:
    """A release's schema has homepage, repository and download URL; the committed schema has none of them."""
    assert package_schema_json("") == COMMITTED_SCHEMA_FILE.read_text()
    document = json.loads(package_schema_json("https://forge.example.com/o/n"))
    assert {name: document[name] for name in ("homepage", "repository")} == dict.fromkeys(
        ("homepage", "repository"), "https://forge.example.com/o/n"
    )
    assert document["pluginDownloadURL"].startswith("https://forge.example.com/o/n/releases/download/v")
    logo = document["logoUrl"].rpartition("/docs/")[2]
    assert (ROOT / "docs" / logo).is_file()
