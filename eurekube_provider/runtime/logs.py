"""Structured logs: one JSON object a line with stable keys, or plain lines for a terminal.

Everything on standard error is logged in this form: other libraries' logs, Python's warnings, and uncaught
exceptions. docs/reference/logs.md lists the keys.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType

from eurekube_provider.core.quoting import printable, printable_json, printable_lines

_STANDARD_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(log_format: str, level: str) -> None:
    """Send all logs to standard error.

    :param log_format: ``json``, ``text``, or ``auto``: text where standard error is a terminal, else JSON.
    :param level: name of the lowest level that is logged.
    """
    handler = logging.StreamHandler(sys.stderr)
    is_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # It warns of each try that failed; the sender reports what becomes of the request.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda failed: _log_uncaught(
        failed.exc_type, failed.exc_value, failed.exc_traceback
    )


def _log_uncaught(
    kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None
) -> None:
    if error is not None and not issubclass(kind, SystemExit):
        logging.getLogger("eurekube_provider.operator.logs").critical(
            "uncaught exception, the thread or the process ends", exc_info=(kind, error, traceback)
        )


_encode_json = json.JSONEncoder(default=str, ensure_ascii=False).encode
_MULTILINE_FIELDS = frozenset({"plan", "said", "where"})


class JsonFormatter(logging.Formatter):
    """A formatter of records as JSON: ``time``, ``level``, ``logger``, ``message``, then those of ``extra``.

    An extra key with the name of one of the first four gets an underscore before it.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        stamp = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("eurekube_provider."),
            "message": record.getMessage(),
        }
        for key, value in _extra_fields(record).items():
            line[f"_{key}" if key in line else key] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(_encode_json(line))


class TextFormatter(logging.Formatter):
    """A formatter of records as plain lines: ``12:34:56.789 INFO  message key=value ...``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, with its traceback below."""
        stamp = datetime.fromtimestamp(record.created, UTC).astimezone()
        pairs = "".join(
            f" {key}={printable_lines(str(value)) if key in _MULTILINE_FIELDS else printable(str(value))}"
            for key, value in _extra_fields(record).items()
        )
        clock = f"{stamp:%H:%M:%S}.{stamp.microsecond // 1000:03d}"
        line = f"{clock} {record.levelname:<7} {printable(record.getMessage())}{pairs}"
        if record.exc_info:
            line += "\n" + printable_lines(self.formatException(record.exc_info))
        return line


def _extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_RECORD_FIELDS}
