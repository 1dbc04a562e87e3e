"""Reads of the Kubernetes API."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import PODS, list_objects_by_name


def test_an_answer_that_is_no_list_is_no_empty_list() -> None:
    """An answer that is no list raises, as an empty list would cause removals; ``items: null`` is an empty
    list.
    """
    access = Mock(server="https://api")
    access.get.return_value = {"items": None}
    assert list_objects_by_name(access, PODS, "a", "shop") == []
    assert access.get.call_args.args == ("/api/v1/namespaces/shop/pods", {"fieldSelector": "metadata.name=a"})
    access.get.return_value = {"kind": "Status"}
    with pytest.raises(KubernetesError, match="https://api answered with something that is no list"):
        list_objects_by_name(access, PODS, "a", "shop")
