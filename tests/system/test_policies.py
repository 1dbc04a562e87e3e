"""The example's policy pack stops an update by either provider before anything is registered."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from eurekube_provider.eureka.protocol.peer import Peer
from tests.system.shells import ProviderStack, Shell, Workshop, held
from tests.system.stacks import ROOT, needs_language_host, needs_pulumi

pytestmark = [
    pytest.mark.lab,
    pytest.mark.pulumi,
    pytest.mark.slow,
    needs_pulumi,
    needs_language_host("runs the policy pack"),
]


@pytest.fixture(scope="module")
def pack(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the policy pack as its README says, in an environment of its own because it needs an older
    protobuf.
    """
    found = tmp_path_factory.mktemp("pack") / "policies"
    shutil.copytree(ROOT / "examples" / "policies", found)
    done = subprocess.run(
        ["pulumi", "install"],
        cwd=found,
        env=workshop.environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return found


def test_a_policy_stops_a_registration(
    shell: Shell, workshop: Workshop, pack: Path, plain_url: str, plain: Peer
) -> None:
    """The policy names the offending instance and the property to set; a valid program registers."""
    stack = ProviderStack(workshop, f"policies-{shell.name}", {"url": plain_url})
    judged = ("--policy-pack", str(pack), "--policy-pack-config", str(pack / "config.json"))
    good = {"drain_seconds": 1, "zone": "zone-a"}

    stack.wants(shell.one("other"))
    output = stack.up(*judged, fails=True)
    for each in ("set drainSeconds", "set zone", "the application 'other' is not in the list"):
        assert each in output, output
    stack.wants(shell.many("rating", {"a": {"host_name": "192.0.2.1"}}, drain_seconds=1))
    output = stack.up(*judged, fails=True)
    assert "a: set zone" in output, output
    assert (held(plain, "other"), held(plain, "rating")) == ({}, {})
    stack.wants(
        shell.one("billing", **good),
        shell.many("rating", {"a": {"host_name": "192.0.2.1", "zone": "zone-a"}}, drain_seconds=1),
    )
    stack.up(*judged)
    assert set(held(plain, "billing")) == {"billing"}
    stack.destroy()
