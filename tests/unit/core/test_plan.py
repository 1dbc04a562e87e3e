"""The plan of changes, checked against a small model of what a server does with each change."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.enforcement import StackInstancePolicy
from eurekube_provider.core.identity import ENFORCED_KEY, LEAVING_KEY
from eurekube_provider.core.model import (
    DataCenter,
    EurekaLease,
    Instance,
    Port,
    Status,
    same_contents_but_status,
)
from eurekube_provider.core.plan import (
    Action,
    Change,
    Plan,
    Policy,
    Refusal,
    RefusalReason,
    describe_differences,
    plan,
    plan_handover,
)
from eurekube_provider.core.registry_kinds import ZOOKEEPER
from tests.unit import strategies
from tests.unit.strategies import OURS, THEIRS

Key = tuple[str, str]
Registry = dict[Key, Instance]

KEPT = (Status.UP, Status.OUT_OF_SERVICE)


def registered(want: Instance, have: Instance | None) -> Instance:
    """Return the instance that a server holds after a register; contract tests prove each rule."""
    override = have.overridden_status if have else Status.UNKNOWN
    if want.status not in KEPT:
        status = want.status
    elif override is not Status.UNKNOWN:
        status = override
    elif have is not None and have.status in KEPT:
        status = have.status
    else:
        status = want.status
    return replace(want, status=status, overridden_status=override)


def applied(changes: Iterable[Change], actual: Registry) -> Registry:
    """Return the registry after these changes."""
    after = dict(actual)
    for change in changes:
        key, want = change.instance.key, change.instance
        if change.action is Action.DEREGISTER:
            del after[key]
        elif change.action is Action.SET_STATUS:
            override = want.status if want.status is Status.OUT_OF_SERVICE else Status.UNKNOWN
            after[key] = replace(after[key], status=want.status, overridden_status=override)
        else:
            after[key] = registered(want, after.get(key))
    return after


def by_key(instances: Iterable[Instance]) -> Registry:
    """Return these instances by key; the last one of a key counts."""
    return {instance.key: instance for instance in instances}


def settled(want: Instance, have: Instance) -> bool:
    """Return True if the registry has the wanted status, or one that a person has set."""
    return have.status is want.status or (have.is_overridden and have.status is have.overridden_status)


@given(strategies.desired(), strategies.registries())
def test_applying_a_plan_gives_what_is_desired(desired: list[Instance], actual: list[Instance]) -> None:
    """After the changes the owner has exactly the desired instances, except refused ones."""
    steps = plan(desired, actual, OURS)
    after = applied(steps.changes, by_key(actual))
    refused = {refusal.instance.key for refusal in steps.refusals}
    wanted = {key: want for key, want in by_key(desired).items() if key not in refused}
    assert {key for key, have in after.items() if have.owner == OURS} == wanted.keys()
    for key, want in wanted.items():
        assert same_contents_but_status(want, after[key])
        assert settled(want, after[key])


@given(strategies.desired(), strategies.registries(), st.sampled_from(Policy))
def test_applying_twice_does_nothing(desired: list[Instance], actual: list[Instance], policy: Policy) -> None:
    """A second plan has no changes, and the same refusals."""
    first = plan(desired, actual, OURS, policy)
    after = applied(first.changes, by_key(actual))
    second = plan(desired, after.values(), OURS, policy)
    assert second.changes == ()
    assert [refusal.instance for refusal in second.refusals] == [r.instance for r in first.refusals]


@given(strategies.desired(), strategies.registries(), st.sampled_from(Policy))
def test_nobody_elses_instance_is_touched(
    desired: list[Instance], actual: list[Instance], policy: Policy
) -> None:
    """No change names an instance with another owner or none."""
    before = by_key(actual)
    steps = plan(desired, actual, OURS, policy)
    foreign = {key: have for key, have in before.items() if have.owner != OURS}
    assert all(change.instance.key not in foreign for change in steps.changes)
    after = applied(steps.changes, before)
    assert {key: after[key] for key in foreign} == foreign


@given(strategies.desired(), strategies.registries())
def test_upsert_only_removes_nothing(desired: list[Instance], actual: list[Instance]) -> None:
    """The policy UpsertOnly leaves out the removals of Sync, and nothing else."""
    everything, upserts = plan(desired, actual, OURS), plan(desired, actual, OURS, Policy.UPSERT_ONLY)
    assert upserts.of(Action.DEREGISTER) == ()
    assert upserts.changes == tuple(
        change for change in everything.changes if change.action is not Action.DEREGISTER
    )
    assert upserts.refusals == everything.refusals


@given(strategies.desired(), strategies.registries())
def test_an_override_stays(desired: list[Instance], actual: list[Instance]) -> None:
    """A status override that a person has set lasts as long as the instance."""
    after = applied(plan(desired, actual, OURS).changes, by_key(actual))
    for have in actual:
        if have.is_overridden and have.key in after and have.status is have.overridden_status:
            assert after[have.key].overridden_status is have.overridden_status


@given(strategies.desired(), strategies.registries())
def test_the_order_of_actions(desired: list[Instance], actual: list[Instance]) -> None:
    """Registrations come first and removals last, so that callers never see too few instances."""
    order = [Action.REGISTER, Action.UPDATE, Action.SET_STATUS, Action.DEREGISTER]
    found = [order.index(change.action) for change in plan(desired, actual, OURS).changes]
    assert found == sorted(found)


@given(strategies.desired(), strategies.registries())
def test_each_desired_instance_is_settled_changed_or_refused(
    desired: list[Instance], actual: list[Instance]
) -> None:
    """No desired instance is both changed and refused; one that is neither is registered already."""
    steps = plan(desired, actual, OURS)
    changed = {change.instance.key for change in steps.changes if change.action is not Action.DEREGISTER}
    refused = {refusal.instance.key for refusal in steps.refusals}
    assert changed.isdisjoint(refused)
    there = by_key(actual)
    for key in by_key(desired).keys() - changed - refused:
        assert there[key].owner == OURS


RATING = Instance(
    "rating",
    "rating-1.shop.eks:rating:8080",
    "10.0.0.1",
    "10.0.0.1",
    Port(8080),
    metadata={"eurekube.owner": OURS},
)


def test_the_last_of_two_desired_counts() -> None:
    """Of two desired instances with one id the later one counts."""
    later = replace(RATING, ip_address="10.0.0.2")
    assert plan([RATING, later], [], OURS) == Plan((Change(Action.REGISTER, later),))


def test_contents_and_a_reserved_status_are_two_steps() -> None:
    """Registering cannot set OUT_OF_SERVICE: new contents and that status need an update and a status
    change.
    """
    want = replace(RATING, status=Status.OUT_OF_SERVICE, port=Port(9090))
    steps = plan([want], [RATING], OURS)
    assert [change.action for change in steps.changes] == [Action.UPDATE, Action.SET_STATUS]


def test_our_mark_is_planned_to_go_after_our_out_of_service() -> None:
    """New contents are registered with our mark, which the change of the status removes; equal contents are
    not registered before it.
    """
    out = Status.OUT_OF_SERVICE
    marked = {**RATING.metadata, LEAVING_KEY: "true"}
    have = replace(RATING, status=out, overridden_status=out, metadata=marked)
    assert plan([RATING], [have], OURS).changes == (Change(Action.SET_STATUS, RATING, have),)
    want = replace(RATING, ip_address="10.0.0.2")
    assert plan([want], [have], OURS).changes == (
        Change(Action.UPDATE, replace(want, metadata=marked), have),
        Change(Action.SET_STATUS, want, have),
    )


def test_a_persons_out_of_service_is_not_fought() -> None:
    """A person's OUT_OF_SERVICE stays, whether the pod is ready or not."""
    have = replace(RATING, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    assert not plan([RATING], [have], OURS)
    assert not plan([replace(RATING, status=Status.DOWN)], [have], OURS)


@pytest.mark.parametrize(
    ("owner", "reason"), [(THEIRS, RefusalReason.CONFLICT), (None, RefusalReason.SELF_REGISTERED)]
)
def test_the_same_place_under_another_id(owner: str | None, reason: RefusalReason) -> None:
    """An instance is refused if another owner's instance has its address and port."""
    twin = replace(RATING, instance_id="x", metadata={"eurekube.owner": owner} if owner else {})
    steps = plan([RATING], [twin], OURS)
    assert steps.changes == ()
    assert [(refusal.reason, refusal.actual) for refusal in steps.refusals] == [(reason, twin)]


def test_a_self_registered_twin_is_reported_and_both_are_left() -> None:
    """A self-registered instance that appears at the address of a registered one is reported, and none is
    removed.
    """
    itself = replace(RATING, instance_id="x", metadata={})
    steps = plan([RATING], [RATING, itself], OURS)
    assert (steps.changes, steps.refusals) == ((), ())
    assert [(one.reason, one.actual) for one in steps.duplicates] == [(RefusalReason.SELF_REGISTERED, itself)]
    for other in (
        replace(itself, status=Status.OUT_OF_SERVICE),
        replace(itself, ip_address="x"),
        replace(itself, metadata={"eurekube.owner": THEIRS}),
    ):
        assert plan([RATING], [RATING, other], OURS).duplicates == ()


@pytest.mark.parametrize("change", [{"application": "other"}, {"ip_address": "x"}, {"port": Port(1)}])
def test_another_place_is_no_twin(change: dict[str, object]) -> None:
    """An instance with another application, address or port does not conflict."""
    twin = replace(RATING, instance_id="x", metadata={}, **change)  # type: ignore[arg-type]
    assert plan([RATING], [twin], OURS).refusals == ()


def test_an_instance_of_ours_may_share_an_address() -> None:
    """A new pod may get an address before the former pod's instance is removed."""
    old = replace(RATING, instance_id="rating-0")
    steps = plan([RATING], [old], OURS)
    assert [(change.action, change.instance) for change in steps.changes] == [
        (Action.REGISTER, RATING),
        (Action.DEREGISTER, old),
    ]


GOLDEN = plan(
    [
        RATING,
        replace(
            RATING,
            instance_id="changed",
            ip_address="10.0.0.2",
            lease=EurekaLease(10, 30),
            secure_port=Port(443),
            home_page_url="http://x/",
            metadata={"eurekube.owner": OURS, "zone": "b"},
        ),
        replace(RATING, instance_id="down", ip_address="10.0.0.3", status=Status.DOWN),
        replace(RATING, instance_id="out", ip_address="10.0.0.4", status=Status.OUT_OF_SERVICE),
        replace(RATING, instance_id="theirs", ip_address="10.0.0.5"),
        replace(RATING, instance_id="nobodys", ip_address="10.0.0.6"),
        replace(RATING, instance_id="twice", ip_address="10.0.0.7"),
    ],
    [
        replace(
            RATING,
            instance_id="changed",
            ip_address="10.0.0.2",
            metadata={"eurekube.owner": OURS, "zone": "a"},
        ),
        replace(RATING, instance_id="down", ip_address="10.0.0.3"),
        replace(RATING, instance_id="out", ip_address="10.0.0.4"),
        replace(RATING, instance_id="theirs", ip_address="10.0.0.5", metadata={"eurekube.owner": THEIRS}),
        replace(RATING, instance_id="nobodys", ip_address="10.0.0.6", metadata={}),
        replace(RATING, instance_id="self", ip_address="10.0.0.7", metadata={}),
        replace(RATING, instance_id="gone", ip_address="10.0.0.8"),
    ],
    OURS,
)


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_passes_to_another_syncer_passes_as_it_stands(is_ours: bool) -> None:
    """A handed-over instance keeps a person's OUT_OF_SERVICE, and the operator's own mark, by which it is
    undone.
    """
    out = {"status": Status.OUT_OF_SERVICE, "overridden_status": Status.OUT_OF_SERVICE}
    mark = {LEAVING_KEY: "true"} if is_ours else {}
    have = replace(RATING, metadata={"eurekube.owner": OURS, **mark}, **out)  # type: ignore[arg-type]
    want = replace(RATING, metadata={"eurekube.owner": THEIRS})
    (change,) = plan_handover([(want, have)])
    assert (change.action, change.actual) == (Action.UPDATE, have)
    passed = change.instance
    assert (passed.owner, passed.is_leaving) == (THEIRS, is_ours)
    assert (passed.status, passed.overridden_status) == (Status.OUT_OF_SERVICE, Status.OUT_OF_SERVICE)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("over", Status)
def test_who_else_is_there_changes_nothing_of_ours(status: Status, over: Status) -> None:
    """The shorter comparison without foreign instances yields the same plan as the full one."""
    stranger = Instance("elsewhere", "x", "10.9.9.9", "10.9.9.9", Port(80))
    ours = {"eurekube.owner": OURS}
    for marks, wanted, path in itertools.product(({}, {LEAVING_KEY: "true"}), Status, ("", "/health")):
        have = Instance(
            "rating",
            "a",
            "10.0.0.1",
            "10.0.0.1",
            Port(8080),
            status=status,
            overridden_status=over,
            metadata={**ours, **marks},
        )
        want = replace(have, status=wanted, metadata=ours, overridden_status=Status.UNKNOWN)
        for one in (want, replace(want, home_page_url=path), replace(want, metadata={**ours, **marks})):
            assert plan([one], [have], OURS) == plan([one], [have, stranger], OURS)


def test_a_plan_in_words() -> None:
    """The description has a line for each change and refusal, and a sum."""
    assert GOLDEN.describe().splitlines() == [
        "+ RATING rating-1.shop.eks:rating:8080 UP 10.0.0.1:8080",
        (
            "~ RATING changed secure_port: 443 (disabled) -> 443, metadata.zone: a -> b,"
            " lease: 30/90 s -> 10/30 s, home_page_url: (none) -> http://x/"
        ),
        "~ RATING down status: UP -> DOWN",
        "~ RATING out status: UP -> OUT_OF_SERVICE",
        "- RATING gone",
        f"! RATING theirs belongs to {THEIRS} and was left as it is",
        "! RATING nobodys was not registered by Eurekube and was left as it is",
        (
            "! RATING self at 10.0.0.7:8080 registered itself: switch its own Eureka client off"
            " (eureka.client.register-with-eureka=false), or it would be called twice as often"
        ),
        "1 to register, 2 to update, 1 to set-status, 1 to deregister, 3 refused",
    ]


def test_the_setting_is_that_of_the_registry() -> None:
    """The refusal of a self-registered instance names the setting of its registry's own client."""
    ours = Instance("RATING", "ours", "10.0.0.7", "10.0.0.7", Port(8080))
    there = replace(ours, instance_id="self", data_center=DataCenter(ZOOKEEPER.name))
    said = Refusal(RefusalReason.SELF_REGISTERED, ours, there).describe()
    assert "switch its own ZooKeeper client off (spring.cloud.zookeeper.discovery.register=false)" in said
    assert "eureka" not in said.lower()


def test_what_is_in_the_way_and_cannot_be_read_is_reported_as_that() -> None:
    """Nobody knows whose it is: the reason stands there instead."""
    ours = Instance("RATING", "ours", "10.0.0.7", "10.0.0.7", Port(8080))
    there = replace(ours, unreadable="node /services/rating/ours: it is no object")
    assert Refusal(RefusalReason.CONFLICT, ours, there).describe() == (
        "RATING ours cannot be read (node /services/rating/ours: it is no object) and was left as it is"
    )


def test_a_plan_as_json_values() -> None:
    """The JSON form contains the same changes and refusals under fixed names."""
    document = GOLDEN.to_dict()
    assert [(change["action"], change["instanceId"]) for change in document["changes"]] == [
        ("register", "rating-1.shop.eks:rating:8080"),
        ("update", "changed"),
        ("update", "down"),
        ("set-status", "out"),
        ("deregister", "gone"),
    ]
    assert document["changes"][2] == {
        "action": "update",
        "application": "RATING",
        "instanceId": "down",
        "differences": ["status: UP -> DOWN"],
    }
    assert document["changes"][0]["differences"] == document["changes"][4]["differences"] == []
    assert document["refusals"][0] == {
        "reason": "Conflict",
        "application": "RATING",
        "instanceId": "theirs",
        "message": f"RATING theirs belongs to {THEIRS} and was left as it is",
    }
    assert [refusal["reason"] for refusal in document["refusals"]] == [
        "Conflict",
        "Conflict",
        "SelfRegistered",
    ]


def test_an_empty_plan() -> None:
    """A plan without changes is false, and its description says so."""
    nothing = plan([RATING], [RATING], OURS)
    assert not nothing
    assert nothing.describe() == "no changes"
    assert nothing.to_dict() == {"changes": [], "refusals": []}


@given(strategies.instances, strategies.instances)
def test_differences_name_whatever_makes_contents_differ(one: Instance, other: Instance) -> None:
    """``describe_differences`` is empty exactly if two instances have the same contents and status."""
    assert (describe_differences(one, other) == []) == (
        same_contents_but_status(one, other) and settled(one, other)
    )
    assert describe_differences(one, one) == []


APART = {"application", "instance_id", "key", "status", "data_center"} | {
    "overridden_status",
    "last_dirty_timestamp_ms",
    "last_updated_timestamp_ms",
    "lease_ends_ms",
    "unknown_fields",
    "unreadable",
}
"""Fields that are compared separately, belong to the server, or are set by the reader."""


@pytest.mark.parametrize("name", [each.name for each in fields(Instance) if each.name not in APART])
def test_each_field_alone_makes_contents_differ(name: str) -> None:
    """Each field of the model, except those in APART, makes the contents of two instances differ."""
    others: dict[str, Any] = {"port": Port(9), "secure_port": Port(9), "lease": EurekaLease(1, 2)}
    others["metadata"] = {"other": "1"}
    assert not same_contents_but_status(RATING, replace(RATING, **{name: others.get(name, "other")}))


@given(strategies.instances)
def test_the_servers_fields_are_no_difference(instance: Instance) -> None:
    """Timestamps and unknown fields make no difference in contents."""
    seen = replace(
        instance, last_dirty_timestamp_ms=1, last_updated_timestamp_ms=2, unknown_fields={"x-new": 1}
    )
    assert same_contents_but_status(instance, seen)


OUT = Status.OUT_OF_SERVICE


def test_what_is_adopted_is_taken_over_and_stands_in_nobodys_way() -> None:
    """Another owner's instance is taken over only with the policy ``adopt``, and the change is marked so."""
    theirs = Instance("A", "a", "h", "192.0.2.1", Port(1), metadata={"eurekube.owner": THEIRS})
    ours = {"eurekube.owner": OURS}
    mine, beside = replace(theirs, metadata=ours), replace(theirs, instance_id="b", metadata=ours)
    refused = plan([mine, beside], [theirs], OURS, Policy.UPSERT_ONLY, {mine.key: StackInstancePolicy()})
    assert (refused.changes, len(refused.refusals)) == ((), 2)
    adopting = {mine.key: StackInstancePolicy(adopts=True)}
    steps = plan([mine, beside], [theirs], OURS, Policy.UPSERT_ONLY, adopting)
    assert steps.changes == (
        Change(Action.REGISTER, beside),
        Change(Action.UPDATE, mine, theirs, adopts=True),
    )
    assert not plan([mine], [mine], OURS, Policy.UPSERT_ONLY, adopting)


@pytest.mark.parametrize(
    ("enforce", "have", "actions"),
    [
        (None, None, [Action.REGISTER]),
        (Status.DOWN, None, [Action.REGISTER]),
        (OUT, None, [Action.REGISTER, Action.ENFORCE]),
        (None, (OUT, OUT, ""), []),
        (None, (OUT, OUT, str(OUT)), [Action.UPDATE, Action.ENFORCE]),
        (None, (Status.DOWN, Status.DOWN, str(OUT)), [Action.UPDATE]),
        (OUT, (Status.UP, Status.UNKNOWN, ""), [Action.UPDATE, Action.ENFORCE]),
        (OUT, (OUT, OUT, str(OUT)), []),
        (Status.UP, (OUT, OUT, ""), [Action.ENFORCE]),
        (Status.DOWN, (OUT, OUT, ""), [Action.UPDATE, Action.ENFORCE]),
    ],
)
def test_a_status_is_enforced_or_left_to_people(
    enforce: Status | None, have: tuple[Status, Status, str] | None, actions: list[Action]
) -> None:
    """A program's status wins over a person's; a status that no program asks for any more is lifted by its
    mark.
    """

    def marked(mark: str) -> dict[str, str]:
        return {"eurekube.owner": OURS, **({ENFORCED_KEY: mark} if mark else {})}

    mark = enforce.value if enforce not in (None, Status.UP) else ""
    want = Instance("A", "a", "h", "h", Port(1), status=enforce or Status.UP, metadata=marked(mark))
    there = []
    if have is not None:
        status, override, held = have
        there = [replace(want, status=status, overridden_status=override, metadata=marked(held))]
    steps = plan(
        [want],
        there,
        OURS,
        Policy.UPSERT_ONLY,
        {want.key: StackInstancePolicy(enforced_status=enforce)},
    )
    assert [change.action for change in steps.changes] == actions
    for change in steps.of(Action.ENFORCE):
        assert change.instance.status is (enforce or Status.UP)
