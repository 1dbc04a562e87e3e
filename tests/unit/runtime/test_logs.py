"""JSON logs: every line on standard error is one JSON object, whatever writes it."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eurekube_provider.runtime import logs
from eurekube_provider.runtime.logs import JsonFormatter

ROOT = Path(__file__).parents[3]
PROGRAM = """
import logging, threading, warnings
from eurekube_provider.runtime import logs
logs.set_up_logging("json", "INFO")
logging.getLogger("eurekube_provider.operator").info("plain", extra={"syncer": "shop/rating"})
logging.getLogger("somebody.else").warning("of a %s", "library")
warnings.warn("old ways", DeprecationWarning, stacklevel=1)
warnings.warn("unsafe", RuntimeWarning, stacklevel=1)
try:
    raise KeyError("caught")
except KeyError:
    logging.getLogger("eurekube_provider.kube").exception("failed")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("at the\\nend")
"""


def test_whatever_is_said_is_json() -> None:
    """Libraries' logs, warnings, and caught and uncaught exceptions are JSON lines with the same first
    keys.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(list(line)[:4] == ["time", "level", "logger", "message"] for line in lines)
    assert [(line["level"], line["logger"]) for line in lines] == [
        ("info", "operator"),
        ("warning", "somebody.else"),
        ("warning", "py.warnings"),
        ("warning", "py.warnings"),
        ("error", "kube"),
        ("critical", "operator.logs"),
        ("critical", "operator.logs"),
    ]
    assert lines[0]["syncer"] == "shop/rating"
    assert "unsafe" in lines[3]["message"]
    assert "KeyError: 'caught'" in lines[4]["exception"]
    assert "ZeroDivisionError" in lines[5]["exception"]
    assert "ValueError: at the\nend" in lines[6]["exception"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    """With the format ``auto`` a terminal gets plain lines, and everything else JSON."""
    stream = io.StringIO()
    chosen: list[logging.Handler] = []
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(logging, "captureWarnings", lambda capture: None)  # noqa: ARG005 - its own name
    monkeypatch.setattr(logging, "basicConfig", lambda **given: chosen.extend(given["handlers"]))
    logs.set_up_logging("auto", "INFO")
    (handler,) = chosen
    handler.handle(logging.makeLogRecord({"name": "operator", "msg": "operator is ready"}))
    assert "operator is ready" in stream.getvalue()
    assert stream.getvalue().startswith("{") is not is_terminal


def test_stable_keys_are_not_overwritten() -> None:
    """A detail with the name of a standard key is written with an underscore before it."""
    record = logging.makeLogRecord({"msg": "said", "levelname": "INFO", "name": "x", "level": "high"})
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["_level"]) == ("info", "high")


def test_the_keys_are_documented() -> None:
    """docs/reference/logs.md explains each key that the package logs."""
    documented = set(re.findall(r"`([a-z_-]+)`", (ROOT / "docs" / "reference" / "logs.md").read_text()))
    used = {
        str(key.value)
        for path in (ROOT / "eurekube_provider").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }
    assert used - documented == set()
    assert "syncer" in used
