"""``eurekube doctor``: what it prints, and its exit codes where it cannot look."""

from __future__ import annotations

import pytest

from eurekube_provider.cli.doctor_command import commands, document, text
from eurekube_provider.cli.main import main
from eurekube_provider.core.identity import Cluster
from eurekube_provider.doctor.finding import Fault, Finding, Patch, PatchKind
from eurekube_provider.doctor.reader import Snapshot

WORLD = Snapshot(Cluster("lab", "uid-1"))
PATCH = Patch("deployment", "shop", "rating", PatchKind.STRATEGIC, {"spec": {"minReadySeconds": 120}})
MENDABLE = Finding(Fault.MIN_READY_TOO_SHORT, "Deployment shop/rating", "too fast", "slow down", PATCH)
OTHER = Finding(Fault.PEERS_DISAGREE, "Eureka default", "they differ", "let them talk")


def test_a_list_for_a_person() -> None:
    """Each fault with its remedy, then the sum; the patches are offered where there are any."""
    said = text(WORLD, [MENDABLE, OTHER])
    assert "MinReadyTooShort  Deployment shop/rating\n    too fast\n    mend: slow down\n" in said
    assert said.endswith("2 faults; --fix prints the kubectl commands that mend them\n")
    assert text(WORLD, [OTHER]).endswith("0 Eureka servers: 1 fault\n")
    assert text(WORLD, []).endswith("all is well\n")
    assert text(Snapshot(WORLD.cluster, unseen=("pods: no",)), []).endswith("no faults there\n")


def test_what_a_shell_runs() -> None:
    """A command for each object; what no patch mends is a comment."""
    assert commands([MENDABLE, OTHER]).splitlines() == [
        PATCH.command,
        "# PeersDisagree Eureka default: let them talk",
    ]


def test_what_stands_in_eureka_is_no_command() -> None:
    """Whoever may register there chooses its ids, and a shell or a terminal reads what is printed."""
    evil = Finding(Fault.PEERS_DISAGREE, "X a\ntouch pwned\r\u2028\x1b[2J#", "b\ntouch it", "c\x85touch it")
    assert len(commands([evil]).splitlines()) == 1
    assert commands([evil]).startswith("# PeersDisagree X a touch pwned")
    assert "\x1b" not in commands([evil]) + text(WORLD, [evil])
    assert [line for line in text(WORLD, [evil]).splitlines() if line.startswith("touch")] == []


def test_json_for_a_pipeline() -> None:
    """Findings, and the patches by object with the command that applies each."""
    found = document(WORLD, [MENDABLE, OTHER])
    assert [one["fault"] for one in found["findings"]] == ["MinReadyTooShort", "PeersDisagree"]
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
    """One sentence, and exit code 2: a pipeline must not take it for a finding."""
    monkeypatch.delenv("EUREKA_URL", raising=False)
    assert main(["doctor", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err


def test_a_time_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage, told with the flag's name."""
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--client-fetch-seconds", "soon"])
    assert ended.value.code == 2
    assert "--client-fetch-seconds: 'soon' must be a number of seconds" in capsys.readouterr().err
