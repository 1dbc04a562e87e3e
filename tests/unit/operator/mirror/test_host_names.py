"""Host names of instances: looked up on other threads, with the last good answer kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from eurekube_provider.operator.mirror.host_names import (
    ENDPOINT_HOST_NAME_TTL_SECONDS,
    UNUSED_NAME_SECONDS,
    HostNameCache,
    look_up,
)
from lab.waiting import wait_until


class Names:
    """Host names with answers that a test sets; an exception as an answer is a failed lookup."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, ...] | Exception] = {}
        self.asked: list[str] = []
        self.now = 100.0
        self.change_count = 0
        self.names = HostNameCache(self.changed, self.look_up, lambda: self.now)

    def changed(self) -> None:
        """Count a reported change."""
        self.change_count += 1

    def look_up(self, name: str) -> tuple[str, ...]:
        """Return the answer that the test has set, or raise it."""
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def resolved(self, name: str, lookups: int) -> tuple[str, ...] | None:
        """Ask for a name, wait for this total number of lookups, and return the answer after that."""
        self.names.addresses_of(name)
        wait_until(lambda: len(self.asked) == lookups and not self.names.is_looking_up, "the lookup", 10.0)
        return self.names.addresses_of(name)


def test_a_name_is_looked_up_again_after_its_time() -> None:
    """While a name is looked up again, the known answer is returned; only a changed answer is reported,
    once.
    """
    scene = Names()
    scene.answers["a"] = ("192.0.2.1",)
    assert scene.resolved("a", 1) == ("192.0.2.1",)
    assert scene.change_count == 1
    scene.now += ENDPOINT_HOST_NAME_TTL_SECONDS - 1
    assert scene.resolved("a", 1) == ("192.0.2.1",)
    scene.now += 1
    assert scene.resolved("a", 2) == ("192.0.2.1",)
    assert scene.change_count == 1
    scene.answers["a"] = ("192.0.2.2",)
    scene.now += ENDPOINT_HOST_NAME_TTL_SECONDS
    assert scene.resolved("a", 3) == ("192.0.2.2",)
    assert (scene.change_count, scene.names.version) == (2, 2)
    scene.names.close()
    scene.now += ENDPOINT_HOST_NAME_TTL_SECONDS
    assert scene.names.addresses_of("a") == ("192.0.2.2",)


def test_the_last_good_answer_outlives_a_failure() -> None:
    """A resolver that fails for a while removes no instance."""
    scene = Names()
    scene.answers["a"] = ("192.0.2.1",)
    assert scene.resolved("a", 1) == ("192.0.2.1",)
    scene.answers["a"] = OSError("no such name")
    for lookups in (2, 3):
        scene.now += ENDPOINT_HOST_NAME_TTL_SECONDS
        assert scene.resolved("a", lookups) == ("192.0.2.1",)
        assert scene.names.failure_text_of("a") == "no such name"
    assert scene.change_count == 2  # the answer, and the first failure
    scene.names.close()


def test_a_name_is_looked_up_again_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an odd error nor the want of a thread ends the lookups of a name."""
    scene = Names()
    scene.answers["a"] = RuntimeError("a fault")
    assert scene.resolved("a", 1) is None
    assert scene.names.failure_text_of("a") == "a fault"
    scene.now += ENDPOINT_HOST_NAME_TTL_SECONDS
    with monkeypatch.context() as without_threads:
        fail = Mock(side_effect=RuntimeError("can't start new thread"))
        without_threads.setattr(ThreadPoolExecutor, "submit", fail)
        assert scene.resolved("a", 1) is None
    scene.answers["a"] = ("192.0.2.1",)
    scene.now += ENDPOINT_HOST_NAME_TTL_SECONDS
    assert scene.resolved("a", 2) == ("192.0.2.1",)


def test_what_nobody_asks_for_is_forgotten() -> None:
    """Names of instances that left are forgotten, so that a long-lived operator's memory does not grow."""
    scene = Names()
    scene.answers = {"a": ("192.0.2.1",), "b": ("192.0.2.2",)}
    scene.resolved("a", 1)
    scene.now += UNUSED_NAME_SECONDS + 1
    scene.resolved("b", 2)
    assert scene.names.names == {"b"}
    scene.names.close()


def test_a_lookup_that_hangs_keeps_nobody_waiting() -> None:
    """Lookups run on their own threads: a caller gets None at once, and the answer later."""
    released = threading.Event()
    names = HostNameCache(lambda: None, lambda _: ("192.0.2.1",) if released.wait(10.0) else ())
    assert names.addresses_of("slow") is None
    assert names.addresses_of("slow") is None
    released.set()
    wait_until(lambda: names.addresses_of("slow") == ("192.0.2.1",), "the answer", 10.0)
    names.close()


def test_dead_names_delay_no_other() -> None:
    """While the resolver waits for many names that failed before, another name is looked up again."""
    clock, hangs, released = [100.0], threading.Event(), threading.Event()

    def answer(name: str) -> tuple[str, ...]:
        if name == "good":
            return (f"192.0.2.{clock[0] % 200:.0f}",)
        if hangs.is_set():
            released.wait(30.0)
        raise OSError("timed out")

    names = HostNameCache(lambda: None, answer, lambda: clock[0])
    everything = [*(f"dead-{number}" for number in range(20)), "good"]
    for name in everything:
        names.addresses_of(name)
    wait_until(lambda: not names.is_looking_up, "the first lookups", 10.0)
    hangs.set()
    clock[0] += ENDPOINT_HOST_NAME_TTL_SECONDS
    for name in everything:
        names.addresses_of(name)
    try:
        wait_until(lambda: names.addresses_of("good") == ("192.0.2.130",), "the new answer", 10.0)
    finally:
        released.set()
        names.close()


def test_addresses_of_a_name_are_in_order() -> None:
    """The addresses are sorted, so that a resolver that rotates its answers changes no EndpointSlice."""
    found = look_up("localhost")
    assert "127.0.0.1" in found or "::1" in found
    assert list(found) == sorted(found)
    with pytest.raises(OSError, match=r".+"):
        look_up("no-such-host.invalid")
