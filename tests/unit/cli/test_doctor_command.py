"""``eurekube doctor``: its text and JSON, and its exit codes when it cannot read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eurekube_provider.cli.doctor_command import (
    advise_quicker_caches,
    format_fix_commands,
    format_report,
    report_to_dict,
)
from eurekube_provider.cli.main import main
from eurekube_provider.core.drain_time import QUICK_CACHES_DRAIN, Drain
from eurekube_provider.core.identity import Cluster
from eurekube_provider.doctor.finding import Fault, Finding, Patch
from eurekube_provider.doctor.reader import EurekaSnapshot, Snapshot

EUREKA = EurekaSnapshot("default", server_count=2)
WORLD = Snapshot(Cluster("lab", "uid-1"), mirrors=({},), eurekas={"default": EUREKA})
PATCH = Patch("deployment", "shop", "rating", {"spec": {"minReadySeconds": 120}})
MENDABLE = Finding(Fault.MIN_READY_TOO_SHORT, "Deployment shop/rating", "too fast", "slow down", PATCH)
OTHER = Finding(Fault.PEERS_DISAGREE, "Eureka default", "they differ", "let them talk")
MILD = Finding(Fault.SERVER_TROUBLE, "Eureka server http://e", "it is slow", "see why")


def test_a_list_for_a_person() -> None:
    """The text shows each finding with severity and remedy, then the counts, and mentions ``--fix`` if
    patches exist.
    """
    read = "0 syncers, 1 mirror, 0 services, 0 workloads, 0 instances, 2 Eureka servers read"
    said = format_report(WORLD, [MENDABLE, OTHER, MILD])
    assert "error: MinReadyTooShort  Deployment shop/rating\n    too fast\n    fix: slow down\n" in said
    assert "warning: ServerTrouble  Eureka server http://e\n" in said
    assert said.endswith(f"2 errors, 1 warning in {read}; --fix prints the kubectl commands that fix them\n")
    assert format_report(WORLD, [MILD]).endswith(f"\n0 errors, 1 warning in {read}\n")
    assert format_report(WORLD, []) == f"all is well in {read}\n"


def test_what_was_not_read_is_not_counted() -> None:
    """Kinds of objects that could not be read are left out of the summary, and nothing is called well
    then.
    """
    unread = frozenset({"syncers", "services", "workloads"})
    silent = {"default": EurekaSnapshot("default")}
    some = Snapshot(WORLD.cluster, services=({},), eurekas=silent, unread_parts=("x",), unread_kinds=unread)
    assert format_report(some, []) == "0 errors, 0 warnings in 1 service read\n"
    nothing = replace(some, services=())
    assert format_report(nothing, []) == "0 errors, 0 warnings in nothing read\n"


def test_the_guide_has_the_severity_of_each_fault() -> None:
    """The table of docs/guides/doctor.md has every fault with its severity."""
    page = (Path(__file__).parents[3] / "docs" / "guides" / "doctor.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| (error|warning) \|", page, re.MULTILINE))
    assert documented == {str(one): str(Finding(one, "", "", "").severity) for one in Fault}


def test_what_a_shell_runs() -> None:
    """``--fix`` prints one kubectl command for each object, and a comment for a finding without a patch."""
    assert format_fix_commands([MENDABLE, OTHER]).splitlines() == [
        PATCH.command,
        "# PeersDisagree Eureka default: let them talk",
    ]


def test_what_stands_in_eureka_is_no_command() -> None:
    """Ids from Eureka, which anybody can choose, can neither begin a shell command nor control a terminal."""
    evil = Finding(Fault.PEERS_DISAGREE, "X a\ntouch pwned\r\u2028\x1b[2J#", "b\ntouch it", "c\x85touch it")
    assert len(format_fix_commands([evil]).splitlines()) == 1
    assert format_fix_commands([evil]).startswith("# PeersDisagree X a touch pwned")
    assert "\x1b" not in format_fix_commands([evil]) + format_report(WORLD, [evil])
    assert [line for line in format_report(WORLD, [evil]).splitlines() if line.startswith("touch")] == []


def test_json_for_a_pipeline() -> None:
    """The JSON has findings, counts, and patches by object with their commands."""
    found = report_to_dict(WORLD, [MENDABLE, OTHER, MILD])
    assert [(one["severity"], one["fault"]) for one in found["findings"]] == [
        ("error", "MinReadyTooShort"),
        ("error", "PeersDisagree"),
        ("warning", "ServerTrouble"),
    ]
    assert found["counts"] == {"error": 2, "warning": 1}
    assert found["looked"]["Eureka servers"] == 2
    assert found["findings"][1]["patch"] is None
    assert [one["command"] for one in found["patches"]] == [PATCH.command]
    assert found["patches"][0]["patch"] == PATCH.body
    assert found["unseen"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "no Eureka URL is configured"),
        (
            ["--eureka-url", "http://127.0.0.1:9/eureka", "--kubeconfig", "/nowhere"],
            "/nowhere does not",
        ),
        (
            ["--eureka-url", "http://127.0.0.1:9/eureka", "--ignore", "Rain"],
            "Rain: there is no such",
        ),
        (["--shutdown-seconds", "0"], "at least 1 second"),
    ],
)
def test_what_it_cannot_begin_with(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unusable settings end with one sentence and exit code 2, which a pipeline cannot confuse with a
    finding.
    """
    monkeypatch.delenv("EUREKA_URL", raising=False)
    assert main(["doctor", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err


def test_a_time_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """A time option without a number is wrong usage, and the message names the option."""
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--client-fetch-seconds", "soon"])
    assert ended.value.code == 2
    assert "--client-fetch-seconds: 'soon' must be a number of seconds" in capsys.readouterr().err


def test_how_callers_learn_sooner() -> None:
    """The advice gives three settings, the time that they reach and their cost; it is empty if callers are
    fast already.
    """
    said = advise_quicker_caches(Drain())
    assert said.startswith("callers learn of a pod up to 95 s after Eureka shows it. It is 10 s with")
    for setting in (
        "eureka.server.response-cache-update-interval-ms=3000",
        "eureka.client.registry-fetch-interval-seconds=5",
        "spring.cloud.loadbalancer.cache.ttl=2s",
    ):
        assert setting in said
    assert "costs Eureka 6 times the fetches of each caller and 10 times the renderings of a list" in said
    assert advise_quicker_caches(QUICK_CACHES_DRAIN) == ""
    fetch = advise_quicker_caches(Drain(server_cache_seconds=1))
    assert "costs Eureka 6 times the fetches of each caller. Give" in fetch
