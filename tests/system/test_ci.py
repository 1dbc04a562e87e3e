"""The example CI workflows: the forge's linter accepts them, and their step keeps one comment on a pull
request.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.cli.main import main
from lab.errors import LabError
from lab.programs import ACTIONLINT, provide_programs
from tests.system.stacks import ROOT

CI = ROOT / "examples" / "ci"
PREVIEWS = ROOT / "tests" / "unit" / "automation" / "summaries"

PATH = "/usr/local/bin:/usr/bin:/bin"

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "curl", "jq"))), reason="no bash, curl or jq, which the step uses"
)


@dataclass
class Forge:
    """A forge that keeps the comments of a pull request; ``url`` is their address."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    methods: list[str] = field(default_factory=list)
    fails: bool = False


@pytest.fixture
def forge() -> Iterator[Forge]:
    """Return an HTTP server with two calls of a forge: list comments, and write one."""
    kept = Forge()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = int((re.search(r"[?&]page=(\d+)", self.path) or [0, 1])[1])
            self.answer(500 if kept.fails else 200, kept.comments[100 * (page - 1) : 100 * page])

        def do_POST(self) -> None:
            user = {"type": "Bot", "login": "github-actions[bot]"}
            number = len(kept.comments) + 1
            comment = {"id": number, "url": f"{kept.url}/{number}", "user": user, **self.body()}
            kept.comments.append(comment)
            self.answer(201, comment)

        def do_PATCH(self) -> None:
            comment = kept.comments[int(self.path.rpartition("/")[2]) - 1]
            comment |= self.body()
            self.answer(200, comment)

        def do_PUT(self) -> None:
            self.do_PATCH()

        def body(self) -> dict[str, Any]:
            document: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            return document

        def answer(self, status: int, content: Any) -> None:
            kept.methods.append(self.command)
            kept.tokens.add(self.headers["Authorization"] or self.headers["PRIVATE-TOKEN"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.url = f"http://127.0.0.1:{server.server_port}/comments"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kept
        server.shutdown()


def test_the_linter_of_the_forge_has_nothing_to_say() -> None:
    """actionlint finds no fault in the workflows that users copy, nor in this repository's own."""
    try:
        actionlint = provide_programs([ACTIONLINT])[ACTIONLINT]
    except LabError as error:
        pytest.skip(f"actionlint cannot be had: {error}")
    own = CI.parents[1] / ".github" / "workflows"
    workflows = sorted(map(str, (*CI.glob("*.yml"), *own.glob("*.yml"))))
    assert len(workflows) == 5
    done = subprocess.run(
        [actionlint, "-no-color", "-shellcheck=", "-pyflakes=", *workflows], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def step(name: str) -> str:
    """Return the script of one step of GitHub's workflow for pull requests."""
    workflow = yaml.safe_load((CI / "discovery-preview.yml").read_text())
    (found,) = [each["run"] for each in workflow["jobs"]["preview"]["steps"] if each.get("name") == name]
    return str(found)


def on_gitlab(part: int) -> str:
    """Return one command of GitLab's job for merge requests."""
    jobs = yaml.safe_load((CI / "gitlab.yaml").read_text())
    return str(jobs["discovery-preview"]["script"][part])


@needs_tools
@pytest.mark.parametrize("forge_name", ["github", "gitlab"])
def test_one_comment_is_made_and_then_kept(
    forge_name: str, forge: Forge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run writes a comment and the second one changes it; comments of others stay, whatever they
    begin with.
    """
    script = step("Comment") if forge_name == "github" else on_gitlab(1)
    write = "PATCH" if forge_name == "github" else "PUT"
    forge.comments.append({"id": 1, "url": "", "user": {"type": "User"}, "body": "first!"})

    def comment(preview: str, *, goes_well: bool = True) -> str:
        assert main(["summary", str(PREVIEWS / preview)]) == 0
        (tmp_path / "summary.md").write_text(capsys.readouterr().out)
        done = subprocess.run(
            ["bash", "-e", "-c", script],  # as the forge runs it: a pipe's first failure is none
            cwd=tmp_path,
            env={"PATH": PATH, "TOKEN": "t0ken", "COMMENTS": forge.url, "NOTES": forge.url},
        )
        assert (done.returncode == 0) == goes_well
        return (tmp_path / "summary.md").read_text()

    text = comment("gain-and-loss.json")
    assert [each["body"] for each in forge.comments] == ["first!", text]
    changed = comment("brake.json")
    assert [each["body"] for each in forge.comments] == ["first!", changed]
    other = comment("syncers.json")  # of another stack
    assert [each["body"] for each in forge.comments] == ["first!", changed, other]
    assert forge.methods == ["GET", "POST", "GET", write, "GET", "POST"]
    # A list that cannot be read is no list without our comment.
    forge.fails = True
    comment("brake.json", goes_well=False)
    forge.fails = False
    assert [each["body"] for each in forge.comments] == ["first!", changed, other]
    assert len(forge.tokens) == 1
    assert forge.tokens.pop().endswith("t0ken")


@needs_tools
def test_a_comment_of_ours_is_found_on_every_page(
    forge: Forge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step finds its own comment even if it is on a later page of the list."""
    assert main(["summary", str(PREVIEWS / "brake.json")]) == 0
    (tmp_path / "summary.md").write_text(capsys.readouterr().out)
    forge.comments += [{"id": n, "url": "", "user": {"type": "User"}, "body": "!"} for n in range(1, 251)]
    for _ in range(2):
        environment = {"PATH": PATH, "TOKEN": "t0ken", "COMMENTS": forge.url}
        subprocess.run(["bash", "-e", "-c", step("Comment")], cwd=tmp_path, env=environment, check=True)
    assert len(forge.comments) == 251
    assert forge.methods == ["GET", "GET", "GET", "POST", "GET", "GET", "GET", "PATCH"]


@needs_tools
@pytest.mark.parametrize("code", [0, 255])
def test_a_commit_without_a_preview_says_so(tmp_path: Path, code: int) -> None:
    """Without a preview the comment says so, keeps the mark by which the earlier one is found, and the job
    fails.
    """
    for name, script in (
        ("bin/pulumi", f"echo error: no stack; exit {code}"),
        (".venv/bin/eurekube", f'PYTHONPATH={ROOT} exec {sys.executable} -m eurekube_provider.cli.main "$@"'),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    environment = {
        "PATH": f"{tmp_path}/bin:{PATH}",
        "STACK": "acme/shop/prod",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    subprocess.run(["bash", "-e", "-c", step("Preview")], cwd=tmp_path, env=environment, check=True)
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith("<!-- eurekube summary of shop/prod -->\n**There is no preview")
    assert (tmp_path / "summary").read_text() == text
    assert (tmp_path / "output").read_text() == "code=1\n"


def test_every_action_is_pinned_by_commit() -> None:
    """Each action is named by a commit, since a tag can be moved."""
    for path in CI.glob("*.yml"):
        used = re.findall(r"uses: (\S+)", path.read_text())
        assert used
        assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []
