"""A running program's handling of SIGINT, of former resources, and of connections."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

import pulumi
import pytest

from eurekube_provider import EurekaMirror, EurekaSyncer, EurekubeOperator
from eurekube_provider.resources import program
from eurekube_provider.resources.program import (
    ProgramError,
    leave_quietly_when_interrupted,
    program_connection,
    refuse_aliases_of_native_component,
    warn_of_unknown_keys,
)


@pytest.fixture(autouse=True)
def interrupt() -> Iterator[None]:
    """Restore the process's handler of SIGINT after the test."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_program_of_its_own_process_leaves_quietly() -> None:
    """The program replaces the process's handler of SIGINT."""
    before = signal.getsignal(signal.SIGINT)
    leave_quietly_when_interrupted()
    assert signal.getsignal(signal.SIGINT) is not before


def test_an_inline_program_leaves_signals_alone() -> None:
    """In another thread the call neither fails nor changes the handler of SIGINT."""
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(leave_quietly_when_interrupted).result()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_key_that_nothing_reads_is_named_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt key leaves its default in place: another renewer, or no syncers at all."""
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    written = ("eurekube:operatorname", "eurekube:url", "eurekube:syncers", "shop:operatorname")

    def run() -> None:
        pulumi.runtime.set_all_config(dict.fromkeys(written, "x"))
        for _ in range(2):
            warn_of_unknown_keys()

    expected = "eurekube:operatorname is ignored: there is no such key; operatorName is one"
    for runs in 1, 2:
        Context().run(run)
        assert said == [expected] * runs


@pytest.mark.parametrize(
    ("component", "given", "native"),
    [
        (EurekubeOperator, {"eureka_urls": ["http://eureka:8761/eureka"]}, "Operator"),
        (EurekaSyncer, {"namespace": "shop", "app": "rating"}, "Syncer"),
        (EurekaMirror, {"namespace": "shop", "application": "review"}, "Mirror"),
    ],
)
def test_a_component_does_not_go_on_from_the_native_providers(
    component: Any, given: dict[str, Any], native: str
) -> None:
    """A Python component with an alias to the native provider's component is refused, in either form of
    alias.
    """
    type_ = f"eurekube:index:{native}"
    for alias in (pulumi.Alias(type_=type_), f"urn:pulumi:dev::shop::my:index:Group${type_}::it"):
        with pytest.raises(ProgramError) as raised:
            component("it", given, pulumi.ResourceOptions(aliases=[alias]))
        assert str(raised.value) == (
            f"{component.__name__} 'it': a state moves from a component of Python to the native provider's"
            f" eurekube.{native}, not back: keep eurekube.{native} in the program"
        )


def test_other_aliases_of_a_component_are_the_engines_business() -> None:
    """Aliases of another name, parent or type pass, and so does a former name of the native provider's
    component.
    """
    others = (
        pulumi.Alias(name="former"),
        pulumi.Alias(type_="my:index:Bridge"),
        "urn:pulumi:dev::a::b:c:D::e",
    )
    for former in others:
        options = pulumi.ResourceOptions(aliases=[former])
        refuse_aliases_of_native_component("eurekube:index:EurekaSyncer", "it", options)
    renamed = pulumi.ResourceOptions(aliases=["urn:pulumi:dev::shop::eurekube:index:Syncer::former"])
    refuse_aliases_of_native_component("eurekube:index:Syncer", "it", renamed)
    refuse_aliases_of_native_component("eurekube:index:EurekaSyncer", "it", None)


@pytest.mark.parametrize(
    ("connections", "expected"),
    [
        ("[pa55", "eurekube:connections must be an object"),
        ('{"eu": {"url": "http://eu:8761/eureka", "pasword": "pa55"}}', "password is one"),
    ],
)
def test_a_connection_that_no_resource_names_is_refused_as_well(
    connections: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid connection in the configuration is refused before the program creates a resource."""
    values = {"eurekube:url": "http://eureka:8761/eureka", "eurekube:connections": connections}
    monkeypatch.setattr(program, "get_config", values.get)
    with pytest.raises(ProgramError) as raised:
        program_connection()
    assert expected in str(raised.value)
    assert "pa55" not in str(raised.value)


def test_another_machines_file_is_refused_for_the_named_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing CA file of a connection is an error only if that connection is used."""
    connections = '{"eu": {"url": "https://eu:8761/eureka", "caFile": "/nowhere", "maxAnswerMib": 256}}'
    values = {"eurekube:url": "http://eureka:8761/eureka", "eurekube:connections": connections}
    monkeypatch.setattr(program, "get_config", values.get)
    assert program_connection().service_urls == ("http://eureka:8761/eureka",)
    with pytest.raises(ProgramError, match="the CA file /nowhere does not exist"):
        program_connection("eu")
