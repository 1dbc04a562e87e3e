"""Suspension of the garbage collector while many objects are made at once."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.runtime.garbage_collection import (
    COLLECTION_THRESHOLD_OBJECTS,
    freeze_objects_and_collect_rarely,
    pause_collection,
)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Enable the collector with Python's default thresholds, and restore its settings afterwards."""
    threshold = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.enable()
    yield
    gc.enable()
    gc.set_threshold(*threshold)


def test_nothing_is_collected_meanwhile() -> None:
    """Within ``pause_collection`` no collection runs, however many objects are made."""
    collections: list[str] = []

    def note(phase: str, _: dict[str, Any]) -> None:
        collections.append(phase)

    text = json.dumps([{"a": [{}]}] * 5000)
    gc.callbacks.append(note)
    try:
        made = json.loads(text)
        assert collections, "it would be collected otherwise"
        with pause_collection():
            collections.clear()
            made = json.loads(text)
            assert not collections
    finally:
        gc.callbacks.remove(note)
    assert len(made) == 5000


def test_it_goes_on_after_the_last_block() -> None:
    """The collector is enabled again after the outermost block, also when a block raises."""
    with pause_collection():
        with pytest.raises(ValueError, match="it failed"), pause_collection():
            raise ValueError("it failed")
        assert not gc.isenabled()
    assert gc.isenabled()


def test_threads_that_overlap_do_not_end_each_other() -> None:
    """The collector stays disabled until the last of overlapping threads leaves its block."""
    first_is_in, second_is_in, first_has_ended = (threading.Event() for _ in range(3))
    states: list[bool] = []

    def first() -> None:
        with pause_collection():
            first_is_in.set()
            second_is_in.wait(10)
        first_has_ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    first_is_in.wait(10)
    with pause_collection():
        second_is_in.set()
        first_has_ended.wait(10)
        states.append(gc.isenabled())
    thread.join()
    assert states == [False]
    assert gc.isenabled()


def test_who_has_switched_it_off_keeps_it_off() -> None:
    """A collector that the program had disabled stays disabled after the block."""
    gc.disable()
    with pause_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_who_has_settled_down_is_seldom_gone_through() -> None:
    """After ``freeze_objects_and_collect_rarely`` collections are rare, but still run after enough new
    objects.
    """
    collections: list[str] = []
    gc.freeze()  # whatever else the process has
    freeze_objects_and_collect_rarely()
    gc.collect()
    gc.callbacks.append(lambda phase, _: collections.append(phase))
    try:
        kept = [{"a": [number]} for number in range(COLLECTION_THRESHOLD_OBJECTS // 4)]
        assert not collections
        kept += [{"a": [number]} for number in range(COLLECTION_THRESHOLD_OBJECTS)]
        assert collections
    finally:
        gc.callbacks.pop()
        gc.unfreeze()
    assert len(kept) > COLLECTION_THRESHOLD_OBJECTS
