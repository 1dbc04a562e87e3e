"""Random syncers, drawn from their CRD, end with the same registrations as a fresh start with the last
specs.
"""

from __future__ import annotations

import copy
import logging
import random
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.core.syncer import Syncer
from tests.explore import sides
from tests.explore.operator import syncers
from tests.explore.operator.schema import (
    NOT_DRAWN,
    UnknownField,
    check_known,
    drawn,
    refusals,
    spec_schema,
    with_defaults,
)
from tests.explore.operator.world import owned
from tests.system.test_crd import RULES

SEQUENCES = 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging, since lost requests are logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_end_is_that_of_a_fresh_start() -> None:
    """Earlier specs and faults make no difference to the final registrations."""
    with owned():
        for seed in range(SEQUENCES):
            assert not (failure := syncers.tried(seed)), failure


def test_every_field_of_the_crd_is_drawn() -> None:
    """A field that the CRD gains later is drawn without being named here."""
    draw = random.Random(1)  # noqa: S311 - a test
    specs = [drawn(draw, spec_schema()) for _ in range(600)]
    assert {name for spec in specs for name in _paths(spec)} >= set(_fields(spec_schema())) - NOT_DRAWN


def test_what_the_api_server_takes_the_operator_can_read() -> None:
    """The operator can read each spec that the CRD's rules accept."""
    draw = random.Random(2)  # noqa: S311 - a test
    for _ in range(300):
        spec = drawn(draw, spec_schema())
        Syncer.from_object({"metadata": {"namespace": "shop", "name": "a"}, "spec": spec})


@pytest.mark.parametrize(("spec", "message"), RULES)
def test_what_the_api_server_refuses_is_not_drawn(spec: dict[str, Any], message: str) -> None:
    """The generator refuses the same specs as the CRD's rules do."""
    schema = spec_schema()
    assert any(message in one for one in refusals(schema, with_defaults(schema, spec)))


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "pattern": "^a$"},
        {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'a'", "message": "not a"}]},
        {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self.matches('^[0-9]+$')", "message": "a"}],
        },
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"type": "number"},
    ],
)
def test_a_field_that_cannot_be_drawn_fails_loudly(field: dict[str, Any]) -> None:
    """A schema keyword, rule or type that the generator does not know raises an error."""
    schema: Any = copy.deepcopy(spec_schema())
    check_known(schema)
    schema["properties"]["another"] = field
    schema["required"] = [*schema["required"], "another"]
    with pytest.raises(UnknownField, match="another"):
        _draw_known(schema)


def test_a_syncer_that_is_not_heeded_any_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explorer finds an operator that ignores changed contents, and its replay shows the same failure."""
    monkeypatch.setattr("eurekube_provider.core.plan.same_contents_but_status", lambda *_: True)
    with owned():
        failure = next(filter(None, map(syncers.tried, range(10, 40))))
    assert "and after a fresh start" in failure
    replayed = shlex.split(re.findall("^replay: (.*)$", failure, re.MULTILINE)[0])[-1]
    assert sides.replayed(replayed) == failure


def _draw_known(schema: Any) -> None:
    check_known(schema)
    drawn(random.Random(1), schema)  # noqa: S311 - a test


def _fields(schema: Any, path: str = "") -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield f"{path}{name}"
        yield from _fields(child, f"{path}{name}.")


def _paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield f"{path}{name}"
            yield from _paths(child, f"{path}{name}.")
