"""Two gated pods behind a Spring Cloud Gateway: scaled to none and back, and rolled while no Eureka answers.

The roll-out is of a syncer with ``whenEurekaIsAway: Open``, which costs calls: they are counted.
"""

import threading
import time
from typing import Any

import requests

from eurekube_provider.kube.access import MERGE_PATCH, SYNCERS
from lab.gate_proof.stage import NAME, NAMESPACE, READY_SECONDS, Stage
from lab.pod import Life
from lab.ports import HOST
from lab.progress import say
from lab.proof.form import Form
from lab.spring import SpringGateway
from lab.workloads import DEPLOYMENTS, wait_for

REPLICAS = 2
_PAUSE_SECONDS = 0.05
_TIMEOUT_SECONDS = 3.0
_DISCOVERY = "spring.cloud.gateway.server.webflux.discovery.locator"


class Calls:
    """Calls through the gateway, one after the other, until they are ended."""

    def __init__(self, gateway: SpringGateway) -> None:
        self._url = f"http://{HOST}:{gateway.port}/{NAME}/"
        self._ended = threading.Event()
        self._done: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._call, name="gateway-calls", daemon=True)
        self._thread.start()

    def since(self, began: float) -> list[tuple[float, str]]:
        """Return when each call began, and ``ok`` or what went wrong."""
        return [one for one in list(self._done) if one[0] >= began]

    def end(self) -> None:
        """No further calls."""
        self._ended.set()
        self._thread.join()

    def _call(self) -> None:
        with requests.Session() as session:
            session.trust_env = False
            while not self._ended.wait(_PAUSE_SECONDS):
                began = time.time()
                try:
                    answer = session.get(self._url, timeout=_TIMEOUT_SECONDS)
                    outcome = "ok" if answer.status_code == 200 else str(answer.status_code)
                except requests.RequestException as error:
                    outcome = type(error).__name__
                self._done.append((began, outcome))


def play(form: Form) -> dict[str, Any]:
    """Return what became of the calls, and of the pods."""
    with Stage(form, REPLICAS) as stage:
        gateway = SpringGateway(
            stage.lab.eureka_urls,
            name="gateway",
            log_directory=stage.lab.directory / "logs",
            settings={
                "eureka.client.register-with-eureka": "false",
                f"{_DISCOVERY}.enabled": "true",
                f"{_DISCOVERY}.lower-case-service-id": "true",
                **form.client_settings,
            },
        )
        stage.ends.callback(gateway.close)
        gateway.start()
        calls = Calls(gateway)
        stage.ends.callback(calls.end)
        wait_for(lambda: _all_went_well(calls, time.time() - 2.0), "calls that go well", READY_SECONDS)
        report = {"scaled": _scaled(stage, calls), "open": _opened(stage, calls)}
        return {"known_after_seconds": form.drain.known_after_seconds, **report}


def _scaled(stage: Stage, calls: Calls) -> dict[str, Any]:
    """Scale to none, and back."""
    known = list(stage.lives)
    began = time.time()
    stage.cluster.scale(NAMESPACE, NAME, 0)
    wait_for(lambda: all(life.gone_at for life in known), "the pods to go", READY_SECONDS)
    time.sleep(5.0)
    back = time.time()
    stage.cluster.scale(NAMESPACE, NAME, REPLICAS)

    def new() -> list[Life]:
        return [life for life in stage.lives if life not in known]

    wait_for(
        lambda: len(new()) == REPLICAS and all(life.opened_at for life in new()), "the gates", READY_SECONDS
    )
    wait_for(lambda: _all_went_well(calls, time.time() - 2.0), "calls that go well again", READY_SECONDS)
    time.sleep(stage.form.drain.known_after_seconds)
    done = calls.since(began)
    answered = next(at for at, outcome in done if at >= back and outcome == "ok")
    found = {
        "failed_while_away": _failed(one for one in done if one[0] < answered),
        "opened": [(life.opened_at or 0.0) - (life.ready_at or 0.0) for life in new()],
        "answered_after_opening": answered - min(life.opened_at or 0.0 for life in new()),
        "failed_once_answered": _failed(one for one in done if one[0] >= answered),
        "calls": len(done),
    }
    say(f"2, 0, 2: {found}")
    return found


def _opened(stage: Stage, calls: Calls) -> dict[str, Any]:
    """Roll with ``whenEurekaIsAway: Open`` while no Eureka answers, until callers know the new pods."""
    gate = {"callersSeconds": stage.form.drain.known_after_seconds, "whenEurekaIsAway": "Open"}
    stage.cluster.access.request(
        "PATCH",
        SYNCERS.path(NAMESPACE, NAME),
        body={"spec": {"readinessGate": gate}},
        content_type=MERGE_PATCH,
    )
    time.sleep(2.0)
    known = list(stage.lives)
    began = time.time()
    for one in stage.lab.eurekas:
        one.pause()
    stage.cluster.access.request(
        "PATCH",
        DEPLOYMENTS.path(NAMESPACE, NAME),
        body={"spec": {"template": {"metadata": {"labels": {"version": "open"}}}}},
        content_type=MERGE_PATCH,
    )
    wait_for(lambda: stage.is_rolled, "the roll-out to end without Eureka", READY_SECONDS)
    rolled = time.time()
    wait_for(lambda: all(life.gone_at for life in known), "the old pods to go", READY_SECONDS)
    time.sleep(5.0)
    for one in stage.lab.eurekas:
        one.resume()
    back = time.time()
    wait_for(lambda: _all_went_well(calls, time.time() - 2.0), "calls that go well again", READY_SECONDS)
    done = calls.since(began)
    failed = [at for at, outcome in done if outcome != "ok"]
    found = {
        "rolled": rolled - began,
        "away": back - began,
        "calls": len(done),
        "failed": _failed(done),
        "first_failed": min(failed, default=0.0) - began,
        "last_failed_after_return": max(failed, default=0.0) - back,
    }
    say(f"open: {found}")
    return found


def _all_went_well(calls: Calls, since: float) -> bool:
    done = calls.since(since)
    return bool(done) and all(outcome == "ok" for _, outcome in done)


def _failed(done: Any) -> dict[str, int]:
    """Count what went wrong, by what it was."""
    counts: dict[str, int] = {}
    for _, outcome in done:
        if outcome != "ok":
            counts[outcome] = counts.get(outcome, 0) + 1
    return counts
