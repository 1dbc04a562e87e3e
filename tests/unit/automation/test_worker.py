"""The process that runs a stack: it reads one request, prints one line, and ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.automation import worker
from eurekube_provider.automation.steps import strip_colour_marks

REQUEST = {"action": "up", "stack": "dev", "work_dir": "/nowhere", "timeout_seconds": 5}


@pytest.mark.parametrize(
    ("request_text", "sentence"),
    [
        ("", "the request is no JSON"),
        ("[]", "must be one JSON object"),
        (json.dumps({**REQUEST, "passphrase": "x"}), "has a field 'passphrase': it may have action, stack,"),
        (json.dumps({**REQUEST, "stack": ""}), "the request's stack is missing or cannot be used"),
        (json.dumps({"action": "up", "stack": "dev"}), "the request's work_dir is missing"),
        (json.dumps({**REQUEST, "timeout_seconds": True}), "the request's timeout_seconds"),
        (json.dumps({**REQUEST, "timeout_seconds": -1}), "must be above 0"),
        (json.dumps({**REQUEST, "action": "destroy"}), "must be one of preview, up, refresh, drift"),
        (json.dumps(REQUEST), "/nowhere has no Pulumi.yaml: name the folder of a project"),
    ],
)
def test_a_request_that_cannot_be_served_is_answered_with_a_sentence(
    request_text: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid request is answered as a failed run on one line, with exit code 1."""
    monkeypatch.setattr("sys.stdin", io.StringIO(request_text))
    assert worker.main() == 1
    (line,) = capsys.readouterr().out.splitlines()
    answer: dict[str, Any] = json.loads(line)
    assert sentence in answer.pop("message")
    assert answer == {"outcome": "failed", "changes": {}, "seconds": 0.0}


def test_without_a_cli_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a Pulumi CLI the answer says so and the exit code is 1."""
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({**REQUEST, "work_dir": str(tmp_path)})))
    assert worker.main() == 1
    assert "there is no Pulumi CLI on PATH" in capsys.readouterr().out


def test_the_engines_colours_are_no_text() -> None:
    """Pulumi's colour marks are removed from messages."""
    assert strip_colour_marks("<{%fg 1%}>error: <{%reset%}>no <{%x%}>\n") == "error: no"
    assert strip_colour_marks("a <{% b") == "a <{% b"
