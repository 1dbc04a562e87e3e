"""What every test may ask for: one lab for the whole run, and names of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from lab import Lab

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Real servers: one Eureka and a Kubernetes API with its controllers, shared by the whole run."""
    with Lab(eureka=1) as running:
        yield running


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A DNS label that no other test of this run uses: for an application, a namespace, a stack."""
    words = "".join(letter if letter.isalnum() else "-" for letter in request.node.originalname.lower())
    return f"{words.removeprefix('test-')[:30].strip('-')}-{next(_numbers)}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why a test was tried once more, also where it passed then."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first attempt of {report.nodeid}", sep="_")
        terminalreporter.write_line(report.longreprtext)
