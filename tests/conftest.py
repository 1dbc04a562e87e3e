"""Fixtures of all tests: one lab for the whole run, and names that no two tests share."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

import pytest

from tests.nightly import is_nightly

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.loadscope import LoadScopeScheduling

    from lab import Lab

_numbers = itertools.count(1)

asyncio.set_event_loop(None)  # as on Python 3.14, whichever runs the tests: who needs an event loop makes one

gc.set_threshold(50_000, 20, 100)  # Python's own have the explorers look for garbage a sixth of their time


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--eureka``, which runs the tests of the contract with Eureka on development servers instead."""
    parser.addoption(
        "--eureka",
        choices=["real", "dev"],
        default="real",
        help="the Eureka servers of tests/contract and tests/interop [real]",
    )
    parser.addoption(
        "--nightly",
        choices=["include", "leave-out", "only"],
        default="include",
        help="the tests that tests/nightly.toml names [include]",
    )


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Real servers: one Eureka and a Kubernetes API with its controllers, shared by the whole run."""
    from lab import Lab  # takes longer to import than pytest itself: who needs no server does without

    # Lists as fresh as reads: many tests look at what a command makes of a list just after a change.
    with Lab(eureka=1, uncached_lists=True) as running:
        yield running


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A DNS label that no other test of this run uses: for an application, a namespace, a stack."""
    words = "".join(letter if letter.isalnum() else "-" for letter in request.node.originalname.lower())
    return f"{words.removeprefix('test-')[:30].strip('-')}-{next(_numbers)}"


@functools.cache
def _train() -> re.Pattern[str]:
    """Return a pattern that finds the release train in the id of a test."""
    from lab.eureka import SpringCloudRelease

    return re.compile(rf"\[({'|'.join(map(re.escape, get_args(SpringCloudRelease)))})[-\]]")


_WAITS = "tests/contract/test_eureka_caches.py"
"""A test file that waits for minutes, which takes a worker but no processor time."""


def servers_of(nodeid: str) -> str:
    """Return the mark, folder or file that names the servers which a test uses."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/contract/") and file != _WAITS and (train := _train().search(nodeid)):
        return f"tests/contract on {train[1]}"
    return "tests/interop" if file.startswith("tests/interop/") else file


_LONGEST = (
    _WAITS,
    "tests/system/test_components.py",
    "tests/system/test_pulumi.py",
    "tests/system/test_languages.py",
    "tests/system/test_registrations_faults.py",
    "tests/system/test_newcomers.py",
    "tests/system/test_cli_apply.py",
    "tests/system/test_registrations.py",
    "tests/system/test_registrations_moves.py",
    "tests/system/test_hosted_components.py",
    "tests/system/test_triggers.py",
    "tests/system/test_operator.py",
    "tests/contract on 2025.0",
    "tests/contract on 2025.1",
    "tests/system/test_examples.py",
    "tests/system/test_high_availability.py",
    "tests/contract/test_eureka_restart.py",
    "tests/system/test_lab.py",
    "tests/contract/test_application_provider.py",
    "tests/system/test_inline.py",
    "tests/system/test_storm.py",
    "tests/interop",
    "tests/system/test_automation.py",
    "tests/system/test_connections.py",
    "tests/system/test_doctor.py",
    "tests/system/test_foreign.py",
    "tests/system/test_once.py",
    "tests/system/test_mirror.py",
    "tests/contract/test_peers.py",
    "tests/system/test_documented_commands.py",
)
"""Files whose tests begin first, so that no long one runs alone at the end."""


_OF_EITHER_KIND = ("tests/contract/", "tests/interop/")
"""Folders whose tests meet real Eureka servers or development servers."""


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test that needs a lab, before pytest chooses tests by their marks."""
    if item.nodeid.startswith(_OF_EITHER_KIND) and item.config.getoption("eureka") == "real":
        item.add_marker(pytest.mark.lab)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that development servers cannot run and, as ``--nightly`` says, those of
    tests/nightly.toml or all others; order the longest files first.

    The order is set here, not on the command line: of two paths of which one contains the other, pytest takes
    the outer one only.
    """
    left_out = {item for item in items if _is_left_out(config, item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    ranks = {servers: rank for rank, servers in enumerate(_LONGEST)}
    items.sort(key=lambda item: ranks.get(servers_of(item.nodeid), len(ranks)))


def _is_left_out(config: pytest.Config, item: pytest.Item) -> bool:
    """Return whether the command line's options leave out a test."""
    if config.getoption("eureka") == "dev" and item.get_closest_marker("real_server"):
        return True
    nightly: str = config.getoption("nightly")
    if nightly == "include":
        return False
    on_real_servers = config.getoption("eureka") == "real"
    return is_nightly(item.nodeid, on_real_servers=on_real_servers) != (nightly == "only")


def pytest_collection_finish() -> None:
    """Keep imported and collected objects out of garbage collection until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """With ``--dist loadfile``, have modules that share servers run in one worker: a JVM's start is dear."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling  # where there is no xdist nobody asks

    class ByServers(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return servers_of(nodeid)

    return ByServers(config, log)
