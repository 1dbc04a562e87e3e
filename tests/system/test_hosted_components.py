"""The components of the native provider under a real Pulumi CLI, on a real Kubernetes API.

The program uses the SDK that the CLI makes, and a Kubernetes provider of its own, which alone knows the
cluster.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eurekube_provider.kube.access import MERGE_PATCH_TYPE, NAMESPACES, SYNCERS, ApiResource
from lab import Lab
from lab.workloads import CRDS, DEPLOYMENTS, Cluster
from tests.system.stacks import Shop, needs_kubernetes_plugin, needs_pulumi, needs_python_sdk, python_sdk

pytestmark = [
    pytest.mark.lab,
    pytest.mark.pulumi,
    pytest.mark.slow,
    needs_pulumi,
    needs_kubernetes_plugin,
    needs_python_sdk,
]

HOME, TEAM = "hosted-system", "hosted"
SECRETS = ApiResource("", "v1", "secrets")
FIRST, NEXT = "first-password", "next-password"

PROGRAM = """
import json
from pathlib import Path

import pulumi
import pulumi_eurekube as eurekube
import pulumi_kubernetes as kubernetes

import eurekube_provider
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
wanted = json.loads(Path("wanted.json").read_text())[0]
cluster = kubernetes.Provider("cluster", kubeconfig=Path(wanted["kubeconfig"]).read_text())
opts = pulumi.ResourceOptions(provider=cluster)
team = kubernetes.core.v1.Namespace("team", metadata={"name": wanted["team"]}, opts=opts)
given = dict(
    # Not known before the namespace is there.
    eureka_urls=[team.id.apply(lambda name: f"http://eureka.{name}.example.com:8761/eureka")],
    user="me",
    password=pulumi.Output.secret(wanted["password"]),
    namespace=wanted["home"],
    operator_name="hosted",
    watch_namespaces=[wanted["team"]],
    pod_annotations={"note": "mine"},
    image_pull_secrets=["registry"],
)
native = wanted["native"]
former = [pulumi.Alias(type_="eurekube:index:Operator")] if wanted["back"] else []
near = pulumi.ResourceOptions(providers=[cluster], aliases=former)
if native:
    operator = eurekube.Operator("eurekube", **given, opts=near)
else:
    given["eureka_urls"] = [f"http://eureka.{wanted['team']}.example.com:8761/eureka"]
    operator = eurekube_provider.EurekubeOperator("eurekube", **given, opts=near)
after = pulumi.ResourceOptions(providers=[cluster], depends_on=[operator])
syncer = {"namespace": wanted["team"], "app": "rating", "port": 8080, "labels": {"tier": "1"}}
if native:
    made = eurekube.Syncer("rating", **syncer, opts=after)
else:
    made = eurekube_provider.EurekaSyncer("rating", **syncer, opts=after)
pulumi.export("syncer", pulumi.Output.concat(made.namespace, "/", made.name))
pulumi.export("operator", operator.operator_name)
"""


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the SDK for Python; return its folder."""
    return python_sdk(tmp_path_factory.mktemp("sdk"))


@pytest.fixture
def stack(lab: Lab, cluster: Cluster, tmp_path: Path, sdk: Path) -> Iterator[Shop]:
    """Create a stack of the program, on a cluster with the CRD EurekaSyncer."""
    made = Shop(tmp_path, PROGRAM, "hosted")
    made.environment["PYTHONPATH"] += f":{sdk}"
    made.environment["PATH"] = f"{Path(sys.prefix) / 'bin'}:{made.environment['PATH']}"
    (made.project / "kubeconfig").write_text(lab.kubeconfig.read_text())
    yield made
    for namespace in (HOME, TEAM):
        if cluster.get(NAMESPACES, namespace) is not None:
            cluster.delete(NAMESPACES, namespace)


def wants(stack: Shop, password: str = FIRST, *, native: bool = True, back: bool = False) -> None:
    """Change the components that the program makes.

    :param back: True if the components of the Python package take over from those of the native provider.
    """
    file = str(stack.project / "kubeconfig")
    wanted = {"kubeconfig": file, "password": password, "native": native and not back, "back": back}
    stack.wants({**wanted, "home": HOME, "team": TEAM})


def credentials(cluster: Cluster) -> str:
    """Return the name of the Secret that the operator's pods read."""
    spec = (cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) or {})["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (found,) = (one["valueFrom"] for one in container["env"] if one["name"] == "EUREKA_PASSWORD")
    name: str = found["secretKeyRef"]["name"]
    return name


def counted(said: str) -> dict[str, int]:
    """Return the counts of created, updated and other resources at the end of an update's output."""
    section = said.partition("Resources:")[2].partition("Duration:")[0]
    return {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", section)}


@pytest.mark.timeout(900)  # thirteen runs of the CLI
def test_the_components_for_every_language(cluster: Cluster, stack: Shop) -> None:
    """The components are created, stay unchanged, roll out a new password, refuse a removal while others
    need them, take over from the Python package's components, and are removed.
    """
    wants(stack)
    shown = stack.pulumi("preview")
    assert "its objects cannot be previewed: eurekaUrls[0] is known only after the update" in shown
    # What components of Python made goes on in place.
    wants(stack, native=False)
    said = stack.up()
    wants(stack)
    moved = stack.up()
    assert counted(moved).keys() <= {"created", "updated", "unchanged"}
    said += moved
    assert stack.outputs() == {"operator": "hosted", "syncer": f"{TEAM}/rating"}
    stack.up("--refresh", "--expect-no-changes")
    deployment = cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) or {}
    assert deployment["spec"]["template"]["metadata"]["annotations"]["note"] == "mine"
    assert deployment["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    syncer = cluster.get(SYNCERS, "rating", TEAM) or {}
    assert (syncer["spec"]["port"], syncer["metadata"]["labels"]["tier"]) == (8080, "1")

    # Another password: another Secret, and other pods.
    former = credentials(cluster)
    wants(stack, NEXT)
    again = stack.up()
    assert counted(again)["replaced"] == 1
    assert "eurekube-eureka" in again
    said += again
    assert cluster.get(SECRETS, former, HOME) is None
    assert cluster.get(SECRETS, credentials(cluster), HOME) is not None
    said += stack.state_text()
    assert FIRST not in said
    assert NEXT not in said

    # It does not go back to those.
    wants(stack, NEXT, back=True)
    refused = stack.up(fails=True)
    assert "EurekubeOperator 'eurekube': a state moves from a component of Python to the native" in refused
    wants(stack, NEXT)
    stack.up("--refresh", "--expect-no-changes")

    # Somebody else has a syncer there by now.
    cluster.apply_syncer(TEAM, "cart")
    said = stack.destroy(fails=True)
    assert f"the operator in the namespace {HOME} is still needed: 1 EurekaSyncers" in said
    assert f"{TEAM}/cart" in said
    assert "EUREKUBE_FORCE_DESTROY=true" in said
    assert cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) is not None
    stack.up()
    assert cluster.get(SYNCERS, "rating", TEAM) is not None

    path = SYNCERS.path(TEAM, "cart")
    cluster.access.request(
        "PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH_TYPE
    )
    stack.environment["EUREKUBE_FORCE_DESTROY"] = "true"
    stack.destroy()
    assert [cluster.get(NAMESPACES, name) for name in (HOME, TEAM)] == [None, None]
    assert cluster.get(CRDS, "eurekasyncers.eurekube.io") is not None

    # A namespace of others is refused before it is touched, and stays.
    cluster.create_namespace(HOME)
    theirs = cluster.get(NAMESPACES, HOME)
    taken = stack.up(fails=True)
    assert f"Operator: the namespace {HOME} already exists: set createNamespace to false" in taken
    stack.destroy()
    assert cluster.get(NAMESPACES, HOME) == theirs
