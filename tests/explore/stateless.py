"""``eurekube apply`` and ``remove`` in place of the simulated engine, for programs that need no cluster."""

from __future__ import annotations

from collections.abc import Mapping

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION_NAME
from eurekube_provider.registrations.members import check_application
from eurekube_provider.registrations.property_check import check
from eurekube_provider.stateless import apply_stack
from eurekube_provider.stateless.render import RenderedStack
from tests.explore.engine import FAILS, Entry, Program, Run
from tests.explore.shells import PREFIX, carried
from tests.explore.world import Killed, World

UNCHANGED = "  "
"""Beginning of a line about an unchanged resource."""


class Stateless:
    """One stack without a state, with the methods of the simulated engine.

    :ivar state: always empty.
    :ivar said: the lines of the last run.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.state: list[Entry] = []
        self.said: list[str] = []
        self.aliases: Mapping[str, str] = {}
        self._before: Program = {}

    def up(self, program: Program, *, refresh: bool = False, targets: frozenset[str] | None = None) -> Run:  # noqa: ARG002
        """Apply the program, or remove the stack's instances if the program is empty."""
        self.world.new_process()
        run = Run()
        if FAILS in program.values():
            run.error = "the program fails before anything is asked"
            return run
        lines: list[str] = []
        try:
            if program or not self._before:
                apply_stack.apply_rendered(_rendered(program or self._before), None, lines.append)
            else:
                apply_stack.remove_rendered(_rendered(self._before), None, lines.append)
        except Killed:
            run.killed = True
        except Exception as error:  # noqa: BLE001 - whatever it raises ends the run
            run.error = f"{type(error).__name__}: {error}"
        self.said = lines
        run.steps = [line for line in lines if not line.startswith(UNCHANGED)]
        self._before = program or self._before
        return run

    def refresh(self) -> Run:
        """Do nothing: there is no state to refresh."""
        return Run()


def _rendered(program: Program) -> RenderedStack:
    """Return a program's resources as if Pulumi's mocks had rendered them."""
    singles, many, urls = {}, {}, set()
    for urn, properties in program.items():
        name = urn.rpartition("/")[2]
        given = {**carried(dict(properties)), "owner": PREFIX + name}
        urls.add(str(given["service_url"]))
        if "instances" in given:
            many[name] = check_application({}, given).properties
        else:
            singles[name] = check({}, given).properties
    (url,) = urls
    connections = {DEFAULT_CONNECTION_NAME: Connection.parse(url)}
    return RenderedStack(
        "explored", "dev", "organization", [], singles, many, None, None, connections, frozenset()
    )
