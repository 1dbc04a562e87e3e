"""docs/guides/testing.md: its examples without the Pulumi CLI run unchanged."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from scripts import blocks, links

pytest_plugins = ["pytester"]

PAGE = links.ROOT / "docs" / "guides" / "testing.md"
FILES = blocks.extract_named_files(PAGE)
GITHUB, GITLAB = (
    yaml.safe_load(block.text) for block in blocks.find_code_blocks(PAGE) if block.language == "yaml"
)
WRITTEN_PORT = "8761"

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, by which the page waits")


def test_each_example_is_a_file_that_a_test_runs() -> None:
    """The page has exactly the known examples; tests/system/test_testing_guide.py runs those of the
    Automation API.
    """
    written = [block for block in blocks.find_code_blocks(PAGE) if block.language == "python"]
    assert len(written) == len(FILES)
    assert set(FILES) == {"test_eureka.py", "shop.py", "test_program.py", "conftest.py", "test_stack.py"}


def test_the_examples_of_the_fixtures_pass(pytester: pytest.Pytester) -> None:
    """The fixtures' examples pass with the plugin loaded by the package's entry point."""
    (pytester.path / "test_eureka.py").write_text(FILES["test_eureka.py"])
    pytester.runpytest().assert_outcomes(passed=2)


def test_the_example_of_mocks_passes(pytester: pytest.Pytester) -> None:
    """The example of mocks passes, in its own process because the Pulumi SDK keeps settings for a whole
    process.
    """
    for name in ("shop.py", "test_program.py"):
        (pytester.path / name).write_text(FILES[name])
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_difference_is_printed_as_shown(pytester: pytest.Pytester) -> None:
    """The page's assertion message equals the real one, except for the server's port."""
    (shown,) = (
        block.text for block in blocks.find_code_blocks(PAGE) if block.text.startswith("AssertionError")
    )
    pytester.makepyfile(
        """
        def test_one(eureka):
            eureka.register("BILLING", "vm-1:billing:8080", "192.0.2.1", 8080)
            eureka.register("RATING", "vm-1:rating:8080", "192.0.2.1", 8080, metadata={"tier": "1"})
            eureka.register("RATING", "vm-3:rating:8080", "192.0.2.3", 8080)
            expected = {"port": 9090, "metadata": {"tier": "2"}}
            eureka.assert_registered("RATING", {"vm-1:rating:8080": expected, "vm-2:rating:8080": {}})
        """
    )
    printed = pytester.runpytest().stdout.str()
    complaint = "".join(re.findall(r"^E {3,7}(.*\n)", printed, re.MULTILINE))
    assert re.sub(r":\d+/", ":40001/", complaint) == shown


class Runner:
    """A pipeline's runner with the package installed, whose server gets a port that is free here."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self._port = str(taken.getsockname()[1])
        path = (folder, Path(sys.executable).parent, os.environ["PATH"])
        own = {name: self._here(value) for name, value in variables.items()}
        self._environment = {**os.environ, **own, "PATH": os.pathsep.join(map(str, path))}
        self.has("pip", "#!/bin/sh\n")

    def has(self, name: str, program: str) -> None:
        """Put a program into the job's folder."""
        (self._folder / name).write_text(program)
        (self._folder / name).chmod(0o755)

    def runs(self, *steps: str) -> str:
        """Run a job, each step in a shell of its own, kill its leftovers, and return its output."""
        for number, step in enumerate(steps):
            (self._folder / f"step-{number}").write_text(self._here(step))
        job = "for step in step-*; do bash -euo pipefail $step || exit; done"
        with subprocess.Popen(
            ["bash", "-c", job],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            try:
                printed, _ = running.communicate(timeout=120)
            finally:
                os.killpg(running.pid, signal.SIGTERM)
        assert running.returncode == 0, printed
        return printed

    def _here(self, text: str) -> str:
        return text.replace(WRITTEN_PORT, self._port)


@needs_curl
def test_the_job_on_github_has_a_server(tmp_path: Path) -> None:
    """A later step of the GitHub job reaches the server at the URL in Spring's variable."""
    (job,) = GITHUB["jobs"].values()
    runner = Runner(tmp_path, job["env"])
    runner.has("mvnw", '#!/bin/sh\ncurl -fs "$EUREKA_CLIENT_SERVICEURL_DEFAULTZONE/apps/delta"\n')
    assert "<applications>" in runner.runs(*(step["run"] for step in job["steps"] if "run" in step))
    assert "for development and tests" in (tmp_path / "eureka.log").read_text()


@needs_curl
def test_the_job_on_gitlab_has_a_server(tmp_path: Path) -> None:
    """Tests in the GitLab job reach the server at the URL in EUREKA_URL."""
    job = GITLAB["test"]
    (tmp_path / "test_service.py").write_text(
        "import os, urllib.request\n\ndef test_one():\n"
        "    assert urllib.request.urlopen(os.environ['EUREKA_URL'] + '/apps').status == 200\n"
    )
    assert "1 passed" in Runner(tmp_path, job["variables"]).runs("\n".join(job["script"]))
    (log,) = job["artifacts"]["paths"]
    assert "for development and tests" in (tmp_path / log).read_text()
