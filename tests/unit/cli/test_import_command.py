"""``eurekube import``: its output, the instances that it leaves to their owners, and the input that it
refuses.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eurekube_provider.cli.import_command import (
    ProgramResource,
    dynamic_python_program,
    format_import_file,
    native_python_program,
    native_yaml_resources,
    unique_resource_name,
)
from eurekube_provider.cli.main import main
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.registrations import registry_lists
from eurekube_provider.registrations.servers import SHARED_PEERS
from tests.unit.fake_eureka import FakeEureka, FakeServers

URL = "http://eureka:8761/eureka"


@pytest.fixture
def eureka(monkeypatch: pytest.MonkeyPatch) -> FakeEureka:
    """Return a fake server, to which EUREKA_URL leads."""
    made = FakeEureka()
    monkeypatch.setenv("EUREKA_URL", URL)
    monkeypatch.setattr(SHARED_PEERS, "get", FakeServers({URL: made}))
    monkeypatch.setattr(registry_lists, "LIST_CACHE_SECONDS", -1.0)
    return made


def there(eureka: FakeEureka, number: int, application: str = "BILLING", **metadata: str) -> Instance:
    """Register an instance as another client does."""
    marks = {key.replace("_", "."): value for key, value in metadata.items()}
    id_ = f"vm-{number}:{application.lower()}:8080"
    one = Instance(application, id_, f"vm-{number}", f"192.0.2.{number}", Port(8080), metadata=marks)
    eureka.register(one)
    return one


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Run the command successfully, and return its output and error output."""
    assert main(["import", *words]) == 0
    said = capsys.readouterr()
    return said.out, said.err


def test_a_program_and_the_file_for_pulumi_import(
    eureka: FakeEureka, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """All instances of an application without an owner become one resource and an import file; Eureka is
    not changed.
    """
    for number in (1, 2):
        there(eureka, number, zone="zone-a", tier="1")
    before = dict(eureka.held)
    file = tmp_path / "imports.json"
    out, err = printed(capsys, "billing", "--file", str(file))
    assert (eureka.held, err) == (before, "")
    assert "eurekube.Application(" in out
    assert '"vm-1:billing:8080": {' in out
    assert 'on_conflict="adopt"' in out
    assert 'renewer="self"' in out
    assert json.loads(file.read_text())["resources"] == [
        {"type": "eurekube:index:Application", "name": "billing", "id": "BILLING"}
    ]


def test_one_by_one_in_yaml(eureka: FakeEureka, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With ``--one-by-one`` each instance becomes a resource of its own."""
    for number in (1, 2):
        there(eureka, number)
    file = tmp_path / "imports.json"
    out, _ = printed(capsys, "billing", "--one-by-one", "--language", "yaml", "--file", str(file))
    resources = yaml.safe_load(out)["resources"]
    assert {each["properties"]["hostName"] for each in resources.values()} == {"vm-1", "vm-2"}
    assert {each["type"] for each in resources.values()} == {"eurekube:Instance"}
    written = json.loads(file.read_text())["resources"]
    assert {each["name"]: each["id"] for each in written} == {
        "billing-vm-1-billing-8080": "BILLING/vm-1:billing:8080",
        "billing-vm-2-billing-8080": "BILLING/vm-2:billing:8080",
    }
    assert resources.keys() == {each["name"] for each in written}


def test_the_dynamic_provider_adopts(eureka: FakeEureka, capsys: pytest.CaptureFixture[str]) -> None:
    """The dynamic provider's program adopts the instances and needs no ``pulumi import``."""
    there(eureka, 1)
    out, _ = printed(capsys, "billing", "--provider", "dynamic")
    assert "from eurekube_provider import EurekaApplication\n" in out
    assert '"on_conflict": "adopt"' in out
    assert "pulumi import" not in out


def test_what_is_somebody_elses_is_left_out(eureka: FakeEureka, capsys: pytest.CaptureFixture[str]) -> None:
    """Instances with an owner are left out and named with their owner; if no others exist, this is an
    error.
    """
    there(eureka, 1, eurekube_owner="cluster/eu/shop/rating")
    there(eureka, 2, eurekube_owner="stack/acme/shop/dev/billing")
    assert main(["import", "billing"]) == 1
    assert (
        "nothing of 'billing' can be imported: all of it belongs to the stack acme/shop/dev, the syncer"
        " shop/rating of cluster eu"
    ) in capsys.readouterr().err
    there(eureka, 3)
    out, err = printed(capsys, "billing")
    assert re.findall(r'host_name": "(.+?)"', out) == ["vm-3"]
    assert "left out BILLING/vm-1:billing:8080, which belongs to the syncer shop/rating" in err
    assert "left out BILLING/vm-2:billing:8080, which belongs to the stack acme/shop/dev" in err


def test_what_looks_like_a_credential_is_said(eureka: FakeEureka, capsys: pytest.CaptureFixture[str]) -> None:
    """Metadata that looks like a credential is reported by its key only."""
    there(eureka, 1, user_password="hidden")
    _, err = printed(capsys, "billing")
    assert "metadata user.password of billing may be credentials" in err
    assert "hidden" not in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["biling"], "Eureka lists no application 'biling' (BILLING is one)"),
        (["billing", "--file", "/nowhere/imports.json"], "--file /nowhere/imports.json: No such file"),
        (["billing", "--eureka-url", "nonsense"], "nonsense"),
        (["billing", "--eureka-url", "http://away:8761/eureka"], "no connection to http://away:8761/eureka"),
    ],
)
def test_bad_input_is_one_sentence(
    eureka: FakeEureka, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    """Invalid input ends with 1 and one sentence about the fault."""
    there(eureka, 1)
    assert main(["import", *words]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert expected in said.err
    assert said.err.count("\n") == 1


def test_a_file_that_is_there_is_not_overwritten(
    eureka: FakeEureka, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An existing file is not overwritten, and the command ends with 1."""
    there(eureka, 1)
    (tmp_path / "mine").write_text("mine")
    assert main(["import", "billing", "--file", str(tmp_path / "mine")]) == 1
    assert "File exists" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "mine"


def test_without_an_url(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a URL the message names EUREKA_URL."""
    monkeypatch.delenv("EUREKA_URL", raising=False)
    assert main(["import", "billing"]) == 1
    assert "EUREKA_URL" in capsys.readouterr().err


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
