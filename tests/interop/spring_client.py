"""The views of the lab's Spring Cloud client, each once it has the expected content."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lab.errors import LabError
from lab.spring import SpringClient
from lab.waiting import wait_until

Document = dict[str, Any]

WAIT_SECONDS = 20.0
"""How long a change may take to reach the client, which fetches the registry every second."""

FAST = {
    "eureka.client.registry-fetch-interval-seconds": "1",
    "spring.cloud.loadbalancer.cache.ttl": "1s",
    "spring.cloud.loadbalancer.configurations": "zone-preference",
}
"""A caller that sees changes within a second or two, and prefers its own zone."""


class SpringViews(SpringClient):
    """The application of the lab, and what it says about the registry."""

    def instances(self, service: str, *ids: str) -> list[Document]:
        """Return its ``DiscoveryClient``'s instances of a service, once these ids and no others are there."""
        return self._once_there(f"/instances/{service}", ids)

    def held(self, vip: str, *ids: str, secure: bool = False) -> list[Document]:
        """Return its ``EurekaClient``'s instances of a VIP, once these ids and no others are there."""
        path = f"/netflix/{vip}?secure={str(secure).lower()}"
        return self._once_there(path, ids)

    def choose(self, service: str, instance_id: str) -> Document:
        """Return its ``LoadBalancerClient``'s choice, once that is this instance."""

        def is_it(seen: Document) -> bool:
            return seen.get("instanceId") == instance_id

        chosen: Document = self._once(f"/choose/{service}", is_it)
        return chosen

    def chooses(self, service: str) -> str | None:
        """The id that its ``LoadBalancerClient`` chooses now, None where it finds none."""
        chosen: str | None = self.get(f"/choose/{service}").json().get("instanceId")
        return chosen

    def call(self, service: str, path: str = "") -> Document:
        """The answer to its own GET of ``http://service/path`` by name, through its load balancer."""
        answer: Document = self.get(f"/call/{service}/{path}").json()
        return answer

    def _once_there(self, path: str, ids: tuple[str, ...]) -> list[Document]:
        def are_there(seen: list[Document]) -> bool:
            return sorted(instance["instanceId"] for instance in seen) == sorted(ids)

        found: list[Document] = self._once(path, are_there)
        return found

    def _once(self, path: str, is_there: Callable[[Any], bool]) -> Any:
        seen: Any = None

        def ask() -> bool:
            nonlocal seen
            seen = self.get(path).json()
            return is_there(seen)

        try:
            wait_until(ask, f"the Spring client's {path}", WAIT_SECONDS)
        except LabError as error:
            raise AssertionError(f"{error}; it has {json.dumps(seen)}") from None
        return seen
