"""The probes: when the operator reports itself as stuck or not ready; unreachable servers do not restart
it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.liveness import Liveness, describe_restart_reasons, liveness_of_started_threads
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.registry import reading_error
from eurekube_provider.eureka import windows
from eurekube_provider.kube import reflector
from eurekube_provider.operator import controller
from eurekube_provider.operator.reports import SyncerResult
from eurekube_provider.operator.web.http_server import Request
from eurekube_provider.operator.web.metrics import MetricsExporter
from eurekube_provider.operator.web.routes import WebRoutes
from lab.waiting import wait_until
from tests.unit.operator.parts import PlayedOperator
from tests.unit.operator.quiet_api import QuietApi


@pytest.fixture
def played() -> Iterator[PlayedOperator]:
    """Yield parts that cannot reach any server, and stop their loops after the test."""
    result = PlayedOperator()
    yield result
    result.sources.stop()
    result.controller.stop()
    result.registry.stop()


def asked(played: PlayedOperator, path: str) -> tuple[int, str]:
    """Return the status and body of the answer for a path."""
    site = WebRoutes()
    site.show_operator(played.parts)
    answer = site(Request(path, {}, ""))
    assert answer is not None
    return answer.status, answer.body.decode()


def test_the_status_page_can_be_switched_off(played: PlayedOperator) -> None:
    """The page and ``/status.json`` are gone; probes and metrics, which show no instances, stay."""
    site = WebRoutes(has_status_page=False)
    site.show_operator(played.parts)
    answers = {
        path: site(Request(path, {}, "")) for path in ("/", "/status.json", "/healthz", "/readyz", "/metrics")
    }
    assert [path for path, answer in answers.items() if answer is None] == ["/", "/status.json"]


def test_half_a_surrogate_pair_hides_no_page(played: PlayedOperator) -> None:
    """The page and that of an application show what somebody registered with half a character in it."""
    half = "h\ud800x"
    played.conflict(played.syncer("rating"), half)
    played.registry.table.store_written_and_return_previous(Instance("RATING", half, half, half, Port(1)))
    site = WebRoutes()
    site.show_operator(played.parts)
    for query in ({}, {"application": "rating"}):
        answer = site(Request("/", query, ""))
        assert answer is not None
        assert b"h?x" in answer.body


def test_requests_for_one_page_wait_for_each_other_and_keep_no_probe(
    played: PlayedOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many requests for a page one is worked on at a time, and none whose client has gone; a probe is
    answered meanwhile.
    """
    begun, ends = threading.Semaphore(0), threading.Event()

    def render(*_: object) -> tuple[bytes, str]:
        begun.release()
        assert ends.wait(30)
        return b"", "text/plain"

    monkeypatch.setattr(MetricsExporter, "render_scrape", render)
    routes = WebRoutes()
    routes.show_operator(played.parts)
    gone, scrape = Request("/metrics", {}, "", lambda: False), Request("/metrics", {}, "")
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(routes, one) for one in (scrape, scrape)]
        assert begun.acquire(timeout=30)
        answers.append(pool.submit(routes, gone))
        probe = routes(Request("/healthz", {}, ""))
        is_second_begun = begun.acquire(timeout=0.2)
        ends.set()
    assert probe is not None
    assert not is_second_begun
    assert [one.result() is None for one in answers] == [False, False, True]


def test_a_thread_that_ended_is_a_problem() -> None:
    """A thread that was never started is no problem."""
    ended = threading.Thread(target=lambda: None, name="ended")
    ended.start()
    ended.join()
    loops = liveness_of_started_threads([ended, threading.Thread(name="not started")])
    assert [loop.problem_sentence for loop in loops] == ["ended: its thread has ended"]


def test_no_progress_is_a_problem_after_a_while() -> None:
    """Each loop has its own longest time without progress."""
    going = Liveness("a", is_alive=True, seconds_without_progress=9, max_seconds_without_progress=10)
    assert going.problem_sentence == ""
    stuck = Liveness("a", is_alive=True, seconds_without_progress=11, max_seconds_without_progress=10)
    assert "a: no progress for 11 s" in stuck.problem_sentence


def test_servers_that_are_away_keep_it_alive_but_not_ready(played: PlayedOperator) -> None:
    """Without Eureka and the Kubernetes API ``/healthz`` is 200, and ``/readyz`` is 503 with the reasons."""
    played.registry.start()
    played.sources.start()
    wait_until(lambda: reading_error(played.registry.condition()), "Eureka to fail", 30)
    wait_until(lambda: len(played.sources.failures) == 3, "the cluster to fail", 30)
    assert asked(played, "/healthz")[0] == 200
    status, text = asked(played, "/readyz")
    assert status == 503
    assert "the Kubernetes objects were not read completely yet" in text
    assert "the Eureka 'default' was not read yet" in text


def test_a_stuck_ticker_is_named(played: PlayedOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """``/healthz`` fails if the renewals' ticker stands still, since every registration would lapse."""
    release = threading.Event()
    monkeypatch.setattr(windows, "RENEWAL_TICK_STUCK_AFTER_SECONDS", 0.5)
    monkeypatch.setattr(played.registry.peers, "uses_batches", lambda _: release.wait(60))
    played.registry.renewals.start(played.registry.repair)
    try:
        wait_until(lambda: asked(played, "/healthz")[0] == 503, "the ticker to be missed", 30)
        assert "renewals: no progress" in asked(played, "/healthz")[1]
    finally:
        release.set()
    wait_until(lambda: asked(played, "/healthz")[0] == 200, "the ticker to go on", 30)


def test_a_stuck_worker_is_named_while_eureka_answers(
    played: PlayedOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reconcile that never ends fails ``/healthz``, unless Eureka is unreachable and the reconcile waits
    for time-outs.
    """
    release = threading.Event()
    monkeypatch.setattr(controller, "LONGEST_RECONCILE_SECONDS", 0.5)
    monkeypatch.setattr(played.reconciler, "decide", lambda *_: release.wait(60) and SyncerResult())
    played.syncer("rating")
    played.controller.start()
    played.controller.enqueue_all()
    played.parts.queue.resume()
    try:
        wait_until(lambda: asked(played, "/healthz")[0] == 503, "the worker to be missed", 30)
        played.registry.reachability.note_read_and_check_first()
        for _ in range(2):
            played.registry.reachability.note_failure_and_check_lasting(RegistryUnreachable("away"))
        assert asked(played, "/healthz")[0] == 200
    finally:
        release.set()


def test_a_silent_reflector_is_named(played: PlayedOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reflector without a list or bookmark for five minutes no longer follows the cluster, and fails
    ``/healthz``.
    """
    api, now = QuietApi(monkeypatch), time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(reflector, "time", clock)
    played.sources.slices.start()
    wait_until(lambda: played.sources.slices.is_synced, "the list", 20)
    assert asked(played, "/healthz")[0] == 200
    now += 301
    assert asked(played, "/healthz") == (
        503,
        "reflector-endpointslices-all: no progress for 301 s (at most 300 s are expected)\n",
    )
    api.end()


def test_before_and_after_there_are_parts() -> None:
    """The operator is alive from its start, and ready only between the first readings and its stop."""
    site = WebRoutes()

    def statuses() -> list[int]:
        answers = [site(Request(path, {}, "")) for path in ("/healthz", "/readyz", "/", "/status.json")]
        return [answer.status for answer in answers if answer]

    assert statuses() == [200, 503, 503, 503]
    played = PlayedOperator()
    site.show_operator(played.parts)
    assert statuses() == [200, 503, 200, 200]
    for group in (played.sources.syncers, played.sources.services, played.sources.slices):
        group.reflectors[0].replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": []}])
    played.registry.reachability.note_read_and_check_first()
    assert statuses() == [200, 200, 200, 200]
    site.show_stopping()
    assert statuses() == [200, 503, 503, 503]


def test_a_process_that_renews_is_not_restarted() -> None:
    """A stuck loop is no reason to restart while the process renews, since the next process might not
    start.
    """
    stuck = Liveness(
        "registry", is_alive=True, seconds_without_progress=700, max_seconds_without_progress=615
    )
    renews = Liveness("renewals", is_alive=True, renewals_last_minute=40)
    idle = Liveness("renewals", is_alive=True, renewals_last_minute=0)
    ended = Liveness("renewals of another Eureka", is_alive=False, renewals_last_minute=0)
    assert describe_restart_reasons([stuck, renews, ended]) == [ended.problem_sentence]
    assert describe_restart_reasons([stuck, renews]) == []
    assert describe_restart_reasons([stuck, idle]) == [stuck.problem_sentence]
    assert describe_restart_reasons([renews, idle]) == []


def test_a_stuck_loop_of_an_operator_that_renews_is_named(
    played: PlayedOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the process renews, ``/healthz`` is 200 and names the stuck loop."""
    stuck = Liveness(
        "registry", is_alive=True, seconds_without_progress=700, max_seconds_without_progress=615
    )
    renews = Liveness("renewals", is_alive=True, renewals_last_minute=40)
    monkeypatch.setattr(played.registry, "liveness", lambda: [stuck, renews])
    status, text = asked(played, "/healthz")
    assert status == 200
    assert text.startswith("ok\n")
    assert stuck.problem_sentence in text
    assert "eurekube_stuck_loops 1.0" in asked(played, "/metrics")[1]
    monkeypatch.setattr(played.registry, "liveness", lambda: [stuck])
    status, text = asked(played, "/healthz")
    assert status == 503
    assert text.startswith(stuck.problem_sentence)
