"""Jobs of the bookkeeping benchmark do the work that it measures."""

from __future__ import annotations

from bench.bookkeeping import INSTANCES_PER_SYNCER, SyncerFleet, measure_growth


def test_each_job_is_measured_at_both_sizes() -> None:
    """Each job is measured per syncer with some syncers and with ten times as many."""
    times, ratios = measure_growth(2)
    assert set(ratios) == {"reconciles", "Events", "statuses", "brake", "retention", "doctor"}
    assert set(times) == {f"{name} at {count}" for name in ratios for count in (2, 20)}
    assert all(microseconds > 0 for microseconds in times.values())


def test_a_fleet_has_syncers_with_ten_instances_each() -> None:
    """A fleet has ten instances for each syncer, and a snapshot with everything that the doctor reads."""
    fleet = SyncerFleet(3)
    assert [len(there) for there in fleet.instances.values()] == [INSTANCES_PER_SYNCER] * 3
    snapshot = fleet.snapshot
    assert len(snapshot.syncers) == len(snapshot.services) == len(snapshot.workloads) == 3
