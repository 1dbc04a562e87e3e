"""``eurekube keepalive`` as a process of its own: it renews stacks' registrations where there is no
Kubernetes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.lifecycle import create
from eurekube_provider.registrations.property_check import check
from lab import Lab
from lab.workloads import wait_for
from tests.system.conftest import ROOT, renewed_at

pytestmark = pytest.mark.lab


@pytest.fixture
def peers(lab: Lab) -> Iterator[Peers]:
    """Return a client of the lab's Eureka server."""
    made = Peers(Connection.parse(lab.eureka_urls))
    yield made
    made.close()


def registered(peers: Peers, name: str, renewer: str) -> Instance:
    """Register an instance of a stack that is to be renewed every second."""
    checked = check(
        {},
        {
            "application": name,
            "host_name": "192.0.2.10",
            "port": 8080,
            "renewal_interval_seconds": 1,
            "renewer": renewer,
            "service_url": peers.peers[0].url,
            "owner": f"stack/organization/shop/dev/{name}",
        },
    )
    (made,) = create(DesiredState.from_properties(checked.properties), peers).owned.values()
    return made


def test_it_renews_what_names_it_and_removes_nothing(peers: Peers, tmp_path: Path) -> None:
    """Keepalive renews the registrations that name its renewer until SIGTERM, and neither renews nor
    removes others.
    """
    ours, theirs = registered(peers, "ours", "night"), registered(peers, "theirs", "day")
    before, untouched = renewed_at(peers, ours), renewed_at(peers, theirs)
    foreign = ("EUREKA_", "OPERATOR_", "LOG_")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    log = tmp_path / "keepalive.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "eurekube_provider.cli.main", "keepalive", "--operator-name", "night"],
            env={**clean, "PYTHONPATH": str(ROOT), "EUREKA_URL": peers.peers[0].url, "RESYNC_SECONDS": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        # The first renewal comes with the adoption, the second one an interval later.
        for _ in range(2):
            last = before
            wait_for(lambda last=last: renewed_at(peers, ours) > last, "renewal", 60.0)  # type: ignore[misc]
            before = renewed_at(peers, ours)
        later = registered(peers, "later", "night")
        registered_at = renewed_at(peers, later)
        wait_for(lambda: renewed_at(peers, later) > registered_at, "what came later", 60.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "deregistering nothing" in log.read_text()
    assert peers.read(*ours.key) is not None
    assert untouched == renewed_at(peers, theirs)
    for each in (ours, theirs, later):
        Writer(peers).remove(each)


def test_it_does_not_start_without_a_url() -> None:
    """Without a URL keepalive ends with one sentence that says what to set."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("EUREKA_")}
    done = subprocess.run(
        [sys.executable, "-m", "eurekube_provider.cli.main", "keepalive"],
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("eurekube: no Eureka URL is configured: set --eureka-url or EUREKA_URL")
