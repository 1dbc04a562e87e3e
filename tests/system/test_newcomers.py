"""A newcomer with the package and the documentation gets a Service into Eureka by at most ten commands.

The commands are those of the start pages, as written. Each newcomer begins in an empty directory, with an
installed wheel and none of the repository's files. Two things are replaced. The wheel is built here, since
none is published, and its requirements come from the tests' environment. Where a page runs the operator's
image, the operator runs as a process, since the lab's nodes start no containers.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import NAMESPACES
from lab import Lab
from lab.programs import HELM, HELM_4, find_kubectl, provide
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from scripts.blocks import blocks
from scripts.release import manifest
from tests.system.conftest import addresses, end_syncers, run_commands
from tests.system.stacks import ROOT, UV, needs_kubectl, needs_pulumi, needs_yaml, own_pulumi

pytestmark = [pytest.mark.lab, needs_kubectl]

START = ROOT / "docs" / "start"
CHANGE_URL, UPGRADE, UNINSTALL = (
    ROOT / "docs" / "guides" / f"{name}.md" for name in ("change-url", "upgrade", "uninstall")
)
DEPLOYED = "kubectl get deployment eurekube-operator --namespace eurekube-system -o yaml\n"
MOST_COMMANDS = 10


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as it would be published."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


class Newcomer:
    """A newcomer in an empty directory, who follows one page of the documentation."""

    def __init__(self, page: str, folder: Path, lab: Lab, wheel: Path) -> None:
        kubectl = find_kubectl()
        assert kubectl is not None
        self.folder = folder
        self.scripts = [block.script() for block in blocks(START / page) if block.script()]
        self.programs = [block.text for block in blocks(START / page) if block.language == "python"]
        self.url = ",".join(lab.eureka_urls)
        self._wheel = wheel
        own = own_pulumi(folder.parent)
        del own["PYTHONPATH"]
        self.environment = {
            **own,
            "KUBECONFIG": str(lab.kubeconfig),
            "PATH": os.pathsep.join([str(kubectl.parent), str(Path(sys.executable).parent), own["PATH"]]),
            "WEB_ADDRESS": "127.0.0.1:0",
        }

    @property
    def commands(self) -> int:
        """The number of commands on the page; a command over several lines counts once."""
        text = re.sub(r"<<'(\w+)'\n.*?\n\1\n", "\n", "".join(self.scripts), flags=re.DOTALL)
        lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
        return len(lines)

    def with_lab_urls(self, text: str) -> str:
        """Return a text of the page with this lab's Eureka URL."""
        return text.replace("http://eureka:8761/eureka", self.url)

    def installed(self, venv: str) -> str:
        """Return the commands that install the wheel into a virtual environment without the public index."""
        libraries = sysconfig.get_path("purelib")
        by_pip = f"{sys.executable} -m pip --python {venv}/bin/python install"
        install = f"{UV} pip install --python {venv}/bin/python" if UV.exists() else by_pip
        return (
            f"{install} --quiet --no-index --no-deps {shlex.quote(str(self._wheel))}\n"
            f"echo {shlex.quote(libraries)} > "
            f'"$({venv}/bin/python -c "import sysconfig as a; print(a.get_path(\'purelib\'))")/others.pth"\n'
        )

    def types(self, script: str) -> str:
        """Run a script; return its output."""
        return run_commands(script, self.folder, self.environment)

    @contextmanager
    def running(self, script: str) -> Iterator[None]:
        """Run a script in the background while the block runs, and end it by Ctrl-C."""
        with (self.folder.parent / "running.log").open("w") as log:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGINT)
                process.wait(timeout=30)


def rating(cluster: Cluster) -> None:
    """Create the Service that every page names, with two pods."""
    cluster.namespace("shop")
    cluster.deployment("shop", "rating", 2)
    cluster.service("shop", "rating")
    wait_for(lambda: cluster.is_settled("shop", "rating", 2), "endpoints")


def empty(tmp_path: Path) -> Path:
    """Create an empty directory for the newcomer."""
    folder = tmp_path / "newcomer"
    folder.mkdir()
    return folder


def test_a_newcomer_sees_the_demo(lab: Lab, wheel: Path, tmp_path: Path) -> None:
    """docs/start/demo.md: the demo of the installed wheel runs from start to end."""
    one = Newcomer("demo.md", empty(tmp_path), lab, wheel)
    assert one.commands <= MOST_COMMANDS
    (script,) = one.scripts
    prepared, _, rest = script.partition("pip install ")
    assert rest == "'eurekube-provider[demo]'\neurekube demo\n"
    one.types(prepared + one.installed("eurekube"))
    reported = one.types(prepared.splitlines()[-1] + "\neurekube demo\n")
    assert "demo passed: 13 checks" in reported


def test_a_newcomer_with_pip(lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, tmp_path: Path) -> None:
    """docs/start/pip.md: an operator in a terminal registers the pods, and deregisters them."""
    end_syncers(cluster)
    rating(cluster)
    one = Newcomer("pip.md", empty(tmp_path), lab, wheel)
    assert one.commands <= MOST_COMMANDS
    install, resources, syncer, run, look = one.scripts
    prepared, _, rest = install.partition("pip install ")
    assert rest == "eurekube-operator\n"
    one.types(prepared + one.installed("eurekube"))
    activate = prepared.splitlines()[-1] + "\n"
    assert str(one.folder) in one.types(activate + "command -v eurekube")
    one.types(activate + resources + syncer)
    check, forever = (
        one.with_lab_urls(run).rsplit("\n", 2)[0] + "\n",
        one.with_lab_urls(run).rsplit("\n", 2)[1],
    )
    one.types(activate + check)
    export = check.splitlines()[0] + "\n"
    ready = dict.fromkeys(cluster.ready_addresses("shop", "rating"), "UP")
    with one.running(f"{activate}{export}exec {forever}"):
        wait_for(lambda: ready.items() <= addresses(eureka, "rating").items(), "the pods in Eureka", 60.0)
        wait_for(lambda: "2/2" in one.types(activate + look), "the status", 30.0)
        one.types("kubectl delete eurekasyncer rating --namespace shop --timeout=60s")
        assert not addresses(eureka, "rating").keys() & ready.keys()


def test_a_newcomer_with_kubectl(
    lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, tmp_path: Path
) -> None:
    """docs/start/kubectl.md, and the pages about another URL, an upgrade and removal: no instance is left."""
    rating(cluster)
    one = Newcomer("kubectl.md", empty(tmp_path), lab, wheel)
    assert one.commands <= MOST_COMMANDS
    (one.folder / "install.yaml").write_text(manifest())
    eureka_is, install, syncer, look = one.scripts
    one.types(one.with_lab_urls(eureka_is) + install)
    one.types("python3 -m venv --without-pip eurekube\n" + one.installed("eurekube"))
    assert one.url in one.types(DEPLOYED)
    ready = dict.fromkeys(cluster.ready_addresses("shop", "rating"), "UP")
    with one.running(in_place_of_the_pods(one)):
        one.types(syncer)
        assert ready.items() <= addresses(eureka, "rating").items()
        wait_for(lambda: "2/2" in one.types(look), "the status", 30.0)
        # Another Eureka beside the first one.
        _, file, kustomization = (block.text for block in blocks(CHANGE_URL) if block.language == "yaml")
        (one.folder / "operator.yaml").write_text(file)
        old = kustomization.replace("http://eureka-old:8761/eureka", one.url)
        (one.folder / "kustomization.yaml").write_text(old)
        (upgrade,) = (block.script() for block in blocks(UPGRADE) if "apply --server-side" in block.text)
        assert "/etc/eurekube-settings/operator.yaml" in one.types(upgrade + DEPLOYED)
        one.types("kubectl delete eurekasyncer rating --namespace shop --timeout=60s")
        assert not addresses(eureka, "rating").keys() & ready.keys()
    (end,) = (block.script() for block in blocks(UNINSTALL) if "delete namespace" in block.text)
    one.types(end)
    left = one.types("kubectl get clusterroles,clusterrolebindings,namespaces -o name")
    assert not re.findall(r"\S*eurekube-system\S*", left)


def in_place_of_the_pods(one: Newcomer) -> str:
    """Return the command that runs the operator beside the cluster, with the Lease of the operator that is
    installed in it.
    """
    return (
        f"exec env EUREKA_URL={one.url} eurekube/bin/python -m eurekube_provider.operator"
        " --watch-namespace shop --lease-namespace eurekube-system"
    )


@pytest.mark.pulumi
@needs_pulumi
def test_a_newcomer_with_pulumi(
    lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, tmp_path: Path
) -> None:
    """docs/start/pulumi.md: one program creates operator, syncer and registration, and removes them."""
    rating(cluster)
    one = Newcomer("pulumi.md", empty(tmp_path), lab, wheel)
    assert one.commands <= MOST_COMMANDS
    project, install, configure, deploy = one.scripts
    one.types(project)
    one.folder = one.folder / "shop-stack"
    assert install.startswith("pulumi install\n")
    one.types(f"{sys.executable} -m venv --without-pip venv\n" + one.installed("venv"))
    one.types(install.removeprefix("pulumi install\n") + one.with_lab_urls(configure))
    (program,) = one.programs
    first, *others = one.url.split(",")
    urls = '", "'.join([first, *others])
    (one.folder / "__main__.py").write_text(program.replace("http://eureka:8761/eureka", urls))
    one.types(deploy)
    run_and_destroy(one, cluster, eureka, "venv")


@pytest.mark.pulumi
@needs_pulumi
@needs_yaml
def test_a_newcomer_with_the_native_provider(
    lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, tmp_path: Path
) -> None:
    """docs/start/pulumi-native.md: a YAML program does the same, with the plugin that the package
    installs.
    """
    rating(cluster)
    one = Newcomer("pulumi-native.md", empty(tmp_path), lab, wheel)
    assert one.commands <= MOST_COMMANDS
    install, program, configure, deploy = one.scripts
    prepared, _, rest = install.partition("pip install ")
    assert rest == "'eurekube-provider[kubernetes]'\n"
    one.types(prepared + one.installed("eurekube"))
    activate = prepared.partition("&& ")[2]
    assert "/newcomer/eurekube/bin" in one.types(activate + "command -v pulumi-resource-eurekube")
    urls = '", "'.join(one.url.split(","))
    one.types(program.replace("http://eureka:8761/eureka", urls))
    one.types(activate + one.with_lab_urls(configure) + deploy)
    run_and_destroy(one, cluster, eureka, "eurekube", activate)


def run_and_destroy(one: Newcomer, cluster: Cluster, eureka: Peers, venv: str, prepared: str = "") -> None:
    """Run the operator, check that pods and registration are in Eureka, and destroy the stack."""
    # Other tests have applications of these names in this Eureka.
    assert addresses(eureka, "billing").get("192.0.2.10") == "UP"
    ready = dict.fromkeys(cluster.ready_addresses("shop", "rating"), "UP")
    container = (
        f"exec env EUREKA_URL={one.url} {venv}/bin/python -m eurekube_provider.operator"
        " --watch-namespace shop --lease-namespace default"
    )
    with one.running(container):
        wait_for(lambda: ready.items() <= addresses(eureka, "rating").items(), "the pods in Eureka", 60.0)
        # Other tests have syncers in this cluster, for whose sake a destroy is refused.
        one.types(f"{prepared}EUREKUBE_FORCE_DESTROY=true pulumi destroy --yes")
        left = addresses(eureka, "rating") | addresses(eureka, "billing")
        assert not left.keys() & {"192.0.2.10", *ready}


@pytest.mark.skipif(
    not (ROOT / "charts" / "eurekube" / "Chart.yaml").is_file(), reason="this tree has no chart"
)
def test_a_newcomer_with_helm(lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, tmp_path: Path) -> None:
    """docs/start/helm.md: a packaged chart installs the operator, which registers the pods."""
    rating(cluster)
    one = Newcomer("helm.md", empty(tmp_path), lab, wheel)
    assert one.commands <= MOST_COMMANDS
    helm = provide([HELM])[HELM]
    one.environment["PATH"] = os.pathsep.join([str(helm.parent), one.environment["PATH"]])
    packed = tmp_path / "packed"
    subprocess.run(
        [helm, "package", ROOT / "charts" / "eurekube", "-d", packed], check=True, capture_output=True
    )
    (chart,) = packed.glob("*.tgz")
    install, syncer, look = one.scripts
    assert "oci://ghcr.io/eurekube/charts/eurekube" in install
    # The lab has the CRDs already, which are nobody's.
    ownership = f"{chart} --take-ownership"
    one.types(one.with_lab_urls(install).replace("oci://ghcr.io/eurekube/charts/eurekube", ownership))
    one.types("python3 -m venv --without-pip eurekube\n" + one.installed("eurekube"))
    ready = dict.fromkeys(cluster.ready_addresses("shop", "rating"), "UP")
    with one.running(in_place_of_the_pods(one)):
        one.types(syncer)
        assert ready.items() <= addresses(eureka, "rating").items()
        wait_for(lambda: "2/2" in one.types(look), "the status", 30.0)
        one.types("kubectl delete eurekasyncer rating --namespace shop --timeout=60s")
        assert not addresses(eureka, "rating").keys() & ready.keys()
    one.types("helm uninstall eurekube --namespace eurekube-system --no-hooks --wait")


@pytest.mark.parametrize("program", [HELM, HELM_4])
def test_helm_goes_on_with_what_kubectl_installed(
    program: str, lab: Lab, cluster: Cluster, wheel: Path, tmp_path: Path
) -> None:
    """docs/start/kubectl.md: without the documented flag helm refuses objects that kubectl made, and with
    it takes them over.
    """
    one = Newcomer("kubectl.md", empty(tmp_path), lab, wheel)
    (one.folder / "install.yaml").write_text(manifest())
    one.types(one.with_lab_urls("".join(one.scripts[:2])))
    helm, chart = provide([program])[program], ROOT / "charts" / "eurekube"
    before = cluster.get(DEPLOYMENTS, "eurekube-operator", "eurekube-system") or {}
    install, *_ = (block.script() for block in blocks(START / "helm.md") if block.script())
    command = one.with_lab_urls(install).replace("oci://ghcr.io/eurekube/charts/eurekube", str(chart))
    command = command.replace("helm install", f"{helm} install")
    with pytest.raises(AssertionError, match="exists and cannot be imported into the current release"):
        one.types(command)
    one.types(command.replace(str(chart), f"{chart} {' '.join(OWNERSHIP[program])}"))
    after = cluster.get(DEPLOYMENTS, "eurekube-operator", "eurekube-system") or {}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    one.types(f"{helm} uninstall eurekube --namespace eurekube-system --no-hooks --wait")
    cluster.delete(NAMESPACES, "eurekube-system")
    wait_for(lambda: cluster.get(NAMESPACES, "eurekube-system") is None, "the namespace to go")


OWNERSHIP = {HELM: ["--take-ownership"], HELM_4: ["--take-ownership", "--force-conflicts"]}
"""The flags by which each version of helm takes over objects that kubectl made."""
