"""Search of all objects that an object references, for tests that data was forgotten."""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Iterator

_CODE = (type, types.ModuleType, types.BuiltinFunctionType, int, float, bytes)


def texts(*roots: object) -> Iterator[tuple[str, str]]:
    """Yield each text reachable from ``roots``, with the name of the class of ours that holds it."""
    seen: set[int] = set()
    left: deque[tuple[object, str]] = deque((root, type(root).__name__) for root in roots)
    while left:
        one, holder = left.popleft()
        if id(one) in seen or isinstance(one, _CODE):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            yield one, holder
            continue
        is_ours = type(one).__module__.startswith("eurekube")
        holder = type(one).__name__ if is_ours else holder
        left.extend((held, holder) for held in gc.get_referents(one))
