"""Commit subjects that the hook accepts, and those that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.commit_subject import MAX_SUBJECT_LETTERS, VERBS, find_subject_fault, main

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "subject", ["Fix a lease that ended", "add P16", "Remove " + "x" * (MAX_SUBJECT_LETTERS - 7)]
)
def test_a_good_subject_is_taken(subject: str) -> None:
    """A subject with an allowed verb in upper or lower case is accepted up to the maximum length."""
    assert find_subject_fault(subject) is None


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("Let a lease end", "begins with 'let'"),
        ("fix: a lease", "begins with 'fix:'"),
        ("", "begins with ''"),
        ("Remove " + "x" * (MAX_SUBJECT_LETTERS - 6), f"has {MAX_SUBJECT_LETTERS + 1} letters"),
    ],
)
def test_a_bad_subject_is_refused(subject: str, fault: str) -> None:
    """A subject with another first word, or too many letters, is refused with the reason."""
    assert fault in (find_subject_fault(subject) or "")


def test_the_hook_reads_the_first_line_of_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hook checks the first line that is no comment of the editor."""
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("# Please enter a message\n\nSay why\n", encoding="utf-8")
    assert main([str(message)]) == 1
    assert "begin with one of" in capsys.readouterr().err
    message.write_text("Fix a lease that ended\n\nSay why\n", encoding="utf-8")
    assert main([str(message)]) == 0


def test_the_page_for_contributors_lists_the_verbs() -> None:
    """CONTRIBUTING.md lists all allowed verbs in their order."""
    assert ", ".join(VERBS) in " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
