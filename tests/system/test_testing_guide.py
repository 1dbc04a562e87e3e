"""docs/guides/testing.md, followed where a Pulumi CLI is installed."""

from __future__ import annotations

import pytest

from scripts import blocks, links
from tests.system.stacks import needs_pulumi, own_pulumi

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.pulumi, needs_pulumi]

FILES = blocks.extract_named_files(links.ROOT / "docs" / "guides" / "testing.md")
SET_BY_THE_PAGE = ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE")


def test_stacks_are_deployed_against_the_fixture(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's files run as written in a process of their own, with only a CLI on PATH."""
    for name in ("shop.py", "conftest.py", "test_stack.py"):
        (pytester.path / name).write_text(FILES[name])
    for name, value in own_pulumi(pytester.path).items():
        monkeypatch.setenv(name, value)
    for name in SET_BY_THE_PAGE:
        monkeypatch.delenv(name)
    pytester.runpytest_subprocess("-p", "no:xdist", timeout=280).assert_outcomes(passed=2)
