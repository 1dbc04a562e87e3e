"""An upgrade of the operator from the last release, and the downgrade, cost no registration.

The last release is the newest tag; before the first tag it is the commit whose stack states are kept as 0.1.0
in `tests/states`. Its wheel is built from the repository's history; without that history the test is skipped.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from lab.workloads import Cluster, wait_for
from tests.system.conftest import ROOT, StartOperator, addresses, instances, renewed_at

pytestmark = pytest.mark.lab

BEFORE_THE_FIRST_TAG = "13069c2"


def git(*words: str) -> bytes:
    """Run git, and return its output; skip the test if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip(f"the last release is not in this clone: {done.stderr.decode().strip()}")
    return done.stdout


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the unpacked wheel of the last release."""
    folder = tmp_path_factory.mktemp("last-release")
    tags = git("tag", "--list", "v*", "--sort=-version:refname", "--merged", "HEAD").decode().split()
    with tarfile.open(fileobj=io.BytesIO(git("archive", tags[0] if tags else BEFORE_THE_FIRST_TAG))) as tree:
        tree.extractall(folder / "tree", filter="data")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=folder / "tree",
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder / "wheel", "zip")
    return folder / "wheel"


def test_an_upgrade_of_the_operator_and_its_way_back(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator, last_release: Path
) -> None:
    """Each version takes the Lease over from the other, changes no instance, and goes on with the
    registrations.
    """
    service = f"{namespace}-app"
    before = {"PYTHONPATH": str(last_release), "PYTHONSAFEPATH": "1"}

    def has(count: int) -> bool:
        ready = cluster.ready_addresses(namespace, service)
        return len(ready) == count and addresses(eureka, service) == dict.fromkeys(ready, "UP")

    def registered() -> dict[str, Instance]:
        return {one.instance_id: one for one in instances(eureka, service)}

    cluster.apply_deployment(namespace, service, 3)
    cluster.apply_service(namespace, service)
    cluster.apply_syncer(namespace, service)
    old = start_operator(**before)
    wait_for(lambda: has(3), "what the last release registers", 60.0)
    released = registered()

    def hands_over(leaves: str, count: int) -> None:
        """Check that the next operator leads: instances are unchanged and renewed, and new pods are
        registered.
        """
        stood, now = registered(), time.time()
        cluster.scale(namespace, service, count)
        wait_for(lambda: has(count), f"a change after {leaves} has left", 60.0)
        for instance_id, one in stood.items():
            again = registered()[instance_id]
            assert (again.metadata, again.last_dirty_timestamp_ms) == (
                one.metadata,
                one.last_dirty_timestamp_ms,
            )
        wait_for(
            lambda: all(renewed_at(eureka, one) >= now for one in registered().values()),
            f"renewals after {leaves} has left",
            60.0,
        )

    new = start_operator()
    assert old.stop() == 0
    hands_over("the last release", 4)
    again = start_operator(**before)
    assert new.stop() == 0
    hands_over("this one", 5)
    assert released.keys() <= registered().keys()
    for operator in (old, new, again):
        assert '"level": "error"' not in operator.text()
