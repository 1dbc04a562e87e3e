"""The command line: what it loads, and the codes that it ends with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eurekube_provider.cli.commands import COMMANDS
from eurekube_provider.cli.main import main

ROOT = Path(__file__).parents[3]


def test_the_operator_loads_no_pulumi() -> None:
    """Neither its parsing nor its modules: it starts fast and stays small."""
    program = (
        "import sys\nfrom eurekube_provider.cli.main import parser\n"
        "parser('operator').parse_args(['operator', '--once'])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert 'kubernetes' in loaded\n"
        "sys.exit(bool(loaded & {'pulumi', 'pulumi_kubernetes', 'grpc'}))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` of a command shows its options, though they are loaded on demand."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    without = {"render", "import", "keepalive", "summary", "drift", "drain", "undrain", "crds", "completion"}
    assert "--kubeconfig" in said or command in without | {"demo", "dev"}
    assert len(said.splitlines()) > 10


def test_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command nothing but the list is loaded."""
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(command in said for command in COMMANDS)


def test_wrong_usage_and_wrong_configuration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown flag ends with 2, a value that cannot be used with 1 and a sentence."""
    monkeypatch.delenv("EUREKA_URL", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["operator", "--twice"])
    assert ended.value.code == 2
    assert main(["operator", "--eureka-url", "nonsense"]) == 1
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("eurekube operator: --eureka-url: the Eureka URL")
    )
