"""The command line: the modules that it loads, and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eurekube_provider.cli.commands import COMMAND_SUMMARIES, load_command_module
from eurekube_provider.cli.main import main

ROOT = Path(__file__).parents[3]


def test_the_operator_loads_no_pulumi() -> None:
    """The operator's parser and modules load neither Pulumi nor table drawing, so that it starts fast and
    stays small.
    """
    program = (
        "import sys\nfrom eurekube_provider.cli.commands import load_command_parser\n"
        "load_command_parser('operator').parse_args(['--once'])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert 'kubernetes' in loaded\n"
        "sys.exit(bool(loaded & {'pulumi', 'pulumi_kubernetes', 'grpc', 'rich'}))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60).returncode == 0


@pytest.mark.parametrize("command", COMMAND_SUMMARIES)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` of a command shows its options, although they are loaded on demand."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    without = {"render", "import", "keepalive", "summary", "drift", "drain", "undrain", "crds", "completion"}
    assert "--kubeconfig" in said or command in without | {"demo", "dev"}
    assert len(said.splitlines()) > 10


def test_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """The program's ``--help`` lists every command."""
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(command in said for command in COMMAND_SUMMARIES)


def test_wrong_usage_and_wrong_configuration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown option ends with 2, an unusable value with 1 and a sentence."""
    monkeypatch.delenv("EUREKA_URL", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["operator", "--twice"])
    assert ended.value.code == 2
    assert main(["operator", "--eureka-url", "nonsense"]) == 1
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("eurekube operator: --eureka-url: the Eureka URL")
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("keepalive --remove", "--remove and --cluster-name are for --zookeeper"),
        ("keepalive --zookeeper --remove", "--remove needs --cluster-name"),
        ("import billing --provider dynamic --file x", "pulumi import knows no dynamic resources"),
        ("import billing --provider dynamic --language yaml", "the dynamic provider has Python only"),
        ("remove --patience -1", "'-1' must be a number of seconds from 0 on"),
        ("drift --stack dev --timeout-seconds nan", "'nan' must be a number of seconds from 0 on"),
    ],
)
def test_options_that_cannot_be_meant_are_wrong_usage(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options that exclude or need each other, or are no time, end with 2, the usage and the reason."""
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: eurekube {words.split()[0]}")
    assert reason in said


def test_unknown_commands_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command or option ends with 2, and a similar command is suggested."""
    for words in (["statsu"], ["statsu", "--help"], ["status", "--outptu"], ["--outptu"], ["--", "status"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    assert main([]) == 2
    assert "there is no command 'statsu': status is one" in capsys.readouterr().err


def test_what_is_named_may_stand_between_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments may stand between options, and after ``--`` they may begin with a dash, as instance ids
    can.
    """
    taken: list[list[str]] = []
    module = load_command_module("status")
    monkeypatch.setattr(module, "run", lambda options: taken.append(options.applications))
    for words in (["a", "--differences", "b"], ["--output", "json", "--", "-a", "b"]):
        assert main(["status", *words]) == 0
    assert taken == [["a", "b"], ["-a", "b"]]
    monkeypatch.setattr(load_command_module("drain"), "run", lambda options: taken.append([options.target]))
    assert main(["drain", "--no-wait", "--", "--id"]) == 0
    assert taken[-1] == ["--id"]
    assert capsys.readouterr().err == ""
