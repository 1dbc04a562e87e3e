"""The operator's web server on real servers: its pages and metrics are true."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import SYNCERS
from lab import Lab
from lab.ports import HOST
from lab.proxy import Proxy
from lab.workloads import Cluster, wait_for
from tests.system.conftest import StartOperator, instances, of_a_machine, running

pytestmark = pytest.mark.lab

WAIT_SECONDS = 60.0


def get(port: int, path: str) -> requests.Response | None:
    """Return the answer to a request; None if nobody listens."""
    try:
        return requests.get(f"http://127.0.0.1:{port}{path}", timeout=10)
    except requests.ConnectionError:
        return None


def status(port: int, path: str) -> int | None:
    """Return the status code of an answer; None if nobody listens."""
    answer = get(port, path)
    return None if answer is None else answer.status_code


def page(port: int, path: str) -> str:
    """Return the text of an answer, which must be a success."""
    answer = get(port, path)
    assert answer is not None
    assert answer.status_code == 200, answer.text
    return answer.text


def document(port: int, query: str = "") -> dict[str, Any]:
    """Return the content of ``/status.json``."""
    answer = get(port, f"/status.json{query}")
    assert answer is not None
    result: dict[str, Any] = answer.json()
    return result


def metrics(port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return all samples of the metrics, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page(port, "/metrics"))
        for sample in family.samples
    }


def listening_port(log: str) -> int | None:
    """Return the port on which the operator's log says that it listens."""
    found = re.search(r'"web server listens, serving health and metrics", "port": (\d+)', log)
    return int(found[1]) if found else None


def test_tells_what_is_in_eureka(
    cluster: Cluster, eureka: Peers, lab: Lab, namespace: str, start_operator: StartOperator
) -> None:
    """The operator is ready once it has read everything, counts as Eureka does, shows both sides of a
    conflict, and drops it when it ends.
    """
    good, taken = f"{namespace}-good", f"{namespace}-taken"
    for name, replicas in ((good, 3), (taken, 1)):
        running(cluster, namespace, name, replicas)
    foreign = of_a_machine(cluster, namespace, taken, "lab")
    Writer(eureka).register(foreign)
    operator = start_operator("--cluster-name", "lab", "--web-address", "127.0.0.1:0")
    port = wait_for(lambda: listening_port(operator.text()), "the web's port", WAIT_SECONDS)
    assert (status(port, "/healthz"), status(port, "/readyz")) == (200, 200)

    for name in (good, taken):
        cluster.apply_syncer(namespace, name)
    is_good = frozenset({("syncer", f"{namespace}/{good}")})
    is_taken = frozenset({("syncer", f"{namespace}/{taken}")})
    # Registered is counted with Eureka's answer, desired with the end of the reconcile that asked for it.
    counted = ("eurekube_registered_instances", "eurekube_desired_instances")
    wait_for(
        lambda: {metrics(port).get((name, is_good)) for name in counted} == {3},
        "3 registered, and the reconcile done",
        WAIT_SECONDS,
    )
    wait_for(
        lambda: metrics(port).get(("eurekube_refused_instances", is_taken)) == 1, "1 refused", WAIT_SECONDS
    )
    samples = metrics(port)
    assert samples["eurekube_registered_instances", is_good] == len(instances(eureka, good))
    assert samples["eurekube_drifted_instances", is_good] == 0
    assert samples["eurekube_registered_instances", is_taken] == 0
    assert samples["eurekube_peer_up", frozenset({("url", lab.eureka_urls[0])})] == 1
    assert samples["eurekube_leader", frozenset()] == 1
    posted = frozenset({("method", "POST"), ("code", "204")})
    assert samples["eurekube_eureka_requests_total", posted] == 3
    assert samples["eurekube_eureka_request_duration_seconds_count", frozenset()] == sum(
        count for (name, _), count in samples.items() if name == "eurekube_eureka_requests_total"
    )

    rows = {row["name"]: row for row in document(port)["syncers"]}
    assert (rows[good]["ready"], rows[taken]["reason"]) == (True, "Conflict")
    (difference,) = rows[taken]["differences"]
    assert difference["instanceId"] == foreign.instance_id
    assert difference["eureka"] == "UP 192.0.2.18:8080"
    registered = {row["instanceId"] for row in document(port)["changes"] if row["action"] == "registered"}
    assert registered == {one.instance_id for one in instances(eureka, good)}
    assert [row["name"] for row in document(port, f"?application={good}")["syncers"]] == [good]
    text = page(port, "/")
    assert "Conflict" in text
    assert foreign.instance_id in text
    wait_for(
        lambda: document(port)["eurekas"][0]["servers"][0]["renewalsThreshold"] is not None,
        "the server's own figures",
        WAIT_SECONDS,
    )

    cluster.delete(SYNCERS, good, namespace)
    wait_for(
        lambda: ("eurekube_desired_instances", is_good) not in metrics(port),
        "the deleted syncer's labels to go",
        WAIT_SECONDS,
    )
    wait_for(
        lambda: not any(is_good <= labels for _, labels in metrics(port)), "no figure of it", WAIT_SECONDS
    )
    assert f"{namespace}/{good}" not in {
        f"{row['namespace']}/{row['name']}" for row in document(port)["syncers"]
    }


def test_ready_only_after_eureka_was_read(lab: Lab, start_operator: StartOperator) -> None:
    """An operator that starts without Eureka is live but not ready, and ready once Eureka answers."""
    with Proxy(lab.eurekas[0].port) as front:
        front.refuse()
        eureka_url = f"http://{HOST}:{front.port}/eureka"
        operator = start_operator(EUREKA_URL=eureka_url, WEB_ADDRESS="127.0.0.1:0", ready=False)
        port = wait_for(lambda: listening_port(operator.text()), "the web's port", WAIT_SECONDS)
        wait_for(
            lambda: "the Eureka" in (getattr(get(port, "/readyz"), "text", "")),
            "what is missing",
            WAIT_SECONDS,
        )
        assert (status(port, "/healthz"), status(port, "/readyz")) == (200, 503)
        url = frozenset({("url", eureka_url)})
        wait_for(
            lambda: metrics(port).get(("eurekube_peer_up", url)) == 0, "the server to be away", WAIT_SECONDS
        )
        front.heal()
        wait_for(lambda: status(port, "/readyz") == 200, "ready", WAIT_SECONDS)
        assert status(port, "/healthz") == 200
        assert metrics(port)["eurekube_peer_up", url] == 1


def test_a_taken_port_ends_it(start_operator: StartOperator) -> None:
    """If its address is taken, the operator names it and exits with 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        operator = start_operator("--web-address", f"127.0.0.1:{port}", ready=False)
        assert operator.process.wait(timeout=60) == 1
    assert f"--web-address: the operator cannot listen on 127.0.0.1:{port}" in operator.text()
