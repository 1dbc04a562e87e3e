"""The operator used by the single-fault tests, on model servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eurekube_provider.core.errors import RegistryDenied
from eurekube_provider.core.model import EurekaLease
from eurekube_provider.core.registry import reading_error
from eurekube_provider.eureka import notes
from eurekube_provider.eureka.connection import BatchMode, Connection
from lab.peering import SERVER_COUNT
from lab.waiting import wait_until
from tests.faults.local_operator import Clocks, LocalOperator
from tests.logged_lines import everything_logged
from tests.unit.faults.model_peering import ModelPeering

WAIT_SECONDS = 60.0
LEASE = EurekaLease(duration_seconds=600)


@pytest.fixture
def peering(tmp_path: Path) -> Iterator[ModelPeering]:
    """Yield three running model servers."""
    with ModelPeering(tmp_path) as running:
        yield running


def holds(peering: ModelPeering, operator: LocalOperator, *pods: int, **metadata: str) -> bool:
    """Return whether each server has exactly these pods' instances of the operator, with this metadata."""
    return all(
        {one.key for one in held if metadata.items() <= one.metadata.items()}
        == {one.key for one in held}
        == {operator.key(pod) for pod in pods}
        for held in (
            [one for one in peering.list_instances(number).values() if one.owner == operator.owner]
            for number in range(SERVER_COUNT)
        )
    )


@pytest.mark.parametrize("mode", [BatchMode.REST, BatchMode.BATCH], ids=str)
def test_it_brings_servers_to_what_is_wanted(
    peering: ModelPeering, unique_name: str, mode: BatchMode
) -> None:
    """The operator registers, updates and removes instances, changes nothing while paused, and continues
    when it leads.
    """
    with LocalOperator(Connection(tuple(peering.urls)), unique_name, mode) as operator:
        operator.want(range(24), LEASE)
        wait_until(lambda: holds(peering, operator, *range(24)), "the registrations", WAIT_SECONDS)
        assert [one.key for one in operator.desired] == [operator.key(pod) for pod in range(24)]
        assert {one.lease for one in operator.desired} == {LEASE}
        operator.want(range(2, 26), revision="2")
        wait_until(lambda: holds(peering, operator, *range(2, 26), revision="2"), "the changes", WAIT_SECONDS)
        operator.pause()
        operator.want([])
        assert operator.renewed == 24
        assert holds(peering, operator, *range(2, 26))
        operator.lead()
        wait_until(lambda: holds(peering, operator) and operator.has_nothing(), "the end", WAIT_SECONDS)


def test_it_brings_back_what_servers_forgot(peering: ModelPeering, unique_name: str) -> None:
    """The operator restores its instances after one server, or all, were killed and came back empty."""
    with LocalOperator(Connection(tuple(peering.urls)), unique_name, BatchMode.REST) as operator:
        operator.want([0, 1], LEASE)
        wait_until(lambda: holds(peering, operator, 0, 1), "the registrations", WAIT_SECONDS)
        for killed in (peering.servers[:1], peering.servers):
            for server in killed:
                server.kill()
            peering.heal()
            wait_until(lambda: holds(peering, operator, 0, 1), "what was forgotten", WAIT_SECONDS)


def test_it_says_that_its_credentials_are_refused(peering: ModelPeering, unique_name: str) -> None:
    """Refused credentials appear in the registry's condition and the log; afterwards pending changes are
    applied.
    """
    with (
        everything_logged() as log,
        LocalOperator(Connection(tuple(peering.urls)), unique_name, BatchMode.REST) as operator,
    ):
        operator.want([0], LEASE)
        wait_until(lambda: holds(peering, operator, 0), "the registration", WAIT_SECONDS)
        for front in peering.fronts:
            front.answer(401)
        operator.want([0, 1])

        def is_said() -> bool:
            return any(
                "failed to reconcile a syncer" in line
                and f"shop/{operator.app}" in line
                and "wants other credentials" in line
                for line in log
            )

        wait_until(is_said, "word of it", WAIT_SECONDS)
        wait_until(
            lambda: isinstance(reading_error(operator.registry.condition()), RegistryDenied),
            "the condition",
            WAIT_SECONDS,
        )
        peering.heal()
        wait_until(lambda: holds(peering, operator, 0, 1), "what was to be done", WAIT_SECONDS)


def test_a_thread_has_the_clock_of_the_one_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread inherits the stepped clock of its starter, so that a whole operator shares one."""
    clocks, seen = Clocks(monkeypatch), []

    def started() -> None:
        inner = threading.Thread(target=lambda: seen.append(notes.next_timestamp_ms(None)))
        inner.start()
        inner.join()

    for seconds in (600, 0):
        clocks.set_ahead(seconds)
        outer = threading.Thread(target=started)
        outer.start()
        outer.join()
    assert seen[0] - seen[1] == pytest.approx(600_000, abs=60_000)
