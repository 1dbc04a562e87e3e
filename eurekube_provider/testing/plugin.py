"""The fixtures that pytest offers to every test of an environment with this package.

Every pytest run of that environment imports this module: it imports only pytest, and a fixture loads its
modules when a test asks for it. ``-p no:eurekube`` leaves this module out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from eurekube_provider.testing import Eureka, StartEureka


@pytest.fixture
def eureka_servers() -> Iterator[StartEureka]:
    """Start Eureka servers that end with the test: ``eureka_servers(3)``; each call starts another Eureka."""
    from eurekube_provider.dev.eureka.serving import EurekaServers
    from eurekube_provider.testing import Eureka

    with ExitStack() as until_the_end:

        def start(count: int = 1, *, quick: bool = True) -> Eureka:
            return Eureka(until_the_end.enter_context(EurekaServers(count, quick=quick)))

        yield start


@pytest.fixture
def eureka(eureka_servers: StartEureka) -> Eureka:
    """Start one Eureka server on a free port of this machine; it ends with the test."""
    return eureka_servers()
