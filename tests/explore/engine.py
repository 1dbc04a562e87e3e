"""Pulumi's engine, played: the order of its steps, its state, and how a run ends.

Creations and updates come first, in the program's order; removals last, in the reverse order. A step that
fails ends the run: what comes after it does not happen, removals included. The state is written after each
step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi.dynamic import ConfigureRequest

from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.instance import InstanceProvider
from eurekube_provider.resources.program_inputs import IN_UPDATE
from tests.explore.world import Killed, World

Properties = dict[str, Any]
Program = Mapping[str, Properties]
"""The resources of a program in their order: properties by URN, of which the last part is the name. One with
``instances`` is an EurekaApplication; :data:`FAILS` is a resource of another provider that fails."""

FAILS: Properties = {"fails": True}

PREFIX = "stack/organization/explored/dev/"


_RESOURCES = (
    "eurekube_provider.resources.",
    "eurekube_provider.registrations.",
    "eurekube_provider.eureka.removal_checks",
)


@functools.cache
def memories() -> list[Any]:
    """What the plugin's process remembers: the objects that its modules make when they are imported."""
    found = {
        id(thing): thing
        for name, module in list(sys.modules.items())
        if name.startswith(_RESOURCES)
        for word, thing in vars(module).items()
        if word.isupper() and hasattr(thing, "_lock") and type(thing).__module__.startswith(_RESOURCES)
    }
    return list(found.values())


def carried(value: Any) -> Any:
    """Properties on their way between engine and plugin: copied, numbers as floats, what is None left out."""
    if isinstance(value, dict):
        return {key: carried(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [carried(each) for each in value]
    return float(value) if type(value) is int else value


class _Config:
    """The stack's configuration."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, key: str) -> str | None:
        """A value, by its whole key."""
        return self._values.get(key)


@dataclass(slots=True)
class Entry:
    """A resource in the state.

    :ivar is_replaced: its successor is there, and it is to be removed.
    """

    name: str
    id: str
    inputs: Properties
    outputs: Properties
    is_replaced: bool = False


@dataclass(slots=True)
class Run:
    """How a run went."""

    steps: list[str] = field(default_factory=list)
    error: str = ""
    killed: bool = False

    @property
    def ended_well(self) -> bool:
        """Whether all that was asked for was done."""
        return not self.error and not self.killed


class Engine:
    """One stack."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state: list[Entry] = []
        self.aliases: Mapping[str, str] = {}

    def up(self, program: Program, *, refresh: bool = False, targets: frozenset[str] | None = None) -> Run:
        """``pulumi up``, in a process of its own."""
        self._new_process()
        run = Run()
        try:
            if refresh:
                self._refresh(run)
            self._register(program, run, targets)
            self._remove(program, run, targets)
        except Killed:
            run.killed = True
        except Exception as error:  # noqa: BLE001 - whatever a provider raises ends the run
            run.error = f"{type(error).__name__}: {error}"
        return run

    def refresh(self) -> Run:
        """``pulumi refresh``, in a process of its own."""
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

    def _provider(self, properties: Properties) -> InstanceProvider | ApplicationProvider:
        provider = ApplicationProvider() if "instances" in properties else InstanceProvider()
        url = str(properties["service_url"])
        provider.configure(ConfigureRequest(_Config({"eurekube:url": url})))  # type: ignore[arg-type]
        return provider

    def _current(self, name: str) -> Entry | None:
        return next((one for one in self.state if one.name == name and not one.is_replaced), None)

    def _checkpoint(self, what: str, change: Any) -> None:
        """Write the state; the process may end before."""
        self.world.point(f"checkpoint {what}", change)

    def _refresh(self, run: Run) -> None:
        for entry in [one for one in self.state if not one.is_replaced]:
            provider = self._provider(entry.inputs)
            result = provider.read(entry.id, carried(entry.outputs))

            def written(entry: Entry = entry, result: Any = result) -> None:
                if not result.id:
                    self.state.remove(entry)
                else:
                    entry.outputs, entry.inputs = result.outs, {**entry.inputs, **(result.inputs or {})}

            self._checkpoint(f"read {entry.name}", written)
            run.steps.append(f"read {entry.name}")

    def _register(self, program: Program, run: Run, targets: frozenset[str] | None) -> None:
        for name, properties in program.items():
            if targets is not None and name not in targets:
                continue
            if properties is FAILS:
                raise RuntimeError(f"{name} fails")
            self._step(name, properties, run)

    def _step(self, name: str, properties: Properties, run: Run) -> None:
        provider = self._provider(properties)
        entry = self._current(name) or self._current(self.aliases.get(name, ""))
        if entry is not None:
            entry.name = name
        olds = carried(entry.inputs) if entry else {}
        checked = provider.check(
            olds,
            {**carried(properties), "owner": PREFIX + name.rpartition("/")[2], IN_UPDATE: True},
        )
        if checked.failures:
            raise RuntimeError("; ".join(f"{one.property}: {one.reason}" for one in checked.failures))
        news = checked.inputs
        if entry is None:
            self._create(name, provider, news, run)
            return
        difference = provider.diff(entry.id, carried(entry.outputs), carried(news))
        if not difference.changes and not difference.replaces:
            entry.inputs = news
            return
        if not difference.replaces:
            result = provider.update(entry.id, carried(entry.outputs), carried(news))

            def updated() -> None:
                entry.inputs, entry.outputs = news, result.outs or {}

            self._checkpoint(f"update {name}", updated)
            run.steps.append(f"update {name}")
            return
        if difference.delete_before_replace:
            self._delete(entry, run)
        else:
            entry.is_replaced = True
        try:
            self._create(name, provider, news, run)
        except BaseException:
            # It is marked only together with the creation of its successor.
            entry.is_replaced = entry.is_replaced and self._current(name) is not None
            raise

    def _create(
        self, name: str, provider: InstanceProvider | ApplicationProvider, news: Properties, run: Run
    ) -> None:
        result = provider.create(carried(news))
        self._checkpoint(
            f"create {name}", lambda: self.state.append(Entry(name, result.id, news, result.outs or {}))
        )
        run.steps.append(f"create {name}")

    def _remove(self, program: Program, run: Run, targets: frozenset[str] | None) -> None:
        for entry in reversed(list(self.state)):
            if targets is not None and entry.name not in targets:
                continue
            if entry.is_replaced or entry.name not in program:
                self._delete(entry, run)

    def _delete(self, entry: Entry, run: Run) -> None:
        self._provider(entry.inputs).delete(entry.id, carried(entry.outputs))
        self._checkpoint(f"delete {entry.name}", lambda: self.state.remove(entry))
        run.steps.append(f"delete {entry.name}")
