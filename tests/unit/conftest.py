"""Fixtures of all unit tests."""

from __future__ import annotations

import pytest

from eurekube_provider.registrations.servers import PEERS


@pytest.fixture(autouse=True)
def _no_silent_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a server that gave one test no answer from being left out of the next one, as in a new process."""
    monkeypatch.setattr(PEERS, "silent", set())
