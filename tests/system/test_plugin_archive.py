"""The plugin's archive, used by a person who has neither a clone, nor the package, nor pip."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.version import __version__
from scripts.plugin_archives import build_archive, this_machine
from tests.system.shells import held
from tests.system.stacks import ROOT, needs_pulumi, needs_yaml, own_pulumi

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(900)]

MINOR = f"python{this_machine().python}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the archive for this system and this Python, from this tree's wheel."""
    folder = tmp_path_factory.mktemp("archive")
    build_wheel = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(build_wheel, cwd=ROOT, check=True, capture_output=True)
    return build_archive(next(folder.glob("*.whl")), this_machine(), folder)


@pytest.fixture
def newcomer(tmp_path: Path, plain_url: str) -> dict[str, str]:
    """Return the environment of a person with the CLI, Python and a shell, and nothing of ours on PATH."""
    own = own_pulumi(tmp_path)
    tools = tmp_path / "own-tools"
    tools.mkdir()
    (tools / MINOR).symlink_to(Path(sys.base_prefix) / "bin" / MINOR)
    ours = Path(sys.prefix) / "bin"
    path = [each for each in own["PATH"].split(os.pathsep) if Path(each) != ours and "tools" not in each]
    assert shutil.which("pulumi-resource-eurekube", path=os.pathsep.join(path)) is None
    environment = {key: value for key, value in own.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {
        **environment,
        "PATH": os.pathsep.join([str(tools), *path]),
        "EUREKA_URL": plain_url,
        "PIP_NO_INDEX": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


@pytest.mark.parametrize(
    "language",
    [
        pytest.param("yaml", marks=needs_yaml),
        pytest.param(
            "typescript",
            marks=pytest.mark.skipif(
                any(shutil.which(each) is None for each in ("pulumi-language-nodejs", "node", "npm")),
                reason="not all on PATH: pulumi-language-nodejs, node, npm",
            ),
        ),
    ],
)
def test_an_instance_with_the_archive_alone(
    language: str, archive: Path, newcomer: dict[str, str], plain: Peer, tmp_path: Path
) -> None:
    """The example's script registers an instance with nothing but the archive."""
    script = tmp_path / "first-instance.sh"
    shutil.copy(ROOT / "examples" / "archive" / script.name, script)
    done = subprocess.run(
        [script, archive, language], cwd=tmp_path, env=newcomer, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    owner = f"stack/organization/first-instance/first-{language}/billing"
    assert owner in done.stdout
    assert held(plain, "billing")["billing"].owner == owner


@pytest.fixture
def server(archive: Path, tmp_path: Path) -> Iterator[str]:
    """Serve the archive on loopback under the name that the CLI asks for."""
    served = tmp_path / "served"
    served.mkdir()
    shutil.copy(archive, served / this_machine().requested_name)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_an_archive_from_a_server(server: str, newcomer: dict[str, str], tmp_path: Path) -> None:
    """The CLI downloads the archive from a server, and the plugin answers."""
    install = ("pulumi", "plugin", "install", "resource", "eurekube", __version__, "--server", server)
    subprocess.run(install, env=newcomer, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    schema = ("pulumi", "package", "get-schema", "eurekube")
    done = subprocess.run(schema, env=newcomer, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"eurekube:index:Instance"' in done.stdout
