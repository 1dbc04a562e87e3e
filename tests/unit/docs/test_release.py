"""Release checks: versions must agree, and workflows have minimal permissions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eurekube_provider import __version__
from hatch_build import long_description
from scripts import release
from scripts.links import find_link_targets

WORKFLOWS = sorted((release.ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a source tree that may be released as 1.2.3."""
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-01-01\n")
    (tmp_path / "charts" / "eurekube").mkdir(parents=True)
    (tmp_path / "charts" / "eurekube" / "Chart.yaml").write_text('version: 0.3.0\nappVersion: "1.2.3"\n')
    return tmp_path


def test_a_tag_that_is_the_version_is_released(tree: Path) -> None:
    """A tree whose tag, changelog and chart have the version may be released; a trial without a tag may,
    too.
    """
    assert release.find_version_mismatches("v1.2.3", tree, "1.2.3") == []
    assert release.find_version_mismatches("", tree, "1.2.3") == []


def test_each_disagreement_is_named(tree: Path) -> None:
    """Each disagreement about the version is reported with the right value."""
    assert release.find_version_mismatches("v1.2.4", tree, "1.2.30") == [
        "the tag is v1.2.4, and eurekube_provider/version.py says 1.2.30: it should be v1.2.30",
        "CHANGELOG.md has no heading `## 1.2.30`",
        "Chart.yaml has the appVersion 1.2.3: it should be 1.2.30",
    ]


def test_a_release_is_refused_while_a_page_says_that_there_is_none(tree: Path) -> None:
    """A release is refused while a page says that something is not published yet; a trial is not."""
    (tree / "docs").mkdir()
    (tree / "docs" / "page.md").write_text("No image is published yet.\n")
    (tree / "README.md").write_text("Package and chart are not published yet.\n")
    assert release.find_version_mismatches("v1.2.3", tree, "1.2.3") == [
        "README.md says that something is not published yet",
        "docs/page.md says that something is not published yet",
    ]
    assert release.find_version_mismatches("", tree, "1.2.3") == []


def test_a_release_is_refused_with_old_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release with outdated measurements is refused before anything is built."""
    old = "the record of P8 is older than v1.1.0"
    monkeypatch.setattr(
        release, "find_outdated_records", lambda names, tag: [old] if "P8" in names and tag else []
    )
    monkeypatch.setattr(release, "find_version_mismatches", lambda _: [])
    with pytest.raises(release.NotReleasable, match=old):
        release.make_release_files("v1.2.0")


@pytest.mark.parametrize("repository", ["", "https://forge.example.com/o/n"])
def test_the_package_s_page_leads_nowhere_that_is_not_there(repository: str) -> None:
    """In the package's description the README's links lead to the release's files, or become plain text if
    the repository is not known.
    """
    readme = (release.ROOT / "README.md").read_text()
    text = long_description(readme, repository, "1.2.3")
    assert len(find_link_targets(readme)) > 30
    assert [one for one in find_link_targets(text) if not one.startswith("https://")] == []
    assert ("[Concepts](https://forge.example.com/o/n/blob/v1.2.3/docs/concepts.md)" in text) is bool(
        repository
    )
    assert ("](https://forge.example.com/o/n/raw/v1.2.3/docs/images/demo.svg)" in text) is bool(repository)
    assert "| Concepts |" in text or repository


def test_this_tree_agrees_with_itself() -> None:
    """This tree has no disagreement about its version; the changelog's heading is needed only with a tag."""
    assert release.find_version_mismatches("") == []


def test_the_manifest_for_kubectl_has_each_object_once(tmp_path: Path) -> None:
    """The manifest has the CRDs, the namespace and the operator of this version, each object once."""
    made, health_checks = release.write_manifests(tmp_path)
    assert health_checks.name == "argocd-cm.yaml"
    objects = [item for item in yaml.safe_load_all(made.read_text()) if item]
    keys = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects]
    assert len(set(keys)) == len(keys)
    assert [kind for kind, _, _ in keys][:4] == ["CustomResourceDefinition"] * 3 + ["Namespace"]
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(f":{__version__}")


def test_the_provenance_names_each_artefact_by_its_digest(tmp_path: Path) -> None:
    """The provenance is an in-toto statement with each artefact's digest, and marks a dry run as unsigned."""
    (tmp_path / "a.whl").write_bytes(b"content")
    said = release.make_provenance([tmp_path / "a.whl"], "c0ffee", "")
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    assert said["subject"] == [{"name": "a.whl", "digest": {"sha256": digest}}]
    definition = said["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": "c0ffee"}
    assert said["predicate"]["runDetails"]["builder"]["id"] == "urn:eurekube:unsigned-dry-run"
    json.dumps(said)


def test_the_bill_of_materials_has_what_the_lock_has(tmp_path: Path) -> None:
    """The bill of materials lists each package of the image's lock file by name and version."""
    listed = json.loads(release.write_bill_of_materials(tmp_path).read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["version"] == __version__
    locked = set(re.findall(r"^([\w.-]+)==([\w.]+)", release.LOCK_FILE.read_text(), re.M))
    assert {(one["name"], one["version"]) for one in listed["components"]} == locked


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_starts_without_rights_and_with_pinned_actions(path: Path) -> None:
    """Each job names its permissions and a time-out, and each action is pinned to a commit with its version
    as a comment.
    """
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert all("permissions" in job and "timeout-minutes" in job for job in workflow["jobs"].values())
    used = re.findall(r"uses: (.+)", path.read_text())
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", one) for one in used)


def test_only_what_publishes_may_show_an_identity() -> None:
    """Only jobs of the release that sign may get an identity token, and only the job that attaches files may
    write the repository.
    """
    rights = {
        (path.stem, name): set(job["permissions"].items())
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text())["jobs"].items()
    }
    writes = {key for key, each in rights.items() if ("contents", "write") in each}
    assert writes == {("release", "files")}
    signs = {key for key, each in rights.items() if ("id-token", "write") in each}
    assert signs == {("release", name) for name in ("build", "pypi", "image", "chart")}


def test_what_writes_the_repository_runs_nothing_of_it() -> None:
    """The job that may write the repository only downloads the built files and attaches them to the
    release.
    """
    (workflow,) = (yaml.safe_load(path.read_text()) for path in WORKFLOWS if path.stem == "release")
    steps = workflow["jobs"]["files"]["steps"]
    assert ["download-artifact" in step.get("uses", "") for step in steps] == [True, False]
    assert "gh release create" in steps[1]["run"]
    assert "release/*" in steps[1]["run"]


def test_the_auditor_of_workflows_has_nothing_to_say() -> None:
    """zizmor, run offline, reports nothing about the workflows."""
    auditor = Path(sys.executable).parent / "zizmor"
    done = subprocess.run(
        [auditor, "--offline", "--no-progress", "--quiet", *WORKFLOWS], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
