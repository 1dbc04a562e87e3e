"""A simulation of Pulumi's engine: the order of its steps, its state, and the end of a run.

Creations and updates come first, in the program's order; removals last, in the reverse order. A step that
fails ends the run: later steps do not happen, removals included. The state is written after each step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.explore.shells import (
    DynamicShell,
    HalfMade,
    MakeShell,
    NativeShell,
    Properties,
    RefreshingShell,
    Shell,
)
from tests.explore.world import Killed, World

Program = Mapping[str, Properties]
"""A program's resources in their order: properties by URN, whose last part is the name. One with
``instances`` is a EurekaApplication; :data:`FAILS` is a resource of another provider that fails.
"""

FAILS: Properties = {"fails": True}

_RESOURCES = (
    "eurekube_provider.resources.",
    "eurekube_provider.registrations.",
    "eurekube_provider.eureka.removal_checks",
)


@functools.cache
def memories() -> list[Any]:
    """Return the objects that a plugin process keeps in memory: those that its modules make when they are
    imported.
    """
    found = {
        id(thing): thing
        for name, module in list(sys.modules.items())
        if name.startswith(_RESOURCES)
        for word, thing in vars(module).items()
        if word.isupper() and hasattr(thing, "_lock") and type(thing).__module__.startswith(_RESOURCES)
    }
    return list(found.values())


@dataclass(slots=True)
class Entry:
    """A resource in the state.

    :ivar url: of its provider's Eureka.
    :ivar is_replaced: its replacement exists, and it is to be removed.
    :ivar is_half_made: its last step failed and left it in the state: the next run updates it in any case.
    :ivar is_refreshed_first: its provider asked for a read before each update.
    """

    name: str
    id: str
    inputs: Properties
    outputs: Properties
    url: str
    is_replaced: bool = False
    is_half_made: bool = False
    is_refreshed_first: bool = False


@dataclass(slots=True)
class Run:
    """The result of a run."""

    steps: list[str] = field(default_factory=list)
    error: str = ""
    killed: bool = False

    @property
    def ended_well(self) -> bool:
        """True if the run neither failed nor was killed."""
        return not self.error and not self.killed


class Engine:
    """One stack with the dynamic provider's resources."""

    shell: ClassVar[MakeShell] = DynamicShell

    def __init__(self, world: World) -> None:
        self.world = world
        self.state: list[Entry] = []
        self.aliases: Mapping[str, str] = {}

    def up(self, program: Program, *, refresh: bool = False, targets: frozenset[str] | None = None) -> Run:
        """Run ``pulumi up`` in a process of its own."""
        self._new_process()
        run = Run()
        try:
            if refresh:
                self._refresh(run)
            else:
                self._refresh_first(targets)
            self._register(program, run, targets)
            self._remove(program, run, targets)
        except Killed:
            run.killed = True
        except Exception as error:  # noqa: BLE001 - whatever a provider raises ends the run
            run.error = f"{type(error).__name__}: {error}"
        return run

    def refresh(self) -> Run:
        """Run ``pulumi refresh`` in a process of its own."""
        self._new_process()
        run = Run()
        try:
            self._refresh(run)
        except Killed:
            run.killed = True
        except Exception as error:  # noqa: BLE001 - as above
            run.error = f"{type(error).__name__}: {error}"
        return run

    def _new_process(self) -> None:
        self.world.new_process()
        for memory in memories():
            memory.__init__()

    def _shell(self, name: str, url: str, properties: Properties) -> Shell:
        return type(self).shell(name.rpartition("/")[2], url, is_application="instances" in properties)

    def _shell_of(self, entry: Entry) -> Shell:
        return self._shell(entry.name, entry.url, entry.inputs)

    def _current(self, name: str) -> Entry | None:
        return next((one for one in self.state if one.name == name and not one.is_replaced), None)

    def _checkpoint(self, what: str, change: Any) -> None:
        """Write a change to the state; the process may be killed before or after."""
        self.world.point(f"checkpoint {what}", change)

    def _refresh(self, run: Run) -> None:
        for entry in [one for one in self.state if not one.is_replaced]:
            self._read(entry)
            run.steps.append(f"read {entry.name}")

    def _refresh_first(self, targets: frozenset[str] | None) -> None:
        for entry in [one for one in self.state if one.is_refreshed_first and not one.is_replaced]:
            if targets is None or entry.name in targets:
                self._read(entry)

    def _read(self, entry: Entry) -> None:
        shell = self._shell_of(entry)
        found = shell.read(entry.id, entry.inputs, entry.outputs)

        def written() -> None:
            if found is None:
                self.state.remove(entry)
            else:
                entry.outputs, entry.inputs = found
                entry.is_half_made, entry.is_refreshed_first = False, shell.asks_for_refresh

        self._checkpoint(f"read {entry.name}", written)

    def _register(self, program: Program, run: Run, targets: frozenset[str] | None) -> None:
        for name, properties in program.items():
            if targets is not None and name not in targets:
                continue
            if properties is FAILS:
                raise RuntimeError(f"{name} fails")
            self._step(name, properties, run)

    def _step(self, name: str, properties: Properties, run: Run) -> None:
        url = str(properties["service_url"])
        shell = self._shell(name, url, properties)
        entry = self._current(name) or self._current(self.aliases.get(name, ""))
        if entry is not None:
            entry.name = name
        news = shell.check(entry.inputs if entry else {}, properties)
        if entry is None:
            self._create(name, url, shell, news, run)
            return
        difference = shell.diff(entry.outputs, news)
        if not (difference.changes or difference.replaces or entry.is_half_made):
            entry.inputs, entry.url = news, url
            return
        if not difference.replaces:
            self._update(entry, url, shell, news, run)
            return
        if difference.delete_before_replace:
            self._delete(entry, run)
        else:
            entry.is_replaced = True
        try:
            self._create(name, url, shell, news, run)
        except BaseException:
            # It is marked only together with the creation of its successor.
            entry.is_replaced = entry.is_replaced and self._current(name) is not None
            raise

    def _update(self, entry: Entry, url: str, shell: Shell, news: Properties, run: Run) -> None:
        failed: HalfMade | None = None
        try:
            outputs = shell.update(entry.id, entry.outputs, news)
        except HalfMade as error:
            failed, outputs = error, error.outputs

        def updated() -> None:
            entry.inputs, entry.outputs, entry.url = news, outputs, url
            entry.is_half_made, entry.is_refreshed_first = failed is not None, shell.asks_for_refresh

        self._checkpoint(f"update {entry.name}", updated)
        if failed:
            raise failed
        run.steps.append(f"update {entry.name}")

    def _create(self, name: str, url: str, shell: Shell, news: Properties, run: Run) -> None:
        failed: HalfMade | None = None
        try:
            id_, outputs = shell.create(news)
        except HalfMade as error:
            failed, id_, outputs = error, error.id, error.outputs
        made = Entry(name, id_, news, outputs, url, False, failed is not None, shell.asks_for_refresh)
        self._checkpoint(f"create {name}", lambda: self.state.append(made))
        if failed:
            raise failed
        run.steps.append(f"create {name}")

    def _remove(self, program: Program, run: Run, targets: frozenset[str] | None) -> None:
        for entry in reversed(list(self.state)):
            if targets is not None and entry.name not in targets:
                continue
            if entry.is_replaced or entry.name not in program:
                self._delete(entry, run)

    def _delete(self, entry: Entry, run: Run) -> None:
        self._shell_of(entry).delete(entry.id, entry.outputs)
        self._checkpoint(f"delete {entry.name}", lambda: self.state.remove(entry))
        run.steps.append(f"delete {entry.name}")


class NativeEngine(Engine):
    """One stack with the native provider's resources."""

    shell: ClassVar[MakeShell] = NativeShell


class RefreshingEngine(NativeEngine):
    """One stack with the native provider's resources, which are read before each update."""

    shell: ClassVar[MakeShell] = RefreshingShell
