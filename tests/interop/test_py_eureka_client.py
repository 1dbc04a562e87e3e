"""``py-eureka-client`` reads what we register, calls it, and is read by us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.identity import OWNER_KEY, label_to_metadata_key
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status
from eurekube_provider.core.plan import RefusalReason, plan
from eurekube_provider.eureka.notes import next_timestamp_ms
from eurekube_provider.eureka.protocol.peer import Peer
from lab.ports import HOST
from tests.interop.conftest import OWNER, Register
from tests.interop.line_client import CallFailed
from tests.interop.python_client import PythonClient

CALLER = "python-caller"
CALLER_ID = "python-caller-1"
METADATA = {
    OWNER_KEY: OWNER,
    "zone": "zone-b",
    label_to_metadata_key("app.kubernetes.io/part-of"): "shop",
    label_to_metadata_key("team-name"): "Zürich <&>",
}


@pytest.fixture(scope="module")
def python(eureka_url: str, logs: Path) -> Iterator[PythonClient]:
    """Start the client, which is in zone-a and has registered itself."""
    if not PythonClient.is_installed():
        pytest.skip("py-eureka-client is not installed: it is in the dependency group dev")
    settings = {
        "eureka_server": f"{eureka_url}/",
        "zone": "zone-a",
        "eureka_availability_zones": {"zone-a": f"{eureka_url}/"},
        "app_name": CALLER,
        "instance_id": CALLER_ID,
        "instance_host": "localhost",
        "instance_ip": HOST,
        "instance_port": 9090,
        "instance_secure_port": 9443,
        "instance_secure_port_enabled": True,
        "renewal_interval_in_secs": 1,
        "duration_in_secs": 30,
        "metadata": {"team.name": "Zürich <&>"},
    }
    client = PythonClient(settings, logs / "py-eureka-client.log")
    yield client
    client.close()


@pytest.fixture
def caller(python: PythonClient, peer: Peer) -> Instance:
    """Return the client's own registration, as we read it."""
    python.instances(CALLER, CALLER_ID)
    held = peer.read(CALLER, CALLER_ID)
    assert held is not None
    return held


def copy(app: str, number: int = 1, **fields: Any) -> Instance:
    """Return an instance of ours."""
    plain = Instance(app, f"{app}-{number}", HOST, HOST, Port(8080), metadata={OWNER_KEY: OWNER})
    return replace(plain, **fields)


class TestWhatWeRegister:
    """Our instances as the client sees them, which reads XML."""

    def test_every_field(self, python: PythonClient, register: Register, app: str) -> None:
        """The client holds each field as we sent it, singly or in a batch."""
        register(
            copy(
                app,
                host_name="rating.example.org",
                ip_address="10.0.0.2",
                secure_port=Port(8443),
                metadata=METADATA,
                lease=EurekaLease(20, 60),
                home_page_url="http://10.0.0.2:8080/",
            )
        )
        assert python.instances(app, f"{app}-1") == [
            {
                "instanceId": f"{app}-1",
                "app": app.upper(),
                "hostName": "rating.example.org",
                "ipAddr": "10.0.0.2",
                "port": [8080, True],
                "securePort": [8443, True],
                "vipAddress": app,
                "secureVipAddress": app,
                "status": "UP",
                "zone": "zone-b",
                "metadata": METADATA,
                "dataCenter": "MyOwn",
                "lease": [20, 60],
                "homePageUrl": "http://10.0.0.2:8080/",
            }
        ]

    def test_metadata_keys(self, python: PythonClient, peer: Peer, app: str) -> None:
        """Metadata keys made of labels arrive unchanged; another key's underscore is doubled in the
        server's XML.
        """
        label = label_to_metadata_key("example.org/my_team")
        peer.register(copy(app, metadata={label: "1", "my_team": "2"}))
        (seen,) = python.instances(app, f"{app}-1")
        assert seen["metadata"] == {label: "1", "my__team": "2"}

    def test_only_instances_that_are_up(self, python: PythonClient, register: Register, app: str) -> None:
        """The client offers its callers no instance that is DOWN or OUT_OF_SERVICE."""
        for number, status in enumerate((Status.DOWN, Status.OUT_OF_SERVICE, Status.UP)):
            register(copy(app, number, status=status))
        assert len(python.instances(app, f"{app}-2")) == 1

    def test_a_removed_instance(self, python: PythonClient, peer: Peer, app: str) -> None:
        """The client no longer offers an instance that we deregistered."""
        peer.register(copy(app, 1))
        peer.register(copy(app, 2))
        python.instances(app, f"{app}-1", f"{app}-2")
        assert peer.deregister(app, f"{app}-1")
        assert len(python.instances(app, f"{app}-2")) == 1

    def test_a_call_by_name(self, python: PythonClient, register: Register, greeter: int, app: str) -> None:
        """The client's request to a path of the application arrives at the server that we registered."""
        register(copy(app, port=Port(greeter)))
        python.instances(app, f"{app}-1")
        assert python.call(app, "rate/5") == "hello from /rate/5"
        assert python.call(app, "rate/5", prefer_ip=True) == "hello from /rate/5"

    def test_its_zone_is_preferred(self, python: PythonClient, peer: Peer, greeter: int, app: str) -> None:
        """The client calls the instance in its own zone, and does not try the other one, where nobody
        listens.
        """
        near = copy(app, 1, port=Port(greeter), metadata={OWNER_KEY: OWNER, "zone": "zone-a"})
        peer.register(near)
        peer.register(copy(app, 2, port=Port(1), metadata={OWNER_KEY: OWNER, "zone": "zone-b"}))
        python.instances(app, f"{app}-1", f"{app}-2")
        assert {python.call(app) for _ in range(6)} == {"hello from /"}
        assert peer.deregister(*near.key)
        python.instances(app, f"{app}-2")
        with pytest.raises(CallFailed, match="WalkNodeException"):
            python.call(app)

    @pytest.mark.parametrize(
        ("host", "is_called"), [("[0:0:0:0:0:0:0:1]", True), ("[::1]", False), ("::1", False)]
    )
    def test_a_call_to_an_ipv6_address(
        self, python: PythonClient, peer: Peer, ipv6_greeter: int, app: str, host: str, is_called: bool
    ) -> None:
        """The client builds a valid URL only from an address with brackets and all eight groups, which we
        cannot change.
        """
        peer.register(copy(app, host_name=host, ip_address="::1", port=Port(ipv6_greeter)))
        python.instances(app, f"{app}-1")
        if is_called:
            assert python.call(app, "six") == "hello from /six"
        else:
            with pytest.raises(CallFailed):
                python.call(app, "six")


class TestWhatItRegistered:
    """The client's own instance as our code sees it."""

    def test_every_field(self, caller: Instance) -> None:
        """Our codec reads each field that the client registered."""
        here = "http://localhost:9090"
        assert caller == Instance(
            application=CALLER,
            instance_id=CALLER_ID,
            host_name="localhost",
            ip_address=HOST,
            port=Port(9090),
            secure_port=Port(9443),
            vip_address=CALLER,
            metadata={"zone": "zone-a", "team.name": "Zürich <&>", "management.port": "9090"},
            lease=EurekaLease(1, 30),
            home_page_url=f"{here}/",
            status_page_url=f"{here}/info",
            health_check_url=f"{here}/health",
            last_dirty_timestamp_ms=caller.last_dirty_timestamp_ms,
            last_updated_timestamp_ms=caller.last_updated_timestamp_ms,
            unknown_fields=caller.unknown_fields,
        )
        assert (caller.zone, caller.owner) == ("zone-a", None)

    def test_read_and_written_again_it_is_the_same(
        self, python: PythonClient, caller: Instance, peer: Peer
    ) -> None:
        """A registration that we read and write again is unchanged for the client and for us."""
        before = python.instances(CALLER, CALLER_ID)
        sent = replace(caller, last_dirty_timestamp_ms=next_timestamp_ms(caller))
        peer.register(sent)
        held = peer.read(*caller.key)
        assert held is not None
        assert replace(held, last_updated_timestamp_ms=None) == replace(sent, last_updated_timestamp_ms=None)
        assert python.instances(CALLER, CALLER_ID) == before

    def test_our_plan_leaves_it_alone(self, caller: Instance) -> None:
        """Our plan does not remove the client's instance, and registers no other at its address."""
        ours = replace(caller, instance_id="pod-1.shop.eks:caller:9090", metadata={OWNER_KEY: OWNER})
        assert not plan([], [caller], OWNER)
        result = plan([ours], [caller], OWNER)
        assert not result
        assert [refusal.reason for refusal in result.refusals] == [RefusalReason.SELF_REGISTERED]
