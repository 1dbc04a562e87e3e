"""A real Spring Cloud application reads and calls our registrations, and we read its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests

from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY, Cluster, label_to_metadata_key
from eurekube_provider.core.mapping import desired_instances
from eurekube_provider.core.model import DataCenter, EurekaLease, Instance, Port, Status
from eurekube_provider.core.plan import RefusalReason, plan
from eurekube_provider.core.syncer import Mode, Selector, Syncer
from eurekube_provider.eureka.notes import next_timestamp_ms
from eurekube_provider.eureka.protocol.peer import Peer
from lab.ports import HOST
from lab.spring import SpringClientMissing
from tests.interop.conftest import OWNER, Register
from tests.interop.spring_client import FAST, WAIT_SECONDS, Document, SpringViews

pytestmark = pytest.mark.real_server("its client needs Java")

CALLER = "Interop-Caller"
CALLER_ID = "interop-caller-1"
CALLER_KEY = ("INTEROP-CALLER", CALLER_ID)
ZONE = "zone-a"
METADATA = {
    OWNER_KEY: OWNER,
    CLUSTER_UID_KEY: "8f0f8a3c-0000-4000-8000-000000000000",
    "zone": "zone-b",
    label_to_metadata_key("app.kubernetes.io/part-of"): "shop",
    label_to_metadata_key("team-name"): 'Zürich <&> "quoted"',
    label_to_metadata_key("under_score"): "",
}


@pytest.fixture(scope="module")
def spring(eureka_url: str, logs: Path) -> Iterator[SpringViews]:
    """Start the application, which is in zone-a and has registered itself."""
    settings = {
        **FAST,
        "eureka.instance.instance-id": CALLER_ID,
        "eureka.instance.hostname": HOST,
        "eureka.instance.ip-address": HOST,
        "eureka.instance.secure-port-enabled": "true",
        "eureka.instance.secure-port": "8443",
        "eureka.instance.metadata-map.zone": ZONE,
        "eureka.instance.metadata-map.team.name": "Zürich <&>",
        "eureka.instance.metadata-map.some-key": "some value",
        "eureka.instance.lease-renewal-interval-in-seconds": "7",
        "eureka.instance.lease-expiration-duration-in-seconds": "21",
        "eureka.instance.app-group-name": "SHOP",
        "eureka.instance.a-s-g-name": "asg-1",
    }
    try:
        client = SpringViews([eureka_url], name=CALLER, log_directory=logs, settings=settings)
    except SpringClientMissing as reason:
        pytest.skip(str(reason))
    client.start()
    yield client
    client.close()


@pytest.fixture
def caller(spring: SpringViews, peer: Peer) -> Instance:
    """Return the application's own registration, as we read it."""
    spring.held(CALLER, CALLER_ID)
    held = peer.read(*CALLER_KEY)
    assert held is not None
    return held


def copy(app: str, number: int = 1, **fields: Any) -> Instance:
    """Return an instance of ours."""
    plain = Instance(app, f"{app}-{number}", HOST, HOST, Port(8080), metadata={OWNER_KEY: OWNER})
    return replace(plain, **fields)


def raw(eureka_url: str, application: str, instance_id: str) -> Document:
    """Return an instance as the server holds it, without our codec."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(
            f"{eureka_url}/apps/{application}/{instance_id}",
            headers={"Accept": "application/json"},
            timeout=10,
        )
    document: Document = answer.json()["instance"]
    return document


class TestWhatWeRegister:
    """Our instances as the Spring application sees them."""

    def test_host_port_zone_and_metadata(self, spring: SpringViews, register: Register, app: str) -> None:
        """The discovery client returns each field as we sent it, singly or in a batch."""
        register(copy(app, host_name="10.0.0.1", ip_address="10.0.0.2", metadata=METADATA))
        assert spring.instances(app, f"{app}-1") == [
            {
                "instanceId": f"{app}-1",
                "serviceId": app.upper(),
                "host": "10.0.0.1",
                "port": 8080,
                "secure": False,
                "scheme": "http",
                "uri": "http://10.0.0.1:8080",
                "uriHost": "10.0.0.1",
                "metadata": METADATA,
            }
        ]

    def test_netflix_own_view(self, spring: SpringViews, register: Register, app: str) -> None:
        """Netflix's own client, which load balancers of older releases use, also holds what we sent."""
        register(
            copy(
                app,
                host_name="rating.example.org",
                ip_address="10.0.0.2",
                metadata=METADATA,
                lease=EurekaLease(20, 60),
                home_page_url="http://10.0.0.2:8080/",
            )
        )
        assert spring.held(app, f"{app}-1") == [
            {
                "instanceId": f"{app}-1",
                "app": app.upper(),
                "hostName": "rating.example.org",
                "ipAddr": "10.0.0.2",
                "port": 8080,
                "portEnabled": True,
                "securePort": 443,
                "securePortEnabled": False,
                "status": "UP",
                "vipAddress": app,
                "secureVipAddress": app,
                "dataCenter": "MyOwn",
                "zone": "none",  # Netflix takes it from Amazon only; Spring from the metadata
                "metadata": METADATA,
                "homePageUrl": "http://10.0.0.2:8080/",
                "renewalIntervalInSecs": 20,
                "durationInSecs": 60,
            }
        ]

    def test_a_secure_port(self, spring: SpringViews, register: Register, app: str) -> None:
        """If the secure port is enabled Spring calls it by https, whether or not the plain port is
        enabled.
        """
        for number, plain_port in enumerate((Port(8080), Port(8080, enabled=False))):
            register(copy(app, number, port=plain_port, secure_port=Port(8443)))
        ids = (f"{app}-0", f"{app}-1")
        for seen in spring.instances(app, *ids):
            assert (seen["secure"], seen["scheme"], seen["port"], seen["uri"]) == (
                True,
                "https",
                8443,
                f"https://{HOST}:8443",
            )
        held = {instance["instanceId"]: instance for instance in spring.held(app, *ids, secure=True)}
        assert [held[name]["portEnabled"] for name in ids] == [True, False]
        assert [held[name]["securePortEnabled"] for name in ids] == [True, True]

    def test_a_secure_port_is_called_by_tls(self, spring: SpringViews, peer: Peer, app: str) -> None:
        """A call by name opens a TLS connection to the secure port."""
        with socket.create_server((HOST, 0)) as listener:
            listener.settimeout(WAIT_SECONDS)
            port = listener.getsockname()[1]
            peer.register(copy(app, port=Port(1, enabled=False), secure_port=Port(port)))
            spring.choose(app, f"{app}-1")
            first: list[bytes] = []

            def hang_up() -> None:
                connection, _ = listener.accept()
                listener.close()  # the client tries again
                with connection:
                    first.append(connection.recv(1))

            thread = Thread(target=hang_up)
            thread.start()
            answer = spring.call(app)
            thread.join()
        assert first == [b"\x16"]  # a TLS handshake record
        assert "error" in answer

    def test_what_the_operator_maps(self, spring: SpringViews, register: Register, app: str) -> None:
        """A ready endpoint of a Service becomes a callable instance in the zone of its node."""
        syncer = Syncer("shop", "rating", Mode.POD, Selector("shop", app), app)
        desired = desired_instances(
            syncer,
            [{"metadata": {"name": app, "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}}],
            [
                {
                    "metadata": {
                        "name": f"{app}-x",
                        "namespace": "shop",
                        "labels": {"kubernetes.io/service-name": app},
                    },
                    "addressType": "IPv4",
                    "ports": [{"port": 8080, "protocol": "TCP"}],
                    "endpoints": [
                        {
                            "addresses": ["10.1.2.3"],
                            "conditions": {"ready": True},
                            "targetRef": {"kind": "Pod", "name": "pod-1"},
                            "zone": "eu-central-1a",
                        }
                    ],
                }
            ],
            Cluster("eks", "8f0f8a3c"),
        )
        (instance,) = desired.instances
        register(instance)
        (seen,) = spring.instances(app, f"pod-1.shop.eks:{app}:8080")
        assert seen["uri"] == "http://10.1.2.3:8080"
        assert seen["metadata"] == {
            OWNER_KEY: "cluster/eks/shop/rating",
            CLUSTER_UID_KEY: "8f0f8a3c",
            "zone": "eu-central-1a",
        }

    def test_a_vip_of_mixed_case(self, spring: SpringViews, register: Register, app: str) -> None:
        """An instance is found by its VIP address, in any case, not by its application."""
        register(copy(app, vip_address=f"Vip-{app}"))
        for vip in (f"Vip-{app}", f"vip-{app}", f"VIP-{app.upper()}"):
            assert [seen["serviceId"] for seen in spring.instances(vip, f"{app}-1")] == [app.upper()]
        assert spring.instances(app) == []

    def test_only_instances_that_are_up(self, spring: SpringViews, register: Register, app: str) -> None:
        """Callers are offered no instance that is DOWN, OUT_OF_SERVICE or STARTING."""
        for number, status in enumerate((Status.DOWN, Status.OUT_OF_SERVICE, Status.STARTING, Status.UP)):
            register(copy(app, number, status=status))
        assert len(spring.instances(app, f"{app}-3")) == 1
        assert len(spring.held(app, f"{app}-3")) == 1

    def test_a_status_set_over_an_instance(self, spring: SpringViews, peer: Peer, app: str) -> None:
        """An instance is not offered while OUT_OF_SERVICE is set over it, and is offered again when that
        is cleared.
        """
        instance = copy(app)
        peer.register(instance)
        spring.instances(app, instance.instance_id)
        assert peer.set_status(instance, Status.OUT_OF_SERVICE)
        assert spring.instances(app) == []
        assert peer.clear_status(instance)
        assert len(spring.instances(app, instance.instance_id)) == 1

    def test_a_removed_instance(self, spring: SpringViews, peer: Peer, app: str) -> None:
        """An instance that we deregistered is no longer offered."""
        peer.register(copy(app, 1))
        peer.register(copy(app, 2))
        spring.instances(app, f"{app}-1", f"{app}-2")
        assert peer.deregister(app, f"{app}-1")
        assert len(spring.instances(app, f"{app}-2")) == 1

    def test_the_zone_is_preferred(self, spring: SpringViews, peer: Peer, app: str) -> None:
        """The load balancer chooses instances of its own zone while there are any."""
        near, far = (
            copy(app, number, metadata={OWNER_KEY: OWNER, "zone": zone})
            for number, zone in enumerate((ZONE, "zone-b"))
        )
        peer.register(near)
        peer.register(far)
        spring.instances(app, near.instance_id, far.instance_id)
        spring.choose(app, near.instance_id)
        assert {spring.chooses(app) for _ in range(6)} == {near.instance_id}
        assert peer.deregister(*near.key)
        assert spring.choose(app, far.instance_id)["metadata"]["zone"] == "zone-b"

    def test_the_zone_of_an_amazon_instance(self, spring: SpringViews, peer: Peer, app: str) -> None:
        """A foreign data centre that we write again keeps its zone for Netflix's client."""
        amazon = DataCenter(
            "Amazon",
            "com.netflix.appinfo.AmazonInfo",
            {"instance-id": "i-1", "availability-zone": "us-east-1c"},
        )
        peer.register(copy(app, data_center=amazon))
        held = peer.read(app, f"{app}-1")
        assert held is not None
        peer.register(replace(held, last_dirty_timestamp_ms=next_timestamp_ms(held)))
        (seen,) = spring.held(app, f"{app}-1")
        assert (seen["dataCenter"], seen["zone"], held.zone) == ("Amazon", "us-east-1c", "us-east-1c")

    def test_a_call_by_name(self, spring: SpringViews, register: Register, greeter: int, app: str) -> None:
        """A request to http://application/path arrives at the server that we registered."""
        register(copy(app, port=Port(greeter)))
        spring.choose(app, f"{app}-1")
        assert spring.call(app, "rate/5") == {"status": 200, "body": "hello from /rate/5"}


class TestIPv6:
    """Instances with an IPv6 address as host name, from which callers build URLs."""

    @pytest.mark.parametrize("host", ["::1", "[::1]"])
    def test_a_call_by_name(
        self, spring: SpringViews, peer: Peer, app: str, ipv6_greeter: int, host: str
    ) -> None:
        """The load balancer's calls arrive, with or without brackets around the address."""
        peer.register(copy(app, host_name=host, ip_address="::1", port=Port(ipv6_greeter)))
        spring.choose(app, f"{app}-1")
        assert spring.call(app, "six") == {"status": 200, "body": "hello from /six"}

    @pytest.mark.parametrize(("host", "uri_host"), [("::1", None), ("[::1]", "[::1]")])
    def test_the_uri_of_an_instance(
        self, spring: SpringViews, peer: Peer, app: str, host: str, uri_host: str | None
    ) -> None:
        """``getUri()`` contains a host only if we sent the address in brackets."""
        peer.register(copy(app, host_name=host, ip_address="::1"))
        (seen,) = spring.instances(app, f"{app}-1")
        assert (seen["host"], seen["uriHost"]) == (host, uri_host)


class TestWhatSpringRegistered:
    """The Spring application's own instance as our code sees it."""

    def test_every_field(self, spring: SpringViews, caller: Instance) -> None:
        """Our codec reads each field that the application registered."""
        here = f"http://{HOST}:{spring.port}"
        assert caller == Instance(
            application=CALLER,
            instance_id=CALLER_ID,
            host_name=HOST,
            ip_address=HOST,
            port=Port(spring.port),
            secure_port=Port(8443),
            vip_address=CALLER,
            secure_vip_address=CALLER,
            metadata={
                "zone": ZONE,
                "team.name": "Zürich <&>",
                "some-key": "some value",
                "management.port": str(spring.port),
            },
            lease=EurekaLease(7, 21),
            home_page_url=f"{here}/",
            status_page_url=f"{here}/actuator/info",
            health_check_url=f"{here}/actuator/health",
            secure_health_check_url=f"https://{HOST}:{spring.port}/actuator/health",  # sic
            last_dirty_timestamp_ms=caller.last_dirty_timestamp_ms,
            last_updated_timestamp_ms=caller.last_updated_timestamp_ms,
            unknown_fields={"appGroupName": "SHOP", "asgName": "asg-1"},
        )
        assert (caller.zone, caller.owner) == (ZONE, None)

    def test_it_is_listed(self, caller: Instance, peer: Peer) -> None:
        """The registry's list shows the application's instance with the same content as a single read."""
        assert caller in peer.list_instances()

    def test_read_and_written_again_it_is_the_same(
        self, spring: SpringViews, caller: Instance, peer: Peer, eureka_url: str
    ) -> None:
        """A registration that we read and write again is unchanged at the server, unknown fields included."""
        computed = {"leaseInfo", "lastDirtyTimestamp", "lastUpdatedTimestamp", "actionType"}
        before = raw(eureka_url, *CALLER_KEY)
        peer.register(replace(caller, last_dirty_timestamp_ms=next_timestamp_ms(caller)))
        after = raw(eureka_url, *CALLER_KEY)
        assert int(after["lastDirtyTimestamp"]) > int(before["lastDirtyTimestamp"])
        assert {key: value for key, value in after.items() if key not in computed} == {
            key: value for key, value in before.items() if key not in computed
        }
        for name in ("renewalIntervalInSecs", "durationInSecs"):
            assert after["leaseInfo"][name] == before["leaseInfo"][name]
        (seen,) = spring.held(CALLER, CALLER_ID)
        assert (seen["zone"], seen["metadata"]) == ("none", caller.metadata)

    def test_our_plan_leaves_it_alone(self, caller: Instance) -> None:
        """A plan for its application neither changes nor removes the instance, which has no owner of ours."""
        assert plan([], [caller], OWNER) == plan([], [], OWNER)

    def test_our_plan_does_not_take_its_id(self, caller: Instance) -> None:
        """A plan refuses to register under the id of the application's instance."""
        ours = replace(caller, metadata={OWNER_KEY: OWNER}, port=Port(1))
        result = plan([ours], [caller], OWNER)
        assert not result
        assert [refusal.reason for refusal in result.refusals] == [RefusalReason.CONFLICT]

    def test_our_plan_does_not_double_it(self, caller: Instance) -> None:
        """A plan refuses to register at the address of the application's instance, and says that it
        registered itself.
        """
        ours = replace(caller, instance_id="pod-1.shop.eks:caller:8080", metadata={OWNER_KEY: OWNER})
        result = plan([ours], [caller], OWNER)
        assert not result
        assert [refusal.reason for refusal in result.refusals] == [RefusalReason.SELF_REGISTERED]
