"""A module that Python imports at its start: it gives the operator's process a wall clock that a test can
step.

The file that STEPPED_CLOCK names contains the seconds by which the clock is ahead. Clocks of elapsed time
(``time.monotonic``, the boot time, a wait) are not changed, as when a person sets a machine's clock.
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
        """Return the time of the stepped clock."""
        return cls.fromtimestamp(_time(), tz)


time.time = _time
time.time_ns = lambda: int(_time() * 1_000_000_000)
datetime.datetime = _Datetime  # type: ignore[misc]
