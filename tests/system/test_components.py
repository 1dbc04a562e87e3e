"""The components in a user's own program, under a real Pulumi CLI with its Kubernetes provider.

The program makes what a file beside it says: a test changes the program by writing that file.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.prestop import serving_seconds_after_deletion
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, NAMESPACES, PODS, SYNCERS, ApiResource
from lab import EUREKA_PASSWORD, EUREKA_USER, Lab
from lab.workloads import CRDS, DEPLOYMENTS, Cluster, Object, wait_for
from tests.system.conftest import Operator, addresses, operator_environment
from tests.system.stacks import Shop, Stack, needs_kubernetes_plugin, needs_pulumi

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, needs_kubernetes_plugin]

HOME, TEAM, OTHERS = "components-system", "components", "components-others"
SECRETS = ApiResource("", "v1", "secrets")
STATEFUL_SETS = ApiResource("apps", "v1", "statefulsets")
POLICIES = ApiResource("networking.k8s.io", "v1", "networkpolicies")
MONITORING = "monitoring.coreos.com"
DRAIN_SECONDS = 2

PROGRAM = f"""
import json
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from eurekube_provider import (
    Drain, DrainBeforeStop, EurekaSyncer, EurekaSyncerArgs, EurekubeOperator, EurekubeOperatorArgs
)
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
wanted = json.loads(Path("wanted.json").read_text())

team = kubernetes.core.v1.Namespace("team", metadata={{"name": "{TEAM}"}})
operator = EurekubeOperator(
    "eurekube",
    EurekubeOperatorArgs(
        eureka_urls=[wanted["url"]],
        **(
            {{"eureka_secret": wanted["secret"], "ca_certificate": "PEM"}}
            if "secret" in wanted
            else {{"user": "{EUREKA_USER}", "password": pulumi.Output.secret("{EUREKA_PASSWORD}")}}
        ),
        namespace="{HOME}",
        operator_name="components",
        cluster_name="components",
        watch_namespaces=["{TEAM}", "{OTHERS}"],
        network_policy=True,
        service_monitor=True,
        prometheus_rule=True,
    ),
    opts=pulumi.ResourceOptions(depends_on=[team]),
)

class Workloads(pulumi.ComponentResource):
    def __init__(self, name, opts):
        super().__init__("test:index:Workloads", name, None, opts)

drain = Drain(
    server_cache_seconds=0,
    client_fetch_seconds=1,
    load_balancer_cache_seconds=0,
    replication_seconds=0,
    take_over_seconds=0,
    margin_seconds=1,
)
# Its identity is not known in a preview.
shared = kubernetes.core.v1.ConfigMap(
    "shared",
    metadata={{"name": "shared", "namespace": "{TEAM}"}},
    opts=pulumi.ResourceOptions(depends_on=[team]),
)
workloads = Workloads("workloads", pulumi.ResourceOptions(transforms=[DrainBeforeStop(drain)]))


def spec(name):
    variables = [
        {{"name": "SHARED", "value": shared.metadata.apply(lambda metadata: metadata.uid)}},
        {{"name": "PASSWORD", "value": pulumi.Output.secret("{EUREKA_PASSWORD}")}},
    ]
    container = {{"name": "app", "image": "example.invalid/app", "env": variables,
                 "ports": [{{"containerPort": 8080}}], **wanted.get("container", {{}})}}
    return {{
        "replicas": 2,
        "selector": {{"matchLabels": {{"app": name}}}},
        "template": {{"metadata": {{"labels": {{"app": name}}}}, "spec": {{"containers": [container]}}}},
    }}


def metadata(name):
    return {{"name": name, "namespace": "{TEAM}", "labels": {{"app": name}}}}


opts = pulumi.ResourceOptions(parent=workloads)
hasty = {{**spec("rating"), "progressDeadlineSeconds": 2}}
rating = kubernetes.apps.v1.Deployment("rating", metadata=metadata("rating"), spec=hasty, opts=opts)
kubernetes.apps.v1.StatefulSet(
    "ledger", metadata=metadata("ledger"), spec={{**spec("ledger"), "serviceName": "ledger"}}, opts=opts
)
service = kubernetes.core.v1.Service(
    "rating",
    metadata=metadata("rating"),
    spec={{"selector": {{"app": "rating"}}, "ports": [{{"name": "http", "port": 8080}}]}},
    opts=pulumi.ResourceOptions(parent=workloads, depends_on=[rating]),
)
if "secret" in wanted:
    # As by External Secrets: into the namespace that the component makes, beside the pods that wait for it.
    kubernetes.core.v1.Secret(
        "vault",
        metadata={{"name": "vault", "namespace": operator.namespace}},
        string_data=pulumi.Output.secret({{"username": "{EUREKA_USER}", "word": "{EUREKA_PASSWORD}"}}),
    )
for name, patience in wanted["syncers"].items():
    EurekaSyncer(
        name,
        EurekaSyncerArgs(namespace="{TEAM}", app=name, wait_ready_seconds=patience),
        opts=pulumi.ResourceOptions(depends_on=[operator, service]),
    )
"""


@pytest.fixture
def monitoring(cluster: Cluster) -> None:
    """Install the kinds of the Prometheus Operator, without their schemas."""
    for kind, plural in (("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        cluster.install_crd(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{MONITORING}"},
                "spec": {
                    "group": MONITORING,
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                    "versions": [version],
                },
            }
        )


@pytest.fixture(scope="module")
def secured() -> Iterator[Lab]:
    """Start the Eureka server to which the operator writes, and which asks for a password."""
    with Lab(eureka=1, kubernetes=False, security="basic") as lab:
        yield lab


@pytest.fixture
def eureka(secured: Lab) -> Iterator[Peers]:
    """Return a client of the Eureka servers that knows the password."""
    peers = Peers(Connection(tuple(secured.eureka_urls), EUREKA_USER, EUREKA_PASSWORD))
    yield peers
    peers.close()


@pytest.fixture
def stack(lab: Lab, tmp_path: Path, monitoring: None) -> Stack:  # noqa: ARG001 - knows the kinds
    """Create a stack of the program with components."""
    stack = Shop(tmp_path, PROGRAM, "components")
    stack.environment["KUBECONFIG"] = str(lab.kubeconfig)
    return stack


@pytest.fixture
def others(cluster: Cluster) -> Iterator[None]:
    """Create another team's namespace, with a syncer that the stack does not know."""
    cluster.create_namespace(OTHERS)
    cluster.apply_deployment(OTHERS, "cart", 1)
    cluster.apply_service(OTHERS, "cart")
    cluster.apply_syncer(OTHERS, "cart")
    yield
    path = SYNCERS.path(OTHERS, "cart")
    cluster.access.request(
        "PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH_TYPE
    )
    cluster.delete(NAMESPACES, OTHERS)


def wants(stack: Stack, eureka: Peers, *, more: Object | None = None, **syncers: int | None) -> None:
    """Change the components that the program makes."""
    wanted = {"url": eureka.connection.service_urls[0], "syncers": syncers, **(more or {})}
    (stack.project / "wanted.json").write_text(json.dumps(wanted))


def condition(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """Return a syncer's condition Ready; empty if there is none."""
    status = (cluster.get(SYNCERS, name, namespace) or {}).get("status") or {}
    return next((one for one in status.get("conditions") or () if one["type"] == "Ready"), {})


def test_the_components_together(
    lab: Lab,
    cluster: Cluster,
    eureka: Peers,
    stack: Stack,
    others: None,  # noqa: ARG001 - has a syncer of its own
    tmp_path: Path,
) -> None:
    """The components are made, work, wait for each other, refuse what they must, and leave another team's
    objects in place.
    """
    wants(stack, eureka)
    shown = stack.pulumi("preview", "--diff")  # what is not known yet, or secret, hides nothing else
    assert len(re.findall(rf"minReadySeconds *: {DRAIN_SECONDS}\n", shown)) == 2
    assert EUREKA_PASSWORD not in shown
    said = stack.up()
    assert EUREKA_PASSWORD not in said + stack.state_text()

    check_restricted_namespace(cluster)
    check_drains(cluster)

    # Somebody's own preStop: reported before anything is changed.
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["/drain"]}}}}
    wants(stack, eureka, more={"container": hook})
    done = subprocess.run(
        ["pulumi", "preview", "--non-interactive"],
        cwd=stack.project,
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    said = done.stdout + done.stderr  # with the SDK's own traceback, like whatever a transform raises
    assert done.returncode != 0
    assert "DrainBeforeStop: the container 'app' has a preStop already, which is not overwritten" in said

    # An operator with the rights that the component gives, and no others.
    kubeconfig = lab.service_account_kubeconfig(HOME, "eurekube-operator", tmp_path / "account")
    place = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": HOME, "WEB_ADDRESS": ""}
    own = credentials_of(cluster)[EUREKA_USER]
    assert own.startswith("eurekube-eureka-")
    assert credentials_of(cluster) == {EUREKA_USER: own, EUREKA_PASSWORD: own}
    environment = operator_environment(lab, "", **{**variables(cluster), **place})
    operator = Operator(tmp_path / "operator.log", environment, [])
    try:
        operator.wait_ready()
        wait_for(lambda: len(addresses(eureka, "cart")) == 1, "the others' instance", 30.0)
        keys = {"name": "vault", "user_key": "username", "password_key": "word"}
        wants(stack, eureka, more={"secret": keys}, rating=60)
        stack.up()
        check_vault_credentials(cluster, stack)
        assert condition(cluster, TEAM, "rating")["status"] == "True"
        pods = cluster.ready_addresses(TEAM, "rating")
        assert addresses(eureka, "rating") == dict.fromkeys(pods, "UP")
        assert len(pods) == 2
        stack.up("--expect-no-changes")

        # The next one has its credentials from there, and takes out what the first one registered.
        operator.stop()
        assert "answered 403" not in operator.text()
        given = variables(cluster)
        del given["EUREKA_CA_FILE"]  # of no use for a server without TLS
        operator = Operator(tmp_path / "next.log", operator_environment(lab, "", **{**given, **place}), [])
        operator.wait_ready()

        # One that will never be ready fails the up in time, and names itself.
        wants(stack, eureka, more={"secret": keys}, rating=60, nobody=3)
        said = stack.up(fails=True)
        assert "nobody" in said
        assert "timed out" in said
        assert condition(cluster, TEAM, "nobody")["reason"] == "NoMatchingService"

        assert "answered 403" not in operator.text()
        # Another team needs it: it stays, and goes on. Then somebody means it.
        said = stack.destroy(fails=True)
        assert "1 EurekaSyncers that this stack does not own would be served by nobody" in said
        assert f": {OTHERS}/cart. Nothing of the operator was removed" in said
        assert addresses(eureka, "cart")
        assert cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) is not None
        stack.environment["EUREKUBE_FORCE_DESTROY"] = "true"
        stack.destroy()  # of its rights as well
        assert addresses(eureka, "rating") == {}
    finally:
        operator.stop()
        sys.stdout.write(operator.text())

    # What was not the stack's is as it was, and so is the CRD, without which it would be gone.
    syncer = cluster.get(SYNCERS, "cart", OTHERS)
    assert syncer is not None
    assert "deletionTimestamp" not in syncer["metadata"]
    assert cluster.get(CRDS, "eurekasyncers.eurekube.io") is not None
    assert len(addresses(eureka, "cart")) == 1
    assert [cluster.get(NAMESPACES, name) for name in (HOME, TEAM)] == [None, None]


def check_restricted_namespace(cluster: Cluster) -> None:
    """Check that the operator's namespace enforces the restricted Pod Security level, and that the
    operator's pods run there.
    """
    with pytest.raises(KubernetesError, match="violates PodSecurity"):
        cluster.apply(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "careless", "namespace": HOME},
                "spec": {"containers": [{"name": "app", "image": "example.invalid/app"}]},
            },
        )
    deployment = cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) or {}
    assert deployment["status"]["availableReplicas"] == 3
    pods = cluster.items(PODS, HOME)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert cluster.get(POLICIES, "eurekube-operator", HOME) is not None
    for plural in ("servicemonitors", "prometheusrules"):
        assert cluster.get(ApiResource(MONITORING, "v1", plural), "eurekube-operator", HOME) is not None


def variables(cluster: Cluster) -> dict[str, str]:
    """Return the operator's environment as a kubelet would make it, without facts about the pod."""
    found = {}
    for entry in environment_of(cluster):
        reference = entry.get("valueFrom", {}).get("secretKeyRef")
        if reference:
            data = (cluster.get(SECRETS, reference["name"], HOME) or {})["data"]
            found[entry["name"]] = base64.b64decode(data[reference["key"]]).decode()
        elif "value" in entry:
            found[entry["name"]] = entry["value"]
    return found


def environment_of(cluster: Cluster) -> list[Object]:
    """Return the environment entries of the operator's container in its Deployment."""
    (container,) = (cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) or {})["spec"]["template"]["spec"][
        "containers"
    ]
    found: list[Object] = container["env"]
    return found


def credentials_of(cluster: Cluster) -> dict[str, str]:
    """Return the operator's credentials, each with the name of its Secret."""
    given = variables(cluster)
    return {
        given[entry["name"]]: entry["valueFrom"]["secretKeyRef"]["name"]
        for entry in environment_of(cluster)
        if entry["name"] in ("EUREKA_USER", "EUREKA_PASSWORD")
    }


def check_vault_credentials(cluster: Cluster, stack: Stack) -> None:
    """Check that the operator reads its credentials from the vault's Secret, and its CA from the
    component.
    """
    assert credentials_of(cluster) == {EUREKA_USER: "vault", EUREKA_PASSWORD: "vault"}
    assert variables(cluster)["EUREKA_CA_FILE"] == "/etc/eurekube/ca.crt"
    spec = (cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) or {})["spec"]["template"]["spec"]
    ((source,),) = (volume["projected"]["sources"] for volume in spec["volumes"])
    assert set((cluster.get(SECRETS, source["secret"]["name"], HOME) or {})["data"]) == {"ca.crt"}
    assert EUREKA_PASSWORD not in stack.state_text()
    (vault,) = (one for one in stack.resources() if one["urn"].endswith("::vault"))
    assert [urn.rpartition("::")[2] for urn in vault["dependencies"]] == ["eurekube-namespace"]


def check_drains(cluster: Cluster) -> None:
    """Check that the Deployment and the StatefulSet have the fields of a drain."""
    for resource, name in ((DEPLOYMENTS, "rating"), (STATEFUL_SETS, "ledger")):
        spec = (cluster.get(resource, name, TEAM) or {})["spec"]
        pod = spec["template"]["spec"]
        assert serving_seconds_after_deletion(pod) == DRAIN_SECONDS
        assert pod["terminationGracePeriodSeconds"] == DRAIN_SECONDS + 30
        assert spec["minReadySeconds"] == DRAIN_SECONDS
        variables = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        assert len(variables["SHARED"]) == len("12345678-1234-1234-1234-123456789012")
        assert variables["PASSWORD"] == EUREKA_PASSWORD
    # The API server refuses one that is not longer than minReadySeconds.
    hasty = (cluster.get(DEPLOYMENTS, "rating", TEAM) or {})["spec"]
    assert hasty["progressDeadlineSeconds"] == DRAIN_SECONDS + 600


HOUSED = """
import json
from pathlib import Path

from eurekube_provider import EurekubeOperator
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
wanted = json.loads(Path("wanted.json").read_text())
url = "http://eureka.example.com:8761/eureka"
for namespace, given in wanted.items():
    args = {"eureka_urls": [url], "replicas": 0, "force_destroy": True, "operator_name": namespace}
    EurekubeOperator(namespace, {**args, "namespace": namespace, **given})
"""


@pytest.mark.timeout(900)  # four runs, each with all objects of two operators
def test_a_namespace_that_was_there_before_stays(lab: Lab, cluster: Cluster, tmp_path: Path) -> None:
    """A namespace that existed before the stack survives its destroy, with the objects of others in it.

    A namespace that the component made also stays, once ``create_namespace`` is false. A component for an
    existing namespace is refused before Pulumi's Kubernetes plugin is asked, which before 4.29 takes over
    existing objects (#2926 in its changelog).
    """

    stack = Shop(tmp_path, HOUSED, "housed")
    stack.environment["KUBECONFIG"] = str(lab.kubeconfig)

    def wants(**operators: dict[str, Any]) -> None:
        (stack.project / "wanted.json").write_text(json.dumps(operators))

    def uid(name: str) -> str | None:
        found = cluster.get(NAMESPACES, name) or {"metadata": {}}
        return None if found["metadata"].get("deletionTimestamp") else found["metadata"].get("uid")

    cluster.create_namespace("housed")
    before = uid("housed")
    labels = (cluster.get(NAMESPACES, "housed") or {})["metadata"]["labels"]
    wants(housed={}, made={})
    said = stack.up("--continue-on-error", fails=True)
    assert "the namespace housed already exists: set create_namespace to false" in said
    assert (cluster.get(NAMESPACES, "housed") or {})["metadata"]["labels"] == labels
    in_state = {each["urn"].rpartition("::")[2] for each in stack.resources()}
    assert ("housed-namespace" in in_state, "made-namespace" in in_state) == (False, True)
    made = uid("made")
    assert made is not None
    wants(housed={"create_namespace": False}, made={"create_namespace": False})
    stack.up()
    stack.up("--expect-no-changes")
    for name in ("housed", "made"):
        assert cluster.get(DEPLOYMENTS, "eurekube-operator", name) is not None
    stack.destroy()
    for name in ("housed", "made"):
        assert cluster.get(DEPLOYMENTS, "eurekube-operator", name) is None
    assert (uid("housed"), uid("made")) == (before, made)


SEVERAL = """
import json
from pathlib import Path

from eurekube_provider import EurekubeOperator, EurekubeOperatorArgs
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
wanted = json.loads(Path("wanted.json").read_text())
for name in wanted["operators"]:
    EurekubeOperator(
        name,
        EurekubeOperatorArgs(
            eureka_urls=["http://eureka.example.com:8761/eureka"],
            namespace=f"several-{name}",
            operator_name=name,
            replicas=0,
            keep_crds=wanted["keep_crds"],
            force_destroy=True,  # other tests have syncers in this cluster
        ),
    )
"""


def several(stack: Stack, *operators: str, keep_crds: bool = True) -> None:
    """Change the operators that the program makes."""
    (stack.project / "wanted.json").write_text(json.dumps({"operators": operators, "keep_crds": keep_crds}))


def steps_of_crds(stack: Stack) -> set[tuple[str, str]]:
    """Return the operations on CRDs in a preview, each with the resource's name."""
    steps = json.loads(stack.pulumi("preview", "--json"))["steps"]
    return {
        (step["op"], step["urn"].rpartition("::")[2])
        for step in steps
        if ":CustomResourceDefinition" in step["urn"] and step["op"] != "same"
    }


@pytest.mark.timeout(900)  # eight runs, each with all objects of two operators
def test_several_operators_in_one_program(lab: Lab, cluster: Cluster, tmp_path: Path) -> None:
    """Each operator has CRD resources of its own in the state; a state of 0.1.0, which had no such names,
    goes on.
    """
    names = "eurekamirrors.eurekube.io", "eurekasyncers.eurekube.io", "stackrefreshes.eurekube.io"

    def uids() -> list[str]:
        return [(cluster.get(CRDS, name) or {})["metadata"]["uid"] for name in names]

    before = uids()
    stack = Shop(tmp_path, SEVERAL, "several")
    stack.environment["KUBECONFIG"] = str(lab.kubeconfig)
    several(stack, "one")
    stack.up()
    written = json.dumps(stack.resources())
    former = re.sub(r"(:CustomResourceDefinitionPatch::)one-", r"\1", written)
    assert former != written
    owned = former.replace(":CustomResourceDefinitionPatch", ":CustomResourceDefinition")

    # One whose CRD would be removed with its resource: two that may be the former one are refused.
    stack.write_state(json.loads(owned))
    several(stack, "one", keep_crds=False)
    assert steps_of_crds(stack) == {("update", f"one-{name}") for name in names}  # of a patch's annotation
    several(stack, "one", "two", keep_crds=False)
    assert "Duplicate resource alias" in stack.pulumi("preview", fails=True)

    # Whichever comes first: none is removed or replaced.
    stack.write_state(json.loads(former))
    several(stack, "two", "one")
    assert steps_of_crds(stack) == {("create", f"one-{name}") for name in names}
    several(stack, "one", "two")
    assert steps_of_crds(stack) == {("create", f"two-{name}") for name in names}
    stack.up()
    stack.up("--expect-no-changes")
    for name in ("one", "two"):
        assert cluster.get(DEPLOYMENTS, "eurekube-operator", f"several-{name}") is not None

    stack.destroy()
    assert uids() == before
    assert [cluster.get(NAMESPACES, f"several-{name}") for name in ("one", "two")] == [None, None]
