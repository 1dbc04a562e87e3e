"""No order of events makes a stack's registrations do harm: each single fault of an edit, and some pairs."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest

from eurekube_provider.core.errors import DrainInterrupted
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.instance_registry import InstanceInfo
from eurekube_provider.registrations import cancellation
from eurekube_provider.registrations.secret_values import as_secret
from eurekube_provider.resources.dynamic_provider import from_pulumi_properties
from tests.explore.campaign import SHELLS
from tests.explore.engine import Engine, NativeEngine, Program, RefreshingEngine
from tests.explore.explorer import Explored, acts, singles, tried
from tests.explore.others import ENFORCED, OWNER, Act, Deed, is_leaving, metadata
from tests.explore.programs import (
    EDITS,
    SECOND_THOUGHTS,
    SECOND_URL,
    URL,
    Edit,
    application,
    at_two_servers,
    edit,
    instance,
)
from tests.explore.settled import Settled
from tests.explore.shells import Properties
from tests.explore.stateless import Stateless
from tests.explore.world import Fault, Faults, World, owned
from tests.model.commands import DATA_CENTER

PAIRS_AN_EDIT, ACTS_AN_EDIT = 16, 8
"""Numbers of pairs of faults and of acts for each edit, drawn by the edit's name, so that a failure is
found again; ``make explore`` draws more and larger sets.
"""


SETTLED = Settled()
"""States that are known to end well, shared by all tests here, since most faults leave one of few states."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging, since thousands of lost requests are logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("edit", "tool"),
    [
        *((edit, Engine) for edit in (*EDITS, *SECOND_THOUGHTS)),
        *((edit, tool) for edit in EDITS for tool in (NativeEngine, RefreshingEngine)),
    ],
    ids=lambda each: each.name if isinstance(each, Edit) else each.__name__,
)
def test_every_single_fault(edit: Edit, tool: type[Engine]) -> None:
    """A request that is lost, or at which the process dies, harms no caller, and the next run completes the
    work.

    With the native provider, which shares all code but its messages, each request has one kind of fault in
    turn; ``make explore`` tries both providers with all kinds.
    """
    step = 1 if tool is Engine else len(edit.faults) + 1
    for faults in ({}, *itertools.islice(singles(edit, tool=tool, settled=SETTLED), None, None, step)):
        assert not (failure := tried(edit, faults, tool=tool, settled=SETTLED)), failure


AT_TWO = (
    "remove with a drain, and think better of it",
    "moved without an alias",
    "another spelling of the URL, with a drain",
    "status enforced",
    "application: drain, and think better of it",
    "application: one more, one less",
)
"""Names of the edits that are tried with two servers; ``make explore`` tries all."""


@pytest.mark.parametrize("edit", [one for one in EDITS if one.name in AT_TWO], ids=lambda edit: edit.name)
def test_every_single_fault_at_two_servers(edit: Edit) -> None:
    """No single fault harms a caller with two servers, which replicate half a second later."""
    for faults in ({}, *singles(edit, 2, settled=SETTLED)):
        assert not (failure := tried(edit, faults, 2, settled=SETTLED)), failure


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_pairs_of_faults(edit: Edit) -> None:
    """No two faults, in one run or in two, harm a caller."""
    draw = random.Random(edit.name)  # noqa: S311 - a test
    requests = Explored(edit, {}, settled=SETTLED).run().requests
    for _ in range(PAIRS_AN_EDIT):
        first, second = sorted(draw.sample(range(2 * requests), 2))
        faults = {first: draw.choice(tuple(Fault)), second: draw.choice(tuple(Fault))}
        assert not (failure := tried(edit, faults, tool=draw.choice(SHELLS), settled=SETTLED)), failure


@pytest.mark.parametrize("name", ["moved without an alias", "application: moved without an alias"])
def test_two_servers_that_each_lose_an_answer(name: str) -> None:
    """An instance that only one server has, not yet replicated, is found by the next run even while that
    server is silent.
    """
    edit = next(one for one in EDITS if one.name == name)
    requests = Explored(edit, {}, 2).run().requests
    for first, second in itertools.combinations(range(requests + 2), 2):
        faults = {first: Fault.LOST_BEFORE, second: Fault.LOST_AFTER}
        assert not (failure := tried(edit, faults, 2, settled=SETTLED)), failure


@pytest.mark.parametrize("name", ["remove with a drain", "application: remove with a drain"])
def test_a_renewal_gives_back_nothing_that_was_drained(name: str) -> None:
    """A renewal at any moment of a drain and removal brings nothing back: the second look recognises our
    mark.
    """
    edit = next(one for one in EDITS if one.name == name)
    for at in range(Explored(edit, {}, 2).run().requests):
        assert not (failure := tried(edit, {at: Act(Deed.RENEWED)}, 2, settled=SETTLED)), failure


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_others_act(edit: Edit, servers: int) -> None:
    """No act of people, other stacks, applications or servers makes a run do harm, and each act's result
    stays.
    """
    draw = random.Random(f"{edit.name} {servers}")  # noqa: S311 - a test
    requests = Explored(edit, {}, servers, settled=SETTLED).run().requests
    for _ in range(ACTS_AN_EDIT if (possible := acts(edit, servers)) else 0):
        faults: Faults = {draw.randrange(requests): draw.choice(possible)}
        assert not (failure := tried(edit, faults, servers, draw.choice(SHELLS), SETTLED)), failure


def test_the_explorer_finds_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """If removals took every instance of the owner, one edit would be enough to find the harm."""
    monkeypatch.setattr(
        "eurekube_provider.registrations.desired.DesiredState.has_registered",
        lambda self, held: held.owner == self.owner,
    )
    edit = next(one for one in EDITS if one.name == "moved without an alias")
    assert any(tried(edit, faults) for faults in singles(edit))


OUT = "OUT_OF_SERVICE"
BOTH_KINDS = pytest.mark.parametrize("make", [instance, lambda **own: application("a", **own)])
Make = Callable[..., Properties]


class _Stack:
    """One stack at one server, between whose runs others act."""

    def __init__(self) -> None:
        self.cluster = EurekaCluster([URL])
        self.world = World(self.cluster)
        self.engine = Engine(self.world)

    @property
    def held(self) -> InstanceInfo:
        """The one instance of the stack."""
        (found,) = (
            lease.holder
            for lease in self.cluster.servers[URL].registry.all_leases()
            if OWNER in _marks(lease.holder)
        )
        return found

    def up(self, **program: Properties) -> list[str]:
        """Run ``pulumi up``, and wait until lists show the result; return the steps."""
        run = self.engine.up(program)
        assert run.ended_well, run.error
        self.cluster.clock.advance(40_000)
        return run.steps

    def set_status(self, status: str) -> None:
        """Set the instance's status as a person would."""
        held = self.held
        self.cluster.request(
            URL, ServerRequest("PUT", ("apps", held.app, held.id, "status"), {"value": status})
        )

    def register(self, instance_id: str, address: str, marks: Mapping[str, str]) -> None:
        """Register an instance with these marks as another client would."""
        document = {
            "instanceId": instance_id,
            "app": "BILLING",
            "hostName": address,
            "ipAddr": address,
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "vipAddress": "billing",
            "dataCenterInfo": DATA_CENTER,
            "metadata": marks,
            "lastDirtyTimestamp": str(self.cluster.clock.now_ms),
        }
        self.cluster.request(URL, ServerRequest("POST", ("apps", "BILLING"), body={"instance": document}))

    def register_in_the_way(self, instance_id: str) -> None:
        """Register an instance of another owner under this id."""
        there = {**self.held.fields, "app": self.held.app, "instanceId": instance_id, "metadata": {"a": "b"}}
        there |= {"hostName": "10.9.9.9", "ipAddr": "10.9.9.9"}
        self.cluster.request(URL, ServerRequest("POST", ("apps", self.held.app), body={"instance": there}))
        self.cluster.clock.advance(40_000)

    @property
    def contents(self) -> dict[str, tuple[Any, ...]]:
        """The instances as callers and renewers see them."""
        return {
            info.id: (
                info.status,
                info.fields["hostName"],
                info.fields["port"],
                _marks(info).get("eurekube.renewer"),
            )
            for info in (lease.holder for lease in self.cluster.servers[URL].registry.all_leases())
        }

    def standing(self, instance_id: str) -> tuple[str, str, dict[str, str]]:
        """Return status, override and metadata of an instance."""
        info = self.cluster.servers[URL].registry.get("BILLING", instance_id)
        assert info is not None
        return info.status, info.overridden, _marks(info)

    def remove(self) -> None:
        """Remove the instance as a person would, or a run whose answer was lost."""
        held = self.held
        self.cluster.request(URL, ServerRequest("DELETE", ("apps", held.app, held.id)))


def _marks(info: InstanceInfo) -> dict[str, str]:
    return info.fields["metadata"]  # type: ignore[no-any-return]


@pytest.fixture
def stack() -> Iterator[_Stack]:
    """Return a stack at an empty server."""
    made = _Stack()
    with owned(made.world):
        yield made


def test_what_a_refresh_finds_that_no_program_names_is_a_secret(stack: _Stack) -> None:
    """A refresh marks as secret the values of an instance that no program names: a failed update left it,
    and nobody knows what was secret.
    """
    stack.up(x=application("a"))
    left = {"metadata": {**_marks(stack.held), "eurekube.member": "b", "token": "hidden"}}
    document = {**stack.held.fields, **left, "app": "RATING", "instanceId": "left", "hostName": "hidden-host"}
    stack.cluster.request(URL, ServerRequest("POST", ("apps", "RATING"), body={"instance": document}))
    stack.cluster.clock.advance(40_000)
    assert stack.engine.refresh().ended_well
    (entry,) = stack.engine.state
    for properties in (entry.inputs, entry.outputs):
        assert "hidden" in str(properties["instances"]["b"])
        assert from_pulumi_properties({"b": properties["instances"]["b"]})["b"]["host_name"] == "hidden-host"
        assert as_secret({}).keys() == properties["instances"]["b"].keys()
        assert "hidden" not in str(properties["instances"]["a"])
    assert stack.up(x=application("a")) == ["update x"]
    assert stack.held.id == "a.x.dev.explored:rating:8080"


@BOTH_KINDS
def test_a_persons_status_over_an_enforced_one_stands(stack: _Stack, make: Make) -> None:
    """A person's status over an enforced one stays when the program stops enforcing; only our mark goes."""
    stack.up(x=make(status=OUT))
    stack.set_status("DOWN")
    stack.up(x=make())
    assert (stack.held.status, stack.held.overridden) == ("DOWN", "DOWN")
    assert ENFORCED not in _marks(stack.held)


@BOTH_KINDS
def test_what_stands_without_our_mark_is_taken_for_a_persons(stack: _Stack, make: Make) -> None:
    """A status without our mark counts as a person's: one that an earlier release enforced stays when the
    resource moves.
    """
    stack.up(x=make(status=OUT, on_conflict="adopt"))
    del _marks(stack.held)[ENFORCED]
    assert not stack.up(x=make(status=OUT, on_conflict="adopt")), "a state of an earlier release goes on"
    stack.up(**{"parent/x": make(on_conflict="adopt")})
    assert stack.held.status == OUT


@BOTH_KINDS
def test_what_was_removed_is_registered_by_the_next_run(stack: _Stack, make: Make) -> None:
    """An update registers a removed instance again, since the state does not say that a removal without an
    answer was carried out.
    """
    stack.up(x=make())
    stack.remove()
    assert stack.up(x=make()) == ["update x"]
    assert stack.held.status == "UP"
    assert not stack.up(x=make())


@BOTH_KINDS
def test_what_renews_itself_is_not_missed(stack: _Stack, make: Make) -> None:
    """An update does not register an ended instance that renews itself: nobody would answer its callers."""
    stack.up(x=make(renewer="self"))
    stack.remove()
    assert not stack.up(x=make(renewer="self"))


@BOTH_KINDS
def test_a_machine_that_registered_itself_is_not_registered_twice(
    stack: _Stack, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """An up without a change does not fail if a machine registered itself at the address: it says so, and
    leaves that instance.
    """
    stack.up(x=make())
    itself = {**stack.held.fields, "app": stack.held.app, "instanceId": "itself", "metadata": {"a": "b"}}
    stack.remove()
    stack.cluster.request(URL, ServerRequest("POST", ("apps", itself["app"]), body={"instance": itself}))
    stack.cluster.clock.advance(40_000)
    assert not stack.up(x=make())
    said = capsys.readouterr().err
    assert "is gone, and not registered again" in said
    assert "registered itself" in said
    assert [lease.holder.id for lease in stack.cluster.servers[URL].registry.all_leases()] == ["itself"]


AT_ONE_ADDRESS: Properties = {
    key: {"host_name": f"10.0.0.{at}", "instance_id": key} for at, key in enumerate("ab", 1)
}
ANOTHERS = "stack/organization/explored/prod/x"
ADOPTED_AS: tuple[Properties, ...] = (
    instance(on_conflict="adopt", instance_id="a"),
    instance(on_conflict="adopt", instance_id="a", status="UP"),
    application(application="billing", on_conflict="adopt", instances=AT_ONE_ADDRESS),
    application(application="billing", on_conflict="adopt", instances=AT_ONE_ADDRESS, status="UP"),
    application(application="billing", on_conflict="adopt", instances=AT_ONE_ADDRESS, status="DOWN"),
)


@pytest.mark.parametrize("is_marked", [False, True], ids=["a person's", "enforced"])
@pytest.mark.parametrize("status", [OUT, "DOWN"])
@pytest.mark.parametrize("adopting", ADOPTED_AS, ids=range(len(ADOPTED_AS)))
def test_an_adoption_that_fails_gives_back_what_it_took_over(
    adopting: Properties, status: str, *, is_marked: bool
) -> None:
    """If an adoption fails at any request, another stack's registration and its status are given back."""
    marks = {OWNER: ANOTHERS, "eurekube.renewer": "eurekube", "eurekube.incarnation": "theirs"}
    if is_marked:
        marks[ENFORCED] = status
    for at in range(60):
        stack = _Stack()
        with owned(stack.world):
            stack.register("a", "10.0.0.1", marks)
            stack.set_status(status)
            stack.cluster.clock.advance(40_000)
            before = stack.standing("a")
            stack.world.trace.clear()
            stack.world.faults = {at: Fault.LOST_AFTER}
            run = stack.engine.up({"x": adopting})
            if run.ended_well and len(stack.world.trace) <= at:
                return
            if not run.ended_well:
                assert stack.standing("a") == before, (at, stack.world.trace)
    pytest.fail("it never ran undisturbed")


_DRAINED = {"drain_seconds": 30}
OVERLAPPING: Mapping[str, tuple[Program, Program, Program]] = {
    "one": ({"i": instance(**_DRAINED)}, {}, {"i": instance(**_DRAINED)}),
    "one, moved": (
        {"i": instance(instance_id="vm-1", **_DRAINED)},
        {},
        {"parent/i": instance(instance_id="vm-1", **_DRAINED)},
    ),
    "all of an application": ({"x": application("a", **_DRAINED)}, {}, {"x": application("a", **_DRAINED)}),
    "all of an application, moved": (
        {"x": application("a", **_DRAINED)},
        {},
        {"parent/x": application("a", **_DRAINED)},
    ),
    "three of an application": (
        {"x": application("a", "b", "c", **_DRAINED)},
        {},
        {"x": application("a", "b", "c", **_DRAINED)},
    ),
    "one of an application": (
        {"x": application("a", "b", **_DRAINED)},
        {"x": application("a", **_DRAINED)},
        {"x": application("a", "b", **_DRAINED)},
    ),
}
"""Programs of three runs: the registrations, a run that drains some, and another run meanwhile."""


@pytest.mark.parametrize("tool", [Engine, NativeEngine, Stateless])
@pytest.mark.parametrize("name", OVERLAPPING)
def test_what_another_run_put_back_during_a_drain_stays(name: str, tool: type[Engine | Stateless]) -> None:
    """If another run puts instances back during a drain, they stay: two applies have no lock, and a person
    may break a sleeping machine's lock.
    """
    first, middle, last = OVERLAPPING[name]
    world = World(EurekaCluster([URL]))
    with owned(world):
        slow, other = tool(world), tool(world)
        assert slow.up(first).ended_well
        other.state = deepcopy(slow.state)
        world.cluster.clock.advance(40_000)

        def meanwhile(what: str) -> None:
            if "value=OUT_OF_SERVICE" in what:
                world.watch = lambda _: None
                assert other.up(last).ended_well

        world.watch = meanwhile
        slow.up(middle)
        standing = {
            lease.holder.id: lease.holder.status for lease in world.cluster.servers[URL].registry.all_leases()
        }
        assert len(standing) == len(last["x"]["instances"] if "x" in last else last), standing
        assert set(standing.values()) == {"UP"}
        assert not other.up(last).steps


ELSEWHERE: Properties = {key: {"host_name": f"10.0.9.{at}"} for at, key in enumerate("ab", 1)}
TAKEN_BACK: Mapping[str, tuple[Properties, Properties]] = {
    "another port": (instance(instance_id="vm-1"), instance(instance_id="vm-1", port=9090)),
    "another renewer": (instance(), instance(renewer="other")),
    "application: other hosts": (application("a", "b"), application("a", "b", instances=ELSEWHERE)),
    "application: another renewer": (application("a"), application("a", renewer="other")),
    "application: one more": (application("a", "b"), application("a", "b", "c")),
}


@pytest.mark.parametrize("name", TAKEN_BACK)
def test_a_reverted_update_leaves_without_a_refresh(name: str) -> None:
    """A reverted update's registration leaves without a refresh; otherwise callers would be sent to a
    wrong address.
    """
    first, middle = TAKEN_BACK[name]
    requests = 100
    for at, fault in itertools.product(range(requests), Fault):
        if at >= requests:
            break
        stack = _Stack()
        with owned(stack.world):
            stack.up(x=first)
            before = stack.contents
            stack.world.trace.clear()
            stack.world.faults = {at: fault}
            run = stack.engine.up({"x": middle})
            requests = min(requests, len(stack.world.trace) if run.ended_well else requests)
            stack.world.faults = {}
            stack.cluster.clock.advance(40_000)
            if not run.ended_well:
                stack.up(x=first)
                assert stack.contents == before, stack.world.trace
                assert not stack.up(x=first)


def test_what_an_update_added_that_was_refused_goes_with_it(stack: _Stack) -> None:
    """When an update that was refused half-way is reverted, the instances that it did register are
    removed.
    """
    stack.up(x=application("a"))
    stack.register_in_the_way("b.x.dev.explored:rating:8080")
    before = stack.contents
    assert not stack.engine.up({"x": application(*"abc", port=8080)}).ended_well
    assert len(stack.contents) == len(before) + 1
    stack.cluster.clock.advance(40_000)
    assert stack.up(x=application("a")) == ["update x"]
    assert stack.contents == before


@BOTH_KINDS
def test_metadata_that_somebody_sets_is_found_by_a_refresh_only(stack: _Stack, make: Make) -> None:
    """Metadata that others set by Eureka's own request are found by a refresh only, not by an up."""
    stack.up(x=make())
    _marks(stack.held)["weight"] = "5"
    assert not stack.up(x=make())
    assert _marks(stack.held)["weight"] == "5"


@pytest.mark.parametrize("name", ["status no more enforced", "application: status no more enforced"])
def test_a_status_is_lifted_at_every_server_before_its_mark_goes(name: str) -> None:
    """Our mark stays until the status is cleared at every server, since the next run reads only one of
    them.
    """
    changed = edit(name)
    for slow, killed in itertools.product(range(2, 6), range(6, 14)):
        faults: Faults = {slow: Fault.SLOW, killed: Fault.KILLED_AFTER, killed + 2: Fault.LOST_AFTER}
        assert not (failure := tried(changed, faults, 2)), failure


@pytest.mark.parametrize("name", ["status no more enforced", "application: status no more enforced"])
def test_a_status_that_differs_after_a_failed_update_is_lifted(name: str) -> None:
    """After a failed update with late requests, a server's differing status is not taken for a person's,
    and is cleared.
    """
    changed = edit(name)
    for slow in range(4, 12):
        faults: Faults = {slow: Fault.SLOW, slow + 1: Fault.SLOW}
        assert not (failure := tried(changed, faults, 2)), failure


def test_the_mark_of_a_lifted_status_waits_for_a_server_that_is_away() -> None:
    """A server that was away when a status was cleared comes back with it: the mark stays, and the next
    run clears it there.
    """
    urls = [URL, SECOND_URL]
    cluster = EurekaCluster(urls)
    world = World(cluster)
    out, plain = (
        {"i": instance(service_url=",".join(urls), **given)} for given in ({"status": "OUT_OF_SERVICE"}, {})
    )
    with owned(world):
        engine = Engine(world)
        assert engine.up(out).ended_well
        cluster.clock.advance(40_000)
        cluster.down.add(SECOND_URL)
        assert engine.up(plain).ended_well
        cluster.clock.advance(40_000)
        cluster.down.discard(SECOND_URL)
        cluster.clock.advance(40_000)
        assert engine.up(plain).steps == ["update i"]
        cluster.clock.advance(40_000)
        held = [lease.holder for server in cluster.servers.values() for lease in server.registry.all_leases()]
    assert [(one.status, one.overridden) for one in held] == [("UP", "UNKNOWN")] * 2
    assert not any(ENFORCED in metadata(one) for one in held)


@pytest.mark.parametrize("name", ["remove with a drain", "application: remove with a drain"])
@pytest.mark.parametrize("away", [URL, SECOND_URL])
def test_a_drain_undone_while_a_server_is_away_is_undone_there(name: str, away: str) -> None:
    """A server that was away when a drain was undone comes back with our OUT_OF_SERVICE: the next run
    clears it there.
    """
    found = at_two_servers(edit(name))
    cluster = EurekaCluster([URL, SECOND_URL])
    world = World(cluster)
    with owned(world):
        engine = Engine(world)
        assert engine.up(found.first).ended_well
        cluster.clock.advance(40_000)

        def freezes(_: float) -> None:
            cluster.clock.advance(5_000)
            cluster.down.add(away)
            raise DrainInterrupted("interrupted")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cancellation.Cancellation, "make_interruptible_sleep", lambda _: freezes)
            assert "interrupted" in engine.up(found.middle).error
        cluster.clock.advance(45_000)
        cluster.down.clear()
        for _ in range(2):
            for url, server in cluster.servers.items():
                for lease in server.registry.all_leases():
                    cluster.request(url, ServerRequest("PUT", ("apps", lease.holder.app, lease.holder.id)))
            cluster.clock.advance(25_000)
        assert engine.up(found.first).ended_well
        cluster.clock.advance(5_000)
        held = [lease.holder for server in cluster.servers.values() for lease in server.registry.all_leases()]
        assert {(info.status, is_leaving(info)) for info in held} == {("UP", False)}
        assert not engine.up(found.first).steps


def test_an_enforcing_registration_is_taken_over_in_one_write() -> None:
    """A take-over of a registration that enforces a status is one write: a second write of STARTING could
    be replicated over the OUT_OF_SERVICE that was set meanwhile.
    """
    faults: Faults = {5: Fault.KILLED_BEFORE, 7: Fault.KILLED_AFTER}
    assert not (failure := tried(edit("create out of service"), faults, 2)), failure
