"""A stage ends everything that it started, also when a step of its start fails."""

from __future__ import annotations

import pytest

from lab.staging import ProofStage


class Steps(ProofStage):
    """A stage of two steps, the second of which may fail."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.ended: list[str] = []

    def prepare(self) -> None:
        """Start the first step, then the second one or fail."""
        self.cleanups.callback(self.ended.append, "first")
        if self.fails:
            raise TimeoutError("the second never came")
        self.cleanups.callback(self.ended.append, "second")


def test_all_ends_with_the_statement_last_first() -> None:
    """All steps are ended at the end of the ``with`` statement, the last one first."""
    with Steps(fails=False) as stage:
        assert stage.ended == []
    assert stage.ended == ["second", "first"]


def test_what_was_started_ends_where_a_step_fails() -> None:
    """When a step fails, the earlier ones are ended, and the step's error is raised."""
    stage = Steps(fails=True)
    with pytest.raises(TimeoutError, match="the second never came"), stage:
        pass
    assert stage.ended == ["first"]
