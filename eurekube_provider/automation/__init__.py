"""Pulumi's Automation API for stacks that carry registrations: preview, up, refresh and drift as functions;
or as a process, ``python -m eurekube_provider.automation``, for programs that must not load Pulumi.
"""

from __future__ import annotations

from eurekube_provider.automation.stack import StackTarget as Target
from eurekube_provider.automation.stack import drift, preview, refresh, up
from eurekube_provider.automation.stack_run import RunOutcome as Outcome
from eurekube_provider.automation.stack_run import StackRun
from eurekube_provider.automation.steps import Step

__all__ = ["Outcome", "StackRun", "Step", "Target", "drift", "preview", "refresh", "up"]
