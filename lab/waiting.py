"""Waits for a condition, instead of sleeps of a guessed length."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from lab.errors import LabError

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.25
_PAUSE_GROWTH_FACTOR = 1.3


def wait_until(condition: Callable[[], object], what: str, timeout_seconds: float) -> None:
    """Call the condition until it holds; raise a LabError that names `what` when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    pauses = growing_pauses_seconds()
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"waited {timeout_seconds:.0f} s in vain for {what}")
        time.sleep(next(pauses))


def growing_pauses_seconds() -> Iterator[float]:
    """Yield, without end, the seconds to wait between two checks of a condition: short pauses, then longer
    ones.

    A check may cost the server several milliseconds of processor time: a front page and a read of each
    instance. A condition that takes longer than a second may be noticed a quarter of a second late.
    """
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(pause * _PAUSE_GROWTH_FACTOR, _LONGEST_PAUSE_SECONDS)


def is_answered_ok(opener: urllib.request.OpenerDirector, request: urllib.request.Request | str) -> bool:
    """Return whether a request is answered by 200 within 2 s."""
    try:
        with opener.open(request, timeout=2) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as refusal:
        refusal.close()  # it holds the answer, and Python 3.14 warns of what is left open
        return False
    except OSError:
        return False
