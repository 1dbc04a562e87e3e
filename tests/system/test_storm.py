"""The short form of the storm, which runs with all tests; ``make test-faults`` runs the long form."""

from __future__ import annotations

import pytest

from tests.faults import api_faults, eureka_faults, operator_faults, workload_faults
from tests.faults.fault import Scale
from tests.faults.operator_faults import REPLICAS
from tests.faults.storm import Storm, run, schedule, seed_of_commit
from tests.faults.world import World

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ROUNDS = 2
SHORT = Storm(
    # Ten minutes without the API server become six seconds: no Eureka lease could lapse meanwhile. That none
    # does is for the long form to prove.
    Scale(longest_seconds=6.0, away_seconds=6.0, silent_seconds=6.0, left_seconds=6.0),
    # What the brake would hold back for a minute is left to the long form: nodes, Services and clusters lost.
    (
        operator_faults.OperatorKilled,
        operator_faults.OperatorPaused,
        operator_faults.LeaderCutOff,
        operator_faults.ClockStepped,
        api_faults.ApiAway,
        api_faults.WatchesCut,
        eureka_faults.PeerKilled,
        eureka_faults.PeerSplit,
        eureka_faults.PeerOutOfReach,
        workload_faults.PodsUnready,
        workload_faults.RolledOut,
        workload_faults.NamespaceDeleted,
        workload_faults.SyncerEdited,
    ),
    # A server that is frozen, one that is slow, one of another name, a Service that leaves its namespace's
    # syncer, and pods with the readiness gate that are rolled: all of them, whatever the seed.
    (
        (eureka_faults.PeerPaused, eureka_faults.NamedEurekaAway, workload_faults.GatedRolledOut),
        (eureka_faults.PeerSlow, eureka_faults.NamedEurekaAway, workload_faults.ServiceLeaves),
    ),
    fewest=6,
    most=7,
    spread_seconds=12.0,
    rest_seconds=3.0,
    slack=2.0,
)


@pytest.mark.timeout(900)
def test_a_short_storm_does_no_harm() -> None:
    """No ready instance is removed, no instance of others changed, no lease lapses, and afterwards all
    servers agree.
    """
    seed = seed_of_commit()
    print(f"the same again: SEED={seed} python -m pytest {__file__}")
    plan = schedule(seed, SHORT, count=ROUNDS)
    for number, planned in enumerate(plan, start=1):
        print(f"round {number}:", *planned, sep="\n  ")
    with World(REPLICAS, SHORT.scale.away_seconds, SHORT.slack) as world:
        assert run(world, plan, SHORT, print) == ROUNDS
        assert world.complaints == []
        assert world.witness.waited_gates > 0
