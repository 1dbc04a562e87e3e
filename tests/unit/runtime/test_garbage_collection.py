"""The garbage collector rests while much is made at once, and never for longer."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.runtime.garbage_collection import MADE_MEANWHILE, settle_down, without_collection


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """On before each test, as often as Python has it by default, and afterwards as it was."""
    threshold = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.enable()
    yield
    gc.enable()
    gc.set_threshold(*threshold)


def test_nothing_is_collected_meanwhile() -> None:
    """However much is made."""
    collections: list[str] = []

    def note(phase: str, _: dict[str, Any]) -> None:
        collections.append(phase)

    text = json.dumps([{"a": [{}]}] * 5000)
    gc.callbacks.append(note)
    try:
        made = json.loads(text)
        assert collections, "it would be collected otherwise"
        with without_collection():
            collections.clear()
            made = json.loads(text)
            assert not collections
    finally:
        gc.callbacks.remove(note)
    assert len(made) == 5000


def test_it_goes_on_after_the_last_block() -> None:
    """One within another, and one that fails."""
    with without_collection():
        with pytest.raises(ValueError, match="it failed"), without_collection():
            raise ValueError("it failed")
        assert not gc.isenabled()
    assert gc.isenabled()


def test_threads_that_overlap_do_not_end_each_other() -> None:
    """The first one to end leaves it off for the other one."""
    first_is_in, second_is_in, first_has_ended = (threading.Event() for _ in range(3))
    states: list[bool] = []

    def first() -> None:
        with without_collection():
            first_is_in.set()
            second_is_in.wait(10)
        first_has_ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    first_is_in.wait(10)
    with without_collection():
        second_is_in.set()
        first_has_ended.wait(10)
        states.append(gc.isenabled())
    thread.join()
    assert states == [False]
    assert gc.isenabled()


def test_who_has_switched_it_off_keeps_it_off() -> None:
    """A program that decides for itself."""
    gc.disable()
    with without_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_who_has_settled_down_is_seldom_gone_through() -> None:
    """Neither what stands nor what one answer makes; what is garbage goes all the same, in its time."""
    collections: list[str] = []
    gc.freeze()  # whatever else the process has
    settle_down()
    gc.collect()
    gc.callbacks.append(lambda phase, _: collections.append(phase))
    try:
        kept = [{"a": [number]} for number in range(MADE_MEANWHILE // 4)]
        assert not collections
        kept += [{"a": [number]} for number in range(MADE_MEANWHILE)]
        assert collections
    finally:
        gc.callbacks.pop()
        gc.unfreeze()
    assert len(kept) > MADE_MEANWHILE
