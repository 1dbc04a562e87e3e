"""The operator's chart on a real API server: installed, upgraded from the version before, and uninstalled.

No kubelet runs here. The operator and the guard of the uninstallation run as processes, with the arguments,
variables and rights that the chart gives to their pods.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, NAMESPACES, PODS, SYNCERS, ApiResource
from lab import Lab
from lab.programs import HELM, HELM_4, provide_programs
from lab.workloads import Cluster, wait_for
from tests.system.conftest import ROOT, addresses, operator_environment, run_as_pod
from tests.system.operator_objects import CHART

pytestmark = pytest.mark.lab

DEPLOYMENTS = ApiResource("apps", "v1", "deployments")
CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
ACCOUNT = "eurekube-operator"
BEFORE_THE_FIRST_TAG = "f7c3d33"
Helm = Callable[..., str]


@pytest.fixture
def helm(lab: Lab, tmp_path: Path) -> Helm:
    """Return a function that runs helm 3 or 4 against the lab's cluster, with a home of its own, and
    returns the output.
    """
    programs = provide_programs([HELM, HELM_4])
    environment = {"HOME": str(tmp_path), "KUBECONFIG": str(lab.kubeconfig)}

    def run(*arguments: str, fails: bool = False, program: str = HELM) -> str:
        done = subprocess.run(
            [programs[program], *arguments], env=environment, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def former_chart(helm: Helm, tmp_path: Path) -> Path:
    """Package the chart of the last release; before the first release, the first complete chart.

    If git's history is missing, today's chart is packaged under an earlier version.
    """
    tags = git("tag", "--list", "v*", "--sort=-version:refname", "--merged", "HEAD").decode().split()
    former = tmp_path / "former"
    if tree := git("archive", tags[0] if tags else BEFORE_THE_FIRST_TAG, "charts/eurekube"):
        with tarfile.open(fileobj=io.BytesIO(tree)) as archive:
            archive.extractall(former, filter="data")
    else:
        shutil.copytree(CHART, former / "charts" / "eurekube")
    # Another version than today's also where nothing was released yet.
    version = () if tags and tree else ("--version", "0.0.9", "--app-version", "0.0.9")
    packed = tmp_path / "packed"
    helm("package", str(former / "charts" / "eurekube"), "--destination", str(packed), *version)
    (chart,) = packed.glob("*.tgz")
    return chart


def git(*words: str) -> bytes:
    """Run git, and return its output; empty if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True)
    return b"" if done.returncode else done.stdout


@contextmanager
def guard_kubelet(cluster: Cluster, home: str, environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run the guard's pod as a process, and report its end to the API, as a kubelet does."""
    ended = threading.Event()
    done: set[str] = set()

    def look() -> None:
        while not ended.wait(0.2):
            for pod in cluster.items(PODS, home, **{"app.kubernetes.io/name": "eurekube-uninstall-guard"}):
                uid = pod["metadata"]["uid"]
                if uid in done:
                    continue
                done.add(uid)
                code = run_as_pod(pod, environment, log).process.wait(timeout=60)
                cluster.access.request(
                    "PATCH",
                    PODS.path(home, pod["metadata"]["name"], "status"),
                    body={"status": {"phase": "Failed" if code else "Succeeded"}},
                    content_type=MERGE_PATCH_TYPE,
                )

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_installed_upgraded_and_uninstalled(
    lab: Lab,
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    helm: Helm,
    former_chart: Path,
    tmp_path: Path,
) -> None:
    """An uninstallation is refused while syncers exist; without any it ends, and the CRDs stay.

    Helm 3 installs the release, and helm 4 uninstalls it.
    """
    home, app = f"{namespace}-home", f"{namespace}-app"
    values = tmp_path / "values.yaml"
    values.write_text(
        yaml.safe_dump(
            {
                "eurekaUrls": list(lab.eureka_urls),
                "watchNamespaces": [namespace],
                "operatorName": namespace,
                "environment": {"RESYNC_SECONDS": "2"},
                "nodeSelector": {"runs": "here-as-a-process"},
            }
        )
    )
    where = ("--namespace", home)
    # The lab's CRDs are there already; of nobody.
    helm(
        "install", "eurekube", str(former_chart), *where, "--create-namespace", "--values", str(values),
        "--take-ownership",
    )  # fmt: skip
    before = cluster.get(DEPLOYMENTS, ACCOUNT, home)
    assert before is not None
    kubeconfig = lab.service_account_kubeconfig(home, ACCOUNT, tmp_path / "account")
    environment = operator_environment(lab, namespace, POD_NAMESPACE=home, KUBECONFIG=str(kubeconfig))
    operator = run_as_pod(before["spec"]["template"], environment, tmp_path / "operator.log")
    try:
        operator.wait_ready()
        cluster.apply_deployment(namespace, app, 1)
        cluster.apply_service(namespace, app)
        cluster.apply_syncer(namespace, app)
        wait_for(lambda: list(addresses(eureka, app).values()) == ["UP"], "an instance")

        helm("upgrade", "eurekube", str(CHART), *where, "--reuse-values")
        after = cluster.get(DEPLOYMENTS, ACCOUNT, home)
        assert after is not None
        image = after["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image != before["spec"]["template"]["spec"]["containers"][0]["image"]
        assert "WATCH_NAMESPACE" in str(after["spec"]["template"])
        assert len(addresses(eureka, app)) == 1

        log = tmp_path / "guard.log"
        with guard_kubelet(cluster, home, environment, log):
            said = helm("uninstall", "eurekube", *where, fails=True)
            assert "eurekube-uninstall-guard" in said
            assert f"still needed by EurekaSyncer {namespace}/{app}" in log.read_text()
            assert cluster.get(DEPLOYMENTS, ACCOUNT, home) is not None
            # Helm leaves the release in a state that no upgrade takes, and this is the way out of it.
            assert "STATUS: uninstalling" in helm("status", "eurekube", *where)
            helm("rollback", "eurekube", "2", *where)
            assert "STATUS: deployed" in helm("status", "eurekube", *where)
            # Anyone who moves on to helm 4 meanwhile goes on with the same release.
            helm("upgrade", "eurekube", str(CHART), *where, "--reuse-values", program=HELM_4)
            assert len(addresses(eureka, app)) == 1

            cluster.delete(SYNCERS, app, namespace)
            wait_for(lambda: cluster.get(SYNCERS, app, namespace) is None, "the syncer's release")
            assert addresses(eureka, app) == {}
            helm("uninstall", "eurekube", *where, program=HELM_4)
    finally:
        operator.stop()
        sys.stdout.write(operator.text())
    assert cluster.get(DEPLOYMENTS, ACCOUNT, home) is None
    assert cluster.get(CRDS, "eurekasyncers.eurekube.io") is not None
    for name in (home, namespace):
        cluster.delete(NAMESPACES, name)
        wait_for(lambda name=name: cluster.get(NAMESPACES, name) is None, name)  # type: ignore[misc]
