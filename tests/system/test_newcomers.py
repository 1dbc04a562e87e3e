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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.objects import conditions_of
from eurekube_provider.core.syncer import READINESS_GATE as GATE_NAME
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import NAMESPACES, PODS, SERVICES
from lab import Lab
from lab.programs import HELM, HELM_4, find_kubectl, provide_programs
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from scripts.blocks import find_code_blocks
from scripts.release import install_manifest
from tests.system.conftest import addresses, end_syncers, instances, run_commands
from tests.system.stacks import (
    ROOT,
    UV,
    needs_kubectl,
    needs_kubernetes_plugin,
    needs_pulumi,
    needs_yaml,
    own_pulumi,
)
from tests.system.test_management_ports import found_by_prometheus

pytestmark = [pytest.mark.lab, needs_kubectl]

Object = dict[str, Any]

START = ROOT / "docs" / "start"
CHANGE_URL, UPGRADE, UNINSTALL, JOINING, READINESS_GATE, METADATA = (
    ROOT / "docs" / "guides" / f"{name}.md"
    for name in ("change-url", "upgrade", "uninstall", "joining", "readiness-gate", "metadata")
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
        self.scripts = [block.script() for block in find_code_blocks(START / page) if block.script()]
        self.programs = [block.text for block in find_code_blocks(START / page) if block.language == "python"]
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
    cluster.create_namespace("shop")
    cluster.apply_deployment("shop", "rating", 2)
    cluster.apply_service("shop", "rating")
    wait_for(lambda: cluster.has_ready_pods("shop", "rating", 2), "endpoints")


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
    (one.folder / "install.yaml").write_text(install_manifest())
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
        _, file, kustomization = (
            block.text for block in find_code_blocks(CHANGE_URL) if block.language == "yaml"
        )
        (one.folder / "operator.yaml").write_text(file)
        old = kustomization.replace("http://eureka-old:8761/eureka", one.url)
        (one.folder / "kustomization.yaml").write_text(old)
        (upgrade,) = (
            block.script() for block in find_code_blocks(UPGRADE) if "apply --server-side" in block.text
        )
        assert "/etc/eurekube-settings/operator.yaml" in one.types(upgrade + DEPLOYED)
        one.types("kubectl delete eurekasyncer rating --namespace shop --timeout=60s")
        assert not addresses(eureka, "rating").keys() & ready.keys()
    (end,) = (block.script() for block in find_code_blocks(UNINSTALL) if "delete namespace" in block.text)
    one.types(end)
    left = one.types("kubectl get clusterroles,clusterrolebindings,namespaces -o name")
    assert not re.findall(r"\S*eurekube-system\S*", left)


def in_place_of_the_pods(one: Newcomer) -> str:
    """Return the command that runs the installed operator's container beside the cluster, for the namespace
    ``shop`` alone.
    """
    found = yaml.safe_load(one.types(DEPLOYED))["spec"]["template"]["spec"]["containers"]
    (container,) = found
    given = [f"{item['name']}={item['value']}" for item in container.get("env", ()) if "value" in item]
    words = shlex.join([*given, "WEB_ADDRESS=127.0.0.1:0"])
    arguments = shlex.join(["-m", "eurekube_provider.operator", *container.get("args", ())])
    return (
        f"exec env {words} eurekube/bin/python {arguments} --watch-namespace shop"
        " --lease-namespace eurekube-system"
    )


@pytest.mark.pulumi
@needs_pulumi
@needs_kubernetes_plugin
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


@contextmanager
def installed_by_helm(one: Newcomer, chart: Path, values: str = "") -> Iterator[str]:
    """Follow docs/start/helm.md until the operator is installed, and run its container as a process.

    :param values: the text of ``values.yaml``.
    :returns: the command that upgrades the release to the ``values.yaml`` of that moment.
    """
    helm = provide_programs([HELM])[HELM]
    one.environment["PATH"] = os.pathsep.join([str(helm.parent), one.environment["PATH"]])
    install, *_ = (block.script() for block in find_code_blocks(START / "helm.md") if block.script())
    assert "oci://ghcr.io/eurekube/charts/eurekube" in install
    (one.folder / "values.yaml").write_text(values)
    # The lab has the CRDs already, which are nobody's.
    flags = f"{chart} --values values.yaml --take-ownership"
    command = one.with_lab_urls(install).replace("oci://ghcr.io/eurekube/charts/eurekube", flags)
    one.types(command)
    one.types("python3 -m venv --without-pip eurekube\n" + one.installed("eurekube"))
    one.environment["PATH"] = os.pathsep.join([f"{one.folder}/eurekube/bin", one.environment["PATH"]])
    try:
        with one.running(in_place_of_the_pods(one)):
            yield command.replace("helm install", "helm upgrade")
    finally:
        one.types("helm uninstall eurekube --namespace eurekube-system --no-hooks --wait")


def test_a_newcomer_with_helm(
    lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, chart: Path, tmp_path: Path
) -> None:
    """docs/start/helm.md: a packaged chart installs the operator, which registers the pods."""
    rating(cluster)
    one = Newcomer("helm.md", empty(tmp_path), lab, wheel)
    assert one.commands <= MOST_COMMANDS
    _, syncer, look = one.scripts
    ready = dict.fromkeys(cluster.ready_addresses("shop", "rating"), "UP")
    with installed_by_helm(one, chart):
        one.types(syncer)
        assert ready.items() <= addresses(eureka, "rating").items()
        wait_for(lambda: "2/2" in one.types(look), "the status", 30.0)
        one.types("kubectl delete eurekasyncer rating --namespace shop --timeout=60s")
        assert not addresses(eureka, "rating").keys() & ready.keys()


def test_a_newcomer_lets_services_join(
    lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, chart: Path, tmp_path: Path
) -> None:
    """docs/guides/joining.md: Services join, are refused, leave, and replace a single syncer, by the page's
    commands.
    """
    end_syncers(cluster)
    rating(cluster)
    two = [{"name": "http", "port": 8080}, {"name": "management", "port": 8081}]
    for name, ports in (("catalog", two), ("review", two[:1])):
        cluster.apply_deployment("shop", name, 2)
        cluster.apply_service("shop", name, ports=ports)
    wait_for(lambda: cluster.has_ready_pods("shop", "catalog", 2), "endpoints of catalog")
    wait_for(lambda: cluster.has_ready_pods("shop", "review", 2), "endpoints of review")
    ready = dict.fromkeys(cluster.ready_addresses("shop", "rating"), "UP")

    def is_there(name: str = "rating") -> bool:
        return ready.items() <= addresses(eureka, name).items()

    one = Newcomer("../guides/joining.md", empty(tmp_path), lab, wheel)
    create, join, catalog, wrong, correct, leave, release, orphan, compare = one.scripts
    (syncer,) = (block.text for block in find_code_blocks(JOINING) if block.language == "yaml")
    (one.folder / "syncer.yaml").write_text(syncer)
    single = syncer.replace("all,", "rating,").replace("{services: Annotated}", "{app: rating}")
    single = "".join(line for line in single.splitlines(keepends=True) if "annotations:" not in line)
    with installed_by_helm(one, chart):
        one.types(create + join)
        wait_for(is_there, "rating in Eureka")
        look, shown = join.splitlines()[1], re.compile(r"^all\.rating +pod +RATING +True +2/2", re.MULTILINE)
        wait_for(lambda: shown.search(one.types(look)), "the page's table")
        not_derived = "--selector '!eurekube.io/derived-from' --output name"
        assert one.types(f"{look} {not_derived}").split() == ["eurekasyncer.eurekube.io/all"]
        one.types(catalog)
        wait_for(lambda: len(addresses(eureka, "catalog-api")) == 2, "catalog-api in Eureka")
        assert not addresses(eureka, "catalog")
        one.types(wrong.splitlines()[0])
        described, counted = wrong.splitlines()[1:]
        wait_for(lambda: "SyncRefused" in one.types(described), "the Event")
        wait_for(lambda: '"review"' in one.types(counted), "the status")
        assert not addresses(eureka, "review")
        one.types(correct)
        wait_for(lambda: len(addresses(eureka, "review")) == 2, "review in Eureka")
        one.types(leave)
        wait_for(lambda: not addresses(eureka, "rating").keys() & ready.keys(), "rating to leave")
        one.types(release)
        # From a single syncer to the namespace's.
        (one.folder / "single.yaml").write_text(single)
        one.types("kubectl apply -f single.yaml")
        wait_for(is_there, "rating by its own syncer")
        one.types("kubectl -n shop annotate --overwrite service rating eurekube.io/sync=pod")
        described, deleted = compare.splitlines()
        wait_for(lambda: "Conflict" in one.types(f"{described} 2>&1 || true"), "the conflict")
        one.types(deleted)
        assert is_there(), "the instances are handed over"
        wait_for(lambda: shown.search(one.types(look)), "the end of the conflict")
        assert is_there()
        one.types(orphan)
        assert is_there()
        one.types("kubectl -n shop delete eurekasyncers --all --timeout=60s")
        assert not addresses(eureka, "rating").keys() & ready.keys()


def test_a_newcomer_lets_roll_outs_wait(
    lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, chart: Path, tmp_path: Path
) -> None:
    """docs/guides/readiness-gate.md: a roll-out waits for callers, a gate is opened by hand, and a policy
    declares the gate.
    """
    end_syncers(cluster)
    rating(cluster)
    one = Newcomer("../guides/readiness-gate.md", empty(tmp_path), lab, wheel)
    values, template, with_policy = (
        block.text for block in find_code_blocks(READINESS_GATE) if block.language == "yaml"
    )
    look, label, open_by_hand = one.scripts
    (one.folder / "template.yaml").write_text(template)
    _, syncer, _ = (block.script() for block in find_code_blocks(START / "helm.md") if block.script())

    def gated() -> list[Object]:
        return [pod for pod in cluster.items(PODS, "shop", app="rating") if conditions_of(pod).get(GATE_NAME)]

    def states() -> list[str]:
        return [str(conditions_of(pod)[GATE_NAME]["status"]) for pod in gated()]

    def reasons() -> set[str]:
        return {str(conditions_of(pod)[GATE_NAME]["reason"]) for pod in gated()}

    with installed_by_helm(one, chart, values) as upgrade:
        one.types(syncer)
        asked = f"eurekube doctor --eureka-url {one.url} --namespace shop --readiness-gate --fix || true"
        assert GATE_NAME in one.types(asked)
        one.types("kubectl patch deployment rating --namespace shop --patch-file template.yaml")
        wait_for(gated, "a pod that waits")
        wait_for(lambda: reasons() == {"CallersLearn"}, "a pod that every server shows")
        assert "CallersLearn" in one.types(look)
        assert {"UP"} == set(addresses(eureka, "rating").values())
        for _ in range(2):  # the pods of a roll-out come one after the other
            wait_for(lambda: "False" in states(), "a pod that waits")
            one.types(open_by_hand)
        wait_for(lambda: cluster.has_ready_pods("shop", "rating", 2), "two ready pods")
        wait_for(lambda: states() == ["True", "True"], "two open gates")
        assert reasons() == {"OpenedByHand"}
        (one.folder / "values.yaml").write_text(with_policy)
        one.types(upgrade + label)
        time.sleep(5)  # until the API server has read the policy
        cluster.apply_deployment("shop", "order", 1)
        (pod,) = wait_for(lambda: cluster.items(PODS, "shop", app="order"), "a pod")
        assert pod["spec"]["readinessGates"] == [{"conditionType": GATE_NAME}]
        one.types("kubectl label namespace shop eurekube.io/readiness-gate-")
        one.types("kubectl delete eurekasyncer rating --namespace shop --timeout=60s")
        settings = f"EUREKA_URL={one.url} GATE_NAMESPACE=shop WATCH_NAMESPACE=shop"
        guard = f"{settings} eurekube operator --check-removal"
        with pytest.raises(AssertionError, match="Deployment shop/rating"):
            one.types(guard)
        one.types("kubectl delete deployment rating order --namespace shop --cascade=foreground")
        assert "no readiness gate needs the operator" in one.types(guard)


def test_a_newcomer_shows_tools_the_management_port(
    lab: Lab, cluster: Cluster, eureka: Peers, wheel: Path, chart: Path, tmp_path: Path
) -> None:
    """docs/guides/metadata.md: the page's Service and syncer register the management port, and Prometheus
    finds it by the page's configuration.
    """
    end_syncers(cluster)
    rating(cluster)
    cluster.delete(SERVICES, "rating", "shop")
    one = Newcomer("../guides/metadata.md", empty(tmp_path), lab, wheel)
    objects, _ = (block.text for block in find_code_blocks(METADATA) if block.language == "yaml")
    (one.folder / "rating.yaml").write_text(objects)
    with installed_by_helm(one, chart):
        one.types("kubectl apply --namespace shop -f rating.yaml")
        held = wait_for(lambda: len(found := instances(eureka, "rating")) == 2 and found, "rating in Eureka")
        assert {one.metadata["management.port"] for one in held} == {"8081"}
        assert {one.metadata["team"] for one in held} == {"stars"}
        urls = {f"http://{one.ip_address}:8081/actuator/health" for one in held}
        assert {one.health_check_url for one in held} == urls
        targets = found_by_prometheus(lab.eureka_urls[0])
        found = {one["__address__"] for one in targets if one["application"] == "RATING"}
        assert found == {f"{one.ip_address}:8081" for one in held}
        one.types("kubectl delete eurekasyncer rating --namespace shop --timeout=60s")


@pytest.mark.parametrize("program", [HELM, HELM_4])
def test_helm_goes_on_with_what_kubectl_installed(
    program: str, lab: Lab, cluster: Cluster, wheel: Path, tmp_path: Path
) -> None:
    """docs/start/kubectl.md: without the documented flag helm refuses objects that kubectl made, and with
    it takes them over.
    """
    one = Newcomer("kubectl.md", empty(tmp_path), lab, wheel)
    (one.folder / "install.yaml").write_text(install_manifest())
    one.types(one.with_lab_urls("".join(one.scripts[:2])))
    helm, chart = provide_programs([program])[program], ROOT / "charts" / "eurekube"
    before = cluster.get(DEPLOYMENTS, "eurekube-operator", "eurekube-system") or {}
    install, *_ = (block.script() for block in find_code_blocks(START / "helm.md") if block.script())
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
