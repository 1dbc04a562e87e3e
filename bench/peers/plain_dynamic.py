"""A Pulumi program with a plain dynamic resource for each registration, as the guide to them has one written.

Source: Pulumi's documentation, "Dynamic providers". It stands beside the ``__main__.py`` that calls
:func:`main`: in there the SDK would pickle the provider by value, each time with one more layer around its
own pickler, and end with a RecursionError at some 300 resources.
"""

import os
from typing import Any

import pulumi
import requests
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult


class RegistrationProvider(ResourceProvider):
    """One POST to register, one DELETE to remove."""

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
        """Register."""
        self._register(props)
        return CreateResult(props["instance_id"], outs=props)

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Every difference is an update."""
        names = ("application", "instance_id", "host", "port", "url")
        return DiffResult(changes=any(_olds[name] != _news[name] for name in names))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Register again."""
        self._register(_news)
        return UpdateResult(outs=_news)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove."""
        url = f"{_props['url']}/apps/{_props['application'].upper()}/{_props['instance_id']}"
        requests.delete(url, timeout=10)


class Registration(Resource):
    """One registration."""

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(RegistrationProvider(), name, props, opts)


def main() -> None:
    """As many as BENCH_COUNT says."""
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
