"""Pulumi's CLI as a process that can be cancelled, unlike the SDK's own command, and has a deadline.

It is recorded while it runs (see :mod:`~eurekube_provider.automation.locks`), and its output goes to files:
if this process is killed, it still runs to its end and releases the stack.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulumi.automation import PulumiCommand
from pulumi.automation._cmd import CommandResult
from pulumi.automation.errors import create_command_error

from eurekube_provider.automation.locks import ProcessRecords, kill_orphaned_session

CANCEL_GRACE_SECONDS = 10.0
"""Seconds that a cancelled run may take to end in order, and the same again until it is killed."""


_SHELL_COMMAND_WAITING_FOR_LINE = ("/bin/sh", "-c", 'read -r _ && exec "$@" </dev/null', "sh")
"""A shell that runs the command behind it once a line arrives: by then the command is recorded."""


class CancellableCommand(PulumiCommand):
    """The Pulumi CLI, which runs one command at a time and can be cancelled."""

    def __init__(self, records: ProcessRecords) -> None:
        super().__init__()
        self.cancel_reason = ""
        self._records = records
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def cancel(self, why: str) -> None:
        """End the running command in order, and refuse further ones; return at once, as to a signal."""
        threading.Thread(target=self._send_cancel_signals, args=(why,), daemon=True).start()

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Any = None,
        on_error: Any = None,
    ) -> CommandResult:
        """Run one command of the CLI, for the SDK.

        :raises CommandError: the command failed, or was cancelled.
        :raises ConfigurationError: the command could not be recorded, and was not begun.
        """
        environment = {**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true"}
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            with self._lock:
                if self.cancel_reason:
                    raise create_command_error(CommandResult("", self.cancel_reason, 1))
                started = datetime.now(UTC)
                # A session of its own: a terminal's Ctrl-C reaches the command once, through this process.
                self._process = process = subprocess.Popen(
                    [*_SHELL_COMMAND_WAITING_FOR_LINE, self.command, "--non-interactive", *args],
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=errors,
                    text=True,
                    start_new_session=True,
                )
                record = self._record_and_start(process, started)
            try:
                code = process.wait()
            finally:
                with self._lock:
                    self._process = None
            kill_orphaned_session(process.pid)
            if code >= 0:  # a killed command may have left its lock
                record.unlink(missing_ok=True)
            result = CommandResult(_read_output(output, on_output), _read_output(errors, on_error), code)
        if code != 0:
            raise create_command_error(result)
        return result

    def _record_and_start(self, process: subprocess.Popen[str], started: datetime) -> Path:
        """Record the waiting command, then let it begin; one that cannot be recorded never begins."""
        try:
            record = self._records.add(process.pid, started)
        except OSError as error:
            process.communicate()
            self._process = None
            raise self._records.unwritable_error(error) from None
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin as waiting:
                waiting.write("go\n")
        return record

    def _send_cancel_signals(self, why: str) -> None:
        """Send SIGINT twice, then SIGKILL, until the running command has ended; refuse further commands."""
        with self._lock:
            self.cancel_reason = self.cancel_reason or why
            process = self._process
        if process is None:
            return
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(CANCEL_GRACE_SECONDS)
                return


def _read_output(file: Any, listener: Any) -> str:
    """Return the text of a file, and call ``listener``, if any, with each line."""
    file.seek(0)
    text = str(file.read())
    if listener is not None:
        for line in text.splitlines():
            listener(line)
    return text
