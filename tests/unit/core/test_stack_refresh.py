"""The StackRefresh's spec, and the changes of addresses that need a run."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.stack_refresh import (
    StackAction,
    StackRefresh,
    find_ready_endpoints,
    group_addresses_by_service,
)
from eurekube_provider.core.syncer import Selector

Object = dict[str, Any]


def refresh(**spec: Any) -> Object:
    """Return a StackRefresh in the namespace ``shop``."""
    given = {"selector": {"app": "rating"}, "action": "Up", "target": "prod", **spec}
    return {"metadata": {"namespace": "shop", "name": "rating"}, "spec": given}


def service(name: str) -> Object:
    """Return a Service in the namespace ``shop``."""
    return {"metadata": {"namespace": "shop", "name": name, "labels": {}}}


def endpoint_slice(name: str, *endpoints: Object, port: int = 8080) -> Object:
    """Return an EndpointSlice of a Service in the namespace ``shop``."""
    return {
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"port": port}],
        "endpoints": list(endpoints),
    }


def at(address: str, **conditions: bool) -> Object:
    """Return an endpoint at this address."""
    return {"addresses": [address], "conditions": conditions}


def test_everything_that_can_be_said() -> None:
    """Every field of the spec is read; the selector's namespace is the object's own by default."""
    said = StackRefresh.from_object(
        refresh(
            selector={"namespace": "other", "app": "rating", "matchLabels": {"a": "b"}},
            action="Refresh",
            debounceSeconds=3,
            minIntervalSeconds=60,
            paused=True,
        )
    )
    assert said == StackRefresh(
        "shop",
        "rating",
        Selector("other", "rating", {"a": "b"}),
        StackAction.REFRESH,
        "prod",
        3,
        60,
        is_paused=True,
    )
    assert StackRefresh.from_object(refresh()).selector == Selector("shop", "rating")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"action": "Destroy"}, "spec.action is 'Destroy'; it must be Refresh, Up or Preview"),
        ({"target": ""}, "spec.target is missing"),
        ({"selector": {}}, "spec.selector.app is missing"),
    ],
)
def test_what_an_older_crd_lets_through(spec: Object, words: str) -> None:
    """An invalid value is refused in one sentence that lists valid ones."""
    with pytest.raises(ConfigurationError) as caught:
        StackRefresh.from_object(refresh(**spec))
    assert words in str(caught.value)


def test_ready_addresses_of_every_selected_service() -> None:
    """Each ready address of all slices is listed once with its port; unready and terminating ones are left
    out.
    """
    slices = [
        endpoint_slice("rating", at("10.0.0.2", ready=True), at("10.0.0.3", ready=False)),
        endpoint_slice("rating", at("10.0.0.1"), at("10.0.0.2", ready=True)),
        endpoint_slice("rating", at("10.0.0.4", ready=True, terminating=True)),
        endpoint_slice("rating", at("2001:db8::1", ready=True)),
        endpoint_slice("foreign", at("10.0.0.9", ready=True)),
    ]
    services = [service("rating"), service("empty")]
    assert group_addresses_by_service(services, find_ready_endpoints(services, slices)) == {
        "shop/rating": ("10.0.0.1:8080", "10.0.0.2:8080", "[2001:db8::1]:8080"),
        "shop/empty": (),
    }


def test_a_service_without_ports_has_its_addresses() -> None:
    """A headless Service may have no port; its addresses are listed without one."""
    slices = [{**endpoint_slice("rating", at("10.0.0.1")), "ports": []}]
    services = [service("rating")]
    assert group_addresses_by_service(services, find_ready_endpoints(services, slices)) == {
        "shop/rating": ("10.0.0.1",)
    }


def test_the_digest_tells_what_is_wanted() -> None:
    """The digest ignores the order of Services, and changes with addresses, action and target."""
    said = StackRefresh.from_object(refresh())
    one = said.digest({"shop/a": ("1",), "shop/b": ("2",)})
    assert one == said.digest({"shop/b": ("2",), "shop/a": ("1",)})
    others = [
        said.digest({"shop/a": ("1",)}),
        said.digest({"shop/a": ("1", "2"), "shop/b": ()}),
        StackRefresh.from_object(refresh(action="Preview")).digest({"shop/a": ("1",), "shop/b": ("2",)}),
        StackRefresh.from_object(refresh(target="dev")).digest({"shop/a": ("1",), "shop/b": ("2",)}),
    ]
    assert len({one, *others}) == 5
