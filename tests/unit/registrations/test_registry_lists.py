"""Eureka's full list, which all resources of a run share."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.registry_lists import RegistryListCache

OWNER = "stack/organization/shop/dev/billing"
ONE = Instance("BILLING", "a", "h", "192.0.2.1", Port(8080), metadata={"eurekube.owner": OWNER})


class Listing:
    """A Eureka that answers lists only, with the answers of a test."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def list_instances(self) -> list[Instance]:
        """Return the next answer, or raise it."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("list[Instance]", answer)


def test_one_list_serves_all_for_a_while() -> None:
    """One request serves lookups by application, by owner and by address."""
    peers = cast("Peers", Listing([ONE]))
    lists = RegistryListCache()
    for _ in range(3):
        assert lists.instances_of_application("BILLING", peers) == [ONE]
        assert lists.instances_of_application("RATING", peers) == []
        assert lists.instances_of_owner(OWNER, "BILLING", peers) == [ONE]
        assert lists.foreign_instances_at_addresses([ONE], OWNER, peers) == []


def test_a_list_that_fails_is_asked_for_again_by_who_needs_it() -> None:
    """A single registration does without the list; an application needs it to find superfluous instances,
    and raises.
    """
    peers = cast("Peers", Listing(RegistryUnreachable("away"), RegistryUnreachable("away"), [ONE]))
    lists = RegistryListCache()
    assert lists.instances_of_owner(OWNER, "BILLING", peers) == []
    with pytest.raises(RegistryUnreachable):
        lists.instances_of_application("BILLING", peers)
    assert lists.instances_of_application("BILLING", peers) == [ONE]
