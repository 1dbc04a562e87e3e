"""Checks before an operator is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.errors import ConfigurationError, KubernetesError, OperatorStillNeeded
from eurekube_provider.kube.access import MIRRORS, ApiResource
from eurekube_provider.kube.syncer_guard import (
    GuardedOperator,
    cluster_access,
    refuse_existing_namespace,
    refuse_removal_while_needed,
    uninstall_refusal,
)

OPERATOR = GuardedOperator("bridge", "uid-1", "shop.dev")


def syncer(place: str, stack: str = "") -> dict[str, Any]:
    """Return a syncer's metadata."""
    namespace, name = place.split("/")
    labels = {"eurekube.io/stack": stack} if stack else None
    return {"metadata": {"namespace": namespace, "name": name, "labels": labels}}


class FakeCluster:
    """A cluster with the operator's namespace and some custom resources, which can fail."""

    server = "https://cluster.example.com"

    def __init__(
        self,
        *syncers: dict[str, Any],
        uid: str = "uid-1",
        is_there: bool = True,
        error: Exception | None = None,
        mirrors: tuple[dict[str, Any], ...] = (),
        has_mirrors: bool = True,
        is_allowed: bool = True,
        workloads: Mapping[str, list[dict[str, Any]]] | None = None,
    ) -> None:
        self.workloads = workloads or {}
        self.syncers, self.mirrors = syncers, mirrors
        self.has_mirrors, self.is_allowed = has_mirrors, is_allowed
        self.uid = uid
        self.is_there = is_there
        self.error = error
        self.asked: list[str] = []

    def request(self, _method: str, path: str, timeout_seconds: float) -> dict[str, Any]:
        """Return a namespace."""
        assert timeout_seconds <= 10
        self.asked.append(path)
        if self.error is not None:
            raise self.error
        if not self.is_there:
            raise KubernetesError("not found", status_code=404)
        return {"metadata": {"uid": self.uid}}

    def with_metadata_only(self) -> FakeCluster:
        """Return the cluster itself, whose answers have metadata only."""
        return self

    def serves_kind(self, resource: ApiResource, timeout_seconds: float) -> bool:
        """Return whether the cluster has this kind."""
        assert timeout_seconds <= 10
        return self.has_mirrors or resource is not MIRRORS

    def pages(self, path: str, timeout_seconds: float) -> Iterator[dict[str, Any]]:
        """Yield pages with one object each."""
        assert timeout_seconds <= 10
        self.asked.append(path)
        if self.error is not None:
            raise self.error
        if path == "/apis/eurekube.io/v1alpha1/namespaces/forbidden/eurekasyncers":
            raise KubernetesError("GET: answered 403: forbidden", status_code=403)
        if path.endswith(MIRRORS.plural) and not self.is_allowed:
            raise KubernetesError("GET: answered 403: forbidden", status_code=403)
        if "gone" in path or (path.endswith(MIRRORS.plural) and not self.has_mirrors):
            raise KubernetesError("not found", status_code=404)
        yield {"items": []}
        kind = path.rpartition("/")[2]
        if kind in ("pods", "deployments", "statefulsets", "daemonsets"):
            yield {"items": self.workloads.get(kind, [])}
            return
        for each in self.mirrors if path.endswith(MIRRORS.plural) else self.syncers:
            if "/namespaces/" not in path or f"/namespaces/{each['metadata']['namespace']}/" in path:
                yield {"items": [each]}


def removal_error(
    cluster: FakeCluster,
    environment: Mapping[str, str] | None = None,
    wait: Callable[[float], None] = lambda _: None,
    **more: Any,
) -> OperatorStillNeeded | None:
    """Return the error that forbids the operator's removal, or None if it may be removed."""
    given = {name: getattr(OPERATOR, name) for name in ("namespace", "namespace_uid", "stack_label")}
    operator = GuardedOperator(**{**given, **more})
    access: Any = lambda _: cluster  # noqa: E731
    try:
        refuse_removal_while_needed(operator, access, environment or {}, wait)
    except OperatorStillNeeded as error:
        return error
    return None


def test_it_stays_while_others_need_it() -> None:
    """The operator's removal is refused while other stacks' syncers exist; the message names them and the
    way out.
    """
    others = [syncer(f"shop/cart-{number}", "other.dev" if number % 2 else "") for number in range(7)]
    said = str(removal_error(FakeCluster(syncer("shop/rating", "shop.dev"), *others)))
    assert said == (
        "the operator in the namespace bridge is still needed: 7 EurekaSyncers that this stack does not own"
        " would be served by nobody, and their instances would leave Eureka: shop/cart-0, shop/cart-1,"
        " shop/cart-2, shop/cart-3, shop/cart-4 and 2 more. Nothing of the operator was removed. Delete them"
        " first, or set EUREKUBE_FORCE_DESTROY=true for this run, or force_destroy on the operator and run up"
        " before"
    )


def test_it_waits_for_those_of_its_own_stack() -> None:
    """A destroy deletes them beside the operator; a program that keeps them is refused after a minute."""
    cluster, waited = FakeCluster(syncer("shop/rating", "shop.dev")), list[float]()
    said = str(removal_error(cluster, wait=waited.append))
    assert sum(waited) == 60
    assert "1 EurekaSyncers of this stack, which it still has, would be served by nobody, and their" in said
    assert "shop/rating. Nothing of the operator was removed" in said

    def delete_them(_: float) -> None:
        cluster.syncers = ()

    assert removal_error(cluster, wait=delete_them) is None
    own = FakeCluster(mirrors=(syncer("shop/review", "shop.dev"),))
    assert "1 EurekaMirrors of this stack" in str(removal_error(own))
    assert removal_error(own, {"EUREKUBE_FORCE_DESTROY": "true"}) is None


def test_it_stays_while_others_mirrors_need_it() -> None:
    """The operator's removal is refused while others' mirrors exist, in one message with their syncers."""
    own, other = syncer("shop/review", "shop.dev"), syncer("shop/order")
    said = str(removal_error(FakeCluster(mirrors=(own, other))))
    assert (
        "1 EurekaMirrors that this stack does not own would be served by nobody, and their Services" in said
    )
    assert "last: shop/order. Nothing of the operator was removed" in said
    said = str(removal_error(FakeCluster(other, mirrors=(other,)), owns_crds=True))
    assert "1 EurekaSyncers" in said
    assert "1 EurekaMirrors that this stack does not own would be deleted with their CRD" in said


def test_a_cluster_without_the_kind_has_no_mirrors() -> None:
    """A cluster without the kind EurekaMirror has no mirrors, even if it answers 403; with the kind a 403
    is a refusal.
    """
    assert removal_error(FakeCluster(has_mirrors=False)) is None
    assert removal_error(FakeCluster(has_mirrors=False, is_allowed=False)) is None
    assert "EurekaMirrors of others is not known" in str(removal_error(FakeCluster(is_allowed=False)))


def test_it_goes_when_nobody_else_needs_it() -> None:
    """The operator may be removed when there are no syncers, or the kind does not exist."""
    assert removal_error(FakeCluster()) is None
    assert removal_error(FakeCluster(), watch_namespaces=("gone",)) is None


def test_what_is_gone_serves_nobody() -> None:
    """An operator whose namespace is gone may be removed, unless its CRD would be deleted and syncers with
    it.
    """
    cluster = FakeCluster(syncer("shop/cart"), is_there=False)
    assert removal_error(cluster) is None
    assert removal_error(cluster, owns_crds=True) is not None


def test_only_what_it_serves_counts() -> None:
    """Only syncers in watched namespaces count, or in all namespaces if the CRD would be deleted as well."""
    cluster = FakeCluster(syncer("else/cart"))
    assert removal_error(cluster, watch_namespaces=("shop", "stage")) is None
    assert list(dict.fromkeys(cluster.asked[1:])) == [
        f"/apis/eurekube.io/v1alpha1/namespaces/{name}/{kind}"
        for kind in ("eurekasyncers", "eurekamirrors")
        for name in ("shop", "stage")
    ]
    assert "would be deleted with their CRD" in str(
        removal_error(cluster, watch_namespaces=("shop",), owns_crds=True)
    )


@pytest.mark.parametrize(
    ("cluster", "more", "sentence"),
    [
        (
            FakeCluster(error=KubernetesError("no answer from the Kubernetes API at https://cluster")),
            {},
            "is not known: no answer from the Kubernetes API at https://cluster",
        ),
        (FakeCluster(), {"watch_namespaces": ("forbidden",)}, "answered 403: forbidden"),
        (
            FakeCluster(uid="uid-2"),
            {},
            "bridge of the cluster at https://cluster.example.com is another one than the operator's",
        ),
        (FakeCluster(error=ConfigurationError("no way to the cluster")), {}, "no way to the cluster"),
    ],
)
def test_where_nobody_can_tell_it_stays(cluster: FakeCluster, more: dict[str, Any], sentence: str) -> None:
    """The removal is refused if the cluster cannot be reached, denies the read, or is another one; force
    overrides this.
    """
    said = str(removal_error(cluster, **more))
    assert sentence in said
    assert "Nothing of the operator was removed" in said
    assert removal_error(cluster, {"EUREKUBE_FORCE_DESTROY": "true"}, **more) is None
    assert removal_error(cluster, is_forced=True, **more) is None


def test_a_cluster_that_is_gone_for_good() -> None:
    """With PULUMI_K8S_DELETE_UNREACHABLE an unreachable cluster allows the removal; a cluster that answers is
    checked as usual.
    """
    reported = {"PULUMI_K8S_DELETE_UNREACHABLE": "true"}
    assert removal_error(FakeCluster(error=KubernetesError("no answer")), reported) is None
    assert removal_error(FakeCluster(uid="uid-2"), reported) is not None
    assert removal_error(FakeCluster(syncer("shop/cart")), reported) is not None


def test_the_way_to_the_cluster_is_the_kubernetes_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubeconfig may be a text or a file; a broken one is not repeated in the error, as it holds
    credentials.
    """
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}.example.com"}} for name in ("a", "b")
        ],
        "users": [{"name": "me", "user": {"token": "hidden"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in ("a", "b")],
        "current-context": "a",
    }
    text = yaml.safe_dump(written)
    file = tmp_path / "config"
    file.write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # also in a pod
    for kubeconfig in (text, str(file)):
        for context, server in ((None, "a"), ("b", "b")):
            found = cluster_access(
                GuardedOperator("bridge", "u", "s", kubeconfig=kubeconfig, context=context)
            )
            assert found.server == f"https://{server}.example.com"
    for broken in ("users:\n- token: hidden\n  x", "hidden: [\n"):
        with pytest.raises(ConfigurationError) as raised:
            cluster_access(GuardedOperator("bridge", "u", "s", kubeconfig=broken))
        assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (FakeCluster(is_there=False), None),
        (FakeCluster(), "the namespace bridge already exists: leave it to them"),
        (FakeCluster(error=KubernetesError("no answer")), "is not known: no answer. Nothing was made"),
        (FakeCluster(error=KubernetesError("no", status_code=403)), "already exists is not known: no."),
        (FakeCluster(error=ConfigurationError("no kubeconfig")), "is not known: no kubeconfig. Nothing"),
    ],
    ids=["free", "there", "away", "forbidden", "no way"],
)
def test_a_namespace_is_made_only_where_there_is_known_to_be_none(cluster: Any, why: str | None) -> None:
    """A namespace that exists, or whose absence is not known, is refused: Pulumi could adopt it, and delete
    it on destroy.
    """
    operator = GuardedOperator("bridge", None, "")
    if why is None:
        refuse_existing_namespace(operator, "leave it to them", lambda _: cluster)
        return
    with pytest.raises(ConfigurationError, match=why):
        refuse_existing_namespace(operator, "leave it to them", lambda _: cluster)


def uninstalled(cluster: FakeCluster, *namespaces: str) -> str | None:
    """Return the reason for which the operator may not be uninstalled, or None."""
    return uninstall_refusal(cluster, namespaces)  # type: ignore[arg-type]


def test_an_operator_that_nobody_needs_may_be_uninstalled() -> None:
    """An operator may be uninstalled without custom resources, without their kinds, or if it may not list
    mirrors, because it serves none then.
    """
    assert uninstalled(FakeCluster()) is None
    assert uninstalled(FakeCluster(has_mirrors=False), "gone") is None
    assert uninstalled(FakeCluster(mirrors=(syncer("shop/review"),), is_allowed=False)) is None


def test_who_needs_an_operator_that_would_be_uninstalled_is_named() -> None:
    """The refusal to uninstall names the first five custom resources, whoever made them, and the way out."""
    syncers = [syncer(f"shop/s{number}", "shop.dev") for number in range(7)]
    assert uninstalled(FakeCluster(*syncers, mirrors=(syncer("shop/legacy"),))) == (
        "the operator is still needed by EurekaSyncer shop/s0, shop/s1, shop/s2, shop/s3, shop/s4 and 2 more"
        " and EurekaMirror shop/legacy. Nobody would renew the instances, which would leave Eureka within"
        " minutes, and what is deleted would wait for ever. Delete them first, while the operator runs;"
        " `helm uninstall --no-hooks` goes on all the same"
    )


def gated(name: str, *, gate: str = "eurekube.io/callers-know", kind: str = "template") -> dict[str, Any]:
    """Return a workload or a pod that declares a readiness gate."""
    spec = {"readinessGates": [{"conditionType": gate}]}
    body = {"template": {"spec": spec}} if kind == "template" else spec
    return {"metadata": {"namespace": "shop", "name": name}, "spec": body}


def test_an_operator_that_pods_wait_for_stays() -> None:
    """An operator that serves readiness gates may not be uninstalled while a workload, or a pod without a
    workload, declares the gate.
    """
    pods = [gated("rating-1", kind="pod")]
    for workloads, named in (
        ({"deployments": [gated("rating")], "pods": pods}, "Deployment shop/rating"),
        ({"statefulsets": [gated("store")]}, "StatefulSet shop/store"),
        ({"pods": pods}, "Pod shop/rating-1"),
    ):
        cluster = FakeCluster(workloads=workloads)
        said = uninstall_refusal(cluster, (), (None,))  # type: ignore[arg-type]
        assert said is not None
        assert said.startswith(f"the operator is still needed by {named}, which declare the readiness gate")
        assert "`helm uninstall --no-hooks` goes on all the same" in said
        assert uninstalled(cluster) is None, "it serves no gates"
    others = FakeCluster(workloads={"deployments": [gated("rating", gate="example.org/other")]})
    assert uninstall_refusal(others, (), ("shop",)) is None  # type: ignore[arg-type]
    away = FakeCluster(error=KubernetesError("no answer"))
    said = uninstall_refusal(away, (), ("shop",))  # type: ignore[arg-type]
    assert said is not None
    assert said.startswith("nobody can tell whether the operator is still needed: no answer.")


def test_what_an_operator_does_not_watch_does_not_keep_it() -> None:
    """Custom resources outside the watched namespaces do not prevent an uninstall."""
    cluster = FakeCluster(syncer("else/cart"))
    assert uninstalled(cluster, "shop", "stage") is None
    assert len(cluster.asked) == 4
    assert uninstalled(cluster, "else") is not None


@pytest.mark.parametrize("status", [None, 403, 500])
def test_an_operator_stays_where_nobody_can_tell(status: int | None) -> None:
    """An uninstall is refused with the reason when the cluster cannot be read."""
    said = uninstalled(FakeCluster(error=KubernetesError("no answer", status_code=status)))
    assert said is not None
    assert said.startswith("nobody can tell whether the operator is still needed: no answer.")
