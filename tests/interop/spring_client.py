"""The lab's Spring Cloud client, whose views of the registry are returned once they have the expected
content.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lab.errors import LabError
from lab.spring import SpringClient
from lab.waiting import wait_until

Document = dict[str, Any]

WAIT_SECONDS = 20.0
"""Longest time until a change reaches the client, which fetches the registry every second, in seconds."""

FAST = {
    "eureka.client.registry-fetch-interval-seconds": "1",
    "spring.cloud.loadbalancer.cache.ttl": "1s",
    "spring.cloud.loadbalancer.configurations": "zone-preference",
}
"""Settings of a caller that sees changes within two seconds and prefers its own zone."""


class SpringViews(SpringClient):
    """The lab's Spring Cloud application, and its views of the registry."""

    def instances(self, service: str, *ids: str) -> list[Document]:
        """Return the ``DiscoveryClient``'s instances of a service, once they have exactly these ids."""
        return self._once_there(f"/instances/{service}", ids)

    def held(self, vip: str, *ids: str, secure: bool = False) -> list[Document]:
        """Return the ``EurekaClient``'s instances of a VIP, once they have exactly these ids."""
        path = f"/netflix/{vip}?secure={str(secure).lower()}"
        return self._once_there(path, ids)

    def choose(self, service: str, instance_id: str) -> Document:
        """Return the ``LoadBalancerClient``'s choice, once it is this instance."""

        def is_it(seen: Document) -> bool:
            return seen.get("instanceId") == instance_id

        chosen: Document = self._once(f"/choose/{service}", is_it)
        return chosen

    def chooses(self, service: str) -> str | None:
        """Return the id that the ``LoadBalancerClient`` chooses now; None if it finds no instance."""
        chosen: str | None = self.get(f"/choose/{service}").json().get("instanceId")
        return chosen

    def call(self, service: str, path: str = "") -> Document:
        """Return the answer to the application's GET of ``http://service/path`` through its load balancer."""
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
