"""Registrations of other people's clients, and how the commands and a mirror show them, on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from eurekube_provider.cli.main import main
from eurekube_provider.core.objects import SERVICE_NAME_LABEL
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import ENDPOINT_SLICES, MIRRORS
from lab import Lab
from lab.workloads import Cluster, wait_for
from tests.system.conftest import StartOperator

pytestmark = pytest.mark.lab

FAST = (
    *("--server-cache-seconds", "1", "--client-fetch-seconds", "2", "--load-balancer-cache-seconds", "0"),
    *("--replication-seconds", "0", "--margin-seconds", "0.5"),
)
SLASH = "ip-192-0-2-3/192.0.2.3:8080"
OWN = {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"}
Cli = Callable[..., tuple[int, str]]


@pytest.fixture
def cli(lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a function that runs ``eurekube`` and returns exit code and output."""
    monkeypatch.delenv("COLUMNS", raising=False)  # else names are cut

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main([*words, "--eureka-url", lab.eureka_urls[0]])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


@pytest.fixture
def register(lab: Lab, unique_name: str) -> Iterator[Callable[..., None]]:
    """Return a function that registers as a client in another language does; registrations that can be
    removed are removed at the end.
    """
    session, ids = requests.Session(), []
    application = f"{lab.eureka_urls[0]}/apps/{unique_name.upper()}"

    def send(instance_id: str | None, address: str, host_name: str = "vm", **fields: Any) -> None:
        document = {
            **({"instanceId": instance_id} if instance_id is not None else {}),
            "app": unique_name,
            "hostName": host_name,
            "ipAddr": address,
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "vipAddress": unique_name,
            "dataCenterInfo": OWN,
            **fields,
        }
        center = document["dataCenterInfo"].get("metadata") or {}
        ids.append(instance_id or center.get("instance-id") or host_name)
        assert session.post(application, json={"instance": document}, timeout=10).status_code == 204

    yield send
    for one in ids:
        session.delete(f"{application}/{one}", timeout=10)
    session.close()


def amazon(instance_id: str) -> dict[str, Any]:
    """Return the data centre of a machine, which names the machine's instance."""
    return {
        "@class": "com.netflix.appinfo.AmazonInfo",
        "name": "Amazon",
        "metadata": {"instance-id": instance_id},
    }


def test_strange_instances_are_shown_counted_and_drained(
    lab: Lab,
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    unique_name: str,
    cli: Cli,
    register: Callable[..., None],
    start_operator: StartOperator,
) -> None:
    """Machines that share a host name, have a slash in the id, or write an address in an old form do not
    hide each other.
    """
    app = unique_name.upper()
    register(None, "192.0.2.1", dataCenterInfo=amazon(f"i-1-{unique_name}"))
    register(None, "192.0.2.2", dataCenterInfo=amazon(f"i-2-{unique_name}"))
    register(SLASH, "192.0.2.3")
    register(f"octal-{unique_name}", "192.0.2.071")

    start_operator(MIRRORS="true", MIRROR_CIDRS="192.0.2.0/24")
    mirror = {"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaMirror"}
    cluster.apply(
        MIRRORS,
        {**mirror, "metadata": {"namespace": namespace, "name": "it"}, "spec": {"application": app}},
    )

    def shown() -> set[str]:
        slices = cluster.items(ENDPOINT_SLICES, namespace, **{SERVICE_NAME_LABEL: unique_name})
        return {one["addresses"][0] for item in slices for one in item.get("endpoints") or ()}

    wait_for(lambda: shown() == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}, "the mirror's endpoints", 60.0)

    def conditions() -> dict[str, str]:
        status = (cluster.get(MIRRORS, "it", namespace) or {}).get("status") or {}
        return {one["type"]: f"{one['status']} {one['message']}" for one in status.get("conditions") or ()}

    wait_for(lambda: "Unreadable" in conditions(), "the condition", 60.0)
    assert f"no request can name the id '{SLASH}'" in conditions()["Unreadable"]
    assert "some read 192.0.2.57" in conditions()["Unreadable"]
    assert conditions()["Synced"].startswith("False ")

    code, said = cli("instances", app, "--kubeconfig", str(lab.kubeconfig))
    assert code == 0
    assert all(name in said for name in (f"i-1-{unique_name}", f"i-2-{unique_name}", SLASH))
    assert "not safe: 2 instances cannot be asked for, or not be read for certain:" in said
    code, said = cli("explain", app, "--kubeconfig", str(lab.kubeconfig))
    assert code == 0
    assert f"not safe: no request can name the id '{SLASH}'" in said
    assert "192.0.2.3: called" in said
    code, said = cli("doctor", "--kubeconfig", str(lab.kubeconfig), "--namespace", namespace)
    assert code == 1
    assert "EurekaMirror" in said
    assert f"{app} {SLASH}" in said
    code, said = cli("import", app)
    assert code == 0
    assert f"left out {app} '{SLASH}'" in said
    assert said.count('"instance_id"') == 2

    code, said = cli("drain", app, *FAST)
    assert code == 1
    assert f"not safe: {app} '{SLASH}' is UP and not drained" in said
    statuses = {
        name: held.status for name in ("i-1", "i-2") if (held := eureka.read(app, f"{name}-{unique_name}"))
    }
    assert statuses == {"i-1": "OUT_OF_SERVICE", "i-2": "OUT_OF_SERVICE"}
    code, said = cli("drain", f"i-1-{unique_name}", *FAST)
    assert code == 0
    assert "safe: " in said
    assert cli("undrain", app)[0] == 0


def test_what_registered_itself_out_of_service_is_named_and_put_back(
    lab: Lab, eureka: Peers, unique_name: str, cli: Cli, register: Callable[..., None]
) -> None:
    """The commands name an instance that first registered OUT_OF_SERVICE and later says UP, and put it
    back into service.
    """
    name, app = f"stuck-{unique_name}", unique_name.upper()
    now = int(time.time() * 1000)
    register(name, "192.0.2.1", status="OUT_OF_SERVICE", lastDirtyTimestamp=str(now))
    register(name, "192.0.2.1", lastDirtyTimestamp=str(now + 1))
    code, said = cli("explain", app, "--kubeconfig", str(lab.kubeconfig))
    assert code == 0
    assert "it registered itself as OUT_OF_SERVICE, and Eureka keeps that whatever it says since" in said
    code, said = cli("undrain", app)
    assert code == 1
    assert f"name it: eurekube undrain {name}" in said
    assert cli("undrain", name)[0] == 0
    held = eureka.read(app, name)
    assert held is not None
    assert (held.status, held.is_overridden) == ("UP", False)
    register(name, "192.0.2.1", lastDirtyTimestamp=str(now + 2))
    held = eureka.read(app, name)
    assert held is not None
    assert held.status == "UP"
