"""What is delivered is what was tested: the image has the lock file's packages, and no Pulumi."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def locked(name: str) -> dict[str, set[str]]:
    """Hashes by requirement, version and markers included."""
    blocks = re.split(r"^(?=[a-zA-Z])", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {
        block.splitlines()[0].rstrip(" \\"): set(re.findall(r"--hash=(\S+)", block))
        for block in blocks
        if "==" in block
    }


def test_the_image_has_the_versions_that_are_tested() -> None:
    """`make lock` pins both from one solution; each package has hashes."""
    everything, operator = locked("requirements.lock"), locked("requirements-operator.lock")
    versions = {name.partition(" ;")[0]: hashes for name, hashes in everything.items()}
    assert {name.partition("==")[0] for name in operator} >= {"kubernetes", "requests", "pyyaml"}
    for name, hashes in operator.items():
        assert hashes
        assert hashes == versions[name.partition(" ;")[0]]


def test_no_pulumi_in_the_image() -> None:
    """Neither it nor what only it needs."""
    names = {name.partition("==")[0] for name in locked("requirements-operator.lock")}
    assert not names & {"pulumi", "pulumi-kubernetes", "grpcio", "dill", "protobuf"}


def test_only_what_the_dockerfile_copies_is_sent_to_the_builder() -> None:
    """No secret of a working directory gets into a layer."""
    ignored, *kept = (ROOT / ".dockerignore").read_text().split()
    (copied,) = re.findall(r"^COPY (.+) /build/$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert ignored == "*"
    assert {line.removeprefix("!") for line in kept} == set(copied.split())
