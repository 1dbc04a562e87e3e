"""``eurekube keepalive``: its warning when it renews nothing, and the options that it refuses."""

from __future__ import annotations

import argparse
import logging
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eurekube_provider.cli import keepalive_command
from eurekube_provider.cli.keepalive_command import accepts_connection, warn_when_idle
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.registry import Figures
from eurekube_provider.runtime import logs

UNREAD, IDLE, BUSY = Figures(), Figures(read_at=1.0), Figures(read_at=1.0, renewed_here=3)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([UNREAD, UNREAD, UNREAD], []),
        ([IDLE, BUSY, IDLE, BUSY], []),
        ([IDLE, IDLE, IDLE, IDLE], [0]),
        ([BUSY, IDLE, IDLE, IDLE, BUSY, IDLE, IDLE], [3, 3]),
    ],
)
def test_it_says_that_nothing_names_it(
    looks: list[Figures], expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The warning is logged once for each time in which no instance names this renewer, with the number
    renewed before.
    """
    left = [*looks]
    registry = SimpleNamespace(figures=lambda: left.pop(0))
    with caplog.at_level(logging.WARNING):
        warn_when_idle(cast("Any", registry), lambda _: not left, "night")
    assert [cast("Any", one).renewed_before for one in caplog.records] == expected
    assert all(cast("Any", one).renewer == "night" for one in caplog.records)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--zookeeper", "--eureka-url", "http://eureka:8761/eureka"], "for a zookeeper:// URL"),
        (["--eureka-url", "zookeeper://zk-1"], "where only syncers register"),
        (["--remove", "--eureka-url", "zookeeper://zk-1"], "are for --zookeeper"),
        (["--zookeeper", "--remove", "--eureka-url", "zookeeper://zk-1"], "needs --cluster-name"),
    ],
)
def test_what_is_not_for_this_kind_of_registry_is_refused(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options that do not fit the kind of registry are refused before any request."""
    monkeypatch.setattr(keepalive_command, "stop_event_on_signals", threading.Event)
    monkeypatch.setattr(logs, "set_up_logging", lambda *_: None)
    parser = argparse.ArgumentParser()
    keepalive_command.add_arguments(parser)
    with pytest.raises((ConfigurationError, argparse.ArgumentError), match=why):
        keepalive_command.run(parser.parse_args(words))


@pytest.mark.parametrize(
    ("address", "port"), [("a..b", 80), ("a\0b", 80), ("127.0.0.1", 10**30), ("127.0.0.1", -1)]
)
def test_nothing_answers_where_nobody_can_be(address: str, port: int) -> None:
    """An address or port that cannot exist counts as not answering, and raises no error."""
    assert not accepts_connection(Instance("RATING", "a", address, address, Port(port)))
