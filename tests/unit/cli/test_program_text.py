"""Printed programs: values from Eureka are escaped, whatever they contain."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eurekube_provider.cli.program_text import (
    ProgramResource,
    dynamic_python_program,
    format_import_file,
    native_python_program,
    native_yaml_resources,
    unique_resource_name,
)

NASTY = '"); import os; os.abort() #\n\u202e${pulumi.organization}\\'

TEXTS = st.text(max_size=20)
PROPERTIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "application": TEXTS,
        "port": st.integers(1, 65535),
        "metadata": st.dictionaries(TEXTS, TEXTS, max_size=3),
    },
    optional={"instances": st.dictionaries(TEXTS, st.fixed_dictionaries({"host_name": TEXTS}), max_size=2)},
)


def resources_of(properties: dict[str, Any]) -> list[ProgramResource]:
    """Return a list with one resource of these properties."""
    return [ProgramResource("Application", "billing", "BILLING", properties)]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(PROPERTIES)
def test_a_native_program_has_nothing_but_keywords_and_values(properties: dict[str, Any]) -> None:
    """The program for the native provider is one call, whose keyword arguments are the given properties."""
    (_, call) = ast.parse(native_python_program(resources_of(properties))).body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert ast.literal_eval(call.value.args[0]) == "billing"
    assert {each.arg: ast.literal_eval(each.value) for each in call.value.keywords} == properties


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(PROPERTIES)
def test_a_dynamic_program_has_nothing_but_a_dictionary(properties: dict[str, Any]) -> None:
    """The program for the dynamic provider is one call with a dictionary of the given properties."""
    (_, call) = ast.parse(dynamic_python_program(resources_of(properties))).body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert [ast.literal_eval(each) for each in call.value.args] == ["billing", properties]


def test_a_program_in_yaml_refers_to_nothing() -> None:
    """In YAML ``${`` in values is escaped, and keys of metadata and instances are not renamed as
    properties are.
    """
    asked = {"host_name": NASTY, "metadata": {"a_b": NASTY}, "instances": {"a_b": {"host_name": "1"}}}
    (resource,) = yaml.safe_load(native_yaml_resources(resources_of(asked)))["resources"].values()
    escaped = NASTY.replace("${", "$${")
    assert resource == {
        "type": "eurekube:Application",
        "properties": {
            "hostName": escaped,
            "metadata": {"a_b": escaped},
            "instances": {"a_b": {"hostName": "1"}},
        },
    }


def test_a_program_is_ascii() -> None:
    """Programs are printable ASCII, so that no character reorders or imitates letters."""
    asked = {"application": NASTY, "metadata": {NASTY: NASTY}}
    for write in (native_python_program, dynamic_python_program, native_yaml_resources):
        text = write(resources_of(asked))
        assert text.isascii()
        assert text.replace("\n", "").isprintable()


def test_the_file_for_pulumi_import() -> None:
    """The import file has type, name and id of each resource."""
    assert json.loads(format_import_file(resources_of({}))) == {
        "resources": [{"type": "eurekube:index:Application", "name": "billing", "id": "BILLING"}]
    }


@pytest.mark.parametrize(
    ("text", "taken", "expected"),
    [
        ("vm-17:billing:8080", (), "vm-17-billing-8080"),
        ("a b::c", ("a-b-c", "a-b-c-2"), "a-b-c-3"),
        ("::", (), "unnamed"),
    ],
)
def test_a_name_for_a_resource(text: str, taken: tuple[str, ...], expected: str) -> None:
    """A resource name consists of letters, digits and dashes, and is unique."""
    assert unique_resource_name(text, taken) == expected
