"""The decision about a syncer's instances: a table of known faults, and properties of random situations."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eurekube_provider.core.brake import BrakeHistory, HeldRemovals
from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.decision import (
    BLOCKED_RECHECK_SECONDS,
    NEXT_OWNER_POLL_SECONDS,
    REPLICATION_WAIT_SECONDS,
    RULES_BY_STATE,
    Decision,
    NextOwner,
    RegistrySteps,
    RemovalScope,
    SyncerSituation,
    SyncerState,
    decide,
)
from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.host_ports import PodWithoutHostPort
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import Instance, InstanceKey, Port, Status
from eurekube_provider.core.plan import Action, Policy
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.sliding_window import RecentChanges
from eurekube_provider.core.syncer import Mode, OnTermination, Selector, Syncer
from tests.explore.operator.edits import EDITS
from tests.unit import strategies
from tests.unit.core.test_plan import Registry, applied, by_key
from tests.unit.strategies import OURS, THEIRS

T = TypeVar("T", str, int)

HEIR = ("shop", "stars")
HEIRS = "cluster/eks/shop/stars"
AWAY = RegistryUnreachable("no server answers")
SYNCER = Syncer("shop", "rating", Mode.POD, Selector("shop", "rating"), "rating")


def pod(name: str, status: Status = Status.UP, owner: str | None = OURS, **fields: Any) -> Instance:
    """Return the instance of a pod; each one-letter name has an address of its own."""
    address, metadata = f"10.0.0.{ord(name)}", {OWNER_KEY: owner} if owner else {}
    made = Instance("rating", f"{name}.shop.eks:rating:8080", address, address, Port(8080), metadata=metadata)
    return replace(made, status=status, **fields)


def pods(names: str, **more: Any) -> list[Instance]:
    """Return the instance of a pod for each letter of ``names``."""
    return [pod(name, **more) for name in names]


def ids(names: str) -> frozenset[str]:
    """Return the instance ids of these pods."""
    return frozenset(one.instance_id for one in pods(names))


def doubt(reason: str = SyncerCondition.NO_PORT) -> tuple[Problem, ...]:
    """Return a problem that leaves a doubt about the desired instances."""
    return (Problem(reason, "it cannot be determined"),)


def unread(names: str, wanted: str, *, is_ready: bool = True) -> DesiredInstances:
    """Return desired instances beside pods that were not read."""
    kept = {(name, "shop"): PodWithoutHostPort(is_ready) for name in names}
    return DesiredInstances(tuple(pods(wanted)), pods_without_host_port=kept)


def at_their_own(names: str) -> dict[tuple[str, str], PodWithoutHostPort]:
    """Return ready pods without a host port."""
    return {(name, "shop"): PodWithoutHostPort(is_ready=True, address=pod(name).ip_address) for name in names}


def situation(
    has: str = "", wanted: str = "", state: SyncerState = SyncerState.COMPLETE, **more: Any
) -> SyncerSituation:
    """Return the situation of a syncer that has the pods ``has`` at the registry it names, and wants the pods
    ``wanted``.

    :param more: further fields; ``elsewhere`` is what it has at another registry, ``beside`` what others have
        at its own, ``passes`` what another syncer wants as well.
    """
    here, there = pods(has), pods(more.pop("elsewhere", ""))
    beside = more.pop("beside", [])
    problems = more.pop("problems", doubt() if state is SyncerState.INCOMPLETE else ())
    terminating_ids = more.get("terminating_ids", frozenset())
    is_asking = state in (SyncerState.COMPLETE, SyncerState.INCOMPLETE, SyncerState.PAUSED)
    desired = DesiredInstances(
        tuple(pods(wanted)), problems, terminating_ids, more.pop("are_slices_being_repacked", False)
    )
    next_owners = {
        (place, pod(name).key): NextOwner(HEIR, pod(name, owner=HEIRS))
        for place, names in more.pop("passes", {}).items()
        for name in names
    }
    known: dict[str, Any] = {
        "home_registry": "" if state is SyncerState.REFUSED else "home",
        "syncer": SYNCER if is_asking else None,
        "refusal": Problem("NotAllowed", "no") if state is SyncerState.REFUSED else None,
        "desired": desired if is_asking else DesiredInstances(),
        "application_instances": {"home": [*here, *beside], "other": there},
        "brake_history": BrakeHistory(sum(one.status is Status.UP for one in (*here, *there)), 10_000),
        "next_owners": next_owners,
    }
    fields = {"instances_by_registry": {"home": here, "other": there}, **known, **more}
    return SyncerSituation(("shop", "rating"), OURS, state, **fields)


def holding(*instances: Instance) -> dict[str, Any]:
    """Return the fields of a situation in which the syncer's registry holds these instances."""
    return {"instances_by_registry": {"home": instances}, "application_instances": {"home": instances}}


EARLIER = "cluster/earlier/shop/rating"


def former(
    has: str, had: str, wanted: str, state: SyncerState = SyncerState.COMPLETE, **more: Any
) -> SyncerSituation:
    """Return a situation with pods ``has`` under the cluster's present name, and ``had`` under a former
    one.
    """
    there = pods(had, owner=EARLIER)
    return situation(has, wanted, state, under_former_cluster_names={"home": there}, beside=there, **more)


def unclaimed(
    had: str, wanted: str, state: SyncerState = SyncerState.COMPLETE, **more: Any
) -> SyncerSituation:
    """Return a situation with pods registered under another name of the cluster that the settings do not
    list.
    """
    there = pods(had, owner=EARLIER)
    return situation("", wanted, state, under_undeclared_cluster_names={"home": there}, beside=there, **more)


def summary(steps: RegistrySteps) -> str:
    """Return the sorted steps at a registry, each a sign and a pod: ``>`` handed over, ``<`` restored, ``+``
    registered, ``~`` changed, ``-`` removed, ``=`` removed since it moved, ``.`` left to lapse, ``x`` another
    owner's, removed, ``&`` taken over, ``*`` renewed though under another name.
    """
    signs: list[tuple[str, Iterable[Instance]]] = [
        (">", [change.instance for change in steps.handovers]),
        ("<", [change.instance for change in steps.restores]),
        ("+", [one.instance for one in steps.registrations if one.actual is None]),
        ("~", [one.instance for one in steps.registrations if one.actual is not None]),
        ("-", [change.instance for change in steps.removals]),
        ("=", [change.instance for change in steps.removals_after_move]),
        (".", steps.instances_to_lapse),
        ("x", [change.instance for change in steps.dead_registration_removals]),
        ("&", [change.instance for change in steps.takeovers if change.instance.owner == OURS]),
        ("*", steps.instances_to_renew),
    ]
    found = {f"{sign}{one.instance_id.partition('.')[0]}" for sign, those in signs for one in those}
    return " ".join(sorted(found))


@dataclass(frozen=True)
class Row:
    """A fault or an edit of a cluster, with the expected decision.

    :ivar home: the changes at the registry that the syncer names; ``other``: those at another one.
    :ivar again: in how many seconds it is decided again.
    :ivar holds: a part of the brake's reason.
    """

    situation: SyncerSituation
    home: str = ""
    other: str = ""
    again: float | None = None
    holds: str = ""
    paused_change_count: int = 0
    error: RegistryError | None = None


BACK = "a StatefulSet's pod that is back comes into service"
OUT = replace(SYNCER, on_termination=OnTermination.OUT_OF_SERVICE)
UPSERT = Policy.UPSERT_ONLY
KEEPS: dict[str, Any] = {"policy": UPSERT, "syncer": replace(SYNCER, policy=UPSERT)}
UNREAD = (Problem(Reason.NAMESPACE_NOT_READ, "no answer yet"),)
DOWN = DesiredInstances((pod("a"), pod("b", Status.DOWN), pod("c")))
ALL_DOWN = DesiredInstances(tuple(pods("abc", status=Status.DOWN)))
TAKEN_OUT = pod("a", Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
SHOWN = replace(pod("c", Status.OUT_OF_SERVICE), metadata={OWNER_KEY: OURS, LEAVING_KEY: "true"})
SHOWN = replace(SHOWN, overridden_status=Status.OUT_OF_SERVICE)
HELD = HeldRemovals(Problem("Braked", "held"), 100.0, "2026-01-01T00:01:00Z", 0.0, 0.0)

TWICE = [replace(pod(one), instance_id=f"{one}.shop.earlier:rating:8080") for one in "ab"]
AT_LOOPBACK = pod("a", owner=None, instance_id="self", ip_address="127.0.0.1")
OWN_PORT = pod("a", owner=None, instance_id="self", port=Port(9090))
DEAD = pod("d", owner=None)
DEAD_NOTE = (Problem(SyncerCondition.DEAD_SELF_REGISTERED, "it is gone"),)

ROWS: dict[str, Row] = {
    # A syncer that asks for something possible.
    "nothing changes": Row(situation("abc", "abc")),
    "a syncer is created": Row(situation("", "abc"), "+a +b +c"),
    "scaled up": Row(situation("abc", "abcd"), "+d"),
    "scaled down": Row(situation("abc", "ab", terminating_ids=ids("c")), "-c"),
    "ready just before it goes": Row(situation("abcd", "abc", terminating_ids=ids("d")), "-d"),
    "scaled down, shown until it is gone": Row(
        situation("abc", "ab", terminating_ids=ids("c"), syncer=OUT), "~c"
    ),
    "rolling update": Row(situation("abcd", "bcde", terminating_ids=ids("a")), "+e -a"),
    "not ready for a while": Row(situation("abc", "abc", desired=DOWN), "~b"),
    "not ready for a while, and removed": Row(situation("abc", "ac"), "-b"),
    "gone without being seen terminating": Row(situation("abc", "ab"), "-c"),
    "a node is lost": Row(situation("abc", desired=ALL_DOWN), holds="all 3 instances would go"),
    "all endpoints vanish and come back": Row(situation("abc"), holds="all 3 instances would go"),
    "the Service is deleted": Row(
        situation("abc", problems=doubt(Reason.NO_MATCHING_SERVICE)), holds="all 3 instances would go"
    ),
    "the namespace is deleted": Row(
        situation("abc", state=SyncerState.DELETED, terminating_ids=ids("abc")), "-a -b -c"
    ),
    "metadata change": Row(
        situation("ab", desired=DesiredInstances(tuple(pods("ab", home_page_url="http://x")))), "~a ~b"
    ),
    "a person's status stands": Row(situation("ab", "ab", **holding(TAKEN_OUT, pod("b")))),
    "a person's status waits with a broken source": Row(
        situation("abc", **holding(TAKEN_OUT, *pods("bc")), brake_history=BrakeHistory(2, 100)),
        holds="all 2 instances would go",
    ),
    "a pod is not read yet": Row(situation("abc", desired=unread("b", "ac")), again=BLOCKED_RECHECK_SECONDS),
    "a pod is not read yet, and is not ready": Row(
        situation("abc", desired=unread("b", "ac", is_ready=False)), "~b", again=BLOCKED_RECHECK_SECONDS
    ),
    "a pod is not read yet, and others end": Row(
        situation("abc", desired=unread("b", "a"), terminating_ids=ids("c")),
        "-c",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "pods have no host port yet": Row(
        situation(
            "ab", desired=DesiredInstances(tuple(pods("c")), pods_without_host_port=at_their_own("ab"))
        ),
        "+c",
    ),
    "an instance of somebody else stands there": Row(
        situation("", "a", beside=[pod("a", owner=THEIRS)]), again=BLOCKED_RECHECK_SECONDS
    ),
    "the application registered itself": Row(
        situation("", "a", beside=[pod("a", owner=None, instance_id="self")]), again=BLOCKED_RECHECK_SECONDS
    ),
    "a pod registered itself at another port": Row(
        situation("", "a", self_registered_by_key={pod("a").key: OWN_PORT}),
        "+a",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "a pod registered itself at loopback": Row(
        situation("", "a", self_registered_by_key={pod("a").key: AT_LOOPBACK}),
        "+a",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "a pod registered itself beside ours": Row(
        situation("a", "a", beside=[AT_LOOPBACK], self_registered_by_key={pod("a").key: AT_LOOPBACK}),
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "a dead pod's own registration": Row(
        situation("a", "a", beside=[DEAD], problems_with_foreign_instances=DEAD_NOTE),
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "a dead pod's own registration, to be removed": Row(
        situation(
            "a",
            "a",
            beside=[DEAD],
            removable_dead_registrations=[DEAD],
            problems_with_foreign_instances=DEAD_NOTE,
        ),
        "xd",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "a dead pod's own registration, with a policy that removes nothing": Row(
        situation("a", "a", beside=[DEAD], removable_dead_registrations=[DEAD], **KEEPS)
    ),
    "a dead pod's own registration, paused": Row(
        situation("a", "a", SyncerState.PAUSED, beside=[DEAD], removable_dead_registrations=[DEAD])
    ),
    "a dead pod's own registration, in doubt": Row(
        situation("a", "a", SyncerState.INCOMPLETE, beside=[DEAD], removable_dead_registrations=[DEAD])
    ),
    # The brake.
    "brake-beside-a-hand-over": Row(
        situation("abcd", passes={"home": "ab"}), ">a >b", holds="all 2 instances would go"
    ),
    "brake-all-of-them": Row(situation("ab"), holds="all 2 instances would go"),
    "brake: one instance is no mass": Row(situation("a"), "-a"),
    "brake-unready": Row(situation("abc", desired=ALL_DOWN), holds="all 3 instances would go"),
    "brake-seen-terminating": Row(situation("abc", terminating_ids=ids("abc")), "-a -b -c"),
    "brake-shared-window": Row(
        situation("abcdef", "abcd", brake_history=BrakeHistory(6, 30, RecentChanges(8))),
        holds="10 of this operator's 30 instances would go within a minute",
    ),
    "brake-forgets-what-left": Row(
        situation(
            "abcdef", "abcd", brake_history=BrakeHistory(6, 30, RecentChanges(0, frozenset("ghijklmn")))
        ),
        holds="10 of this operator's 30 instances would go within a minute",
    ),
    "brake-at-another-eureka": Row(situation("", "", elsewhere="ab"), holds="all 2 instances would go"),
    "packed-again": Row(
        situation("abcd", "abc", are_slices_being_repacked=True),
        holds="while EndpointSlices have different ports",
    ),
    "the brake lets go after a minute": Row(
        situation("abc", brake_history=BrakeHistory(3, 100, held_removals=HELD), now=160.0), "-a -b -c"
    ),
    "a person releases the brake": Row(
        situation("abc", brake_history=BrakeHistory(3, 100, held_removals=HELD, is_released=True), now=101.0),
        "-a -b -c",
    ),
    "what comes goes on while removals wait": Row(
        situation("abcdefghijklmnop", "z", brake_history=BrakeHistory(16, 100)),
        "+z",
        holds="16 of 16 instances would go",
    ),
    # In doubt.
    "doubt-about-what-is-desired": Row(situation("abc", "a", SyncerState.INCOMPLETE), ""),
    "in doubt, what was seen terminating goes": Row(
        situation("abc", "", SyncerState.INCOMPLETE, terminating_ids=ids("ab")), "-a -b"
    ),
    "in doubt, a pod that ended unseen goes": Row(
        situation("abc", "", SyncerState.INCOMPLETE, ended_ids=ids("c")), "-c"
    ),
    "in doubt, and another application's pod has an address by now": Row(
        situation("abc", "", SyncerState.INCOMPLETE, address_taker_by_id={pod("c").instance_id: "x/y"}), "-c"
    ),
    "in doubt, and the next pod of that name has another address": Row(
        situation("ab", "a", SyncerState.INCOMPLETE, address_taker_by_id={pod("a").instance_id: "x/y"})
    ),
    "in doubt, what is known is registered": Row(situation("a", "ab", SyncerState.INCOMPLETE), "+b"),
    "namespace-that-was-not-read": Row(
        situation("abc", "", SyncerState.INCOMPLETE, problems=UNREAD), again=BLOCKED_RECHECK_SECONDS
    ),
    "in doubt, what Eureka forgot comes back": Row(
        situation("a", "c", SyncerState.INCOMPLETE, restorable_by_registry={"home": pods("bc")}),
        "+c <b",
    ),
    "in doubt, what ended leaves another Eureka as well": Row(
        situation("a", "a", SyncerState.INCOMPLETE, elsewhere="bc", terminating_ids=ids("c")),
        "",
        "-c",
    ),
    "in doubt, what ended lapses where nothing is removed": Row(
        situation("ab", "", SyncerState.INCOMPLETE, terminating_ids=ids("a"), **KEEPS), ".a"
    ),
    "paused, what another Eureka forgot comes back": Row(
        situation("a", "a", SyncerState.PAUSED, restorable_by_registry={"other": pods("c")}), "", "<c"
    ),
    "given-up-by-a-paused-syncer": Row(situation("a", "", SyncerState.INCOMPLETE, passes={"home": "a"})),
    # Paused.
    "paused-syncer": Row(
        situation("ab", "bc", SyncerState.PAUSED, terminating_ids=ids("a")),
        paused_change_count=2,
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "paused, and scaled down": Row(
        situation("abc", "ab", SyncerState.PAUSED, terminating_ids=ids("c")),
        paused_change_count=1,
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "paused, scaled down, and on again": Row(situation("abc", "ab", terminating_ids=ids("c")), "-c"),
    "paused, what Eureka forgot comes back": Row(
        situation("b", "abc", SyncerState.PAUSED, restorable_by_registry={"home": pods("a")}),
        "<a",
        paused_change_count=1,
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "paused, and another application's pod has an address by now": Row(
        situation(
            "abc",
            "ab",
            SyncerState.PAUSED,
            address_taker_by_id={pod("b").instance_id: "x/y", pod("c").instance_id: "x/z"},
        ),
        ".b .c",
        paused_change_count=1,
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "paused, and an address at another Eureka is another's": Row(
        situation(
            "a", "a", SyncerState.PAUSED, elsewhere="b", address_taker_by_id={pod("b").instance_id: "x/y"}
        ),
        "",
        ".b",
        paused_change_count=1,
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "paused, and named another Eureka": Row(
        situation("", "a", SyncerState.PAUSED, elsewhere="a"),
        paused_change_count=2,
        again=BLOCKED_RECHECK_SECONDS,
    ),
    # Refused.
    "refused-syncer-loses-all": Row(situation("abc", "", SyncerState.REFUSED), again=BLOCKED_RECHECK_SECONDS),
    "terminating-of-a-refused-syncer": Row(
        situation("abc", "", SyncerState.REFUSED, terminating_ids=ids("ab")),
        "-a -b",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "refused, and scaled down": Row(
        situation("abc", "", SyncerState.REFUSED, terminating_ids=ids("c"), elsewhere="c"),
        "-c",
        "-c",
        BLOCKED_RECHECK_SECONDS,
    ),
    "refused, and allowed again": Row(situation("abc", "abc")),
    "refused, and a pod ends while nobody watches": Row(
        situation("abc", "", SyncerState.REFUSED, ended_ids=ids("c")), "-c", again=BLOCKED_RECHECK_SECONDS
    ),
    "refused, and another application's pod has an address by now": Row(
        situation("abc", "", SyncerState.REFUSED, address_taker_by_id={pod("c").instance_id: "x/y"}),
        "-c",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "refused, paused, and another application's pod has an address by now": Row(
        situation(
            "abc", "", SyncerState.REFUSED, address_taker_by_id={pod("c").instance_id: "x/y"}, policy=UPSERT
        ),
        ".c",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "refused, and others have all addresses by now": Row(
        situation("abc", "", SyncerState.REFUSED, address_taker_by_id=dict.fromkeys(ids("abc"), "x/y")),
        again=BLOCKED_RECHECK_SECONDS,
        holds="all 3 instances would go",
    ),
    "refused, and all pods ended unseen": Row(
        situation("abc", "", SyncerState.REFUSED, ended_ids=ids("abc")),
        again=BLOCKED_RECHECK_SECONDS,
        holds="all 3 instances would go",
    ),
    "refused, with a policy that removes nothing": Row(
        situation("ab", "", SyncerState.REFUSED, terminating_ids=ids("a"), policy=UPSERT),
        ".a",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "kept-and-not-put-back": Row(
        situation(
            "a", "", SyncerState.REFUSED, restorable_by_registry={"home": pods("b"), "other": pods("c")}
        ),
        "<b",
        "<c",
        BLOCKED_RECHECK_SECONDS,
    ),
    "what is put back gives way to who stands there": Row(
        situation(
            "",
            "",
            SyncerState.REFUSED,
            restorable_by_registry={"home": pods("a")},
            beside=[pod("a", owner=THEIRS)],
        ),
        again=BLOCKED_RECHECK_SECONDS,
    ),
    # Deleted.
    "a syncer is deleted": Row(situation("abc", state=SyncerState.DELETED), "-a -b -c"),
    "a syncer is deleted and created again": Row(situation("", "abc"), "+a +b +c"),
    "deleted, though its policy removes nothing": Row(
        situation("a", state=SyncerState.DELETED, policy=UPSERT), "-a"
    ),
    "deleted, with something at two Eurekas": Row(
        situation("a", state=SyncerState.DELETED, elsewhere="b"), "-a", "-b"
    ),
    "release-before-the-registry-was-read": Row(
        situation(
            "",
            state=SyncerState.DELETED,
            elsewhere="b",
            unlisted_instances=pods("a"),
            home_registry_error=AWAY,
        ),
        "",
        "-b",
        error=AWAY,
    ),
    "deleted, what no list shows goes as well": Row(
        situation("a", state=SyncerState.DELETED, unlisted_instances=pods("b")), "-a -b"
    ),
    "what no list shows of a deleted syncer is not taken from who wants it": Row(
        situation("", state=SyncerState.DELETED, unlisted_instances=pods("ab"), passes={"home": "b"}), "-a"
    ),
    "a person lets a deleted syncer go": Row(
        situation("ab", state=SyncerState.DELETED, is_force_deleted=True), ".a .b"
    ),
    # What it has under another name of its cluster.
    "the cluster is renamed": Row(former("", "abc", "abc"), "&a &b &c"),
    "the cluster is renamed, and a pod is new": Row(former("", "ab", "abc"), "&a &b +c"),
    "the cluster is renamed, and a pod ended meanwhile": Row(
        former("", "ab", "a", terminating_ids=ids("b")), "&a &b"
    ),
    "the cluster is renamed in doubt": Row(former("", "ab", "a", SyncerState.INCOMPLETE), "&a &b"),
    "the cluster of a refused syncer is renamed": Row(
        former("", "ab", "", SyncerState.REFUSED), "&a &b", again=BLOCKED_RECHECK_SECONDS
    ),
    "the cluster of a deleted syncer is renamed": Row(former("", "ab", "", SyncerState.DELETED), "&a &b"),
    "a pod stands by two names of the cluster": Row(
        situation("", "abc", **holding(*pods("abc"), *TWICE)), "=a =b"
    ),
    "one of them is not UP by the name that it is wanted by": Row(
        situation(
            "", desired=DesiredInstances((pod("a", Status.DOWN),)), **holding(pod("a", Status.DOWN), TWICE[0])
        ),
        "-a",
    ),
    "renamed-cluster-of-a-paused-syncer": Row(former("", "ab", "ab", SyncerState.PAUSED), "*a *b"),
    "the cluster is renamed, and a syncer's namespace cannot be read": Row(
        former("", "ab", "", SyncerState.UNKNOWN), "*a *b"
    ),
    "taken over, and what vanished waits until the brake judges all of them": Row(
        former("bc", "a", "a"), "&a"
    ),
    "taken over by a replica that was killed, and all endpoints vanished": Row(
        former("c", "ab", ""), "&a &b"
    ),
    "taken over, and a pod terminated": Row(former("b", "a", "a", terminating_ids=ids("b")), "&a -b"),
    "name-of-the-cluster-that-nobody-reported": Row(
        unclaimed("abc", "ab"), "*a *b", again=BLOCKED_RECHECK_SECONDS
    ),
    "another name of the cluster that nobody reported, in doubt": Row(
        unclaimed("abc", "a", SyncerState.INCOMPLETE, terminating_ids=ids("c")),
        "*a *b",
        again=BLOCKED_RECHECK_SECONDS,
    ),
    "another name of the cluster, of a deleted syncer": Row(
        unclaimed("a", "", SyncerState.DELETED), again=BLOCKED_RECHECK_SECONDS
    ),
    # What others want.
    "a syncer is renamed": Row(
        situation("abc", state=SyncerState.DELETED, passes={"home": "abc"}), ">a >b >c"
    ),
    "a syncer is renamed, the old one first": Row(
        situation("abc", state=SyncerState.DELETED, passes={"home": "ab"}), "-c >a >b"
    ),
    "a StatefulSet's pod is replaced while its syncer is renamed": Row(
        situation("abc", state=SyncerState.DELETED, passes={"home": "ab"}, terminating_ids=ids("c")),
        "-c >a >b",
    ),
    "a syncer gives up what another one wants": Row(situation("ab", "c", passes={"home": "ab"}), "+c >a >b"),
    "a syncer gives up what another one wants, and wants it again": Row(
        situation("", "ab", beside=pods("ab", owner=HEIRS)), again=BLOCKED_RECHECK_SECONDS
    ),
    "a syncer that removes nothing gives up what another one wants": Row(
        situation("abc", "", passes={"home": "ab"}, **KEEPS),
        ".c >a >b",
    ),
    "what another syncer may want waits until that is known": Row(
        situation("ab", "", awaits_next_owners=True, terminating_ids=ids("b")),
        "-b",
        again=NEXT_OWNER_POLL_SECONDS,
    ),
    "deleted, and what another syncer may want is not known": Row(
        situation("ab", state=SyncerState.DELETED, awaits_next_owners=True, unlisted_instances=pods("c")),
        again=NEXT_OWNER_POLL_SECONDS,
    ),
    # Another Eureka.
    "another Eureka is named": Row(
        situation("", "ab", elsewhere="ab"), "+a +b", again=REPLICATION_WAIT_SECONDS
    ),
    "move-without-a-stand": Row(situation("a", "ab", elsewhere="ab"), "+b", "=a", REPLICATION_WAIT_SECONDS),
    "moved, and it stands": Row(situation("ab", "ab", elsewhere="ab"), "", "=a =b"),
    "another Eureka is named, and the first again": Row(situation("ab", "ab", elsewhere="a"), "", "=a"),
    "another Eureka is named, and another syncer stays": Row(
        situation("ab", "ab", elsewhere="ab", passes={"other": "ab"}), "", ">a >b"
    ),
    "two syncers name another Eureka in turn, and the first comes back": Row(
        situation("a", "ab", elsewhere="b", passes={"other": "b"}), "+b", ">b", REPLICATION_WAIT_SECONDS
    ),
    "moved-to-where-it-stands": Row(
        situation("ab", "ab", elsewhere="ab", connections_to_same_eureka=frozenset({"other"}))
    ),
    "what is not wanted leaves two connections to one Eureka": Row(
        situation("abc", "ab", elsewhere="abc", connections_to_same_eureka=frozenset({"other"})), "-c", "-c"
    ),
    "moved-in-doubt": Row(
        situation("ab", "ab", elsewhere="ab", connections_to_maybe_same_eureka={"other": None}),
        again=REPLICATION_WAIT_SECONDS,
    ),
    "moved, and the other Eureka cannot be asked": Row(
        situation("ab", "ab", elsewhere="ab", connections_to_maybe_same_eureka={"other": AWAY}),
        again=REPLICATION_WAIT_SECONDS,
        error=AWAY,
    ),
    "upsert-only-at-another-eureka": Row(situation("ab", "ab", elsewhere="ab", **KEEPS), "", ".a .b"),
    "removes nothing": Row(situation("abc", "ab", terminating_ids=ids("c"), **KEEPS), ".c"),
    # Nobody can read whether it is there.
    "syncers-that-were-not-read": Row(situation("abc", state=SyncerState.UNKNOWN, terminating_ids=ids("a"))),
    # By another id, so that all of these are a removal and a registration under the brake, with what comes.
    "mode service": Row(situation("abc", "s"), "+s -a -b -c"),
    "the application is renamed": Row(situation("abc", "xyz"), "+x +y +z -a -b -c"),
    "another Service is selected": Row(situation("abc", "xyz"), "+x +y +z -a -b -c"),
    "the Service is renamed": Row(situation("abc", "abc")),
    "a StatefulSet's pod is replaced": Row(situation("ab", "ab", desired=DOWN), "+c ~b"),
    "a StatefulSet's pod is replaced, shown until it is gone": Row(
        situation("ab", "ab", **holding(*pods("ab"), SHOWN), syncer=OUT), "-c"
    ),
    BACK: Row(situation("", "c", **holding(SHOWN), syncer=OUT), "~c"),
}

AS_ANOTHER = {
    "a StatefulSet's pod is replaced in one event, shown until it is gone": BACK,
    "a StatefulSet's pod is replaced at once, shown until it is gone": BACK,
    "a StatefulSet's pod is replaced at once after a while, shown until it is gone": BACK,
    "gone and back, unobserved": "nothing changes",
    "all pods are replaced": "rolling update",
    "ended and replaced, unobserved": "nothing changes",
    "pods that registered themselves are gone": "a dead pod's own registration, to be removed",
    "the cluster is renamed, and called as before again": "the cluster is renamed",
    "the cluster is renamed while pods are replaced": "the cluster is renamed, and a pod is new",
    "the cluster is renamed while its syncer is": "the cluster of a deleted syncer is renamed",
    "a Service joins": "a syncer is created",
    "a Service leaves": "a syncer is deleted",
    "a Service leaves and joins again": "a syncer is deleted and created again",
    "a Service loses its annotation and gets it back": "nothing changes",
    "a Service loses its annotation": "a syncer is deleted",
    "a bad annotation, and scaled down": "scaled down",
    "all endpoints of a namespace's Service vanish and come back": "all endpoints vanish and come back",
    "a namespace's Service is deleted": "the Service is deleted",
    "a namespace's syncer is deleted": "a syncer is deleted",
    "a namespace's syncer is deleted and created again": "a syncer is deleted and created again",
    "a namespace's syncer changes": "metadata change",
    "a Service's own syncer gives way to its namespace's": "a syncer is renamed",
    "a namespace's syncer gives way to a Service's own": "a syncer is renamed",
    "a namespace's syncer gives way to another one": "a syncer is renamed",
    "a namespace's syncer is deleted while a pod is replaced": "a syncer is renamed",
    "the slice is replaced": "nothing changes",
    "the slice is replaced, unobserved": "nothing changes",
}
"""Edits of the explorer that are, for a syncer's decision, the same as another row."""


@pytest.mark.parametrize("fault", ROWS)
def test_what_is_decided(fault: str) -> None:
    """The rows are the faults known from the explorer, the storm and mutants that concern a syncer's
    decision.
    """
    row = ROWS[fault]
    found = decide(row.situation)
    done = {name: summary(steps) for name, steps in found.steps_by_registry.items()}
    expected = {name: getattr(row, name) for name in row.situation.instances_by_registry}
    assert (done, found.paused_change_count, found.error) == (expected, row.paused_change_count, row.error)
    held = found.brake_judgement.held_removals
    assert (held is not None) == bool(row.holds)
    if held is not None:
        assert row.holds in held.problem.message
        assert found.requeue_after_seconds is not None
    else:
        assert found.requeue_after_seconds == row.again


def test_each_edit_of_the_explorer_is_a_row() -> None:
    """An edit that is added to the explorer needs a row here, or an entry in AS_ANOTHER."""
    assert {one.name for one in EDITS} - ROWS.keys() == AS_ANOTHER.keys()
    assert ROWS.keys() >= set(AS_ANOTHER.values())


def test_a_hold_ends_when_people_were_informed() -> None:
    """Later decisions keep the end of a hold that the condition names, and return a shorter wait."""
    first = decide(situation("abc", now=100.0, unix_now=0.0)).brake_judgement.held_removals
    assert first is not None
    assert (first.since, first.waits_until, first.seconds_until_next_decision) == (
        100.0,
        "1970-01-01T00:01:00Z",
        60.1,
    )
    later = situation(
        "abc", brake_history=BrakeHistory(3, 100, held_removals=first), now=130.0, unix_now=31.0
    )
    second = decide(later).brake_judgement.held_removals
    assert second is not None
    assert (second.waits_until, round(second.seconds_until_next_decision, 1), second.held_seconds) == (
        first.waits_until,
        30.1,
        30.0,
    )


class Drawn:
    """Random situations from a seed, with few ids and addresses, so that desired and held instances often
    collide.

    This is a hundred times as fast as a Hypothesis strategy for each field, which allows as many more
    examples.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a test

    def situation(self) -> SyncerSituation:
        """Return a random situation of a syncer with two registries."""
        draw = self._random.choice
        registries = {name: self._instances(8) for name in ("home", "other")}
        held = {name: [one for one in there if one.owner == OURS] for name, there in registries.items()}
        desired = self._desired()
        state, policy = draw(list(SyncerState)), draw(list(Policy))
        if state in (SyncerState.COMPLETE, SyncerState.INCOMPLETE):
            state = SyncerState.INCOMPLETE if desired.may_be_incomplete else SyncerState.COMPLETE
        is_asking = state in (SyncerState.COMPLETE, SyncerState.INCOMPLETE, SyncerState.PAUSED)
        wanted = {one.instance_id for one in desired.instances}
        left = {one.instance_id for those in held.values() for one in those} - wanted
        ended_ids, restorable_by_registry = self._some(left), {name: self._wanted() for name in registries}
        address_taker_by_id = self._some(wanted | left)
        gone = left | desired.terminating_ids | address_taker_by_id
        there = {one.key for one in registries["home"]}
        up = sum(one.status is Status.UP for those in held.values() for one in those)
        made = SyncerSituation(
            ("shop", "rating"),
            OURS,
            state,
            held,
            "" if state is SyncerState.REFUSED else "home",
            replace(SYNCER, policy=policy, on_termination=draw(list(OnTermination))) if is_asking else None,
            desired=desired if is_asking else DesiredInstances(),
            policy=policy,
            application_instances=registries,
            terminating_ids=self._some(left) | (desired.terminating_ids & left),
            ended_ids=ended_ids,
            address_taker_by_id=dict.fromkeys(address_taker_by_id, "other/pod"),
            restorable_by_registry={
                name: [one for one in lost if one.instance_id not in gone]
                for name, lost in restorable_by_registry.items()
            },
            connections_to_same_eureka=self._some({"other"}),
            unlisted_instances=[one for one in self._wanted() if one.key not in there]
            if state is SyncerState.DELETED
            else (),
            awaits_next_owners=draw([False, False, True])
            and RULES_BY_STATE[state].removal_scope is RemovalScope.ALL,
            brake_history=BrakeHistory(up, 20, is_released=draw([False, False, True])),
        )
        available_to_next_owners = [
            (name, one) for name, those in made.available_to_next_owners.items() for one in those
        ]
        given = self._some(range(len(available_to_next_owners))) if not made.awaits_next_owners else ()
        owner = {OWNER_KEY: HEIRS}
        next_owners = {
            (available_to_next_owners[number][0], available_to_next_owners[number][1].key): replace(
                available_to_next_owners[number][1], metadata=owner
            )
            for number in given
        }
        return replace(made, next_owners={place: NextOwner(HEIR, one) for place, one in next_owners.items()})

    def _desired(self) -> DesiredInstances:
        gone = self._some(f"pod-{number}" for number in range(1, 5))
        instances = tuple(one for one in self._wanted() if one.instance_id not in gone)
        problems = self._random.choice([(), (), doubt(), UNREAD])
        return DesiredInstances(instances, problems, gone, self._random.choice([False, True]))

    def _wanted(self) -> list[Instance]:
        """Return instances as the syncer would register them."""
        made = (self._instance(OURS, "rating", Status.UNKNOWN) for _ in range(self._random.randint(0, 5)))
        return list({one.instance_id: one for one in made}.values())

    def _instances(self, most: int) -> list[Instance]:
        """Return instances of the syncer, of another cluster, and of applications that registered
        themselves.
        """
        made = (
            self._instance(
                self._random.choice([OURS, OURS, THEIRS, None]),
                self._random.choice(["rating", "rating", "order"]),
                self._random.choice([Status.UNKNOWN, Status.UNKNOWN, Status.OUT_OF_SERVICE]),
            )
            for _ in range(self._random.randint(0, most))
        )
        return list({one.key: one for one in made}.values())

    def _instance(self, owner: str | None, application: str, override: Status) -> Instance:
        draw = self._random.choice
        address, metadata = f"10.0.0.{draw('1234')}", draw([{}, {"zone": "a"}, {"version": "2"}])
        status = draw([Status.UP, Status.UP, Status.DOWN, Status.STARTING, Status.OUT_OF_SERVICE])
        return Instance(
            application,
            f"pod-{draw('1234')}",
            address,
            address,
            Port(draw([8080, 9090])),
            status=status if override is Status.UNKNOWN else override,
            metadata={**metadata, **({OWNER_KEY: owner} if owner else {})},
            overridden_status=override,
        )

    def _some(self, those: Iterable[T]) -> frozenset[T]:
        return frozenset(one for one in sorted(those) if self._random.random() < 0.4)


def after_steps(there: Sequence[Instance], steps: RegistrySteps) -> Registry:
    """Return a registry's instances after these steps."""
    before = by_key(there)
    changes = [
        one for one in steps.plan.changes if one.action is not Action.DEREGISTER or one.instance.key in before
    ]
    return applied(changes, before)


def carried_out(before: SyncerSituation, decision: Decision) -> SyncerSituation:
    """Return the situation after a decision was carried out, with nothing else changed."""
    after = {
        name: after_steps(there, decision.steps_by_registry[name])
        for name, there in before.application_instances.items()
    }
    held = {name: [one for one in there.values() if one.owner == OURS] for name, there in after.items()}
    up = sum(one.status is Status.UP for there in held.values() for one in there)
    return replace(
        before,
        instances_by_registry=held,
        application_instances={name: list(there.values()) for name, there in after.items()},
        restorable_by_registry={},
        unlisted_instances=(),
        next_owners={},
        brake_history=replace(
            before.brake_history, syncer_up_count=up, held_removals=decision.brake_judgement.held_removals
        ),
    )


situations = st.integers(0, 2**63).map(lambda seed: Drawn(seed).situation())
thorough = settings(max_examples=max(500, strategies.EXAMPLES))
"""Settings of Hypothesis; ``EUREKUBE_EXAMPLES=10000`` tries more examples."""


def test_gifts_at_one_registry_precede_removals_at_another() -> None:
    """Both connections may lead to one Eureka, where an instance removed first would have to be registered
    again.
    """
    both = situation("a", "", elsewhere="a", passes={"other": "a"})
    assert list(decide(both).steps_by_registry) == ["other", "home"]
    assert list(decide(situation("a", "", elsewhere="a")).steps_by_registry) == ["home", "other"]


@thorough
@given(situations)
def test_nothing_in_doubt_is_removed(found: SyncerSituation) -> None:
    """Unless all desired instances are known, only instances of ended pods are removed, and desired ones
    never.
    """
    decision = decide(found)
    ended_ids = found.terminating_ids | found.ended_ids | found.address_taker_by_id.keys()
    wanted = {one.key for one in found.desired.instances}
    knows_all = RULES_BY_STATE[found.state].removal_scope is RemovalScope.ALL and not found.awaits_next_owners
    for name, steps in decision.steps_by_registry.items():
        removes = [
            *(change.instance for change in (*steps.removals, *steps.removals_after_move)),
            *steps.instances_to_lapse,
        ]
        assert knows_all or all(one.instance_id in ended_ids for one in removes)
        assert RULES_BY_STATE[found.state].removal_scope is not RemovalScope.NONE or not removes
        assert not any((name, one.key) in found.next_owners for one in removes)
        if found.state is SyncerState.PAUSED:
            assert {one.instance_id for one in removes} <= found.address_taker_by_id.keys()
            assert (*steps.removals, *steps.removals_after_move) == ()
        elif name == found.home_registry or name in found.connections_to_same_eureka:
            assert wanted.isdisjoint(one.key for one in removes)
        else:
            at_home = {one.key for one in found.instances_by_registry.get(found.home_registry, ())}
            others = {one.key for one in removes if one.instance_id not in found.address_taker_by_id}
            assert wanted & others <= at_home
        if found.policy is Policy.UPSERT_ONLY and found.state is not SyncerState.DELETED:
            assert (*steps.removals, *steps.removals_after_move) == ()


@thorough
@given(situations)
def test_nothing_of_others_is_touched(found: SyncerSituation) -> None:
    """No decision changes another owner's instance, not even at an id or address that the syncer wants."""
    decision = decide(found)
    for name, there in found.application_instances.items():
        foreign = {one.key: one for one in there if one.owner != OURS}
        steps = decision.steps_by_registry[name]
        assert foreign.keys().isdisjoint(change.instance.key for change in steps.plan.changes)
        after = after_steps(there, steps)
        assert {key: after[key] for key in foreign} == foreign
        assert foreign.keys().isdisjoint(one.key for one in steps.instances_to_lapse)


@thorough
@given(situations)
def test_a_second_decision_is_empty(found: SyncerSituation) -> None:
    """After a decision was carried out, the next ones change nothing but instances that moved, or that the
    brake held.
    """
    first = decide(found)
    held = {change.instance.key for change in first.brake_judgement.held_changes}
    after = carried_out(found, first)
    second = decide(after)
    for steps in second.steps_by_registry.values():
        assert not steps.handovers
        assert not steps.restores
        rest = (*steps.registrations, *steps.removals)
        assert {change.instance.key for change in rest} <= held
    third = decide(carried_out(after, second))
    held |= {change.instance.key for change in second.brake_judgement.held_changes}
    assert {
        change.instance.key for steps in third.steps_by_registry.values() for change in steps.plan.changes
    } <= held


@thorough
@given(situations)
def test_each_instance_that_is_held_meets_one_end(found: SyncerSituation) -> None:
    """An instance is handed over, changed, removed, left to lapse or kept, and never two of these."""
    for steps in decide(found).steps_by_registry.values():
        given_away = [change.instance.key for change in steps.handovers]
        changed = {change.instance.key for change in (*steps.restores, *steps.registrations)}
        removed = [change.instance.key for change in (*steps.removals, *steps.removals_after_move)]
        every: list[InstanceKey] = [
            *given_away,
            *changed,
            *removed,
            *(one.key for one in steps.instances_to_lapse),
        ]
        assert len(every) == len(set(every))


@thorough
@given(situations)
def test_instances_of_a_former_cluster_name_are_taken_over(found: SyncerSituation) -> None:
    """Instances under a name that the settings do not list as a former one are not changed."""
    theirs = {
        name: [one for one in there if one.owner == THEIRS]
        for name, there in found.application_instances.items()
    }
    for there, is_former in (
        (replace(found, under_former_cluster_names=theirs), True),
        (replace(found, under_undeclared_cluster_names=theirs), False),
    ):
        for name, steps in decide(there).steps_by_registry.items():
            keys = {one.key for one in theirs.get(name, ())}
            touched = [change for change in steps.plan.changes if change.instance.key in keys]
            is_taken_over = is_former and RULES_BY_STATE[found.state].takes_over_under_former_cluster_names
            assert {id(one) for one in touched} == {id(one) for one in steps.takeovers}
            assert len(touched) == (len(keys) if is_taken_over else 0)
            assert all(one.actual is not None and one.instance.owner == OURS for one in touched)
            assert {one.key for one in steps.instances_to_renew} <= keys
            assert keys.isdisjoint(one.key for one in steps.instances_to_lapse)
