"""``eurekube drain`` and ``undrain`` of instances that other clients registered, on model servers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.cli import drain_command, undrain_command
from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.instance_registry import InstanceInfo, InstanceRegistry
from tests.explore.world import World, owned
from tests.model.commands import DATA_CENTER

URL = "http://eureka-1:8761/eureka"
AMAZON = {
    "@class": "com.netflix.appinfo.AmazonInfo",
    "name": "Amazon",
    "metadata": {"instance-id": "i-1"},
}
TICK_MS = 40_000
"""Milliseconds after which a server no longer shows its previous list."""


class Stage:
    """One model server, and the output of the last command.

    :ivar said: standard output and error output together.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = EurekaCluster([URL])
        self.world = World(self.cluster)
        self._capsys = capsys
        self.said = ""

    def register(self, instance_id: str | None, app: str = "ORDER", **fields: Any) -> None:
        """Register an instance as another client does."""
        document = {
            **({"instanceId": instance_id} if instance_id is not None else {}),
            "app": app,
            "hostName": "vm-1",
            "ipAddr": "10.0.0.1",
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "dataCenterInfo": DATA_CENTER,
            **fields,
        }
        answer = self.cluster.request(URL, ServerRequest("POST", ("apps", app), body={"instance": document}))
        assert answer.status_code == 204

    def held(self, instance_id: str, app: str = "ORDER") -> InstanceInfo | None:
        """Return the instance that the server holds."""
        return self.cluster.servers[URL].registry.get(app, instance_id)

    def listed(self) -> None:
        """Move time on until the list shows all registrations, and request the list once."""
        self.cluster.clock.advance(TICK_MS)
        self.cluster.request(URL, ServerRequest("GET", ("apps",), headers={"Accept": "application/json"}))

    def run(self, command: Any, *words: str) -> int:
        """Run a command, and return its exit code."""
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        code = int(command.run(parser.parse_args([*words, "--eureka-url", URL])))
        printed = self._capsys.readouterr()
        self.said = printed.out + printed.err
        return code


@pytest.fixture
def stage(capsys: pytest.CaptureFixture[str]) -> Iterator[Stage]:
    """Yield one reachable model server, whose clock is the commands' clock."""
    made = Stage(capsys)
    made.cluster.clock.advance(3_600_000)
    with owned(made.world):
        yield made


@pytest.mark.parametrize("word", ["order", "i-1"])
def test_what_registered_without_an_id_is_drained_under_the_servers(stage: Stage, word: str) -> None:
    """An instance without an id, in an Amazon data centre, is drained under the machine's instance id, not
    its host name.
    """
    stage.register(None, dataCenterInfo=AMAZON)
    stage.listed()
    assert stage.run(drain_command, word) == 0
    held = stage.held("i-1")
    assert held is not None
    assert held.status == "OUT_OF_SERVICE"
    assert "ORDER i-1: OUT_OF_SERVICE on 1 server" in stage.said
    assert "safe: they were out of service" in stage.said
    assert stage.run(undrain_command, word) == 0
    assert (held.status, held.overridden) == ("UP", "UNKNOWN")


@pytest.mark.parametrize("bad", ["ip-10-0-0-1/10.0.0.1:order:8080", "a;b", "..", "a\u2028b"])
def test_what_no_request_can_name_is_not_safe(stage: Stage, bad: str) -> None:
    """An instance whose id fits into no URL is reported as not safe with exit code 1; the others are
    drained.
    """
    stage.register("good")
    stage.register(bad)
    stage.listed()
    assert stage.run(drain_command, "order", "--no-wait") == 1
    assert f"not safe: ORDER {bad!r} is UP and not drained: no request can name the id {bad!r}" in stage.said
    held = stage.held("good")
    assert held is not None
    assert held.status == "OUT_OF_SERVICE"
    assert stage.run(drain_command, "order") == 1
    assert "\nsafe:" not in stage.said
    assert stage.run(undrain_command, "order") == 0  # it was never out


def test_what_left_a_moment_ago_is_safe_once_no_list_shows_it(stage: Stage) -> None:
    """An instance that is listed but answered with 404 is safe only once no list, also a caller's, can
    show it.
    """
    stage.register("gone")
    stage.listed()
    stage.cluster.request(URL, ServerRequest("DELETE", ("apps", "ORDER", "gone")))
    assert stage.run(drain_command, "order", "--no-wait") == 1
    assert "ORDER gone: listed as UP, and 404 when it is asked for" in stage.said
    assert "ORDER gone is not drained: Eureka lists it as UP, and answers 404" in stage.said
    began_ms = stage.cluster.clock.now_ms
    assert stage.run(drain_command, "order") == 0
    assert stage.said.endswith("safe: Eureka lists them no more\n")
    assert 60_000 <= stage.cluster.clock.now_ms - began_ms < 70_000


def test_what_a_younger_list_still_shows_is_not_drained(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that a list younger than the caches still shows is not drained, although its reads are
    answered with
    404, as by a proxy.
    """
    stage.register("there")
    stage.listed()
    monkeypatch.setattr(InstanceRegistry, "get", lambda *_: None)
    assert stage.run(drain_command, "order", "--server-cache-seconds", "10") == 1
    assert "ORDER there is not drained: Eureka lists it as UP, and answers 404" in stage.said
    assert "this list is younger than that" in stage.said
    assert "\nsafe:" not in stage.said


def test_what_comes_back_while_a_drain_waits_is_not_safe(stage: Stage) -> None:
    """An instance that was missing and registers again while the drain waits is reported as UP and not
    drained.
    """
    stage.register("back")
    stage.listed()
    stage.cluster.request(URL, ServerRequest("DELETE", ("apps", "ORDER", "back")))
    dirty_ms = stage.cluster.clock.now_ms
    stage.cluster.clock.run_after(20_000, lambda: stage.register("back", lastDirtyTimestamp=str(dirty_ms)))
    assert stage.run(drain_command, "order") == 1
    assert "ORDER back is UP and was not drained" in stage.said


def test_what_registered_itself_out_of_service_is_put_back_by_its_id(stage: Stage) -> None:
    """An instance that registered itself as OUT_OF_SERVICE is put back when its id is given; for a whole
    application it is only reported.
    """
    stage.register("stuck", status="OUT_OF_SERVICE")
    stage.register("stuck")
    stage.register("up")
    stage.listed()
    assert stage.run(undrain_command, "order") == 1
    assert "to put it into service, name it: eurekube undrain stuck" in stage.said
    held = stage.held("stuck")
    assert held is not None
    assert held.status == "OUT_OF_SERVICE"
    assert stage.run(undrain_command, "stuck") == 0
    assert (held.status, held.overridden) == ("UP", "UNKNOWN")
    stage.register("stuck")
    held = stage.held("stuck")
    assert held is not None
    assert held.status == "UP"


def test_what_a_stack_registered_out_of_service_stays(stage: Stage) -> None:
    """An undrain leaves an instance that a stack registered as OUT_OF_SERVICE."""
    stage.register("it", status="OUT_OF_SERVICE", metadata={"eurekube.owner": "stack/a/b/c/d"})
    stage.listed()
    assert stage.run(undrain_command, "it") == 1
    assert "its owner puts it there" in stage.said


def test_what_is_nowhere_is_reported(stage: Stage) -> None:
    """A drain of an unknown name raises, also if the name fits into no URL."""
    with pytest.raises(RegistryRejected, match="neither an application nor an instance a/b"):
        stage.run(drain_command, "a/b")
