"""The operator's rights on a real API server: it uses each of them and no others, and survives the loss of
one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from eurekube_provider.core.objects import conditions_of
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    MERGE_PATCH_TYPE,
    NAMESPACES,
    SERVICES,
    STACK_REFRESHES,
    SYNCERS,
    KubeAccess,
)
from eurekube_provider.kube.rights import (
    CLUSTER_RULES,
    GATE_NAMESPACE_RULES,
    NAMESPACE_RULES,
    Rule,
    election_rules,
    pulumi_stack_rule,
)
from eurekube_provider.operator.identity_check import CheckVerdict
from eurekube_provider.operator.selfcheck import check_kubernetes
from lab import Lab
from lab.accounts import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, Account
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from tests.system.conftest import (
    ROOT,
    Operator,
    StartOperator,
    addresses,
    instances,
    operator_environment,
    ready,
    renewed_at,
    running,
)
from tests.system.test_operator import condition

pytestmark = pytest.mark.lab

HOME, LOST, SERVED = "rights-home", "rights-lost", "rights-served"
LEASE = "rights-leader"
PATIENCE_SECONDS = 60.0
Right = tuple[str, str, str]
"""API group, resource and verb of a right."""


def missing(account: Account, namespace: str = SERVED) -> list[str]:
    """Return the rights that the self-check finds missing for a watched namespace."""
    access = KubeAccess.load(account.kubeconfig)
    found = check_kubernetes(access, (namespace,), (HOME, LEASE))
    return [one.subject for one in found if one.verdict is CheckVerdict.WARNING]


@pytest.fixture(scope="module")
def account(lab: Lab, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Return an account with exactly the operator's rights, for the two namespaces that it watches."""
    for name in (HOME, LOST, SERVED):
        cluster.create_namespace(name)
    account = Account.create(lab, cluster, HOME, "rights", tmp_path_factory.mktemp("rights") / "kubeconfig")
    account.set_rights(CLUSTER_RULES)
    account.set_rights(election_rules(LEASE), HOME)
    account.set_rights(NAMESPACE_RULES, LOST)
    account.set_rights((*NAMESPACE_RULES, *GATE_NAMESPACE_RULES), SERVED)
    yield account
    cluster.delete(CLUSTER_ROLE_BINDINGS, "rights")
    cluster.delete(CLUSTER_ROLES, "rights")
    for name in (HOME, SERVED):
        cluster.delete(NAMESPACES, name)


@pytest.fixture
def start(account: Account, start_operator: StartOperator) -> Callable[..., Operator]:
    """Return a function that starts operators with the account's rights."""

    def start(*, ready: bool = True) -> Operator:
        return start_operator(
            ready=ready,
            KUBECONFIG=str(account.kubeconfig),
            WATCH_NAMESPACE=f"{LOST},{SERVED}",
            GATE_NAMESPACE=SERVED,
            POD_NAMESPACE=HOME,
            LEASE_NAME=LEASE,
            CLUSTER_NAME="rights",
            OPERATOR_NAME="rights",
        )

    return start


def asked_for(lab: Lab, since: int, home: str = HOME, account: str = "rights") -> dict[Right, set[str]]:
    """Return an account's requests to the API server, each with the decisions on it.

    :param since: how long the API server's log was then.
    :param home: the account's namespace.
    """
    found: dict[Right, set[str]] = {}
    for line in lab.kubernetes.audit_log.read_bytes()[since:].rpartition(b"\n")[0].splitlines():
        event = json.loads(line)
        about = event.get("objectRef") or {}
        if event["user"]["username"] != f"system:serviceaccount:{home}:{account}" or "resource" not in about:
            continue
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        right = about.get("apiGroup", ""), resource, event["verb"]
        found.setdefault(right, set()).add(event["annotations"]["authorization.k8s.io/decision"])
    return {right: decisions for right, decisions in found.items() if right[0] != "authorization.k8s.io"}


RELEASE = ("eurekube.io", "stackrefreshes", "patch")
"""A right that is used only when a person releases the brake, which a unit test shows."""


def test_everything_that_it_may_is_used_and_nothing_else(
    lab: Lab, cluster: Cluster, eureka: Peers, account: Account, start: Callable[[], Operator]
) -> None:
    """The operator, and the check before its removal, ask for every right that they have, and no request is
    refused.
    """
    every = (*NAMESPACE_RULES, *GATE_NAMESPACE_RULES, *CLUSTER_RULES, *election_rules(LEASE))
    granted = {
        (group, resource, verb)
        for rule in every
        for group in rule.api_groups
        for resource in rule.resources
        for verb in rule.verbs
    } - {RELEASE}
    app, other = f"{SERVED}-app", f"{SERVED}-other"
    since = lab.kubernetes.audit_log.stat().st_size
    start()
    running(cluster, SERVED, app, 2)
    running(cluster, SERVED, other, 1)
    cluster.apply_service(SERVED, other, type="NodePort")
    cluster.apply_syncer(SERVED, app, metadataFromPodLabels=["version"])
    cluster.apply_syncer(SERVED, other, mode="service", advertise="NodePort")
    wait_for(lambda: len(instances(eureka, app)) == 2, "the pods", PATIENCE_SECONDS)
    wait_for(lambda: instances(eureka, other), "a node", PATIENCE_SECONDS)
    assert {one.metadata["version"] for one in instances(eureka, app)} == {"1"}
    wait_for(lambda: condition(cluster, SERVED, app).get("status") == "True", "Ready", PATIENCE_SECONDS)
    cluster.access.request(
        "PATCH",
        DEPLOYMENTS.path(SERVED, app),
        body={"spec": {"template": {"spec": {"readinessGates": [{"conditionType": READINESS_GATE}]}}}},
        content_type=MERGE_PATCH_TYPE,
    )

    def reasons() -> set[str]:
        return {
            str(conditions_of(pod).get(READINESS_GATE, {}).get("reason")) for pod in cluster.pods(SERVED, app)
        }

    wait_for(lambda: "CallersLearn" in reasons(), "a gate's condition", PATIENCE_SECONDS)
    refresh = {
        "apiVersion": "eurekube.io/v1alpha1",
        "kind": "StackRefresh",
        "metadata": {"namespace": SERVED, "name": app},
        "spec": {"selector": {"app": app}, "action": "Up", "target": "nowhere"},
    }
    cluster.apply(STACK_REFRESHES, refresh)

    def refusal() -> str:
        status = (cluster.get(STACK_REFRESHES, app, SERVED) or {}).get("status") or {}
        return str(next((one["reason"] for one in status.get("conditions") or ()), ""))

    joined = {"metadata": {"annotations": {"eurekube.io/sync": "true"}}}
    left = {"metadata": {"annotations": {"eurekube.io/sync": "false"}}}
    selector = {"services": "Annotated"}
    spec = {"mode": "pod", "selector": selector}
    metadata = {"namespace": SERVED, "name": "all"}
    cluster.apply(
        SYNCERS,
        {"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaSyncer", "metadata": metadata, "spec": spec},
    )
    for change, is_there in ((joined, True), (left, False)):
        path = SERVICES.path(SERVED, other)
        cluster.access.request("PATCH", path, body=change, content_type=MERGE_PATCH_TYPE)
        wait_for(
            lambda is_there=is_there: (cluster.get(SYNCERS, f"all.{other}", SERVED) is not None) is is_there,  # type: ignore[misc]
            "the derived syncer",
            PATIENCE_SECONDS,
        )
    cluster.delete(SYNCERS, "all", SERVED)
    wait_for(lambda: refusal() == "UnknownTarget", "UnknownTarget", PATIENCE_SECONDS)
    cluster.delete(STACK_REFRESHES, app, SERVED)
    for name in (app, other):
        cluster.delete(SYNCERS, name, SERVED)
        wait_for(lambda name=name: cluster.get(SYNCERS, name, SERVED) is None, "its end", PATIENCE_SECONDS)  # type: ignore[misc]
    checked = subprocess.run(
        [sys.executable, "-m", "eurekube_provider.operator", "--check-removal"],
        env={
            **operator_environment(lab, SERVED, GATE_NAMESPACE=SERVED),
            "KUBECONFIG": str(account.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"Deployment {SERVED}/{app}, which declare the readiness gate" in checked.stdout
    assert checked.returncode == 1
    with suppress(TimeoutError):  # or the difference shows
        wait_for(lambda: granted <= set(asked_for(lab, since)), "all of it to be used", PATIENCE_SECONDS)
    asked = asked_for(lab, since)
    assert {right for right, decisions in asked.items() if decisions != {"allow"}} == set()
    assert granted == set(asked)


STACK = "shop"
RULES: dict[str | None, tuple[Rule, ...]] = {
    None: CLUSTER_RULES,
    SERVED: (pulumi_stack_rule(STACK), *NAMESPACE_RULES),
    HOME: election_rules(LEASE),
}
"""The operator's rules by the namespace in which they are needed; None stands for the whole cluster."""


@dataclass(frozen=True)
class Removal:
    """One verb that is taken from an account's rules."""

    where: str | None
    rule: Rule
    verb: str

    @property
    def name(self) -> str:
        """The name of the account that lacks the verb."""
        return f"no-{self.verb}-{self.rule.resources[0].replace('/', '-')}"

    @property
    def subject(self) -> str:
        """Return the self-check's name for the missing right."""
        place = f" in namespace {self.where}" if self.where else ""
        return " ".join((self.verb, self.rule.resources[0], *self.rule.resource_names)) + place

    @property
    def left(self) -> list[Rule]:
        """Return the rules of this namespace without the verb."""
        verbs = tuple(verb for verb in self.rule.verbs if verb != self.verb)
        less = [replace(one, verbs=verbs) if one == self.rule else one for one in RULES[self.where]]
        return [one for one in less if one.verbs]


REMOVALS = [
    Removal(where, rule, verb) for where, rules in RULES.items() for rule in rules for verb in rule.verbs
]


@pytest.fixture
def deprived(
    account: Account,  # noqa: ARG001 - the namespaces are there
    lab: Lab,
    cluster: Cluster,
    tmp_path: Path,
) -> Iterator[dict[Removal | None, Account]]:
    """Return an account for each verb, with all rights but that one; the account for None has all rights."""
    accounts: dict[Removal | None, Account] = {}
    for removal in (None, *REMOVALS):
        name = removal.name if removal else "no-loss"
        made = Account.create(lab, cluster, HOME, name, tmp_path / name)
        for where, rules in RULES.items():
            made.set_rights(removal.left if removal and where == removal.where else rules, where)
        accounts[removal] = made
    # The API server learns of Roles, and of ClusterRoles, in their order: who knows the last knows them all.
    for removal in {removal.where: removal for removal in REMOVALS}.values():
        wait_for(lambda one=removal: missing(accounts[one]) == [one.subject], removal.name, PATIENCE_SECONDS)  # type: ignore[misc]
    yield accounts
    for made in accounts.values():
        cluster.delete(CLUSTER_ROLE_BINDINGS, made.name)
        cluster.delete(CLUSTER_ROLES, made.name)


def test_each_verb_that_is_taken_away_is_named_by_a_check(
    lab: Lab, deprived: dict[Removal | None, Account], tmp_path: Path
) -> None:
    """A check with that account's token exits with 1, and names only the missing verb."""
    target = {"kind": "pulumiStack", "namespaces": [SERVED], "stack": f"{SERVED}/{STACK}"}
    config = tmp_path / "operator.yaml"
    config.write_text(json.dumps({"targets": {"prod": target}}))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.system.checks"),
            *(str(account.kubeconfig) for account in deprived.values()),
        ],
        cwd=ROOT,
        env=operator_environment(lab, SERVED, POD_NAMESPACE=HOME, LEASE_NAME=LEASE, CONFIG=str(config)),
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    reported = {}
    for removal, (code, printed) in zip(deprived, json.loads(done.stdout), strict=True):
        warnings = [one for one in json.loads(printed) if one["verdict"] == "warning"]
        missing = [one for one in warnings if one["check"] == "permission"]
        assert all(one["detail"].startswith("not allowed; without it ") for one in missing)
        assert code == bool(warnings)
        reported[removal] = [one["subject"] for one in missing]
        # Without it nobody can say either whether other namespaces are served. With it, syncers that
        # other tests left in this cluster are named, too.
        is_list = removal is not None and removal.subject == "list eurekasyncers"
        more = [(one["check"], one["subject"]) for one in warnings if one not in missing]
        own = [one for one in more if not one[1].startswith("EurekaSyncer ")]
        assert own == [("namespace", "all")] * is_list
    assert reported == {removal: [removal.subject] if removal else [] for removal in deprived}


def renewals(eureka: Peers, application: str) -> dict[str, float]:
    """Return the time of each instance's last renewal."""
    return {one.instance_id: renewed_at(eureka, one) for one in instances(eureka, application)}


def test_a_start_without_rights_costs_no_registration(
    cluster: Cluster, account: Account, eureka: Peers, start: Callable[..., Operator]
) -> None:
    """An operator whose ClusterRole was lost while it did not run renews the cluster's instances, says so,
    and leads once it has the role again.
    """
    app = f"{SERVED}-without"
    first = start()
    running(cluster, SERVED, app, 2)
    cluster.apply_syncer(SERVED, app)
    wait_for(lambda: len(addresses(eureka, app)) == 2, "two instances", PATIENCE_SECONDS)
    first.process.kill()
    held = {one.key: one.last_dirty_timestamp_ms for one in instances(eureka, app)}
    try:
        cluster.delete(CLUSTER_ROLE_BINDINGS, "rights")
        wait_for(lambda: "get namespaces kube-system" in missing(account), "the loss")
        before = renewals(eureka, app)
        second = start(ready=False)
        wait_for(lambda: "renewing the cluster's instances" in second.text(), "renewals", PATIENCE_SECONDS)
        wait_for(
            lambda: all(at > before[key] for key, at in renewals(eureka, app).items()),
            "a renewal of each",
            PATIENCE_SECONDS,
        )
        assert second.process.poll() is None
        assert "must be allowed to get the namespace kube-system" in second.text()
    finally:
        account.set_rights(CLUSTER_RULES)
    wait_for(lambda: "became the leader" in second.text(), "a leader", PATIENCE_SECONDS)
    assert held == {one.key: one.last_dirty_timestamp_ms for one in instances(eureka, app)}
    cluster.delete(SYNCERS, app, SERVED)
    wait_for(lambda: cluster.get(SYNCERS, app, SERVED) is None, "its end", PATIENCE_SECONDS)


def test_a_namespace_that_is_lost_does_not_stop_the_others(
    cluster: Cluster, account: Account, eureka: Peers, start: Callable[[], Operator]
) -> None:
    """If the operator loses its Role in one namespace, it reports that, keeps and renews the instances,
    and removes them at the end.
    """
    lost, served = f"{LOST}-app", f"{SERVED}-own"
    first = start()
    for namespace, app in ((LOST, lost), (SERVED, served)):
        running(cluster, namespace, app, 2)
        cluster.apply_syncer(namespace, app)
        wait_for(lambda app=app: len(addresses(eureka, app)) == 2, "two instances", PATIENCE_SECONDS)  # type: ignore[misc]
    first.stop()
    cluster.delete(ROLE_BINDINGS, "rights", LOST)
    wait_for(lambda: f"list, watch services in namespace {LOST}" in missing(account, LOST), "the loss")
    before = renewals(eureka, lost)

    second = start()
    assert "failed to read a namespace, keeping" in second.text()
    cluster.scale(SERVED, served, 3)
    pods = ready(cluster, SERVED, served, 3)
    wait_for(lambda: addresses(eureka, served) == dict.fromkeys(pods, "UP"), "three served", PATIENCE_SECONDS)
    wait_for(
        lambda: condition(cluster, LOST, lost, "Synced").get("reason") == "NamespaceNotRead",
        "NamespaceNotRead",
        PATIENCE_SECONDS,
    )
    assert "cannot be read" in condition(cluster, LOST, lost, "Synced")["message"]

    def are_renewed() -> bool:
        now = renewals(eureka, lost)
        return set(now) == set(before) and all(now[key] > before[key] for key in before)

    wait_for(are_renewed, "renewals of what is kept", PATIENCE_SECONDS)

    cluster.delete(NAMESPACES, LOST)
    wait_for(lambda: cluster.get(NAMESPACES, LOST) is None, "the namespace to go", 60.0)
    assert addresses(eureka, lost) == {}
    second.stop()
    assert "operator is ready" in start().text()
    assert addresses(eureka, served) == dict.fromkeys(pods, "UP")
    cluster.delete(SYNCERS, served, SERVED)
    wait_for(lambda: cluster.get(SYNCERS, served, SERVED) is None, "its end", PATIENCE_SECONDS)
