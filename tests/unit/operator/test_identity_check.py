"""Findings of ``--check`` about names of clusters, namespaces and operators."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY
from eurekube_provider.core.lease_notes import LeaseNotes, add_lease_notes
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.operator.identity_check import (
    CheckVerdict,
    cluster_name_findings,
    name_and_namespace_findings,
    unrenewed_registration_findings,
)
from eurekube_provider.operator.settings import Settings
from tests.unit.core.test_served import syncer

UID = "0b2c1d3e-4f5a-6789-abcd-ef0123456789"
LEASE = ("eureka-system", "eurekube-leader")


def registered(cluster: str, count: int = 1, namespace: str = "shop", uid: str = UID) -> list[Instance]:
    """Return instances of a syncer under a name of a cluster, renewed just now."""
    metadata = {OWNER_KEY: f"cluster/{cluster}/{namespace}/billing", CLUSTER_UID_KEY: uid}
    return [
        Instance(
            "billing",
            f"{number}.{namespace}.{cluster}:billing:80",
            "10.0.0.1",
            "10.0.0.1",
            Port(80),
            metadata=metadata,
            lease_ends_ms=int((time.time() + 85) * 1000),
        )
        for number in range(count)
    ]


def settings(**given: Any) -> Settings:
    """The settings of an operator."""
    return Settings({}, **given)


def findings_of(
    instances: list[Instance],
    notes: LeaseNotes = LeaseNotes(),  # noqa: B008
    **given: Any,
) -> list[tuple[bool, str]]:
    """Return each finding's sentence, with True for a warning."""
    return [
        (one.verdict is CheckVerdict.WARNING, one.detail)
        for one in cluster_name_findings(settings(**given), UID, notes, instances)
    ]


def test_all_that_belongs_to_one_other_name_is_said() -> None:
    """The finding names the setting that takes the instances over; for a known former name it only
    announces that.
    """
    earlier = registered("earlier", 3)
    ((is_warning, said),) = findings_of(earlier, cluster_name="east")
    assert is_warning
    assert "all 3 instances of this cluster's syncers are registered under this name" in said
    assert "--previous-cluster-name earlier" in said
    for known in ({"previous_cluster_names": ("earlier",)}, {"notes": LeaseNotes(cluster_name="earlier")}):
        ((is_warning, said),) = findings_of(earlier, cluster_name="east", **known)
        assert (is_warning, said) == (
            False,
            "a former name of the cluster east: 3 instances will be taken over",
        )
    ((is_warning, said),) = findings_of([*earlier, *registered("east")], cluster_name="east")
    assert (is_warning, "another operator calls the cluster so" in said) == (False, True)
    assert findings_of(registered("other", uid="uid-2"), cluster_name="east") == []
    ((is_warning, said),) = findings_of(registered("east", 2, uid="uid-2"), cluster_name="east")
    assert (is_warning, "has 2 instances under this name, with the UID uid-2" in said) == (True, True)
    assert "does not start. Set another --cluster-name" in said
    assert findings_of(registered("east", uid="uid-2"), cluster_name="east", take_over_cluster=True) == []
    assert (
        findings_of(registered("earlier", namespace="pay"), cluster_name="east", watch_namespaces=("shop",))
        == []
    )


def test_what_a_start_would_cost_while_the_api_is_away_is_said() -> None:
    """Without --cluster-name, instances would lapse if the operator starts without the API; the note suggests
    to set the default name.
    """
    ((is_warning, said),) = findings_of(registered(UID[:8], 2))
    assert not is_warning
    assert "2 instances would lapse after 90 to 180 s. --cluster-name 0b2c1d3e changes nothing else" in said
    assert findings_of(registered(UID[:8], 2), cluster_name=UID[:8]) == []


class Api:
    """A cluster with syncers, their namespaces, and the operator's Lease."""

    def __init__(self, *items: dict[str, Any], notes: LeaseNotes | None = None, code: int = 404) -> None:
        self._items, self._notes, self._code = items, notes, code

    def get(self, path: str) -> dict[str, Any]:
        """Read an object."""
        if path.endswith("/kube-system"):
            return {"metadata": {"uid": UID}}
        if path.endswith("/leases/eurekube-leader") and self._notes is not None:
            return {"metadata": add_lease_notes({}, self._notes)}
        raise KubernetesError(path, status_code=self._code)

    def pages(self, path: str) -> Iterator[dict[str, Any]]:
        """All syncers."""
        assert path.endswith("/eurekasyncers")
        yield {"items": list(self._items)}


def found(api: Any, instances: list[Instance], *namespaces: str) -> list[tuple[str, str]]:
    """Return the subject and sentence of each warning."""
    given = settings(cluster_name="east", watch_namespaces=namespaces)

    def read(keys: Any) -> list[Instance]:
        wanted = set(keys)
        return [one for one in instances if one.key in wanted]

    every = name_and_namespace_findings(given, api, LEASE, instances, read)
    return [(one.subject, one.detail) for one in every if one.verdict is CheckVerdict.WARNING]


def test_a_namespace_that_is_misspelt_or_dropped_is_said() -> None:
    """The check names a watched namespace that does not exist, and syncers in namespaces that are no
    longer watched.
    """
    api = Api(syncer("shop"), syncer("pay"), notes=LeaseNotes(watched_namespaces=("shop", "pay")))
    renewed = registered("east", namespace="pay")
    old = [replace(one, lease_ends_ms=int((time.time() - 100) * 1000)) for one in renewed]
    ((subject, said),) = found(api, renewed, "shop")
    assert subject == "EurekaSyncer pay/billing"
    assert "watches its namespace, and these settings do not" in said
    assert "Add pay to --watch-namespace" in said
    ((subject, said),) = found(api, old, "shop")
    assert (subject, "nobody has renewed its instances" in said) == ("EurekaSyncer pay/billing", True)
    misspelt, dropped = found(api, renewed, "shop", "pey")
    assert misspelt[0] == "pey"
    assert "the cluster has no such namespace: is it misspelt in --watch-namespace? pay is one" in misspelt[1]
    assert dropped[0] == "EurekaSyncer pay/billing"
    assert found(api, renewed, "shop", "pay") == []
    of_all = Api(syncer("shop"), syncer("pay"), notes=LeaseNotes(watched_namespaces=("*",)))
    ((subject, said),) = found(of_all, renewed, "shop")
    assert (subject, "Add pay to --watch-namespace" in said) == ("EurekaSyncer pay/billing", True)
    assert found(Api(syncer("shop"), syncer("pay"), notes=LeaseNotes()), renewed, "shop") == []


def test_a_namespace_that_was_dropped_before_may_have_another_operator() -> None:
    """Nothing is said as long as somebody renews there; afterwards it is, although Eureka holds nothing."""
    notes = LeaseNotes(watched_namespaces=("shop",), dropped_namespaces=("pay",))
    api = Api(syncer("shop"), syncer("pay"), notes=notes)
    assert found(api, registered("east", namespace="pay"), "shop") == []
    ((subject, said),) = found(api, [], "shop")
    assert (subject, "none is there any more" in said) == ("EurekaSyncer pay/billing", True)


@pytest.mark.parametrize("code", [403, 500])
def test_who_may_not_ask_for_a_namespace_does_not_take_it_for_missing(code: int) -> None:
    """A denied read of a namespace is no finding; a Lease that cannot be read for another reason is one."""
    said = found(Api(notes=None, code=code), [], "shop")
    assert [subject for subject, _ in said] == ([] if code == 403 else ["eureka-system/eurekube-leader"])


def test_stacks_of_another_renewer_are_named_if_nobody_renews_them() -> None:
    """An operator that was renamed no longer renews the registrations of stacks that name its old name."""
    (made,) = registered("east")

    def of_stack(renewer: str, renewed_ago: float) -> Instance:
        metadata = {OWNER_KEY: "stack/acme/shop/dev/legacy", "eurekube.renewer": renewer}
        ends = int((time.time() - renewed_ago + 90) * 1000)
        id_ = f"{renewer}:legacy:80"
        return replace(made, application="legacy", instance_id=id_, metadata=metadata, lease_ends_ms=ends)

    every = [
        of_stack("self", 900),
        of_stack("eurekube", 900),
        of_stack("east", 20),
        of_stack("west", 200),
        made,
    ]

    def read(keys: Any) -> list[Instance]:
        return [one for one in every if one.key in set(keys)]

    (found,) = unrenewed_registration_findings("eurekube", every, read)
    assert (found.subject, found.verdict) == ("west", CheckVerdict.WARNING)
    assert "1 registration of stacks ask an operator of this name to renew them" in found.detail
    assert "--operator-name west, or run the stacks with the renewer eurekube" in found.detail
    # Eureka does not answer.
    assert list(unrenewed_registration_findings("eurekube", every, lambda _: [])) == []
