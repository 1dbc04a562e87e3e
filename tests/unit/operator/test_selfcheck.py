"""The self-check names what is missing, which features do not work without it, and the remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from eurekube_provider.core.errors import (
    KubernetesError,
    RegistryDenied,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.lease_notes import LeaseNotes, add_lease_notes
from eurekube_provider.core.model import Instance
from eurekube_provider.core.syncer import Advertise
from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.batch import ItemResponse
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import StatusPage
from eurekube_provider.kube.access import LEASES, NAMESPACES, SYNCERS, ApiResource, KubeAccess
from eurekube_provider.kube.rights import (
    CLUSTER_RULES,
    GATE_NAMESPACE_RULES,
    NAMESPACE_RULES,
    ROUTE_NAMESPACE_RULE_BY_ADVERTISE,
    election_rules,
    pulumi_stack_rule,
)
from eurekube_provider.operator import selfcheck
from eurekube_provider.operator.__main__ import main
from eurekube_provider.operator.identity_check import CheckResult, CheckVerdict
from eurekube_provider.operator.selfcheck import (
    ACCESS_REVIEWS_PATH,
    CRD_KINDS,
    MISSING_RIGHT_EFFECTS,
    BackgroundSelfCheck,
    check_encryption,
    check_eureka,
    check_kubernetes,
    format_results,
    run_checks,
)
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.triggers.targets import PulumiStack

Attributes = dict[str, str]
CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")


class FakeAccess(KubeAccess):
    """An API server that grants what ``allows`` returns True for; ``crd`` and ``reviews`` may be errors it
    raises.
    """

    def __init__(
        self,
        allows: Callable[[Attributes], bool] = lambda _: True,
        crd: KubernetesError | None = None,
        reviews: KubernetesError | None = None,
    ) -> None:
        super().__init__(client.Configuration(host="http://127.0.0.1:1"))
        self.allows, self.crd, self.reviews = allows, crd, reviews
        self.kinds = list(CRD_KINDS)
        self.foreign_kinds = ["ingresses", "gateways", "httproutes"]
        self.asked: list[Attributes] = []

    def request(
        self,
        method: str,
        path: str,
        query: Any = None,  # noqa: ARG002
        body: Any = None,
        content_type: str = "",  # noqa: ARG002
        timeout_seconds: float | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Answer a read of the CRDs' kinds, or an access review."""
        if method == "GET" and path.endswith("k8s.io/v1"):
            return {"resources": [{"name": name} for name in self.foreign_kinds]}
        if method == "GET" and path.startswith("/api/v1/namespaces/"):
            if path.endswith("/gone"):
                raise KubernetesError("not found", status_code=404)
            return {}
        if method == "GET":
            assert path == "/apis/eurekube.io/v1alpha1"
            if self.crd:
                raise self.crd
            return {"resources": [{"name": name} for name in self.kinds]}
        assert (method, path) == ("POST", ACCESS_REVIEWS_PATH)
        if self.reviews:
            raise self.reviews
        attributes = body["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        return {"status": {"allowed": self.allows(attributes)}}


def warnings(findings: list[CheckResult]) -> list[tuple[str, str, str]]:
    """Return check, subject and detail of each warning."""
    return [(one.check, one.subject, one.detail) for one in findings if one.verdict is CheckVerdict.WARNING]


def test_nothing_is_missing() -> None:
    """Every right of the operator's roles is reviewed once, for all namespaces."""
    access = FakeAccess()
    findings = check_kubernetes(access, ())
    assert warnings(findings) == []
    expected = [
        (group, resource, verb)
        for rule in (*CLUSTER_RULES, *NAMESPACE_RULES)
        for group in rule.api_groups
        for resource in rule.resources
        for verb in rule.verbs
    ]
    asked = [
        (
            one.get("group", ""),
            "/".join(filter(None, (one["resource"], one.get("subresource")))),
            one["verb"],
        )
        for one in access.asked
    ]
    assert asked == expected
    assert not any("namespace" in one for one in access.asked)
    assert "all is well" in format_results(findings)


@pytest.mark.parametrize(
    ("urls", "credentials", "expected"),
    [
        ("http://e:8761/eureka", {"user": "me", "password": "s3cret"}, "the password is sent to e:8761 by"),
        ("https://a/eureka,http://b/eureka", {"token": "s3cret"}, "the token is sent to b by plain http"),
        ("https://a/eureka", {"user": "me", "password": "s3cret"}, None),
        ("http://localhost:8761/eureka,http://[::1]/e", {"token": "s3cret"}, None),
        ("http://a/eureka", {}, None),
    ],
)
def test_a_credential_by_plain_http_is_one_warning(
    urls: str, credentials: dict[str, str], expected: str | None
) -> None:
    """The warning names the servers without the credential; loopback addresses cause none."""
    found = check_encryption("default", Connection.parse(urls, **credentials))
    assert len(found) == len(warnings(found)) == (expected is not None)
    assert "s3cret" not in str(found)
    assert expected is None or expected in found[0].detail


def test_missing_verbs_are_named_by_namespace() -> None:
    """A warning names the missing verb, its namespace, and what does not work without it."""
    access = FakeAccess(
        lambda asked: not (asked.get("namespace") == "b" and asked["verb"] in ("watch", "create"))
    )
    found = warnings(check_kubernetes(access, ("a", "b")))
    assert [subject for _, subject, _ in found] == [
        "watch services in namespace b",
        "watch endpointslices in namespace b",
        "watch pods in namespace b",
        "create events in namespace b",
    ]
    assert "no Events are written; everything else works" in found[-1][2]
    assert "take the namespace off --watch-namespace" in found[-1][2]


def test_the_right_to_tell_clusters_apart() -> None:
    """The operator must read the namespace ``kube-system``, whose UID names the cluster; a check reports
    that right when it is missing.
    """
    access = FakeAccess(lambda asked: asked["resource"] != "namespaces")
    ((_, subject, explanation),) = warnings(check_kubernetes(access, ("a",)))
    assert subject == "get namespaces kube-system"
    assert "cannot start" in explanation
    assert access.asked[0] == {"verb": "get", "resource": "namespaces", "name": "kube-system"}


def test_every_right_has_its_consequence() -> None:
    """Each resource in the roles has a sentence about the features that need it."""
    rules = (
        *NAMESPACE_RULES,
        *GATE_NAMESPACE_RULES,
        *ROUTE_NAMESPACE_RULE_BY_ADVERTISE.values(),
        *CLUSTER_RULES,
        *election_rules("lease"),
        pulumi_stack_rule("shop"),
    )
    assert {resource for rule in rules for resource in rule.resources} == set(MISSING_RIGHT_EFFECTS)


def test_gate_rights_are_checked_where_gates_are_served() -> None:
    """Rights for the readiness gate are reviewed only in the namespaces given for it."""
    access = FakeAccess(lambda asked: asked.get("subresource") != "status" or asked["resource"] != "pods")
    assert warnings(check_kubernetes(access, ("a", "b"))) == []
    ((_, subject, explanation),) = warnings(check_kubernetes(access, ("a", "b"), gate_namespaces=("b",)))
    assert subject == "patch pods/status in namespace b"
    assert "no pod that declares the readiness gate becomes ready" in explanation


def test_rights_for_ingresses_and_gateways_are_checked_where_they_are_used() -> None:
    """They are reviewed in each watched namespace, and only for the kinds of addresses that are allowed."""
    access = FakeAccess(lambda asked: not asked.get("group", "").endswith("networking.k8s.io"))
    assert warnings(check_kubernetes(access, ("a", "b"))) == []
    found = warnings(check_kubernetes(access, ("a", "b"), advertise_from=[Advertise.INGRESS]))
    assert [subject for _, subject, _ in found] == [
        "list, watch ingresses in namespace a",
        "list, watch ingresses in namespace b",
    ]
    assert "advertise: Ingress does not work; everything else does" in found[0][2]
    found = warnings(check_kubernetes(access, (), advertise_from=[Advertise.GATEWAY]))
    assert [subject for _, subject, _ in found] == [
        "list, watch gateways in all namespaces",
        "list, watch httproutes in all namespaces",
    ]


def test_a_cluster_without_the_gateway_api() -> None:
    """Its missing kinds are a note, since everything else works."""
    access = FakeAccess()
    access.foreign_kinds = ["ingresses"]
    both = (Advertise.INGRESS, Advertise.GATEWAY)
    findings = check_kubernetes(access, (), advertise_from=both)
    assert warnings(findings) == []
    notes = [one for one in findings if one.verdict is CheckVerdict.NOTE]
    assert [one.subject for one in notes] == ["gateways", "httproutes"]
    assert "does not know httproutes.gateway.networking.k8s.io" in notes[1].detail


def test_the_right_to_be_elected() -> None:
    """Rights to Leases are reviewed in the Lease's namespace, and only if there is an election."""
    access = FakeAccess(lambda asked: asked["resource"] != "leases")
    found = warnings(check_kubernetes(access, ("a",), ("ops", "eurekube-leader")))
    assert [subject for _, subject, _ in found] == [
        "get, update, watch leases eurekube-leader in namespace ops",
        "create leases in namespace ops",
    ]
    assert warnings(check_kubernetes(access, ("a",))) == []


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[tuple[Settings, KubeAccess]]:
    """Settings of an operator of the namespace ``shop`` outside of a cluster, without a Lease's namespace and
    with a Eureka that is away; and a way to the cluster.
    """
    with KubernetesApi() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        away = Connection.parse("http://127.0.0.1:9/eureka")
        access = KubeAccess.load(kubeconfig)
        for path in (Path(__file__).parents[3] / "crds").glob("*.yaml"):
            access.request("POST", CRDS.path(), body=yaml.safe_load(path.read_text()))
        for name in ("shop", "pay", "ops", "left"):
            access.request("POST", NAMESPACES.path(), body={"metadata": {"name": name}})
        yield Settings({"default": away}, kubeconfig=str(kubeconfig), watch_namespaces=("shop",)), access


def test_a_lease_in_a_namespace_that_is_not_there(outside: tuple[Settings, KubeAccess]) -> None:
    """An administrator has every right in a namespace that does not exist, where nobody can ever lead. A
    running operator, which may read no namespace, does not ask for it.
    """
    settings = replace(outside[0], lease_namespace="gone")
    (said,) = [one.detail for one in run_checks(settings) if one.subject == "gone"]
    assert "no replica leads, and nothing is registered or changed" in said
    assert "--lease-namespace" in said
    assert "gone" not in {one.subject for one in run_checks(settings, in_full=False)}


def lease_of_an_operator_of_all(namespace: str) -> dict[str, Any]:
    """Return the Lease of an operator that watches all namespaces."""
    notes = LeaseNotes(watched_namespaces=("*",))
    return {"metadata": add_lease_notes({"namespace": namespace, "name": "eurekube-leader"}, notes)}


def test_a_check_finds_the_lease_of_the_operator(outside: tuple[Settings, KubeAccess]) -> None:
    """As the operator does outside of its cluster: the kubeconfig's namespace need not be the operator's."""
    settings, access = outside
    syncer = {"metadata": {"name": "billing"}, "spec": {"mode": "pod", "selector": {"app": "billing"}}}
    access.request("POST", SYNCERS.path("pay"), body=syncer)
    assert [check for check, _, _ in warnings(run_checks(settings))] == ["eureka"]
    access.request("POST", LEASES.path("ops"), body=lease_of_an_operator_of_all("ops"))
    _, (check, subject, said) = warnings(run_checks(settings))
    assert (check, subject) == ("namespace", "EurekaSyncer pay/billing")
    assert "Add pay to --watch-namespace" in said
    access.request("POST", LEASES.path("left"), body=lease_of_an_operator_of_all("left"))
    _, (check, subject, said) = warnings(run_checks(settings))
    assert (check, subject) == ("name", "eurekube-leader")
    assert "in the namespaces left, ops: name the operator's with --lease-namespace" in said


def test_the_check_before_a_removal_needs_no_eureka(
    outside: tuple[Settings, KubeAccess], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks the cluster alone, so that nobody must say where Eureka is."""
    monkeypatch.delenv("EUREKA_URL", raising=False)
    words = ["--check-removal", "--kubeconfig", str(outside[0].kubeconfig)]
    assert main(words) == 0
    assert "no EurekaSyncer" in capsys.readouterr().out
    syncer = {"metadata": {"name": "rating"}, "spec": {"mode": "pod", "selector": {"app": "rating"}}}
    outside[1].request("POST", SYNCERS.path("shop"), body=syncer)
    assert main(words) == 1
    assert "still needed by EurekaSyncer shop/rating" in capsys.readouterr().out


def test_what_a_eureka_that_is_away_holds_is_not_counted(outside: tuple[Settings, KubeAccess]) -> None:
    """Nobody says that no instance would lapse when none could be read."""
    (note,) = [one for one in run_checks(outside[0]) if one.check == "name"]
    assert "would renew nothing, and its instances would lapse" in note.detail


def test_without_the_crd() -> None:
    """The warning gives the command that installs the CRDs, and the rights are still reviewed."""
    access = FakeAccess(crd=KubernetesError("not found", status_code=404))
    ((check, _, explanation),) = warnings(check_kubernetes(access, ()))
    assert check == "crd"
    assert "eurekube crds | kubectl apply -f -" in explanation
    assert access.asked


def test_without_the_crd_of_stack_refreshes() -> None:
    """A missing CRD StackRefresh is a note, since syncers work without it."""
    access = FakeAccess()
    access.kinds.remove("stackrefreshes")
    findings = check_kubernetes(access, ())
    assert warnings(findings) == []
    (note,) = (one for one in findings if one.verdict is CheckVerdict.NOTE)
    assert "eurekube crds | kubectl apply -f -" in note.detail


def test_a_stack_that_is_a_target() -> None:
    """The operator needs the right to patch the target's Stack, in that Stack's namespace."""
    access = FakeAccess(lambda asked: asked["resource"] != "stacks" or asked["verb"] != "patch")
    ((_, subject, explanation),) = warnings(
        check_kubernetes(access, (), None, [PulumiStack("pulumi", "prod")])
    )
    assert subject == "patch stacks prod in namespace pulumi"
    assert "pulumiStack cannot run" in explanation


@pytest.mark.parametrize(
    ("access", "subject", "words"),
    [
        (FakeAccess(crd=KubernetesError("no answer")), "http://127.0.0.1:1", "no answer"),
        (FakeAccess(crd=KubernetesError("broken", status_code=500)), "eurekasyncers", "broken"),
        (FakeAccess(reviews=KubernetesError("no", status_code=403)), "all", "cannot be found out"),
    ],
)
def test_an_api_that_does_not_tell(access: FakeAccess, subject: str, words: str) -> None:
    """When the API server does not answer reviews, one warning replaces one for each right."""
    ((_, found, explanation),) = warnings(check_kubernetes(access, ()))
    assert found == subject
    assert words in explanation


class FakePeer(Peer):
    """A server whose status is ``answer``."""

    def __init__(self, url: str, answer: StatusPage | RegistryError, *, batches: bool = True) -> None:
        super().__init__(url, Connection((url,)))
        self.answer, self.batches = answer, batches

    def read_status(self) -> StatusPage:
        """Return the answer, or raise it."""
        if isinstance(self.answer, RegistryError):
            raise self.answer
        return self.answer

    def list_instances(self) -> list[Instance]:
        """Return an empty list, or raise the answer."""
        self.read_status()
        return []

    def send_batch(self, items: Any) -> list[ItemResponse]:
        """Accept every item, or raise 404 if the server has no batches."""
        if not self.batches:
            raise RegistryRejected("no batches here", status_code=404)
        return [ItemResponse(200) for _ in items]


def status(*replicas: str, ahead: float = 0.0) -> StatusPage:
    """Return the status of a server that replicates to these URLs."""
    return StatusPage("0 days 00:03", 1, replicas, ahead)


def eureka(*servers: FakePeer, mode: BatchMode = BatchMode.AUTO) -> list[CheckResult]:
    """Return the findings about these servers."""
    peers = Peers(Connection(tuple(server.url for server in servers), mode=mode))
    peers.peers = servers
    return check_eureka("default", peers)


def test_servers_that_answer() -> None:
    """Each server is reachable, and batches can be used since every peer is configured."""
    found = eureka(FakePeer("http://a/e", status("http://b/e")), FakePeer("http://b/e", status("http://a/e")))
    assert [(one.check, one.verdict) for one in found] == [
        ("eureka", CheckVerdict.OK),
        ("eureka", CheckVerdict.OK),
        ("batches", CheckVerdict.OK),
    ]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            FakePeer("http://a/e", status("http://u:p4ss@c/e")),
            "http://a/e forwards to http://c/e, which is not",
        ),
        (FakePeer("http://a/e", status(), batches=False), "they are refused: no batches here"),
    ],
)
def test_why_batches_cannot_be_used(server: FakePeer, words: str) -> None:
    """The reason is no warning, and contains no credentials of a peer's URL."""
    found = eureka(server)
    assert warnings(found) == []
    assert words in found[-1].detail
    assert "p4ss" not in found[-1].detail


def test_a_chosen_mode_is_not_judged() -> None:
    """If a person chose the mode rest or batch, the check reports it without a verdict on batches."""
    assert eureka(FakePeer("http://a/e", status()), mode=BatchMode.REST)[-1].detail == "the mode is rest"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (RegistryUnreachable("no connection to http://a/e"), "not reachable: no connection"),
        (RegistryDenied("answered 401"), "refuses us: answered 401"),
        (RegistryRejected("not Eureka's"), "not Eureka's"),
        (status(ahead=90.0), "90 s ahead of this machine's"),
        (status(ahead=-90.0), "90 s behind this machine's"),
    ],
)
def test_servers_that_hamper(answer: StatusPage | RegistryError, words: str) -> None:
    """A warning names the server's URL and what is wrong."""
    ((_, subject, explanation),) = warnings(eureka(FakePeer("http://a/e", answer)))
    assert subject == "default http://a/e"
    assert words in explanation


def test_an_operator_that_ends_at_once_leaves_no_check_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that is scheduled for later is not run after the operator has ended."""
    asked: list[object] = []
    monkeypatch.setattr(selfcheck, "run_checks", asked.append)
    before = set(threading.enumerate())
    checking = BackgroundSelfCheck(Settings({"default": Connection.parse("http://eureka.example/eureka")}))
    (thread,) = set(threading.enumerate()) - before
    checking.close()
    thread.join(5)
    assert not thread.is_alive()
    assert not asked
