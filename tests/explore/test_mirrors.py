"""A mirror does no harm, wherever its operator is killed and whoever acts meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eurekube_provider.core.mirror_guard import GuardVerdict
from tests.explore.operator.mirror_campaign import tried
from tests.explore.operator.mirror_edits import (
    ACTS,
    FAULTS,
    KILLS,
    MIRROR_EDITS,
    SEVERAL_APPLICATIONS,
    MirrorEdit,
    a_person_replaces_the_service,
    a_person_takes_the_service_over,
    a_server_restarts_empty,
    another_eureka_answers,
    in_place_for_long,
    mirror_edit,
    the_last_application_is_refused,
)
from tests.explore.operator.mirrors import MirrorsExplored
from tests.explore.operator.stepwise import owned
from tests.explore.operator.world import Fault, Happening

OTHERS_AN_EDIT = 2
ORDERS_AN_EDIT = 4


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    """Have the code reach no real server, and start no thread."""
    with owned():
        yield


@pytest.mark.parametrize("changed", MIRROR_EDITS, ids=lambda one: one.name)
def test_wherever_the_operator_is_killed(changed: MirrorEdit) -> None:
    """The operator may be killed before or after each request; some other faults and acts are tried, too."""
    draw = random.Random(changed.name)  # noqa: S311 - a test
    calm = MirrorsExplored(changed, {}).run()
    assert not calm.violations, (calm.violations, calm.trace)
    places = calm.numbers
    for at in places:
        failure = tried(changed, {at: draw.choice(KILLS)})
        assert not failure, failure
    for _ in range(OTHERS_AN_EDIT):
        servers = draw.choice((1, 2))
        failure = tried(changed, {draw.choice(places): draw.choice((*FAULTS, *ACTS))}, servers)
        assert not failure, failure


@pytest.mark.parametrize("act", [a_person_replaces_the_service, a_person_takes_the_service_over])
def test_wherever_a_person_takes_the_service(act: Happening) -> None:
    """A person's Service, made under the mirror's name or taken over by removing the label, gets no writes
    and no further slices.
    """
    for changed in ("another port", "another name", "another form", "it is deleted"):
        edit = mirror_edit(changed)
        for at in MirrorsExplored(edit, {}).run().numbers:
            assert not (failure := tried(edit, {at: act})), failure


@pytest.mark.parametrize("changed", SEVERAL_APPLICATIONS, ids=lambda one: one.name)
def test_however_writes_overtake_each_other(changed: MirrorEdit) -> None:
    """No endpoint is removed before all new ones are written, and no writer goes on after its reconcile."""
    for seed in range(ORDERS_AN_EDIT):
        assert not (failure := tried(changed, {}, seed=seed)), failure


def test_writes_of_several_applications_are_under_way_at_once() -> None:
    """Writes of several applications overlap in an order that depends on the seed alone."""
    edit = mirror_edit("all get another name")

    def orders() -> list[list[str]]:
        found = [MirrorsExplored(edit, {}, seed=seed).run().trace for seed in range(ORDERS_AN_EDIT)]
        return [[line for line in trace if "POST" in line] for trace in found]

    first = orders()
    assert first == orders()
    assert len({tuple(one) for one in first}) > 1
    services = ["POST services" in line for line in first[0]]
    assert services[:2] == [True, True], "the second Service does not wait for the first one's slices"


def test_a_person_replaces_a_service_while_its_patch_is_slow() -> None:
    """If a watch reports the Service's deletion before a patch's answer arrives, the answer does not bring
    back the deleted object.
    """
    edit = mirror_edit("all get another port")
    for seed in range(ORDERS_AN_EDIT):
        places = MirrorsExplored(edit, {}, seed=seed).run().places
        *_, before, last = [at for at, what in enumerate(places) if what.startswith("PATCH services")]
        failure = tried(edit, {before: a_person_replaces_the_service, last: Fault.SLOW}, seed=seed)
        assert not failure, failure


@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_ends_all_writers(kill: Fault) -> None:
    """A kill ends the writer whose request it hit, and all other writers."""
    explored = MirrorsExplored(mirror_edit("all get another name"), {3: kill})
    trace = explored.run().trace
    killed = next(at for at, line in enumerate(trace) if "is killed" in line)
    begun = next(at for at, line in enumerate(trace) if "starts again" in line)
    assert sum("POST services" in line for line in trace[:killed]) > 1
    assert trace[killed + 1 : begun] == []
    assert not any(process.tasks for process in explored.world.processes)


def test_wherever_an_application_is_refused() -> None:
    """An application whose writes are refused keeps its old name, other applications are not delayed, and
    later it gets the new name.
    """
    for name in ("all get another name", "a machine of each is replaced", "fewer are meant, by another name"):
        edit = mirror_edit(name)
        for at in MirrorsExplored(edit, {}).run().numbers:
            failure = tried(edit, {at: the_last_application_is_refused})
            assert not failure, failure


@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_that_forgets_takes_nothing_away(servers: int) -> None:
    """Machines stay in the slices until they register again, within half a minute, after a server lost its
    memory.
    """
    edit = mirror_edit("a machine comes")
    for at in MirrorsExplored(edit, {}, servers).run().numbers:
        assert not (failure := tried(edit, {at: a_server_restarts_empty}, servers)), failure


@pytest.mark.parametrize("servers", [1, 2])
def test_another_eureka_at_the_same_url_takes_nothing_away(servers: int) -> None:
    """A 404 of another Eureka at the same URL is no proof: machines stay in the slices until they register
    there.
    """
    edit = replace(mirror_edit("a machine comes"), begin=in_place_for_long)
    for at in MirrorsExplored(edit, {}, servers).run().numbers:
        assert not (failure := tried(edit, {at: another_eureka_answers}, servers)), failure


def test_a_loss_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules find a mirror that trusts every gap in a list."""
    monkeypatch.setattr("eurekube_provider.core.mirror_decision.find_unlisted_ids", lambda *_: [])
    monkeypatch.setattr(
        "eurekube_provider.core.mirror_decision.guard_endpoints",
        lambda mapped, *_, **__: GuardVerdict(mapped.endpoints, {}),
    )
    edit = mirror_edit("a machine comes")
    places = MirrorsExplored(edit, {}).run().numbers
    failures = [tried(edit, {at: a_server_restarts_empty}) for at in places]
    assert any("is UP and is not called any more" in one for one in failures)
