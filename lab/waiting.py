"""Waiting for a condition instead of sleeping for a guess."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable

from lab.errors import LabError

_POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], object], what: str, timeout_seconds: float) -> None:
    """Ask until the condition holds; a LabError that names `what` when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"waited {timeout_seconds:.0f} s in vain for {what}")
        time.sleep(_POLL_SECONDS)


def answers_well(opener: urllib.request.OpenerDirector, request: urllib.request.Request | str) -> bool:
    """Whether it is answered by 200 within 2 s."""
    try:
        with opener.open(request, timeout=2) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as refusal:
        refusal.close()  # it holds the answer, and Python 3.14 warns of what is left open
        return False
    except OSError:
        return False
