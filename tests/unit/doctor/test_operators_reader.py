"""Reading of the operators' state from a cluster's Leases and some instances."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.comparison.operators import describe_operators, findings_about_operators
from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.identity import CLUSTER_UID_KEY
from eurekube_provider.core.lease_notes import LeaseNotes, ServerNote, add_lease_notes
from eurekube_provider.core.model import Instance
from eurekube_provider.doctor.operators_reader import read_operators
from eurekube_provider.runtime.clock import format_utc_time
from tests.unit.core.test_served import renewed

LABEL = "eurekube.io/operator"


class Api:
    """A fake cluster that returns these Leases, the next list at each look."""

    def __init__(self, *looks: list[dict[str, Any]], error: KubernetesError | None = None) -> None:
        self._looks, self._error = list(looks), error
        self.asked: list[dict[str, str]] = []

    def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """Return Leases by label or by name."""
        assert path == "/apis/coordination.k8s.io/v1/leases"
        self.asked.append(query)
        if self._error:
            raise self._error
        now = self._looks[0]
        if "fieldSelector" in query:
            if len(self._looks) > 1:
                self._looks.pop(0)
            return {"items": [one for one in now if one["metadata"]["name"] == "eurekube-leader"]}
        assert query == {"labelSelector": LABEL}
        return {"items": [one for one in now if LABEL in one["metadata"].get("labels", {})]}


def lease(name: str, seconds_ago: float, *, has_label: bool = True) -> dict[str, Any]:
    """Return a Lease held by ``pod-1`` and renewed this many seconds ago."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - seconds_ago))
    labels = {"labels": {LABEL: "eurekube"}} if has_label else {}
    return {
        "metadata": {"namespace": "ops", "name": name, **labels},
        "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": stamp},
    }


class Eureka:
    """A fake server that answers uncached reads."""

    def __init__(self, *held: Instance, fails: bool = False) -> None:
        self.held, self.fails = {one.key: one for one in held}, fails
        self.asked: list[str] = []

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return an instance, or raise if the server fails."""
        self.asked.append(instance_id)
        if self.fails:
            raise RegistryUnreachable("no answer")
        return self.held.get((application, instance_id))


def found(api: Any, *eurekas: tuple[Any, list[Instance]], namespaces: tuple[str, ...] = ()) -> Any:
    """Read the operators without pauses."""
    return read_operators(api, "uid-1", eurekas, namespaces, [], lambda _: None)


def test_leases_of_all_versions_and_names_are_found() -> None:
    """Leases are found by their label, and by the default name, which earlier versions used without a
    label.
    """
    leases = [
        lease("eurekube-leader", 1, has_label=False),
        lease("west-leader", 1),
        lease("eurekube-leader", 1),
    ]
    assert [one.lease_name for one in found(Api(leases)).states] == ["ops/eurekube-leader", "ops/west-leader"]
    assert found(Api(error=KubernetesError("forbidden", status_code=403))).lease_error == "forbidden"


def test_a_lease_that_seems_old_is_looked_at_again() -> None:
    """A Lease that seems expired is read a second time, as clocks may differ: a living holder has renewed
    it.
    """
    now = time.time()
    lives = found(Api([lease("a", 40)], [lease("a", 36)]))
    assert [one.is_leading(now) for one in lives.states] == [True]
    api = Api([lease("a", 40)])
    assert [one.is_leading(now) for one in found(api).states] == [False]
    assert len(api.asked) == 4
    api = Api([lease("a", 1), lease("b", 1000)])
    assert [one.is_leading(now) for one in found(api).states] == [True, False]
    assert len(api.asked) == 2


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_a_machine_whose_clock_is_wrong_by_an_hour_sees_who_leads(ahead: float) -> None:
    """A holder that is seen renewing its Lease leads, and ages are counted by its clock: a machine's clock
    may be wrong by hours after a sleep, and a healthy operator must not be called away for that.
    """
    notes = LeaseNotes(
        "eurekube",
        "east",
        watched_namespaces=("*",),
        server_notes=(ServerNote("default", "http://e/eureka", format_utc_time(time.time() - ahead - 5)),),
    )
    looks = [lease("a", ahead + 4), lease("a", ahead)]
    for one in looks:
        one["metadata"] = add_lease_notes(one["metadata"], notes)
    snapshot = replace(found(Api(looks[:1], looks[1:])), instances_renewed_at=time.time() - ahead - 20)
    syncer = {"metadata": {"namespace": "shop", "name": "rating"}}
    assert list(findings_about_operators(snapshot, [syncer], time.time())) == []
    first, leader, *_ = describe_operators(snapshot, time.time())
    assert snapshot.clock_ahead_seconds == pytest.approx(ahead, abs=5)  # Leases have whole seconds here
    assert ("ahead of" if ahead > 0 else "behind") in first
    assert "pod-1 leads by the Lease ops/a, renewed" in leader
    assert found(Api([lease("a", ahead)])).clock_ahead_seconds == 0.0  # which nobody renews


def test_when_an_instance_was_renewed_last_is_read_past_the_caches() -> None:
    """The last renewal is taken from uncached reads of the instances listed as renewed last, in the
    namespaces asked for.
    """
    shift = int((time.time() - 1_800_000_000.0) * 1000)

    def one(name: str, seconds_ago: float, **more: Any) -> Instance:
        made = replace(renewed(seconds_ago), instance_id=f"{name}.pay.east:billing:80", **more)
        assert made.lease_ends_ms is not None
        assert made.last_dirty_timestamp_ms is not None
        return replace(
            made,
            lease_ends_ms=made.lease_ends_ms + shift,
            last_dirty_timestamp_ms=made.last_dirty_timestamp_ms + shift,
        )

    listed = [one(name, 200 + number) for number, name in enumerate("abcde")]
    other = one("x", 0, metadata={**listed[0].metadata, CLUSTER_UID_KEY: "uid-2"})
    eureka = Eureka(one("a", 20), one("b", 10), other)
    at = found(Api([]), (eureka, [*reversed(listed), other])).instances_renewed_at
    assert round(time.time() - at) == 10
    assert [name.partition(".")[0] for name in eureka.asked] == ["a", "b", "c"]
    assert found(Api([]), (eureka, listed), namespaces=("shop",)).instances_renewed_at is None
    assert found(Api([]), (Eureka(fails=True), listed)).instances_renewed_at is None
