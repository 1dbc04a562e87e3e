"""Addresses of Ingresses and Gateways on real servers, whose controllers the tests play.

The operator has exactly the rights for it. A second one has no such option and no such rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    GATEWAYS,
    HTTP_ROUTES,
    INGRESSES,
    MERGE_PATCH_TYPE,
    NAMESPACES,
    SYNCERS,
    ApiResource,
    KubeAccess,
)
from eurekube_provider.kube.rights import (
    CLUSTER_RULES,
    NAMESPACE_RULES,
    ROUTE_NAMESPACE_RULE_BY_ADVERTISE,
    election_rules,
)
from eurekube_provider.operator.identity_check import CheckVerdict
from eurekube_provider.operator.selfcheck import check_kubernetes
from lab import Lab
from lab.accounts import Account
from lab.gateway_api import gateway_api_crds
from lab.workloads import CRDS, Cluster, wait_for
from tests.system.conftest import Operator, StartOperator, operator_environment
from tests.system.test_rights import asked_for
from tests.system.test_syncer_fields import HTTP, Shop

pytestmark = pytest.mark.lab

Object = dict[str, Any]
HOME, SHOP, INFRA = "routes-home", "routes-shop", "routes-infra"
NAME = "routes"
BALANCER = "192.0.2.7"
PATIENCE_SECONDS = 60.0
KINDS = {kind for rule in ROUTE_NAMESPACE_RULE_BY_ADVERTISE.values() for kind in rule.resources}


def account_of(lab: Lab, cluster: Cluster, name: str, folder: pytest.TempPathFactory) -> Account:
    """Return an account with the rights of an operator for all namespaces."""
    cluster.create_namespace(HOME)
    account = Account.create(lab, cluster, HOME, name, folder.mktemp(name) / "kubeconfig")
    account.set_rights(election_rules(f"{name}-leader"), HOME)
    return account


@pytest.fixture(scope="module", autouse=True)
def operator(
    lab: Lab,
    cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operator]:
    """Start one operator for a namespace of applications and one of Gateways."""
    account = account_of(lab, cluster, NAME, tmp_path_factory)
    account.set_rights(CLUSTER_RULES)
    for name in (SHOP, INFRA):
        cluster.create_namespace(name)
        account.set_rights([*NAMESPACE_RULES, *ROUTE_NAMESPACE_RULE_BY_ADVERTISE.values()], name)
    environment = operator_environment(
        lab,
        f"{SHOP},{INFRA}",
        KUBECONFIG=str(account.kubeconfig),
        ADVERTISE_FROM="Ingress,Gateway",
        CLUSTER_NAME=NAME,
        LEASE_NAME=f"{NAME}-leader",
        POD_NAMESPACE=HOME,
        OPERATOR_NAME=NAME,
        PUBLISH="*=*",
    )
    running = Operator(tmp_path_factory.mktemp("operator") / "log", environment, [])
    running.wait_ready()
    yield running
    running.stop()
    print(running.text())
    for name in (HOME, SHOP, INFRA):
        cluster.delete(NAMESPACES, name)


class Routed(Shop):
    """An application behind an Ingress or a Gateway."""

    def __init__(self, cluster: Cluster, eureka: Peers, app: str, namespace: str = SHOP) -> None:
        super().__init__(cluster, eureka, namespace)
        self.app = app
        self.host = f"{app}.example.com"

    def apply(self, resource: ApiResource, kind: str, name: str, spec: Object, namespace: str = "") -> None:
        """Apply an object of a group in version v1."""
        item = {
            "apiVersion": f"{resource.group}/v1",
            "kind": kind,
            "metadata": {"namespace": namespace or self.namespace, "name": name},
            "spec": spec,
        }
        self.cluster.apply(resource, item)

    def patch_status(self, resource: ApiResource, name: str, status: Object, namespace: str = "") -> None:
        """Write a status, as the controller of the object does."""
        path = resource.path(namespace or self.namespace, name, "status")
        self.cluster.access.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH_TYPE)

    def ingress(self, name: str, *, path: str = "/", to: str = "", tls: bool = False) -> None:
        """Apply an Ingress that sends a path of the application's host to a Service, by default its own."""
        backend = {"service": {"name": to or self.app, "port": {"name": "http"}}}
        paths = [{"path": path, "pathType": "Prefix", "backend": backend}]
        spec: Object = {"rules": [{"host": self.host, "http": {"paths": paths}}]}
        self.apply(INGRESSES, "Ingress", name, spec | ({"tls": [{"hosts": [self.host]}]} if tls else {}))

    def wait_no_address(self, words: str) -> None:
        """Wait for the condition NoAddress with these words."""
        self.wait_condition("NoAddress", "True", "NoAddress")
        wait_for(lambda: words in self.condition("NoAddress")[2], words, PATIENCE_SECONDS)

    def wait_instance(self, wanted: Callable[[Instance], object], what: str) -> Instance:
        """Wait until the application has one instance, and that as wanted."""

        def found() -> Instance | None:
            held = self.held()
            return held[0] if len(held) == 1 and wanted(held[0]) else None

        return wait_for(found, what, PATIENCE_SECONDS)


def test_an_ingress_gives_host_address_and_port(cluster: Cluster, eureka: Peers) -> None:
    """The instance has the Ingress' host, and stays as its endpoints are when the Ingress loses its address,
    gets company at its host, or is deleted.
    """
    shop = Routed(cluster, eureka, "routes-web")
    shop.service()
    shop.slices(shop.endpoint(1))
    shop.syncer("service", advertise="Ingress", healthCheckPath="/health")
    shop.wait_no_address(f"no Ingress of namespace {SHOP}")
    shop.ingress("web")
    shop.wait_no_address("has no address for port 80 in its status")
    assert shop.held() == []
    balancer = {"loadBalancer": {"ingress": [{"ip": BALANCER}]}}
    shop.patch_status(INGRESSES, "web", balancer)
    found = shop.only()
    assert (found.host_name, found.ip_address, found.port) == (shop.host, BALANCER, Port(80))
    assert (found.secure_port.enabled, found.status) == (False, Status.UP)
    assert found.health_check_url == f"http://{shop.host}:80/health"
    shop.wait_condition("Synced", "True", "Synced")
    shop.ingress("web", tls=True)
    secured = shop.wait_instance(lambda one: one.secure_port.enabled, "https")
    assert (secured.port, secured.secure_port) == (Port(443, enabled=False), Port(443))
    assert secured.host_name == shop.host
    shop.wait_condition("Synced", "True", "Synced")
    key = secured.key

    shop.patch_status(INGRESSES, "web", {"loadBalancer": None})
    shop.wait_no_address("has no address for port 443 in its status")
    assert [(one.key, one.host_name, one.status) for one in shop.held()] == [(key, shop.host, Status.UP)]
    shop.slices(shop.endpoint(1, ready=False))
    shop.wait_instance(lambda one: (one.key, one.status) == (key, Status.DOWN), "DOWN without an address")
    shop.slices(shop.endpoint(1))
    shop.wait_instance(lambda one: (one.key, one.status) == (key, Status.UP), "UP without an address")
    shop.patch_status(INGRESSES, "web", balancer)
    shop.wait_condition("Synced", "True", "Synced")

    shop.ingress("api", path="/api", to="routes-other")
    shop.wait_no_address(f"Ingress {SHOP}/api sends /api of {shop.host} to port http of Service routes-other")
    assert [one.key for one in shop.held()] == [key]
    cluster.delete(INGRESSES, "api", SHOP)
    shop.wait_condition("Synced", "True", "Synced")
    cluster.delete(INGRESSES, "web", SHOP)
    shop.wait_no_address(f"no Ingress of namespace {SHOP}")
    assert [(one.key, one.status) for one in shop.held()] == [(key, Status.UP)]
    cluster.delete(SYNCERS, "it", SHOP)
    wait_for(lambda: not shop.held(), "the end of a deleted syncer's instance", PATIENCE_SECONDS)


def conditions(generation: int, **states: str) -> list[Object]:
    """Return conditions as a controller writes them."""
    return [
        {
            "type": name,
            "status": status,
            "observedGeneration": generation,
            "reason": "Played",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for name, status in states.items()
    ]


@pytest.fixture
def installed_late(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Return a function that installs the Gateway API, which is removed in the end."""
    crds = gateway_api_crds()

    def install() -> None:
        for crd in crds:
            cluster.install_crd(crd)

    yield install
    for crd in crds:
        cluster.delete(CRDS, crd["metadata"]["name"])


def test_a_gateway_gives_host_address_and_port(
    cluster: Cluster, eureka: Peers, operator: Operator, installed_late: Callable[[], None]
) -> None:
    """Without the Gateway API the syncer waits, and nothing else does. With it, the instance has the route's
    host and the listener's port, and stays when the route is not accepted any more.
    """
    shop, before = Routed(cluster, eureka, "routes-api"), len(operator.text())
    shop.service()
    shop.slices(shop.endpoint(1))
    shop.syncer("service", advertise="Gateway", called="api")
    wait_for(lambda: shop.condition("Ready", "api")[1] == "RoutesNotRead", "the wait", PATIENCE_SECONDS)
    assert "does not know the kind" in shop.condition("Ready", "api")[2]
    installed_late()
    listener = {
        "name": "tls",
        "port": 443,
        "protocol": "HTTPS",
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "wild"}]},
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    spec = {"gatewayClassName": "played", "listeners": [listener]}
    shop.apply(GATEWAYS, "Gateway", "public", spec, INFRA)
    shop.patch_status(
        GATEWAYS,
        "public",
        {
            "addresses": [{"type": "IPAddress", "value": BALANCER}],
            "conditions": conditions(1, Accepted="True", Programmed="True"),
            "listeners": [
                {
                    "name": "tls",
                    "attachedRoutes": 1,
                    "supportedKinds": [{"group": GATEWAYS.group, "kind": "HTTPRoute"}],
                    "conditions": conditions(1, Accepted="True", Programmed="True", ResolvedRefs="True"),
                }
            ],
        },
        INFRA,
    )
    parent = {"name": "public", "namespace": INFRA}
    backend = {"name": shop.app, "port": HTTP["port"]}
    spec = {"parentRefs": [parent], "hostnames": [shop.host], "rules": [{"backendRefs": [backend]}]}
    shop.apply(HTTP_ROUTES, "HTTPRoute", "api", spec)

    def accepted(status: str) -> None:
        seen = conditions(1, Accepted=status, ResolvedRefs="True")
        parents = [{"parentRef": parent, "controllerName": "example.com/played", "conditions": seen}]
        shop.patch_status(HTTP_ROUTES, "api", {"parents": parents})

    def is_refused() -> bool:
        return f"Gateway {INFRA}/public has not accepted" in shop.condition("NoAddress", "api")[2]

    wait_for(is_refused, "the wait for the Gateway's controller", 2 * PATIENCE_SECONDS)
    assert shop.held() == []
    accepted("True")
    found = shop.only()
    assert (found.host_name, found.ip_address) == (shop.host, BALANCER)
    assert (found.port, found.secure_port) == (Port(443, enabled=False), Port(443))
    assert found.home_page_url == f"https://{shop.host}:443/"
    wait_for(lambda: shop.condition("Synced", "api")[0] == "True", "Synced", PATIENCE_SECONDS)
    accepted("False")
    wait_for(
        lambda: is_refused() and shop.condition("NoAddress", "api")[0] == "True", "refused", PATIENCE_SECONDS
    )
    assert [(one.key, one.status) for one in shop.held()] == [(found.key, Status.UP)]
    accepted("True")
    wait_for(lambda: shop.condition("Synced", "api")[0] == "True", "Synced again", PATIENCE_SECONDS)
    cluster.delete(SYNCERS, "api", SHOP)
    wait_for(lambda: not shop.held(), "the end of a deleted syncer's instance", PATIENCE_SECONDS)
    lines = operator.text()[before:].splitlines()
    missing = [one for one in lines if "failed to list or watch" in one and "gateway.networking" in one]
    assert len([one for one in missing if " 404" in one]) == 4, "once for each kind and namespace"


def test_each_of_its_rights_is_used_and_no_other(
    lab: Lab, cluster: Cluster, eureka: Peers, installed_late: Callable[[], None]
) -> None:
    """While syncers ask for both kinds of addresses, the operator lists and watches all three kinds of
    objects, and is refused nothing.
    """
    granted = {
        (group, kind, verb)
        for rule in ROUTE_NAMESPACE_RULE_BY_ADVERTISE.values()
        for group in rule.api_groups
        for kind in rule.resources
        for verb in rule.verbs
    }
    installed_late()
    since = lab.kubernetes.audit_log.stat().st_size
    shop = Routed(cluster, eureka, "routes-rights")
    for kind in ("Ingress", "Gateway"):
        shop.syncer("service", advertise=kind, called=kind.lower())

    def used() -> set[tuple[str, str, str]]:
        return {right for right in asked_for(lab, since, HOME, NAME) if right[1] in KINDS}

    wait_for(lambda: used() >= granted, "all of them", PATIENCE_SECONDS)
    assert used() == granted
    asked = asked_for(lab, since, HOME, NAME)
    assert {right for right, decisions in asked.items() if decisions != {"allow"}} == set()
    for kind in ("ingress", "gateway"):
        cluster.delete(SYNCERS, kind, SHOP)
        wait_for(lambda kind=kind: cluster.get(SYNCERS, kind, SHOP) is None, "its end", PATIENCE_SECONDS)  # type: ignore[misc]


def test_without_the_option_nothing_is_asked_for(
    lab: Lab,
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    start_operator: StartOperator,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The syncer is refused, what it has registered stays, and the API server sees no request for such a
    kind.
    """
    account = account_of(lab, cluster, "routeless", tmp_path_factory)
    account.set_rights(CLUSTER_RULES)
    account.set_rights(NAMESPACE_RULES, namespace)
    since = lab.kubernetes.audit_log.stat().st_size
    start_operator(
        KUBECONFIG=str(account.kubeconfig),
        POD_NAMESPACE=HOME,
        LEASE_NAME="routeless-leader",
        CLUSTER_NAME="routeless",
        OPERATOR_NAME="routeless",
    )
    shop = Routed(cluster, eureka, f"{namespace}-app", namespace)
    shop.service()
    shop.slices(shop.endpoint(1))
    shop.syncer("service", advertise="ClusterIP")
    before = shop.only()
    for kind in ("Ingress", "Gateway"):
        shop.syncer("service", advertise=kind)
        wait_for(
            lambda kind=kind: f"--advertise-from {kind}" in shop.condition("Ready")[2],  # type: ignore[misc]
            "the refusal",
            PATIENCE_SECONDS,
        )
        shop.wait_condition("Ready", "False", "NotAllowed")
        assert [(one.key, one.host_name, one.status) for one in shop.held()] == [
            (before.key, before.host_name, Status.UP)
        ]
    asked = asked_for(lab, since, HOME, "routeless")
    assert {right for right in asked if right[1] in KINDS} == set()
    assert {right for right, decisions in asked.items() if decisions != {"allow"}} == set()
    access = KubeAccess.load(account.kubeconfig)
    found = check_kubernetes(access, (namespace,), advertise_from=list(ROUTE_NAMESPACE_RULE_BY_ADVERTISE))
    missing = [one.subject for one in found if one.verdict is CheckVerdict.WARNING]
    assert missing == [
        f"list, watch {kind} in namespace {namespace}" for kind in ("ingresses", "gateways", "httproutes")
    ]
