"""A process that is killed before or after any write to a real ZooKeeper does no harm.

SIGKILL reaches the process between two requests. Wanted registrations stand at each moment, and the next
leader completes the work.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eurekube_provider.zookeeper.codec import encode_node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from eurekube_provider.zookeeper.writer import instance_path
from lab.ports import HOST
from lab.zookeeper import ZooKeeperEnsemble
from lab.zookeeper_proxy import KillAtWrite, WriteMoment, WriteReportingProxy
from tests.contract.zookeeper_killed import OWNER, WORKS, instance, lead

pytestmark = [pytest.mark.lab, pytest.mark.real_server("ZooKeeper runs on Java")]

MOST_WRITES = 20
THEIRS = instance("theirs", owner=None, vip_address="Theirs")


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Start one ZooKeeper server."""
    with ZooKeeperEnsemble() as made:
        yield made


def worked(url: str, root: str, work: str, killer: KillAtWrite) -> None:
    """Run a process with one task until it ends or is killed."""
    with WriteReportingProxy(int(url.rpartition(":")[2]), killer.kill_at_chosen_write) as proxy:
        words = [
            sys.executable,
            "-m",
            "tests.contract.zookeeper_killed",
            f"zookeeper://{HOST}:{proxy.port}{root}",
        ]
        process = subprocess.Popen([*words, work], cwd=Path(__file__).parents[2])
        killer.process_id = process.pid
        code = process.wait(timeout=60)
    assert code == (-signal.SIGKILL if killer.killed else 0), work


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("moment", WriteMoment)
def test_a_process_that_is_killed_at_a_write_costs_nothing(
    ensemble: ZooKeeperEnsemble, unique_name: str, work: str, moment: WriteMoment
) -> None:
    """Whichever write it was, no wanted instance was missing, and no node of others was changed."""
    before, wanted = WORKS[work]
    stays = {one.instance_id for one in before} & {one.instance_id for one in wanted}
    killed = []
    for at in range(1, MOST_WRITES):
        root = f"/{unique_name}-{at}"
        servers = ZooKeeperServers(ZooKeeperConnection.from_settings({"url": ensemble.url + root}.get))
        servers.connect()
        try:
            for one in (*before, THEIRS):
                path = instance_path(root, one)
                servers.client.create(path, encode_node(one, 1), makepath=True)
                servers.client.set(path, encode_node(one, 1))
            theirs = servers.client.get(instance_path(root, THEIRS))
            killer = KillAtWrite(at, moment)
            worked(ensemble.url, root, work, killer)
            there = [one.instance for one in servers.read_nodes()]
            assert {one.instance_id for one in there if one.owner} >= stays, killer.killed
            assert [one.unreadable for one in there if one.unreadable] == [], killer.killed
            if killer.killed:
                killed.append(killer.killed)
                lead(ensemble.url + root, work)
            ours = [one for one in servers.read_nodes() if one.instance.owner == OWNER]
            assert sorted(one.path for one in ours) == sorted(instance_path(root, one) for one in wanted), (
                killer.killed
            )
            colors = {one.instance_id: one.metadata.get("color") for one in wanted}
            assert {one.instance.instance_id: one.instance.metadata.get("color") for one in ours} == colors
            assert all(one.version > 0 for one in ours)
            assert servers.client.get(instance_path(root, THEIRS)) == theirs
            if not killer.killed:
                break
        finally:
            servers.close()
    assert len(killed) == len(killer.writes) > 1, killed
