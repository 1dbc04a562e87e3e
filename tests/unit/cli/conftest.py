"""Fixture that runs commands on inventories that a test gives."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.cli import inventory_options
from eurekube_provider.cli.main import main
from eurekube_provider.doctor.inventory_reader import Inventory
from tests.unit.cli.inventories import FakeReader


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command on an inventory and returns exit code, output and error
    output.
    """

    def ran(found: Inventory, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(inventory_options, "InventoryReader", FakeReader(found))
        monkeypatch.delenv("COLUMNS", raising=False)
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return (code, *capsys.readouterr())

    return ran
