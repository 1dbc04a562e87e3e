"""What an Eureka forgot, by owner."""

from __future__ import annotations

from dataclasses import replace

from eurekube_provider.eureka.registry.forgotten import ForgottenInstances
from tests.unit.eureka.servers import instance


def test_what_was_lost_is_forgotten_by_owner_and_where_something_stands() -> None:
    """Of two owners who had the same, each one's is forgotten by itself; both's where something stands."""
    lost, one, other = ForgottenInstances(), instance("one"), instance("other")
    theirs = replace(one, metadata={"eurekube.owner": "cluster/lab/shop/another"})
    for each in (one, other, theirs):
        lost.note(each)
    lost.stands(one)
    assert [*lost.of(one.owner or ""), *lost.of(theirs.owner or "")] == [other]
    lost.note(theirs)
    lost.forget(theirs.owner or "")
    lost.stands(theirs)
    assert lost.of(one.owner or "") == [other]
