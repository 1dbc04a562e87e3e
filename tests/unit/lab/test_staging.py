"""Programs of a stage end with it, and where a step of its start fails."""

from __future__ import annotations

import pytest

from lab.staging import Staged


class Steps(Staged):
    """Two steps, of which the second may fail."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.ended: list[str] = []

    def prepare(self) -> None:
        """Start one thing, then another."""
        self.ends.callback(self.ended.append, "first")
        if self.fails:
            raise TimeoutError("the second never came")
        self.ends.callback(self.ended.append, "second")


def test_all_ends_with_the_statement_last_first() -> None:
    """And nothing before."""
    with Steps(fails=False) as stage:
        assert stage.ended == []
    assert stage.ended == ["second", "first"]


def test_what_was_started_ends_where_a_step_fails() -> None:
    """The error is that of the step."""
    stage = Steps(fails=True)
    with pytest.raises(TimeoutError, match="the second never came"), stage:
        pass
    assert stage.ended == ["first"]
