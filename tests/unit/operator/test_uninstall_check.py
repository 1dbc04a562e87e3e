"""Whether the operator may be uninstalled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.operator.uninstall_check import uninstall_check


class FakeCluster:
    """Objects by the path of their list; an error stands for itself. What is not there, is no such kind."""

    def __init__(self, **lists: list[str] | KubernetesError) -> None:
        self.lists = lists
        self.asked: list[str] = []

    def pages(self, path: str, timeout_seconds: float) -> Iterator[dict[str, Any]]:
        """One object a page."""
        assert timeout_seconds <= 10
        self.asked.append(path)
        found = self.lists.get(path.rpartition("/")[2], KubernetesError("no such kind", status_code=404))
        if isinstance(found, KubernetesError):
            raise found
        for place in found:
            namespace, name = place.split("/")
            if f"/namespaces/{namespace}/" in path or "/namespaces/" not in path:
                yield {"items": [{"metadata": {"namespace": namespace, "name": name}}]}


def check(cluster: FakeCluster, *namespaces: str) -> str | None:
    """What is said."""
    return uninstall_check(cluster, namespaces)  # type: ignore[arg-type]


def test_nobody_needs_it() -> None:
    """There is none of either kind, or no such kind."""
    assert check(FakeCluster(eurekasyncers=[], eurekamirrors=[])) is None
    assert check(FakeCluster()) is None


def test_who_needs_it_is_named() -> None:
    """Of many the first five, and what to do."""
    syncers = [f"shop/s{number}" for number in range(7)]
    said = check(FakeCluster(eurekasyncers=syncers, eurekamirrors=["shop/legacy"]))
    assert said is not None
    assert (
        "EurekaSyncer shop/s0, shop/s1, shop/s2, shop/s3, shop/s4 and 2 more and EurekaMirror shop/legacy"
        in said
    )
    assert "helm uninstall --no-hooks" in said


def test_other_namespaces_are_not_its_own() -> None:
    """It looks only into those that it watches."""
    cluster = FakeCluster(eurekasyncers=["other/rating"], eurekamirrors=[])
    assert check(cluster, "shop", "billing") is None
    assert len(cluster.asked) == 4
    assert check(cluster, "other") is not None


@pytest.mark.parametrize("status", [None, 403, 500])
def test_where_nobody_can_tell_it_stays(status: int | None) -> None:
    """Do no harm: it is refused, with the reason."""
    said = check(FakeCluster(eurekasyncers=KubernetesError("no answer", status_code=status)))
    assert said is not None
    assert "nobody can tell" in said
    assert "no answer" in said


def test_an_operator_without_mirrors_may_not_list_them() -> None:
    """They have no finalizer of it, since it serves none."""
    assert check(FakeCluster(eurekasyncers=[], eurekamirrors=KubernetesError("no", status_code=403))) is None
