"""The number of requests for a stack's registrations, with one server and with several."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.removal_checks import RemovalChecks
from eurekube_provider.registrations import resource as module
from eurekube_provider.registrations.registry_lists import RenewerCheck
from eurekube_provider.registrations.resource import INSTANCE_REGISTRATION_KIND, RegistrationResource
from eurekube_provider.registrations.servers import SHARED_PEERS
from tests.explore.world import World, owned
from tests.unit.eureka.model_servers import URLS
from tests.unit.registrations.test_properties import LEAST


@pytest.mark.parametrize(("count", "looks"), [(1, 1), (3, 3)])
def test_a_creation_is_read_write_read_and_a_run_shares_one_list(
    count: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A creation reads the id at each server, registers once and reads back; one list shows renewers and
    neighbours.
    """
    cluster, asked = EurekaCluster(URLS[:count]), Counter[str]()
    cluster.clock.advance(3_600_000)
    world = World(cluster)
    world.watch = lambda what: asked.update([_named(what)])
    monkeypatch.setattr(module, "SHARED_RENEWER_CHECK", RenewerCheck())
    monkeypatch.setattr(module, "SHARED_REMOVAL_CHECKS", RemovalChecks(lambda _: None))
    with owned(world), closing(Peers(Connection(URLS[:count]))) as peers:
        monkeypatch.setattr(SHARED_PEERS, "get", lambda _: peers)
        resource = RegistrationResource(INSTANCE_REGISTRATION_KIND, lambda _: None, lambda _: None)
        _create(resource, count, "192.0.2.1")
        assert asked == {"list": 1, "read": looks + 1, "POST": 1}
        asked.clear()
        _, made = _create(resource, count, "192.0.2.2")
        assert asked == {"read": looks + 1, "POST": 1}
        asked.clear()
        resource.delete(made)
    # It is looked for once more: a renewal may have brought it back, or another server behind the URL has it.
    assert asked == {"read": looks * 2, "DELETE": count}


def _create(resource: RegistrationResource, count: int, host: str) -> tuple[str, dict[str, Any]]:
    owner = f"{LEAST['owner']}-{host}"
    urls = ",".join(URLS[:count])
    asked: dict[str, Any] = {**LEAST, "owner": owner, "host_name": host, "service_url": urls}
    checked = resource.check({}, asked, is_update=False)
    assert not checked.problems
    return resource.create(checked.properties)


def _named(what: str) -> str:
    method, _, rest = what.partition(" ")
    if method != "GET":
        return method
    return "list" if rest.partition(" ")[2].startswith("/apps ") else "read"
