"""``eurekube crds``: the CRDs that it prints for kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from eurekube_provider.cli.main import main
from eurekube_provider.resources.files import crd_documents


def test_every_crd_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """``crds`` prints every CRD as one stream of YAML documents."""
    assert main(["crds"]) == 0
    printed = [one for one in yaml.safe_load_all(capsys.readouterr().out) if one]
    assert printed == crd_documents()
    assert {one["kind"] for one in printed} == {"CustomResourceDefinition"}


def undescribed(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    """Yield the fields of a schema that lack a description, except those common to all objects."""
    for name, field in schema.get("properties", {}).items():
        where = f"{above}{name}"
        if "description" not in field and where not in ("apiVersion", "kind", "metadata"):
            yield where
        yield from undescribed(field, f"{where}.")
        yield from undescribed(field.get("items", {}), f"{where}[].")


@pytest.mark.parametrize("document", crd_documents(), ids=lambda one: one["spec"]["names"]["kind"])
def test_kubectl_explain_has_a_sentence_for_each_field(document: dict[str, Any]) -> None:
    """Each field of a CRD's spec and status has a description."""
    for version in document["spec"]["versions"]:
        assert list(undescribed(version["schema"]["openAPIV3Schema"])) == []
