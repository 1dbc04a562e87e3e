"""Statuses: which status a server stores, which it keeps, and what an override does."""

from __future__ import annotations

import itertools

import pytest

from tests.contract.conftest import Server, document

_timestamps = itertools.count(1_700_000_000_000)


def register(server: Server, app: str, status: str, **fields: str) -> None:
    """Register an instance with a status and a newer timestamp than all before."""
    stamped = document(app, status=status, lastDirtyTimestamp=str(next(_timestamps)), **fields)
    assert server.register(stamped) == 204


@pytest.mark.parametrize("status", ["UP", "DOWN", "STARTING", "OUT_OF_SERVICE", "UNKNOWN"])
def test_a_first_registration_has_its_status(server: Server, app: str, status: str) -> None:
    """A new instance has the status that was sent, and no override."""
    register(server, app, status)
    assert server.overridden(app) == (status, "UNKNOWN")


@pytest.mark.parametrize(
    ("before", "sent", "after"),
    [
        ("UP", "DOWN", "DOWN"),
        ("DOWN", "UP", "UP"),
        ("UP", "STARTING", "STARTING"),
        ("STARTING", "UP", "UP"),
        ("UNKNOWN", "UP", "UP"),
        ("UP", "OUT_OF_SERVICE", "UP"),
        ("OUT_OF_SERVICE", "UP", "OUT_OF_SERVICE"),
        ("OUT_OF_SERVICE", "DOWN", "DOWN"),
        ("DOWN", "OUT_OF_SERVICE", "OUT_OF_SERVICE"),
    ],
)
def test_registering_again_with_another_status(
    server: Server, app: str, before: str, sent: str, after: str
) -> None:
    """DOWN and STARTING replace any status and are replaced by any; UP and OUT_OF_SERVICE do not replace
    each other.
    """
    register(server, app, before)
    register(server, app, sent)
    assert server.overridden(app) == (after, "UNKNOWN")


def test_an_override_holds_when_the_instance_registers_again(server: Server, app: str) -> None:
    """A person's override hides UP when the instance registers again, and shows as the overridden status."""
    register(server, app, "UP")
    assert server.put_status(app, "OUT_OF_SERVICE") == 200
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")
    register(server, app, "UP", ipAddr="10.0.0.2")
    held = server.get(app)
    assert held is not None
    assert (held["status"], held["overriddenStatus"], held["ipAddr"]) == (
        "OUT_OF_SERVICE",
        "OUT_OF_SERVICE",
        "10.0.0.2",
    )
    assert server.renew(app) == 200
    assert server.status(app) == "OUT_OF_SERVICE"


def test_down_is_believed_over_an_override_which_holds_again_after(server: Server, app: str) -> None:
    """An instance that registers DOWN is DOWN despite an override; when it registers UP the override
    counts again.
    """
    register(server, app, "UP")
    server.put_status(app, "OUT_OF_SERVICE")
    register(server, app, "DOWN")
    assert server.overridden(app) == ("DOWN", "OUT_OF_SERVICE")
    register(server, app, "UP")
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")


def test_the_current_status_is_no_override(server: Server, app: str) -> None:
    """Setting the status that the instance already has stores no override."""
    register(server, app, "UP")
    assert server.put_status(app, "UP") == 200
    assert server.overridden(app) == ("UP", "UNKNOWN")


@pytest.mark.parametrize("value", [None, "ODD"], ids=["missing", "unknown"])
def test_a_status_that_is_none(server: Server, app: str, value: str | None) -> None:
    """Setting no status, or an unknown one, is answered with 500."""
    register(server, app, "UP")
    assert server.put_status(app, value) == 500


def test_clearing_without_a_value_ends_the_registration(server: Server, app: str) -> None:
    """Clearing without a value sets UNKNOWN, and the next heartbeat is answered with 404: our code always
    gives a value.
    """
    register(server, app, "UP")
    server.put_status(app, "OUT_OF_SERVICE")
    assert server.delete_status(app) == 200
    assert server.overridden(app) == ("UNKNOWN", "UNKNOWN")
    assert server.renew(app) == 404


def test_clearing_with_a_value_leaves_no_gap(server: Server, app: str) -> None:
    """Clearing with a value sets that status at once, and heartbeats are still accepted."""
    register(server, app, "UP")
    server.put_status(app, "OUT_OF_SERVICE")
    assert server.delete_status(app, "UP") == 200
    assert server.overridden(app) == ("UP", "UNKNOWN")
    assert server.renew(app) == 200


def test_clearing_where_there_is_no_override_does_nothing(server: Server, app: str) -> None:
    """Clearing changes nothing for an instance that registered OUT_OF_SERVICE itself."""
    register(server, app, "OUT_OF_SERVICE")
    assert server.delete_status(app, "UP") == 200
    assert server.overridden(app) == ("OUT_OF_SERVICE", "UNKNOWN")


def test_the_way_back_without_an_override(server: Server, app: str) -> None:
    """An instance that registered OUT_OF_SERVICE becomes UP by setting UP and clearing it, without an
    override.
    """
    register(server, app, "OUT_OF_SERVICE")
    assert server.put_status(app, "UP") == 200
    assert server.delete_status(app, "UP") == 200
    assert server.overridden(app) == ("UP", "UNKNOWN")


def test_a_registration_may_create_an_override(server: Server, app: str) -> None:
    """A registration with an overridden status stores an override: our code sends UNKNOWN."""
    register(server, app, "UP", overriddenStatus="OUT_OF_SERVICE")
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")
    register(server, app, "UP")
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")


def test_a_removal_ends_the_override(server: Server, app: str) -> None:
    """The next registration under the id has no override."""
    register(server, app, "UP")
    server.put_status(app, "OUT_OF_SERVICE")
    server.cancel(app)
    register(server, app, "UP")
    assert server.overridden(app) == ("UP", "UNKNOWN")


def test_setting_a_status_leaves_the_timestamp(server: Server, app: str) -> None:
    """An override does not change the timestamp, so that the instance's next heartbeat is accepted."""
    register(server, app, "UP")
    before = server.get(app)
    server.put_status(app, "OUT_OF_SERVICE")
    after = server.get(app)
    assert before is not None
    assert after is not None
    assert after["lastDirtyTimestamp"] == before["lastDirtyTimestamp"]
    assert server.renew(app, lastDirtyTimestamp=before["lastDirtyTimestamp"]) == 200


def test_overrides_go_by_id_alone(server: Server, app: str) -> None:
    """Two applications with the same instance id share an override: ids must differ between applications."""
    other, shared = f"{app}-other", f"shared.{app}"
    server.register(document(app, shared))
    server.put_status(app, "OUT_OF_SERVICE", shared)
    server.register(document(other, shared))
    assert server.overridden(other, shared) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")
