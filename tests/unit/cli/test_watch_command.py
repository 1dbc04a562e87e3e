"""``eurekube watch``: it prints changes until Ctrl-C."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.cli import inventory_options
from eurekube_provider.cli.main import main
from tests.unit.cli.inventories import ILL, SILENT, WELL, FakeReader
from tests.unit.comparison.test_operators import NOW, lease, read, server


def test_watch_prints_what_is_new(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read with the same result as the one before prints nothing."""
    monkeypatch.setattr(inventory_options, "InventoryReader", reader := FakeReader(WELL, WELL, ILL))
    waits: list[float] = []
    monkeypatch.setattr("eurekube_provider.cli.watch_command.time.sleep", waits.append)
    assert main(["watch", "--count", "3", "-o", "json"]) == 0
    found = [json.loads(line)["headline"] for line in capsys.readouterr().out.splitlines()]
    assert found == ["1 synced", "1 not synced, 1 synced, 1 not compared"]
    assert (waits, reader.read_times) == ([15.0, 15.0], 3)
    code, _, said = run(SILENT, "watch", "--count", "1")
    assert code == 2
    assert "no answer" in said
    code, _, said = run(WELL, "watch", "--interval", "1")
    assert code == 2
    assert "--interval" in said


@pytest.mark.parametrize("output", ["json", "table"])
def test_the_time_that_passes_is_nothing_new(
    output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the Lease was renewed and Eureka was read is another time at each look."""
    looks = [
        replace(WELL, operators=read(lease(ago, server_notes=(server(ago, ago),)), renewed_ago=ago))
        for ago in (9, 10, 3)
    ]
    monkeypatch.setattr(inventory_options, "InventoryReader", FakeReader(*looks, ILL))
    monkeypatch.setattr("eurekube_provider.cli.comparison_blocks.time.time", lambda: NOW)
    monkeypatch.setattr("eurekube_provider.cli.watch_command.time.sleep", lambda _: None)
    assert main(["watch", "--count", "4", "-o", output]) == 0
    shown = capsys.readouterr().out
    assert (shown.count("1 synced"), shown.count("1 not synced, 1 synced")) == (2, 1)


def test_ctrl_c_ends_a_watch_well(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a watch with exit code 0."""

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eurekube_provider.cli.watch_command.time.sleep", interrupted)
    assert run(WELL, "watch")[0] == 0
