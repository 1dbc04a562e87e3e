"""Eurekube's log during a test, in the form that a person reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from eurekube_provider.runtime.logs import TextFormatter


@contextmanager
def everything_logged() -> Iterator[list[str]]:
    """The lines that the operator would write while the block runs."""
    lines: list[str] = []
    formatter = TextFormatter()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter.format(record))

    logger, handler = logging.getLogger("eurekube_provider"), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
