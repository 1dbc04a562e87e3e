"""Detection of a server's restart, as distinct from another server behind the URL and from a clock that
was set.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import StatusPage
from eurekube_provider.eureka.registry.restart_detection import RestartDetection, StartTimes, running_seconds
from lab.waiting import wait_until
from tests.unit.eureka.servers import Balanced, older, started_now


def detect_restarts(servers: Balanced) -> tuple[RestartDetection, list[Peer]]:
    """Ask for the servers' start times seven times, and return the detector and the peers whose restart it
    noticed.
    """
    restarted: list[Peer] = []
    restarts = RestartDetection(servers, restarted.append)
    for _ in range(7):
        restarts.detect_restarts()
    return restarts, restarted


@pytest.mark.parametrize("count", [1, 2, 3])
def test_another_server_behind_the_same_url_is_no_restart(count: int) -> None:
    """A load balancer that alternates between servers causes no restart."""
    restarts, restarted = detect_restarts(Balanced(*(older(number) for number in range(count))))
    assert restarted == []
    assert not restarts.may_have_lost_memory
    assert restarts.most_servers_at_one_url == count


class Sticky(Balanced):
    """A load balancer that sends all requests of one connection to the same server."""

    connections = 0

    def __init__(self, *servers: StatusPage) -> None:
        super().__init__(*servers)
        self.peers[0].read_status_and_close = self._status_and_close  # type: ignore[method-assign]

    def turn(self) -> int:
        """Return the index of the server to which the current connection leads."""
        return self.connections % len(self.servers)

    def _status_and_close(self) -> StatusPage:
        answer = self._status()
        self.connections += 1
        return answer


@pytest.mark.parametrize("count", [1, 2, 3])
def test_servers_behind_a_balancer_of_connections_are_found(count: int) -> None:
    """Several servers behind a URL are found by new connections, as all requests of one connection reach
    one server.
    """
    restarts, restarted = detect_restarts(Sticky(*(older(number) for number in range(count))))
    assert restarts.most_servers_at_one_url == 1
    restarts.detect_servers_behind_balancer()
    assert restarts.most_servers_at_one_url == min(count, 2)
    assert restarted == []


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_for_how_long_a_server_has_run_is_reported_by_its_own_clock(ahead: float) -> None:
    """A server's running time is computed by the server's clock, which may differ from ours."""
    servers = Balanced(replace(older(-ahead), clock_ahead_seconds=ahead))
    restarts, _ = detect_restarts(servers)
    (url,) = (peer.url for peer in servers.peers)
    assert restarts.uptime_seconds("http://another") is None
    assert 60 <= (restarts.uptime_seconds(url) or 0) < 180


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_restart_behind_a_load_balancer_is_noticed_once(count: int) -> None:
    """A new start time of any server behind a load balancer is noticed as one restart."""
    servers = Balanced(*(older(10 * number) for number in range(count)))
    restarts, restarted = detect_restarts(servers)
    for number in range(count):
        servers.servers[number] = started_now()
        for _ in range(3 * count):
            restarts.detect_restarts()
        assert restarted == [servers.peers[0]] * (number + 1)
        assert restarts.may_have_lost_memory
        wait_until(lambda: started_now() != servers.servers[number], "the next millisecond", 1.0)  # noqa: B023


def test_a_restart_is_noticed_though_the_clock_was_set_back() -> None:
    """A restart is noticed by the short running time, even if the new start time is earlier."""
    starts = StartTimes()
    assert not starts.add_and_detect_restart(1_000_000, 3600.0, 0.0)
    assert starts.add_and_detect_restart(500_000, 5.0, 60.0)


def test_a_server_that_we_are_sent_to_late_was_not_restarted() -> None:
    """A server first seen late behind a known URL that has run for an hour was not restarted."""
    starts = StartTimes()
    assert not starts.add_and_detect_restart(1, 86_400.0, 0.0)
    assert not starts.add_and_detect_restart(2, 3600.0, 2.0)
    assert not starts.add_and_detect_restart(1, 93_600.0, 7200.0)
    assert not starts.add_and_detect_restart(3, 3600.0, 7202.0)
    assert starts.add_and_detect_restart(4, 60.0, 7204.0)


def test_a_server_that_was_away_for_long_was_restarted_meanwhile() -> None:
    """After a long absence a new start time counts as a restart, although the server has run for long; the
    known start time does not.
    """
    for started, is_restart in ((1, False), (2, True)):
        starts = StartTimes()
        starts.add_and_detect_restart(1, 100.0, 0.0)
        assert starts.add_and_detect_restart(started, 3000.0, 7200.0) is is_restart
        assert not starts.add_and_detect_restart(started, 3002.0, 7202.0)


def test_start_times_are_forgotten() -> None:
    """Start times of servers that come and go behind a URL are dropped after a while."""
    starts = StartTimes()
    for number in range(1000):
        starts.add_and_detect_restart(number, 1.0, windows.RECENT_START_SECONDS * number / 10)
    assert len(starts.seen_at_by_start) < 15


@pytest.mark.parametrize(
    ("uptime", "ahead", "seconds"),
    [
        ("0 days 00:01", 0.0, 90.0),
        ("0 days 00:01", 3600.0, 120.0),  # a proxy with a clock of its own wrote the date
        ("1 days 02:03", 3600.0, 3690.0),
        ("0 days 00:01", None, 90.0),
        ("", 30.0, 120.0),
        ("0 days 00:00", -200.0, 0.0),
    ],
)
def test_for_how_long_a_server_has_run(uptime: str, ahead: float | None, seconds: float) -> None:
    """A server's running time is computed by its own clock, and is limited by the uptime that it reports."""
    status = StatusPage(uptime, 1_000_000, (), ahead)
    assert running_seconds(status, 1_090.0) == seconds
