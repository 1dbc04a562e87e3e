"""Python reads this at its start: a wall clock that others can step, for the operator's process alone.

The seconds by which it is ahead stand in the file that STEPPED_CLOCK names. What counts elapsed time
(``time.monotonic``, the boot time, a wait) goes on as it is, as when somebody sets a machine's clock.
"""

import datetime
import os
import time
from pathlib import Path
from typing import Self

_file = Path(os.environ["STEPPED_CLOCK"])
_true_time = time.time


def _time() -> float:
    try:
        return _true_time() + float(_file.read_text() or 0)
    except (OSError, ValueError):  # written at this moment
        return _true_time()


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        """As the stepped clock has it."""
        return cls.fromtimestamp(_time(), tz)


time.time = _time
time.time_ns = lambda: int(_time() * 1_000_000_000)
datetime.datetime = _Datetime  # type: ignore[misc]
