"""A Pulumi program with a plain dynamic resource for each registration, as Pulumi's guide recommends.

Source: Pulumi's documentation, "Dynamic providers". The module is copied beside the ``__main__.py`` that
calls :func:`main`: inside ``__main__.py`` the SDK would pickle the provider by value, each time with one more
layer around its own pickler, and end with a RecursionError at some 300 resources.
"""

import os
from typing import Any

import pulumi
import requests
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult


class RegistrationProvider(ResourceProvider):
    """A dynamic provider that registers with one POST, and removes with one DELETE."""

    def _register(self, props: dict[str, Any]) -> None:
        name = props["application"]
        instance = {
            "instanceId": props["instance_id"],
            "app": name.upper(),
            "hostName": props["host"],
            "ipAddr": props["host"],
            "vipAddress": name,
            "status": "UP",
            "port": {"$": int(props["port"]), "@enabled": "true"},
            "dataCenterInfo": {
                "@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo",
                "name": "MyOwn",
            },
        }
        url = f"{props['url']}/apps/{name.upper()}"
        requests.post(url, json={"instance": instance}, timeout=10).raise_for_status()

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Register the instance."""
        self._register(props)
        return CreateResult(props["instance_id"], outs=props)

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Report every difference as an update."""
        names = ("application", "instance_id", "host", "port", "url")
        return DiffResult(changes=any(_olds[name] != _news[name] for name in names))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Register the instance again."""
        self._register(_news)
        return UpdateResult(outs=_news)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove the instance from Eureka."""
        url = f"{_props['url']}/apps/{_props['application'].upper()}/{_props['instance_id']}"
        requests.delete(url, timeout=10)


class Registration(Resource):
    """A resource that registers one instance."""

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(RegistrationProvider(), name, props, opts)


def main() -> None:
    """Create BENCH_COUNT registrations."""
    for number in range(int(os.environ["BENCH_COUNT"])):
        application = f"{os.environ['BENCH_APPLICATION']}-{number // 100}"
        Registration(
            f"r{number}",
            {
                "application": application,
                "instance_id": f"r{number}:{application}:8080",
                "host": f"10.1.{number // 250}.{number % 250 + 1}",
                "port": 8080,
                "url": os.environ["BENCH_URL"],
            },
        )
