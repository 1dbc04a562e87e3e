"""``eurekube dev eureka`` as people and scripts use it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from eurekube_provider.cli.main import main


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the command, and yield its process with the lines printed until it is ready."""
    command = [sys.executable, "-m", "eurekube_provider.cli.main", "dev", "eureka", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line.rstrip())
            if "Ctrl-C" in line:
                break
        yield process, said
    finally:
        process.kill()
        process.communicate()


def test_it_says_where_it_listens_and_ends_quietly() -> None:
    """The command prints a warning and a local URL for each server, and ends with 0 after Ctrl-C."""
    with running("--peers", "2", "--quick") as (process, (warning, *urls, page)):
        assert "for development and tests" in warning
        assert [re.sub(r"\d{4,}", "N", url) for url in urls] == ["  http://127.0.0.1:N/eureka"] * 2
        with requests.Session() as session:
            session.trust_env = False
            for url in urls:
                assert session.get(url.strip() + "/apps").status_code == 200
            assert urls[1].strip() in session.get(page.split()[0]).text
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--peers", "0"], "there is at least one server"),
        (["--port", "65535", "--peers", "2"], "ports go up to 65535"),
        (["--port", "-1"], "--port -1"),
    ],
)
def test_ports_that_do_not_exist(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Ports beyond the range end the command with one sentence and exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(["dev", "eureka", *options])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_host_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host's name that cannot be resolved ends the command with one sentence and exit code 1."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test's own stay
    assert main(["dev", "eureka", "--host", "no.such.host.invalid"]) == 1
    assert "no.such.host.invalid:8761" in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The message about a port in use names the port."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dev", "eureka", "--port", str(port)]) == 1
    assert f"127.0.0.1:{port} (Address already in use)" in capsys.readouterr().err


def test_it_loads_nothing_that_takes_long() -> None:
    """The command's parser loads neither Kubernetes nor Pulumi nor terminal libraries, so that it starts
    fast.
    """
    program = (
        "import sys\nfrom eurekube_provider.cli.commands import load_command_parser\n"
        "load_command_parser('dev').parse_args(['eureka'])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "sys.exit(bool(loaded & {'kubernetes', 'pulumi', 'click', 'rich', 'urllib3', 'requests', 'yaml'}))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
