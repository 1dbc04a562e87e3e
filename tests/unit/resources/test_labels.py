"""Labels by which a stack's objects are found."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.resources.files import crd_documents
from eurekube_provider.resources.labels import stack_label_value

LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def test_an_ordinary_stack_is_readable() -> None:
    """The label contains the names of project and stack."""
    assert stack_label_value("eurekube", "dev") == "eurekube.dev"


@pytest.mark.parametrize(("one", "other"), [("feature/a", "feature-a"), ("x" * 80, "x" * 81), ("a:b", "a?b")])
def test_stacks_that_look_alike_stay_apart(one: str, other: str) -> None:
    """With equal labels one stack would remove the other's objects."""
    assert stack_label_value("eurekube", one) != stack_label_value("eurekube", other)


@given(st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=100))
def test_every_stack_has_a_label_that_kubernetes_takes(project: str, stack: str) -> None:
    """Any name that Pulumi allows yields a valid label value."""
    assert LABEL_VALUE.fullmatch(stack_label_value(project, stack))


def test_the_crds_are_those_of_the_repository() -> None:
    """The installed CRDs have the names and kinds that other code relies on."""
    found = {crd["metadata"]["name"]: crd["spec"]["names"]["kind"] for crd in crd_documents()}
    assert found == {
        "eurekamirrors.eurekube.io": "EurekaMirror",
        "eurekasyncers.eurekube.io": "EurekaSyncer",
        "stackrefreshes.eurekube.io": "StackRefresh",
    }
