"""The demo's stage within this process: objects that it writes as controllers would, and the program that it
deploys.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from eurekube_provider.demo.embedded import EmbeddedStage, program_directory
from eurekube_provider.demo.interruption import InterruptionHandler
from eurekube_provider.demo.stage import APP, NAMESPACE, StoryFailed
from eurekube_provider.kube.access import ENDPOINT_SLICES, NAMESPACES, PODS, KubeAccess

ROOT = Path(__file__).parents[3]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[EmbeddedStage]:
    """Yield a stage with the demo's namespace."""
    with EmbeddedStage(tmp_path, InterruptionHandler()) as running:
        access = KubeAccess.load(running.kubeconfig)
        access.request("POST", NAMESPACES.path(), body={"metadata": {"name": NAMESPACE}})
        yield running


def endpoints(stage: EmbeddedStage) -> list[tuple[str, bool, bool]]:
    """Return address, readiness and termination of each endpoint of the Service."""
    (item,) = KubeAccess.load(stage.kubeconfig).get(ENDPOINT_SLICES.path(NAMESPACE))["items"]
    assert item["metadata"]["labels"] == {"kubernetes.io/service-name": APP}
    conditions = [(one["addresses"][0], one["conditions"]) for one in item["endpoints"]]
    return [(address, each["ready"], each["terminating"]) for address, each in conditions]


def test_pods_and_slice_are_as_controllers_write_them(stage: EmbeddedStage) -> None:
    """Each started pod has an address, a Ready condition and an endpoint in the EndpointSlice."""
    stage.workload.start(2)
    assert endpoints(stage) == [("10.0.0.1", True, False), ("10.0.0.2", True, False)]
    access = KubeAccess.load(stage.kubeconfig)
    first, second = access.get(PODS.path(NAMESPACE), {"labelSelector": f"app={APP}"})["items"]
    assert {one["status"]["podIP"] for one in (first, second)} == {"10.0.0.1", "10.0.0.2"}
    stage.workload.set_ready(first, ready=False)
    assert (first["status"]["podIP"], False, False) in endpoints(stage)
    (condition,) = access.get(PODS.path(NAMESPACE, first["metadata"]["name"]))["status"]["conditions"]
    assert condition == {"type": "Ready", "status": "False"}


def test_rolled_pods_are_new_ones(stage: EmbeddedStage) -> None:
    """A rolling update replaces all pods by as many with new names and addresses."""
    stage.workload.start(2)
    access = KubeAccess.load(stage.kubeconfig)
    before = {one["metadata"]["name"] for one in access.get(PODS.path(NAMESPACE))["items"]}
    stage.workload.roll()
    after = {one["metadata"]["name"] for one in access.get(PODS.path(NAMESPACE))["items"]}
    assert len(after) == 2
    assert not before & after
    assert endpoints(stage) == [("10.0.0.3", True, False), ("10.0.0.4", True, False)]


def test_a_program_that_cannot_be_deployed_is_reported(
    stage: EmbeddedStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed deployment raises StoryFailed with the program's output."""
    program = tmp_path / "program"
    shutil.copytree(ROOT / "stacks", program / "stacks")
    shutil.copy(ROOT / "Pulumi.yaml", program)
    (program / "__main__.py").write_text("import nothing_of_that_name\n")
    monkeypatch.setattr("eurekube_provider.demo.embedded.program_directory", lambda: program)
    with pytest.raises(StoryFailed, match=r"(?s)eurekube apply failed:.*nothing_of_that_name"):
        stage.deploy()


def test_in_a_clone_the_program_is_the_repositorys() -> None:
    """In a clone the demo deploys the repository's own program."""
    assert program_directory() == ROOT
