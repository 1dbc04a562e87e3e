"""``eurekube drain`` and ``undrain`` by hand, beside a running operator."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from eurekube_provider.cli.main import main
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import SYNCERS
from lab import Lab
from lab.listing import wait_until_listed
from lab.workloads import Cluster, wait_for
from tests.system.conftest import StartOperator, addresses, instances

pytestmark = pytest.mark.lab

FAST = (
    *("--server-cache-seconds", "0", "--client-fetch-seconds", "2", "--load-balancer-cache-seconds", "0"),
    *("--replication-seconds", "0", "--margin-seconds", "0.5"),
)
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(lab: Lab, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs ``eurekube`` and returns exit code, output and error output."""

    def run(*words: str, url: str = "") -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words, "--eureka-url", url or lab.eureka_urls[0]])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def message(cluster: Cluster, namespace: str, app: str) -> str:
    """Return the message of a syncer's condition Ready."""
    status = (cluster.get(SYNCERS, app, namespace) or {}).get("status") or {}
    return next((one["message"] for one in status.get("conditions") or () if one["type"] == "Ready"), "")


def test_a_drain_by_hand_holds_until_it_is_taken_back(
    lab: Lab, cluster: Cluster, eureka: Peers, namespace: str, cli: Cli, start_operator: StartOperator
) -> None:
    """The operator shows a drained instance, updates its contents, and leaves its status as the person set
    it.
    """
    app = f"{namespace}-app"
    cluster.apply_deployment(namespace, app, 2)
    cluster.apply_service(namespace, app)
    cluster.apply_syncer(namespace, app)
    start_operator()
    wait_for(lambda: list(addresses(eureka, app).values()) == ["UP", "UP"], "two instances", 60.0)
    one, *_ = both = instances(eureka, app)
    wait_until_listed(lab.eureka_urls[0], both)  # who else is UP, it knows from the list

    started = time.monotonic()
    code, said, complaints = cli("drain", one.instance_id, *FAST)
    assert time.monotonic() - started >= 2.5
    assert (code, complaints) == (0, "")
    assert said.splitlines() == [
        f"{app.upper()} {one.instance_id}: OUT_OF_SERVICE on 1 server",
        "callers may call them for 3 s more: waiting",
        "safe: they were out of service for 3 s, and no caller knows them any more",
    ]
    wait_for(
        lambda: "waiting" not in cli("drain", one.instance_id, *FAST)[1], "a drain that was long enough", 30.0
    )

    cluster.scale(namespace, app, 3)
    cluster.apply_syncer(namespace, app, metadata={"team": "stars"})  # has the operator register all again

    def is_kept() -> bool:
        held = eureka.read(*one.key)
        return held is not None and held.metadata.get("team") == "stars"

    wait_for(is_kept, "the operator's next change of the drained one", 60.0)
    wait_for(lambda: "3 instances" in message(cluster, namespace, app), "a third instance", 60.0)
    shown = "1 taken out of service"
    wait_for(lambda: shown in message(cluster, namespace, app), "the operator to show it", 60.0)
    statuses = addresses(eureka, app)
    assert statuses.pop(one.ip_address) == "OUT_OF_SERVICE"
    assert list(statuses.values()) == ["UP", "UP"]

    wait_until_listed(lab.eureka_urls[0], instances(eureka, app))
    code, said, complaints = cli("drain", app.capitalize(), "--no-wait")
    assert (code, said.count("OUT_OF_SERVICE on 1 server")) == (0, 3)
    assert "callers may call them for 103 s more; then they may be stopped" in said
    assert complaints == (
        "eurekube drain: Eureka's list, which can be 30 s old, shows no other instance of"
        f" {app.upper()} that is UP on every server: unless one registered since, its callers will"
        " find none\n"
    )

    code, said, complaints = cli("undrain", one.instance_id)
    assert (code, said, complaints) == (0, f"{app.upper()} {one.instance_id}: UP on 1 server\n", "")
    code, said, complaints = cli("undrain", app)
    assert (code, said.count(": UP on 1 server"), complaints) == (0, 3, "")
    assert list(addresses(eureka, app).values()) == ["UP", "UP", "UP"]
    held = eureka.read(*one.key)
    assert held is not None
    assert not held.is_overridden
    assert cli("undrain", app)[0] == 0  # there is nothing to take back
    assert "nothing of" in cli("drain", app, "--self-registered")[2]


def test_what_is_not_there_is_reported_in_one_sentence(unique_name: str, cli: Cli) -> None:
    """The sentence names the missing application or instance, and similar names."""
    for command in ("drain", "undrain"):
        code, said, complaints = cli(command, f"{unique_name}-not")
        assert (code, said, len(complaints.splitlines())) == (1, "", 1)
        assert f"neither an application nor an instance {unique_name}-not" in complaints
    assert (
        "--connection legacy: there is none; there are default"
        in cli("drain", "x", "--connection", "legacy")[2]
    )


def test_a_server_that_is_away_leaves_it_unsafe(lab: Lab, eureka: Peers, unique_name: str, cli: Cli) -> None:
    """Drain sets the status at the servers that answer, names the others, and ends with another exit code."""
    Writer(eureka).register(Instance(unique_name, f"it.{unique_name}", "192.0.2.1", "192.0.2.1", Port(8080)))
    away = f"{lab.eureka_urls[0]},http://127.0.0.1:9/eureka"
    code, said, complaints = cli("drain", f"it.{unique_name}", *FAST, url=away)
    assert code == 1
    assert "OUT_OF_SERVICE on 1 server\n" in said
    assert "safe:" not in said
    assert "not safe: not known what callers of http://127.0.0.1:9/eureka find" in complaints
    code, said, complaints = cli("undrain", f"it.{unique_name}", url=away)
    assert code == 1
    assert ": UP on 1 server\n" in said
    assert "http://127.0.0.1:9/eureka did not answer and may keep the status" in complaints
