"""The package as a library in a user's program: examples/foreign, on real servers, installed from a wheel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import eurekube_provider
from eurekube_provider.eureka.peers import Peers
from lab import Lab
from lab.workloads import Cluster
from tests.system.conftest import ROOT, addresses, running
from tests.system.stacks import Example, needs_pulumi, own_pulumi

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi]

PLAIN = """
from eurekube_provider import get_endpoints
found = get_endpoints(service, namespace, offline=FoundEndpoints(namespace, service))
pulumi.export("plain", [each.address for each in found.ready])
"""


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Build the wheel, and return the folder of its unpacked package."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            str(tmp_path / "dist"),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "released")
    return tmp_path / "released"


def version_of_tomorrow(released: Path) -> Path:
    """Copy the package under a later version, which leaves a file when it is imported."""
    other = released.with_name("tomorrow")
    shutil.copytree(released, other)
    (other / "eurekube_provider" / "version.py").write_text(
        '__version__ = "99.0.0"\nfrom pathlib import Path\nPath(__file__).with_name("used").touch()\n'
    )
    return other


@pytest.mark.timeout(600)  # a dozen runs
def test_a_foreign_program_registers_the_endpoints_it_looks_up(
    lab: Lab, cluster: Cluster, eureka: Peers, namespace: str, tmp_path: Path, released: Path
) -> None:
    """The program registers a Service's endpoints, also if there are none at first; a later version of the
    package continues the state and destroys it.
    """
    stack = Example("foreign", tmp_path, own_pulumi(tmp_path, released))
    service = f"{namespace}-rating"
    stack.init({"eurekube:url": lab.eureka_urls[0], "service": service, "namespace": namespace})

    # A cluster that cannot be asked is an error, unless this is a preview that shall ask nobody.
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(lab.kubeconfig.read_text().replace(f":{api_port(lab)}", ":9"))
    stack.configure({"eurekube:kubeconfig": str(nowhere)})
    said = stack.pulumi("preview", fails=True)
    assert "no answer from the Kubernetes API at https://127.0.0.1:9" in said
    stack.environment["EUREKUBE_OFFLINE"] = "1"
    assert "3 to create" in stack.pulumi("preview")
    assert "no answer from the Kubernetes API" in stack.up(fails=True)  # an update asks all the same
    del stack.environment["EUREKUBE_OFFLINE"]

    # A Service that is not there is an empty answer.
    stack.configure({"eurekube:kubeconfig": str(lab.kubeconfig)})
    stack.up()
    assert addresses(eureka, service) == {}

    pods = running(cluster, namespace, service, 2)
    program = stack.project / "__main__.py"
    program.write_text(program.read_text() + PLAIN)
    stack.refresh("--expect-no-changes")  # which does not run the program
    stack.up()
    assert addresses(eureka, service) == dict.fromkeys(pods, "UP")
    outputs = json.loads(stack.pulumi("stack", "output", "--json"))
    assert sorted(outputs["plain"]) == pods
    assert len(outputs["instanceIds"]) == 2
    stack.environment["EUREKUBE_OFFLINE"] = "1"
    stack.pulumi("preview")
    del stack.environment["EUREKUBE_OFFLINE"]

    tomorrow = version_of_tomorrow(released)
    stack.environment["PYTHONPATH"] = str(tomorrow)
    stack.up("--expect-no-changes")
    stack.refresh("--expect-no-changes")
    assert (tomorrow / "eurekube_provider" / "used").exists()
    exported = stack.pulumi("stack", "export")
    assert "99.0.0" not in exported
    assert f'"{eurekube_provider.__version__}"' not in exported
    (tomorrow / "eurekube_provider" / "used").unlink()
    stack.environment["PYTHONPATH"] = str(released)
    stack.up("--expect-no-changes")
    stack.destroy()
    assert not (tomorrow / "eurekube_provider" / "used").exists()
    assert addresses(eureka, service) | addresses(eureka, f"{service}-legacy") == {}


def api_port(lab: Lab) -> str:
    """Return the port of the lab's API server."""
    (line,) = (line for line in lab.kubeconfig.read_text().splitlines() if "server:" in line)
    return line.rpartition(":")[2].strip()
