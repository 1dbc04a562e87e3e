"""A release's files, built but not published: `make release-dry-run`.

Wheel, sdist, the operator's wheel without Pulumi, a list of the image's files, the chart if there is one,
`install.yaml` for kubectl, `argocd-cm.yaml` for Argo CD, with a tag the archives of the Pulumi plugin, a bill
of materials (CycloneDX), a statement of provenance (in-toto, SLSA) and checksums. The release workflow runs
the same, signs the files and uploads them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bench.__main__ import BENCHMARKS
from bench.age import find_outdated_records
from eurekube_provider import __version__
from lab.programs import HELM, provide_programs
from scripts import plugin_archives
from scripts.operator_package import write_operator_wheel

ROOT = Path(__file__).parents[1]
OUT_FOLDER = ROOT / "build" / "release"
CHART_FOLDER = ROOT / "charts" / "eurekube"
BASE_FOLDER = ROOT / "deploy" / "kustomize" / "base"
HEALTH_CHECKS_FILE = ROOT / "deploy" / "argocd" / "argocd-cm.yaml"
LOCK_FILE = ROOT / "requirements-operator.lock"


_UNPUBLISHED_PATTERN = re.compile(r"\b(?:not published|(?:image|chart|package) is published)\b")
"""Pattern of sentences in the pages which say that a package, chart or image is not published yet."""


class NotReleasable(Exception):
    """The tree cannot be released as this version; the message says what differs, and where."""


def run(*command: str | Path, **environment: str) -> str:
    """Return a program's output; raise NotReleasable with its error output if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise NotReleasable(f"{' '.join(map(str, command))} exited with {done.returncode}:\n{said}")
    return done.stdout


def find_version_mismatches(tag: str, root: Path = ROOT, version: str = __version__) -> list[str]:
    """Return a sentence for each place whose version differs from the tag's; without a tag, only the chart
    is checked.
    """
    said = []
    if tag and tag != f"v{version}":
        said.append(
            f"the tag is {tag}, and eurekube_provider/version.py says {version}: it should be v{version}"
        )
    heading = rf"^## \[?{re.escape(version)}\b"
    if tag and not re.search(heading, (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M):
        said.append(f"CHANGELOG.md has no heading `## {version}`")
    if tag:
        pages = filter(Path.is_file, (root / "README.md", *sorted((root / "docs").rglob("*.md"))))
        old = (page for page in pages if _UNPUBLISHED_PATTERN.search(page.read_text(encoding="utf-8")))
        said += [f"{page.relative_to(root)} says that something is not published yet" for page in old]
    chart = root / "charts" / "eurekube" / "Chart.yaml"
    if chart.is_file():
        chart_data = yaml.safe_load(chart.read_text(encoding="utf-8"))
        if str(chart_data.get("appVersion")) != version:
            said.append(
                f"{chart.name} has the appVersion {chart_data.get('appVersion')}: it should be {version}"
            )
    return said


def build_packages(out: Path, epoch: str) -> list[Path]:
    """Build wheel and sdist, with the same bytes from the same commit; return their paths."""
    run(sys.executable, "-m", "hatchling", "build", "-d", out, SOURCE_DATE_EPOCH=epoch)
    return sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")])


def hash_image_files(wheel: Path, folder: Path) -> dict[str, str]:
    """Install the files of the Dockerfile's first stage, start the operator there, and return the SHA-256 of
    each file by its path.
    """
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    run(*pip, "--no-deps", "--require-hashes", "--target", folder, "-r", LOCK_FILE)
    run(*pip, "--no-deps", "--no-index", "--target", folder, wheel)
    shutil.rmtree(folder / "bin", ignore_errors=True)
    environment = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    run(sys.executable, "-S", "-m", "eurekube_provider.operator", "--help", **environment)
    return {
        str(path.relative_to(folder)): sha256_of_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def package_chart(out: Path) -> list[Path]:
    """Pack the chart with helm; return its path, or nothing where the tree has no chart."""
    if not (CHART_FOLDER / "Chart.yaml").is_file():
        return []
    before = set(out.glob("*.tgz"))
    run(
        provide_programs([HELM])[HELM],
        "package",
        CHART_FOLDER,
        "--app-version",
        __version__,
        "--destination",
        out,
    )
    return sorted(set(out.glob("*.tgz")) - before)


def write_manifests(out: Path) -> list[Path]:
    """Write the operator's manifest for kubectl, and Argo CD's health checks; return the paths, or nothing
    where the tree has no base.
    """
    if not BASE_FOLDER.is_dir():
        return []
    made = out / "install.yaml"
    made.write_text(install_manifest(), encoding="utf-8")
    return [made, Path(shutil.copy(HEALTH_CHECKS_FILE, out))]


def install_manifest() -> str:
    """Return the text of ``install.yaml``: the output of `kubectl kustomize deploy/kustomize/base`, with
    the files' own text.
    """
    texts = [file.read_text(encoding="utf-8") for file in kustomization_files(BASE_FOLDER)]
    head = f"# Eurekube {__version__} for kubectl: docs/start/kubectl.md says how to use it.\n"
    return head + "".join(f"---\n{text.strip()}\n" for text in texts)


def kustomization_files(folder: Path) -> list[Path]:
    """Return the files that a kustomization names, in its order."""
    named = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    found = [(folder / name).resolve() for name in named]
    return [file for one in found for file in (kustomization_files(one) if one.is_dir() else [one])]


def write_bill_of_materials(out: Path) -> Path:
    """Write a CycloneDX file of the image's packages, from the lock file with its hashes; return its path."""
    made = out / f"eurekube-{__version__}.cdx.json"
    tool = Path(sys.executable).parent / "cyclonedx-py"
    run(
        tool,
        *("requirements", LOCK_FILE, "--pyproject", ROOT / "pyproject.toml", "--mc-type", "application"),
        *("--output-reproducible", "--of", "JSON", "-o", made),
    )
    document = json.loads(made.read_text(encoding="utf-8"))
    of_the_image = {"version": __version__, "purl": f"pkg:pypi/eurekube-provider@{__version__}"}
    document["metadata"]["component"] |= of_the_image  # the project's file says only that it is dynamic
    made.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return made


def make_provenance(artifacts: Sequence[Path], commit: str, tag: str) -> dict[str, Any]:
    """Return an unsigned in-toto statement of the artefacts' origin, which the workflow signs."""
    repository = os.environ.get("REPOSITORY_URL", "").partition("/blob/")[0]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": one.name, "digest": {"sha256": sha256_of_file(one)}} for one in artifacts],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:eurekube:release:1",
                "externalParameters": {"tag": tag or None, "command": "make release-dry-run"},
                "internalParameters": {"python": ".".join(map(str, sys.version_info[:3]))},
                "resolvedDependencies": [
                    {
                        "uri": f"git+{repository or 'urn:eurekube:repository'}",
                        "digest": {"gitCommit": commit},
                    },
                    *(
                        {"uri": f"file:{path.name}", "digest": {"sha256": sha256_of_file(path)}}
                        for path in (LOCK_FILE, ROOT / "requirements.lock")
                    ),
                ],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("BUILDER_ID", "urn:eurekube:unsigned-dry-run")},
                "metadata": {"startedOn": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
            },
        },
    }


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_sdist_builds(sdist: Path, folder: Path) -> None:
    """Check that the sdist alone, without git and tags, builds a wheel of this version.

    :raises NotReleasable: it does not build, or has files that the repository lacks.
    """
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    if (ROOT / ".git").exists():
        packed = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
        if foreign := sorted(packed - {*run("git", "ls-files").splitlines(), "PKG-INFO"}):
            more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
            raise NotReleasable(f"the sdist has what git does not know: {', '.join(foreign[:3])}{more}")
    wheels = folder / "wheels"
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)],
        cwd=unpacked,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not list(wheels.glob(f"*-{__version__}-*.whl")):
        raise NotReleasable(f"the sdist does not build: {done.stderr.strip()[-500:]}")


def make_release_files(tag: str) -> list[Path]:
    """Make all files of a release, and return their paths."""
    records = find_outdated_records(BENCHMARKS, tag) if tag else []
    if said := [*find_version_mismatches(tag), *records]:
        raise NotReleasable("; ".join(said))
    shutil.rmtree(OUT_FOLDER, ignore_errors=True)
    OUT_FOLDER.mkdir(parents=True)
    commit = run("git", "rev-parse", "HEAD").strip() if (ROOT / ".git").exists() else "unknown"
    epoch = run("git", "log", "-1", "--format=%ct").strip() if commit != "unknown" else "315532800"
    made = build_packages(OUT_FOLDER, epoch)
    wheel, sdist = (next(one for one in made if one.suffix == suffix) for suffix in (".whl", ".gz"))
    scratch = ROOT / "build" / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    check_sdist_builds(sdist, scratch / "sdist")
    contents = OUT_FOLDER / "image-contents.json"
    contents.write_text(json.dumps(hash_image_files(wheel, scratch / "image"), indent=1) + "\n")
    shutil.rmtree(scratch)
    made += [write_operator_wheel(wheel), contents, *package_chart(OUT_FOLDER), *write_manifests(OUT_FOLDER)]
    made += [write_bill_of_materials(OUT_FOLDER)]
    if tag:  # a trial of any tree does without: there are twenty
        made += plugin_archives.build_release_archives(wheel, OUT_FOLDER)
    statement = OUT_FOLDER / "provenance.intoto.json"
    statement.write_text(json.dumps(make_provenance(made, commit, tag), indent=1) + "\n")
    sums = OUT_FOLDER / "SHA256SUMS"
    sums.write_text("".join(f"{sha256_of_file(one)}  {one.name}\n" for one in (*made, statement)))
    return [*made, statement, sums]


def main() -> int:
    """Make a release's files, and print their names."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    parser.add_argument(
        "--tag", default="", help="the tag to release: v and the version; none: a dry run of any tree"
    )
    options = parser.parse_args()
    try:
        made = make_release_files(options.tag)
    except NotReleasable as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for one in made:
        print(f"{one.stat().st_size:>10,}  {one.relative_to(ROOT)}")
    if not any(one.suffix == ".tgz" for one in made):
        print("no chart: this tree has no charts/eurekube")
    print("nothing was signed and nothing was published")
    return 0


if __name__ == "__main__":
    sys.exit(main())
