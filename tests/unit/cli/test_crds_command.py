"""``eurekube crds``: what kubectl applies."""

from __future__ import annotations

import pytest
import yaml

from eurekube_provider.cli.main import main
from eurekube_provider.resources.files import crd_documents


def test_every_crd_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As one stream of documents."""
    assert main(["crds"]) == 0
    printed = [one for one in yaml.safe_load_all(capsys.readouterr().out) if one]
    assert printed == crd_documents()
    assert {one["kind"] for one in printed} == {"CustomResourceDefinition"}
