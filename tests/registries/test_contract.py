"""Behaviour that every kind of registry must have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from eurekube_provider.core.errors import LeadershipLost, OwnershipConflict
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, Plan, plan
from eurekube_provider.core.registry import Healthy, NeverRead, Registry
from lab.waiting import wait_until
from tests.registries.kinds import KINDS, Kind

OWNER, OTHERS = "cluster/lab/shop/rating", "cluster/lab/shop/order"
SECONDS = 20.0


def instance(name: str, owner: str | None = OWNER) -> Instance:
    """Return an instance of an owner."""
    metadata = {"eurekube.owner": owner} if owner else {}
    return Instance(
        "RATING", name, "10.0.0.1", "10.0.0.1", Port(8080), vip_address="stars", metadata=metadata
    )


class Listener:
    """A listener that records each call."""

    def __init__(self) -> None:
        self.owners: set[str] = set()
        self.conditions = 0

    def instances_of_owner_changed(self, owner: str) -> None:
        """Record the owner."""
        self.owners.add(owner)

    def condition_changed(self) -> None:
        """Count the change."""
        self.conditions += 1


_REAL = [pytest.mark.lab, pytest.mark.real_server("ZooKeeper runs on Java")]


@pytest.fixture(params=[pytest.param(name, marks=_REAL if name == "zookeeper" else ()) for name in KINDS])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """Return each kind of registry in turn."""
    with KINDS[request.param]() as made:
        yield made


@pytest.fixture
def listener() -> Listener:
    """Return the listener of the client under test."""
    return Listener()


@pytest.fixture
def registry(kind: Kind, listener: Listener) -> Iterator[Registry]:
    """Return a client that has read the registry and leads."""
    made = kind.client()
    made.start(listener)
    wait_until(lambda: made.condition() == Healthy(), "the first reading", SECONDS)
    made.start_leading(10)
    yield made
    made.stop()


def registers(*instances: Instance) -> Plan:
    """Return a plan that registers these instances."""
    return Plan(tuple(Change(Action.REGISTER, one) for one in instances))


def test_nothing_is_known_before_it_was_read(kind: Kind, listener: Listener) -> None:
    """The client knows no instance before its first reading, and tells the listener as soon as that is
    done.
    """
    kind.put(instance("a"))
    made = kind.client()
    assert (made.condition(), made.known_instances()) == (NeverRead(), [])
    made.start(listener)
    try:
        wait_until(lambda: listener.conditions > 0, "the first reading", SECONDS)
        assert made.condition() == Healthy()
        assert [one.key for one in made.known_instances(owner=OWNER)] == [instance("a").key]
    finally:
        made.stop()


def test_what_is_registered_stands_and_is_renewed(kind: Kind, registry: Registry) -> None:
    """A registered instance is found by its owner, application, key and VIP address, and is renewed."""
    wanted = [instance("a"), instance("b")]
    outcome = registry.apply(registers(*wanted), OWNER)
    assert ([change.instance for change in outcome.done], outcome.failures) == (wanted, ())
    for one in wanted:
        there = kind.stands(one.key)
        assert there is not None
        assert (there.owner, there.status) == (OWNER, Status.UP)
        assert registry.get(one.key) is not None
    keys = {one.key for one in wanted}
    assert {one.key for one in registry.known_instances(owner=OWNER)} == keys
    assert {one.key for one in registry.known_instances(application="rating")} == keys
    assert (
        registry.known_instances(owner=OTHERS)
        == registry.known_instances(owner=OWNER, application="order")
        == []
    )
    assert registry.owners() == registry.owners(lookup_name="STARS") == {OWNER}
    assert registry.owners(lookup_name="order") == set()
    assert (
        registry.count_up_instances(owner=OWNER),
        registry.count_up_instances(cluster="lab"),
        registry.count_up_instances(cluster="eks"),
    ) == (2, 2, 0)
    assert registry.figures().renewed_here == (2 if kind.registry_kind.renewals else 0)


def test_each_server_is_read_past_its_caches(kind: Kind, registry: Registry) -> None:
    """Each server of the registry is asked by itself, and says of a missing instance that it is missing."""
    registry.apply(registers(instance("a")), OWNER)
    keys = [instance("a").key, instance("nowhere").key]
    assert kind.stands(keys[0]) is not None  # at all servers by now
    read = registry.read_everywhere(keys).instances_by_server
    assert read
    assert [[there[key] is not None for key in keys] for there in read.values()] == [[True, False]] * len(
        read
    )


def test_a_plan_that_was_carried_out_leaves_nothing_to_plan(registry: Registry) -> None:
    """After a plan is carried out, the next plan is empty: for registered, replaced and removed instances,
    and for a status that is set or taken off.
    """
    first = [instance("a"), instance("b")]
    out = replace(instance("b"), status=Status.OUT_OF_SERVICE, metadata={**first[1].metadata, "color": "red"})
    for wanted in (
        first,
        [first[0], out],
        [replace(first[0], ip_address="10.0.0.9"), first[1]],
        [first[1]],
        [],
    ):
        steps = plan(wanted, registry.known_instances(application="rating"), OWNER)
        assert steps
        assert registry.apply(steps, OWNER).failures == ()
        assert not plan(wanted, registry.known_instances(application="rating"), OWNER)
    assert registry.figures().renewed_here == 0


def test_what_belongs_to_others_is_left_as_it_is(kind: Kind, registry: Registry) -> None:
    """Another owner's instance and an unowned one stay, even if an old plan would change them; the rest of
    the plan is carried out.
    """
    kind.put(instance("theirs", OTHERS))
    kind.put(instance("nobodys", None))
    taken = [instance("theirs"), instance("nobodys")]
    steps = Plan(
        (*registers(*taken, instance("ours")).changes, Change(Action.DEREGISTER, taken[0], taken[0]))
    )
    outcome = registry.apply(steps, OWNER)
    assert [change.instance.instance_id for change in outcome.done] == ["ours"]
    assert {type(failure.error) for failure in outcome.failures} == {OwnershipConflict}
    assert [getattr(kind.stands(one.key), "owner", "gone") for one in taken] == [OTHERS, None]


def test_what_others_register_is_found(kind: Kind, registry: Registry, listener: Listener) -> None:
    """The client finds an instance that others register, and tells the listener of its owner."""
    kind.put(instance("theirs", OTHERS))
    wait_until(lambda: OTHERS in listener.owners, "it to be found", SECONDS)
    assert [one.key for one in registry.known_instances(owner=OTHERS)] == [instance("theirs").key]


def test_who_may_not_write_changes_nothing(kind: Kind) -> None:
    """A client that may not write refuses a plan, since another replica may lead by now."""
    made = kind.client(lambda: False)
    made.start()
    try:
        wait_until(lambda: made.condition() == Healthy(), "the first reading", SECONDS)
        made.start_leading(0)
        with pytest.raises(LeadershipLost):
            made.apply(registers(instance("a")), OWNER)
        assert kind.stands(instance("a").key) is None
    finally:
        made.stop()


def test_only_who_leads_renews(kind: Kind, registry: Registry) -> None:
    """Only the leader renews; a replica that does not lead knows the instances, and renews none."""
    if not kind.registry_kind.renewals:
        pytest.skip(f"{kind.registry_kind.name} knows no renewals: what is left to lapse is removed")
    one = instance("a")
    registry.apply(registers(one), OWNER)
    registry.let_lapse(one)
    assert registry.figures().renewed_here == 0
    registry.keep_registered(one)
    assert registry.figures().renewed_here == 1
    registry.stand_by()
    registry.keep_registered(one)
    assert registry.figures().renewed_here == 0
    registry.refresh([one.key], include_known=True)
    assert [there.key for there in registry.known_instances(owner=OWNER)] == [one.key]


def test_what_nobody_forgets_is_removed_in_place_of_lapsing(kind: Kind, registry: Registry) -> None:
    """A registry without renewals removes an instance that is to lapse; kept instances and those of
    another cluster stay.
    """
    if kind.registry_kind.renewals:
        pytest.skip(f"{kind.registry_kind.name} forgets what nobody renews")
    theirs = instance("theirs", "cluster/eks/shop/rating")
    kind.put(theirs)
    ours = [instance("a"), instance("b")]
    registry.apply(registers(*ours), OWNER)
    for one in (*ours, theirs):
        registry.let_lapse(one)
    registry.keep_registered(ours[1])
    wait_until(lambda: kind.stands(ours[0].key) is None, "the removal", SECONDS)
    assert registry.get(ours[0].key) is None
    assert kind.stands(ours[1].key) is not None
    assert kind.stands(theirs.key) is not None
