"""``eurekube demo`` when a package that it needs is not installed."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from eurekube_provider.cli.main import main

_find_spec = importlib.util.find_spec


@pytest.mark.parametrize("module", ["jinja2", "kubernetes", "prometheus_client", "pulumi_kubernetes", "rich"])
def test_a_missing_package_is_one_sentence_before_anything_begins(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo starts nothing when a package is missing; its message names the package and the extra to
    install.
    """

    def find_spec(name: str, *rest: Any) -> ModuleSpec | None:
        return None if name == module else _find_spec(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert main(["demo"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"eurekube: the command demo needs the package {module.replace('_', '-')}, which is not installed:"
        " pip install 'eurekube-provider[demo]'\n"
    )
