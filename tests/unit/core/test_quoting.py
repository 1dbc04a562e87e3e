"""Text from outside on a terminal: its control characters have no effect."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.cli.terminal import print_error_line, print_line
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import Refusal, RefusalReason
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable, printable_json, printable_lines
from eurekube_provider.eureka.notes import ownership_conflict
from eurekube_provider.operator.status import make_condition
from eurekube_provider.runtime.logs import JsonFormatter, TextFormatter

EVIL = "i-1\x1b[2K\reurekube drain: safe\u202e\x9b1A\u2066\x7f\u2028\x85x"


def is_harmless(text: str) -> bool:
    """Return True if every line is printable, so that a terminal obeys nothing in it."""
    return all(line.isprintable() for line in text.split("\n"))


def test_nothing_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences and bidirectional controls become spaces on both outputs; the words stay."""
    assert printable(EVIL) == "i-1 [2K eurekube drain: safe  1A    x"
    print_line(EVIL)
    print_error_line(f"not safe: {EVIL}\nsafe")
    printed = capsys.readouterr()
    assert is_harmless(printed.out + printed.err)
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("not safe: i-1 ")


def test_no_error_of_ours_carries_them() -> None:
    """An error's text has no control characters, also where another program such as Pulumi prints it; line
    ends stay.
    """
    assert is_harmless(str(ConfigurationError(f"a\n{EVIL}")))
    assert str(ConfigurationError(f"a\n{EVIL}")).count("\n") == 1


@pytest.mark.parametrize("reason", RefusalReason)
def test_no_refusal_carries_them(reason: RefusalReason) -> None:
    """Anybody can choose an instance's id, address and owner, and `kubectl` prints conditions without
    quoting.
    """
    mine = Instance("A", "i", "h", "h", Port(1), metadata={OWNER_KEY: "me"})
    theirs = replace(mine, instance_id=EVIL, host_name=EVIL, metadata={OWNER_KEY: f"x\n{EVIL}"})
    assert Refusal(reason, mine, theirs).describe().isprintable()
    assert str(ownership_conflict(theirs, "me")).isprintable()


def test_no_condition_carries_them() -> None:
    """A condition's message, which may repeat a server's answer, is printable."""
    written = make_condition(
        {"metadata": {}}, "Ready", Problem("Conflict", f"a {EVIL}\nb"), "now", holds=False
    )
    assert written["message"].isprintable()


def test_no_line_of_the_log_carries_them() -> None:
    """Log lines as text and as JSON are printable; the JSON keeps the original value."""
    record = logging.LogRecord("x", logging.INFO, "", 1, f"at {EVIL}", None, None)
    record.instance = EVIL
    assert is_harmless(TextFormatter().format(record))
    record.plan = f"+ a\n- {EVIL}"
    assert is_harmless(TextFormatter().format(record))
    assert TextFormatter().format(record).count("\n") == 1
    line = JsonFormatter().format(record)
    assert is_harmless(line)
    assert json.loads(line)["instance"] == EVIL


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    """Printable JSON parses to the same value, and keeps letters of all languages readable."""
    line = printable_json(json.dumps({"x": text}, ensure_ascii=False))
    assert line.isprintable()
    assert json.loads(line) == {"x": text}
    assert printable_json('{"x": "größe"}') == '{"x": "größe"}'


@given(st.text())
def test_lines_stay_lines(text: str) -> None:
    """The number of lines, and the length of a text, do not change."""
    assert printable_lines(text).count("\n") == text.count("\n")
    assert len(printable(text)) == len(text)
