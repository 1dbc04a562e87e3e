"""The steps of the Dockerfile, run without a container: the operator works without Pulumi and as the user
nobody.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import eurekube_provider
from eurekube_provider.eureka.peers import Peers
from lab import Lab
from lab.workloads import Cluster, wait_for
from tests.system.conftest import ROOT, addresses
from tests.system.stacks import UV

pytestmark = pytest.mark.lab

NOBODY = 65532


def dockerfile(instruction: str) -> list[str]:
    """Return the arguments of each Dockerfile line with this instruction."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return [
        line.removeprefix(instruction).strip() for line in text.splitlines() if line.startswith(instruction)
    ]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Create a folder that every user may enter, unlike pytest's temporary folders."""
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def image(folder: Path) -> Path:
    """Run the steps of the Dockerfile's first stage; return the folder of the files that they install."""
    sources = folder / "sources"
    shutil.copytree(
        ROOT, sources, ignore=shutil.ignore_patterns(".*", "dist", "__pycache__", "tests", "bench")
    )
    subprocess.run(
        ["scripts/build-image", "--wheel"],
        cwd=sources,
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
    )
    build, target = folder / "build", folder / "opt" / "eurekube"
    build.mkdir()
    for path in (sources / "requirements-operator.lock", *(sources / "dist").glob("*.whl")):
        shutil.copy(path, build)
    (steps,) = (step for step in dockerfile("RUN") if "--require-hashes" in step)
    steps = steps.replace("/build/", f"{build}/").replace("/opt/eurekube", str(target))
    # For speed pip may keep what it fetches, and leave the compiling to Python; uv, where it is, does so.
    steps = steps.replace("--no-cache-dir ", "")
    if UV.exists():
        steps = steps.replace("python -m pip install", f"{UV} pip install --quiet --python {sys.executable}")
    steps = re.sub(r"\bpython -m", f"{sys.executable} -m", steps)
    environment = {**os.environ, "PIP_NO_COMPILE": "1"}
    subprocess.run(["sh", "-ec", steps], env=environment, check=True, stdout=subprocess.DEVNULL)
    return target


def everybodys_python(folder: Path) -> tuple[Path, dict[str, str]]:
    """Copy this interpreter to where every user may run it; return its path and the variables that it needs.

    The interpreter's own folder may be in a home that others cannot enter.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    left_out = (
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "__pycache__",
        "config-*",
        "idlelib",
        "tkinter",
    )
    shutil.copytree(
        base / "lib" / version, folder / "lib" / version, ignore=shutil.ignore_patterns(*left_out)
    )
    for library in (base / "lib").glob(f"lib{version}*.so*"):
        shutil.copy(library, folder / "lib")
    (folder / "bin").mkdir()
    python = folder / "bin" / version
    shutil.copy(base / "bin" / version, python)
    return python, {"PYTHONHOME": str(folder), "LD_LIBRARY_PATH": str(folder / "lib")}


def by_itself(kubeconfig: Path) -> dict[str, Any]:
    """Return a kubeconfig that contains the certificate, whose own file only the lab's user may read."""
    document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    for entry in document["clusters"]:
        certificate = Path(entry["cluster"].pop("certificate-authority")).read_bytes()
        entry["cluster"]["certificate-authority-data"] = base64.b64encode(certificate).decode()
    return document


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as somebody else")
def test_the_image_runs_without_pulumi_and_as_nobody(
    image: Path, cluster: Cluster, eureka: Peers, lab: Lab, namespace: str, tmp_path: Path
) -> None:
    """The installed image has no Pulumi, and the operator works as a user who may write nowhere."""
    installed = {path.name.partition("-")[0].lower() for path in image.glob("*.dist-info")}
    assert {"kubernetes", "requests", "eurekube_provider"} <= installed
    assert not installed & {"pulumi", "pulumi_kubernetes", "grpcio", "rich", "pip", "hatchling"}

    app = f"{namespace}-app"
    cluster.apply_deployment(namespace, app, 1)
    cluster.apply_service(namespace, app)
    cluster.apply_syncer(namespace, app)
    before = {path: path.stat().st_mtime_ns for path in image.rglob("*")}
    python, surroundings = everybodys_python(image.parents[1] / "python")
    environment = (
        surroundings | dict(re.findall(r"(\w+)=(\S+)", dockerfile("ENV")[0])) | {"PYTHONPATH": str(image)}
    )
    (entrypoint,) = dockerfile("ENTRYPOINT")
    program, *arguments = re.findall(r'"([^"]+)"', entrypoint)
    assert program == "python"
    (user,) = dockerfile("USER")
    assert user == f"{NOBODY}:{NOBODY}"
    readable = image.parent / "kubeconfig"
    readable.write_text(yaml.safe_dump(by_itself(lab.kubeconfig)))
    readable.chmod(0o644)
    log = tmp_path / "log"
    with log.open("wb") as output:
        operator = subprocess.Popen(
            [python, "-S", *arguments, "--kubeconfig", str(readable)],
            env={
                **environment,
                "EUREKA_URL": lab.eureka_urls[0],
                "WATCH_NAMESPACE": namespace,
                "LEASE_NAME": f"{namespace}-leader",
                "WEB_ADDRESS": "127.0.0.1:0",
            },
            cwd="/",
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(
            lambda: list(addresses(eureka, app).values()) == ["UP"], f"the instance\n{log.read_text()}", 60.0
        )
        operator.terminate()
        assert operator.wait(30) == 0, log.read_text()
    finally:
        operator.kill()
    assert f'"version": "{eurekube_provider.__version__}"' in log.read_text()
    assert before == {path: path.stat().st_mtime_ns for path in image.rglob("*")}
