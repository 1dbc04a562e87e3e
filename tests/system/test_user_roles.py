"""The ClusterRoles that the chart brings for people, on a real API server: a team ships its own syncer."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, SYNCERS, KubeAccess
from eurekube_provider.kube.rights import USER_RULE_BY_ROLE
from eurekube_provider.operator.selfcheck import ACCESS_REVIEWS_PATH
from lab import Lab
from lab.accounts import CLUSTER_ROLES, ROLE_BINDINGS, Account
from lab.programs import HELM, provide_programs
from lab.workloads import Cluster, Object, wait_for
from tests.system.conftest import ROOT
from tests.system.operator_objects import chart_objects, component_objects, key
from tests.system.test_operator_chart import PLAIN

pytestmark = pytest.mark.lab

KINDS = ("eurekasyncers", "eurekamirrors", "stackrefreshes")
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
MAY = {"view": READ, "edit": (*READ, *WRITE), "admin": (*READ, *WRITE)}


@pytest.fixture(scope="module")
def roles(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Object]]:
    """Apply the chart's ClusterRoles for people."""
    items = chart_objects(PLAIN, tmp_path_factory.mktemp("chart"))
    found = [item for item in items if "aggregate-to" in str(item["metadata"].get("labels"))]
    for item in found:
        cluster.apply(CLUSTER_ROLES, item)
    yield found
    for item in found:
        cluster.delete(CLUSTER_ROLES, item["metadata"]["name"])


def person(lab: Lab, cluster: Cluster, namespace: str, role: str, folder: Path) -> Account:
    """Return an account that has one of Kubernetes' own roles in one namespace only."""
    account = Account.create(lab, cluster, namespace, f"a-person-who-may-{role}", folder / role)
    group = "rbac.authorization.k8s.io"
    cluster.apply(
        ROLE_BINDINGS,
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": account.name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": namespace}],
        },
    )
    return account


def may(access: KubeAccess, verb: str, resource: str, namespace: str) -> bool:
    """Ask the API whether an account may do something."""
    plural, _, subresource = resource.partition("/")
    attributes = {
        "group": "eurekube.io",
        "resource": plural,
        "subresource": subresource,
        "verb": verb,
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(access.request("POST", ACCESS_REVIEWS_PATH, body=review)["status"]["allowed"])


@pytest.mark.parametrize("role", MAY)
def test_kubernetes_own_roles_have_our_kinds(
    role: str, roles: list[Object], lab: Lab, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The roles view, edit and admin include our kinds, in the binding's namespace only; none may write a
    status, from which the operator reads names.
    """
    assert len(roles) == len(USER_RULE_BY_ROLE)
    access = KubeAccess.load(person(lab, cluster, namespace, role, tmp_path).kubeconfig)
    wait_for(lambda: may(access, MAY[role][-1], KINDS[-1], namespace), "the roles to be added", 30.0)
    found = {
        (verb, kind) for verb, kind in product((*READ, *WRITE), KINDS) if may(access, verb, kind, namespace)
    }
    assert found == set(product(MAY[role], KINDS))
    assert not any(may(access, verb, kind, "default") for verb, kind in product(MAY[role], KINDS))
    assert not any(may(access, verb, f"{kind}/status", namespace) for verb, kind in product(WRITE, KINDS))


def test_a_team_ships_a_syncer_in_its_own_chart(
    roles: list[Object],  # noqa: ARG001 - they are in the cluster
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
) -> None:
    """With the role edit in its namespace and no other right, a team's helm installs, upgrades and
    uninstalls a syncer.
    """
    account = person(lab, cluster, namespace, "edit", tmp_path)
    access = KubeAccess.load(account.kubeconfig)
    wait_for(lambda: may(access, "create", "eurekasyncers", namespace), "the roles to be added", 30.0)
    program = provide_programs([HELM])[HELM]

    def helm(*arguments: str) -> None:
        done = subprocess.run(
            [program, *arguments, "--namespace", namespace],
            env={"HOME": str(tmp_path), "KUBECONFIG": str(account.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr

    chart = str(ROOT / "examples" / "helm" / "rating")
    helm("install", "rating", chart)
    syncer = cluster.get(SYNCERS, "rating", namespace)
    assert syncer is not None
    assert syncer["spec"]["mode"] == "pod"
    helm("upgrade", "rating", chart, "--set", "eureka.mode=service")
    assert (cluster.get(SYNCERS, "rating", namespace) or {})["spec"]["mode"] == "service"
    with pytest.raises(KubernetesError) as refused:
        access.request(
            "PATCH",
            SYNCERS.path(namespace, "rating", "status"),
            body={"status": {"names": ["billing"]}},
            content_type=MERGE_PATCH_TYPE,
        )
    assert refused.value.status_code == 403
    helm("uninstall", "rating")
    assert cluster.get(SYNCERS, "rating", namespace) is None


def test_the_rules_are_those_of_the_component() -> None:
    """The component makes the roles from the same constant, and makes none if asked not to."""
    with_roles, without = component_objects(
        {"eureka_urls": ["http://eureka/eureka"], "user_roles": each} for each in (True, False)
    )
    made = {key(item)[2]: item for item in with_roles if key(item)[2].endswith(tuple(USER_RULE_BY_ROLE))}
    assert {name.rpartition("-")[2] for name in made} == set(USER_RULE_BY_ROLE)
    for name, item in made.items():
        rule = USER_RULE_BY_ROLE[name.rpartition("-")[2]]
        (written,) = item["rules"]
        assert (written["resources"], written["verbs"]) == (list(rule.resources), list(rule.verbs))
    assert not [item for item in without if key(item)[2].endswith(tuple(USER_RULE_BY_ROLE))]
