"""Archives from which `pulumi plugin install` gets the plugin without pip: `python -m scripts.plugin_archives
WHEEL`.

Each has the plugin and its libraries for one system, architecture and minor version of Python. The file name
for which the CLI asks a server has no Python version: the archive of that name is the one for DEFAULT_PYTHON.
"""

from __future__ import annotations

import argparse
import gzip
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eurekube_provider.version import __version__

ROOT = Path(__file__).parents[1]
LOCK_FILE = ROOT / "requirements-plugin.lock"
STARTER_FOLDER = ROOT / "plugin" / "archive"

PACKAGE, EXTRAS = "eurekube-provider", "kubernetes"

PYTHON_VERSIONS = ("3.11", "3.12", "3.13", "3.14")
DEFAULT_PYTHON = "3.12"
PLATFORM_TAGS: Mapping[str, Sequence[str]] = {
    "linux-amd64": ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"),
    "linux-arm64": ("manylinux_2_28_aarch64", "manylinux2014_aarch64"),
    "darwin-amd64": ("macosx_13_0_x86_64",),
    "darwin-arm64": ("macosx_13_0_arm64",),
    "windows-amd64": ("win_amd64",),
}
"""Platform tags of the wheels that run on a system and architecture, by Pulumi's name of these."""


@dataclass(frozen=True, slots=True)
class Target:
    """The system and Python version that an archive is for."""

    system: str
    python: str

    @property
    def archive_name(self) -> str:
        """File name of the archive."""
        python = self.python.replace(".", "")
        return f"{self.requested_name.removesuffix('.tar.gz')}-cp{python}.tar.gz"

    @property
    def requested_name(self) -> str:
        """File name that the CLI asks a server for."""
        return f"pulumi-resource-eurekube-v{__version__}-{self.system}.tar.gz"


def this_machine() -> Target:
    """Return the target with this process's system and Python version."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return Target(
        f"{platform.system().lower()}-{architecture}", f"{sys.version_info[0]}.{sys.version_info[1]}"
    )


def release_targets() -> list[Target]:
    """Return the targets of a release."""
    return [Target(system, python) for python in PYTHON_VERSIONS for system in PLATFORM_TAGS]


class IncompleteArchive(Exception):
    """An archive lacks libraries that its target needs."""


def build_archive(wheel: Path, target: Target, out: Path) -> Path:
    """Make one archive, with the same bytes from the same wheel and lock file.

    :raises subprocess.CalledProcessError: pip finds no wheel for it, or no index.
    :raises IncompleteArchive: a library needs another one on the target, which the lock file lacks.
    """
    made = out / target.archive_name
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _install_wheels(root / "lib", target, "--require-hashes", "--requirement", str(LOCK_FILE))
        _install_wheels(root / "lib", target, "--no-index", str(wheel))
        if lacking := missing_requirements(root / "lib", target):
            raise IncompleteArchive(f"{target.archive_name} lacks {', '.join(lacking)}")
        shutil.rmtree(root / "lib" / "bin", ignore_errors=True)
        starters = [STARTER_FOLDER / "start.py"]
        program = "pulumi-resource-eurekube"
        starters.append(
            STARTER_FOLDER / (f"{program}.cmd" if target.system.startswith("windows") else program)
        )
        for each in starters:
            shutil.copy(each, root)
        (root / "python-version").write_text(target.python, encoding="utf-8")
        same_system = [Target(target.system, python).archive_name for python in PYTHON_VERSIONS]
        (root / "archives").write_text("\n".join(same_system), encoding="utf-8")
        shutil.copy(ROOT / "LICENSE", root)
        _write_tar_gz(root, made)
    return made


def missing_requirements(libraries: Path, target: Target) -> list[str]:
    """Return the requirements of a folder's libraries on the target that the folder does not meet.

    pip is asked for no dependencies, and would evaluate conditions such as ``sys_platform`` for this machine.
    """
    found = {canonicalize_name(each.name): each for each in distributions(path=[str(libraries)])}
    lacking = set()
    needed = [Requirement(f"{PACKAGE}[{EXTRAS}]")]
    for each in needed:  # it grows
        distribution = found.get(canonicalize_name(each.name))
        if distribution is None or not each.specifier.contains(distribution.version, prereleases=True):
            lacking.add(str(each))
            continue
        for extra in each.extras or {""}:
            environment = {**_marker_environment(target), "extra": extra}
            for line in distribution.requires or ():
                one = Requirement(line)
                if (one.marker is None or one.marker.evaluate(environment)) and one not in needed:
                    needed.append(one)
    return sorted(lacking)


def _marker_environment(target: Target) -> dict[str, str]:
    """Return the environment in which the target evaluates the markers of requirements (PEP 508)."""
    system, _, architecture = target.system.partition("-")
    is_windows = system == "windows"
    machine = {"windows": "AMD64", "darwin": architecture.replace("amd64", "x86_64")}.get(
        system, {"amd64": "x86_64", "arm64": "aarch64"}[architecture]
    )
    return {
        "os_name": "nt" if is_windows else "posix",
        "platform_machine": machine,
        "platform_system": system.capitalize(),
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "win32" if is_windows else system,
    }


def _install_wheels(folder: Path, target: Target, *what: str) -> None:
    tags = [word for tag in PLATFORM_TAGS[target.system] for word in ("--platform", tag)]
    python = ("--implementation", "cp", "--python-version", target.python)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    quiet = ("--no-deps", "--only-binary", ":all:", "--upgrade", "--target", str(folder))
    subprocess.run([*pip, *quiet, *tags, *python, *what], check=True)


def _write_tar_gz(folder: Path, made: Path) -> None:
    """Write a tar.gz of the folder's files, without times or owners of this machine."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size = path.stat().st_size
            entry.mode = 0o755 if path.name == "pulumi-resource-eurekube" else 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)
    made.write_bytes(gzip.compress(packed.getvalue(), compresslevel=6, mtime=0))


def build_release_archives(wheel: Path, out: Path) -> list[Path]:
    """Make all archives of a release, one of each system also under the name that the CLI asks for."""
    made = [build_archive(wheel, target, out) for target in release_targets()]
    of_default = [each for each in release_targets() if each.python == DEFAULT_PYTHON]
    return made + [
        Path(shutil.copy(out / each.archive_name, out / each.requested_name)) for each in of_default
    ]


def main() -> int:
    """Make all archives of a release, or the one for this machine."""
    parser = argparse.ArgumentParser(prog="python -m scripts.plugin_archives", description=__doc__)
    parser.add_argument("wheel", type=Path, help="of eurekube-provider")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "plugins", metavar="FOLDER")
    parser.add_argument("--here", action="store_true", help="only the one for this system and this Python")
    options = parser.parse_args()
    if options.here:
        made = [build_archive(options.wheel, this_machine(), options.out)]
    else:
        made = build_release_archives(options.wheel, options.out)
    for each in made:
        print(f"{each.name}: {each.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
