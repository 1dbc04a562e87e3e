"""Progress messages of many changes, and the names of many failed ones."""

from __future__ import annotations

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.registrations.progress import ProgressReporter, SentChangesCounter
from eurekube_provider.registrations.rollback import format_errors_by_reason


def test_the_server_that_has_answered_to_the_fewest_counts() -> None:
    """A message is shown at intervals, not before the first one has passed, with at most the total."""
    now, reported = [100.0], list[str]()
    with ProgressReporter(reported.append, 10.0).activate():
        changes = SentChangesCounter(8000, lambda: now[0])
    for seconds, url, count in ((9.0, "a", 500), (1.0, "b", 250), (5.0, "a", 250), (5.0, "b", 9000)):
        now[0] += seconds
        changes.count(url, count)
    assert reported == ["250 of 8,000 changes sent to Eureka", "750 of 8,000 changes sent to Eureka"]
    now[0] += 10.0
    changes.count("a", 9000)
    assert reported[2:] == ["8,000 of 8,000 changes sent to Eureka"]


def test_a_caller_that_does_not_wait_gets_no_reports() -> None:
    """Outside of a provider's call no progress is shown."""
    reported = list[str]()
    with ProgressReporter(reported.append, 0.0).activate():
        pass
    SentChangesCounter(2).count("a", 1)
    assert reported == []


def test_of_many_that_failed_the_first_are_named() -> None:
    """A message names twenty failed instances of a reason, and counts the rest."""
    failed = {f"i{number:04}": RegistryUnreachable("no answer") for number in range(8000)}
    said = format_errors_by_reason({**failed, "other": RegistryUnreachable("away")})
    assert said.startswith("i0000, i0001, ")
    assert said.endswith("i0019 and 7980 more (no answer); other (away)")
