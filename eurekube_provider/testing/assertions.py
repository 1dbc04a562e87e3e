"""Assertions about registered instances; a failed assertion prints the difference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

from eurekube_provider.core.wording import suggest_name
from eurekube_provider.registrations.discovered import FoundInstance

ExpectedInstances = Mapping[str, Mapping[str, Any]]
"""Expected instances by id, each with the fields to compare: names and values of :class:`FoundInstance`.

Of ``metadata`` only the given keys are compared. A key whose value is None must be absent.
"""

_INSTANCE_FIELD_NAMES = [each.name for each in fields(FoundInstance)]


class RegistrationAssertions(ABC):
    """A base class with assertions about registered instances, for sources that can list them."""

    @abstractmethod
    def instances_by_place(self) -> Mapping[str, Sequence[FoundInstance]]:
        """Return all registered instances by place: a server's URL, or the program."""

    def instances(self, application: str = "") -> list[FoundInstance]:
        """Return the registered instances, or those of one application; each once, sorted by id."""
        held: dict[tuple[str, str], FoundInstance] = {}
        for one in chain.from_iterable(self.instances_by_place().values()):
            held.setdefault((one.application, one.instance_id), one)
        return [held[key] for key in sorted(held) if application.upper() in ("", key[0])]

    def assert_registered(self, application: str, expected: ExpectedInstances | None = None) -> None:
        """Require that the instances of an application are these and no others, at every server.

        :param expected: the instances by id; None to require only that there is at least one.
        :raises AssertionError: with the difference, server by server.
        :raises ValueError: ``expected`` names a field that no instance has.
        """
        __tracebackhide__ = True
        if difference := self._describe_differences(application, expected):
            raise AssertionError(difference)

    def assert_not_registered(self, application: str) -> None:
        """Require that an application has no instance at any server.

        :raises AssertionError: with the instances that are registered.
        """
        __tracebackhide__ = True
        self.assert_registered(application, {})

    def _describe_differences(self, application: str, expected: ExpectedInstances | None) -> str:
        """Return the differences from ``expected``, server by server; empty without any."""
        for wrong in {name for each in (expected or {}).values() for name in each} - {*_INSTANCE_FIELD_NAMES}:
            raise ValueError(
                f"an instance has no field {wrong!r}: {suggest_name(wrong, _INSTANCE_FIELD_NAMES)}"
            )
        places: dict[str, list[str]] = {}
        for place, registered in self.instances_by_place().items():
            found = {one.instance_id: one for one in registered if one.application == application.upper()}
            if differing := list(_instance_differences(expected, found)):
                counts = Counter(one.application for one in registered)
                there = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
                text = "\n".join((*differing, f"  registered there: {there or 'nothing'}"))
                places.setdefault(text, []).append(place)
        return "\n".join(
            f"{application.upper()} at {', '.join(each)} is not as expected:\n{text}"
            for text, each in places.items()
        )


def _instance_differences(
    expected: ExpectedInstances | None, found: Mapping[str, FoundInstance]
) -> Iterator[str]:
    if expected is None:
        yield from () if found else ("- any instance: expected, not registered",)
        return
    for id_ in sorted({*expected, *found}):
        if id_ not in found:
            yield f"- {id_}: expected, not registered"
        elif id_ not in expected:
            one = found[id_]
            yield f"+ {id_}: registered, not expected: {one.status} at {one.host_name}:{one.port}"
        else:
            for name, want in expected[id_].items():
                yield from _field_differences(f"! {id_}: {name}", want, getattr(found[id_], name))


def _field_differences(where: str, want: Any, held: Any) -> Iterator[str]:
    if isinstance(want, Mapping) and isinstance(held, Mapping):
        for key, value in want.items():
            yield from _field_differences(f"{where}.{key}", value, held.get(key))
    elif want != held:
        yield f"{where} is {held!r}, expected {want!r}"
