"""Fixtures of all unit tests."""

from __future__ import annotations

import pytest

from eurekube_provider.registrations.servers import SHARED_PEERS


@pytest.fixture(autouse=True)
def _no_silent_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget servers that did not answer an earlier test, as a new process does."""
    monkeypatch.setattr(SHARED_PEERS, "unresponsive", set())
