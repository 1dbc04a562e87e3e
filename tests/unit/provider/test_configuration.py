"""The native provider's configuration, and the connections that follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.provider.configuration import (
    CONFIGURATION_KEYS,
    KEYS_OF_PROJECT_PROGRAM,
    Configuration,
)
from eurekube_provider.registrations.connections import CONFIGURATION_KEY_NAMES, configured_connection
from eurekube_provider.registrations.values import UNKNOWN

URL = "http://eureka:8761/eureka"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a Eureka's URL and credentials in the environment."""
    monkeypatch.setenv("EUREKA_URL", "http://from-environment:8761/eureka")
    monkeypatch.setenv("EUREKA_USER", "somebody")
    monkeypatch.setenv("EUREKA_PASSWORD", "hidden")


def test_a_programs_provider_ignores_credentials_in_the_environment() -> None:
    """The environment's credentials belong to another Eureka than the explicit provider's URL."""
    own = configured_connection(Configuration({"url": URL}, is_default_provider=False))
    assert (own.service_urls, own.user, own.password) == ((URL,), None, None)
    stacks = configured_connection(Configuration({"url": URL}))
    assert (stacks.user, stacks.password) == ("somebody", "hidden")


def test_a_provider_without_a_url_is_the_environments() -> None:
    """Without a URL the whole connection comes from the environment; with a URL nothing does."""
    found = configured_connection(Configuration({}, is_default_provider=False))
    assert (found.service_urls, found.user) == (("http://from-environment:8761/eureka",), "somebody")


def test_named_connections_are_an_object_or_its_text() -> None:
    """``connections`` may be an object, or its JSON text as an SDK sends it."""
    for written in ({"eu": {"url": URL}}, f'{{"eu": {{"url": "{URL}"}}}}'):
        found = configured_connection(Configuration({"connections": written}), name="eu")
        assert found.service_urls == (URL,)


def test_a_connection_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is cached by its name, and by the URLs of a state."""
    configuration = Configuration({"url": URL, "connections": {"eu": {"url": "http://eu:8761/eureka"}}})
    one = configured_connection(configuration)
    assert configured_connection(configuration) is one
    other = "http://other:8761/eureka"
    assert configured_connection(configuration, service_url=other).service_urls == (other,)
    assert configured_connection(configuration, name="eu").service_urls == ("http://eu:8761/eureka",)
    monkeypatch.setenv("EUREKA_PASSWORD", "another")
    assert configured_connection(Configuration({"url": URL})).password == "another"


def test_a_secret_in_a_file_is_read_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A secret's file may change while a long update waits for its drains."""
    file = tmp_path / "password"
    monkeypatch.setenv("EUREKA_PASSWORD_FILE", str(file))
    configuration = Configuration({"url": URL})
    for password in ("first", "second"):
        file.write_text(password)
        assert configured_connection(configuration).password == password


@pytest.mark.parametrize(
    ("values", "property_", "expected"),
    [
        ({"url": "eureka"}, "url", "must look like http://host:8761/eureka"),
        ({"pasword": "x"}, "pasword", "password is one"),
        ({"url": URL, "user": "u", "token": "t"}, "url", "not both"),
        ({"organization": "a/b"}, "organization", "no slash"),
        ({"offline": "maybe"}, "offline", "true or false"),
        ({"refreshBeforeUpdate": "maybe"}, "refreshBeforeUpdate", "true or false"),
        ({"abandonedUrls": "{}"}, "abandonedUrls", ""),
        ({"url": URL, "connections": "[hidden"}, "connections", "connections must be an object"),
        ({"connections": {"eu": {"url": URL, "pasword": "hidden"}}}, "connections", "password is one"),
        ({"connections": {"eu": {"url": UNKNOWN, "pasword": "hidden"}}}, "connections", "password is one"),
    ],
)
def test_what_cannot_be_used_is_refused(values: dict[str, Any], property_: str, expected: str) -> None:
    """The problem names the key and a valid value, and contains no secret."""
    (problem,) = Configuration(values, is_default_provider=False).problems()
    assert problem.property == property_
    assert expected in problem.reason
    assert "hidden" not in problem.reason


def test_a_stack_may_have_the_keys_of_this_projects_program() -> None:
    """The default provider accepts the program's own keys in the namespace ``eurekube``; an explicit
    provider refuses them.
    """
    described = yaml.safe_load((Path(__file__).parents[3] / "Pulumi.yaml").read_text())["config"]
    assert described.keys() - CONFIGURATION_KEYS.keys() == KEYS_OF_PROJECT_PROGRAM
    values = {**dict.fromkeys(KEYS_OF_PROJECT_PROGRAM, "x"), "url": URL}
    assert Configuration(values).problems() == []
    refused = {one.property for one in Configuration(values, is_default_provider=False).problems()}
    assert refused == KEYS_OF_PROJECT_PROGRAM
    assert {*CONFIGURATION_KEYS, *KEYS_OF_PROJECT_PROGRAM} == CONFIGURATION_KEY_NAMES


def test_what_is_not_known_yet_is_not_refused() -> None:
    """A URL may be unknown in a preview, if the program creates that server."""
    assert Configuration({"url": UNKNOWN, "password": UNKNOWN}, is_default_provider=False).problems() == []


def test_what_is_not_known_within_an_object_is_not_refused() -> None:
    """A named connection's URL may be unknown in a preview, if the program creates that server."""
    values = {"url": URL, "connections": {"eu": {"url": UNKNOWN}}, "abandonedUrls": [UNKNOWN]}
    configuration = Configuration(values, is_default_provider=False)
    assert configuration.problems() == []
    assert configuration("connections") is None


@pytest.mark.parametrize(
    ("values", "hidden"),
    [
        ({"url": URL, "user": "me", "connections": {"eu": {"url": URL, "user": "me"}}}, set()),
        ({"url": URL, "password": "x", "proxy": "http://proxy:3128"}, {"password", "proxy"}),
        ({"url": "http://me:hidden@eureka:8761/eureka"}, {"url"}),
        ({"url": URL, "connections": {"eu": {"url": UNKNOWN, "token": "hidden"}}}, {"connections"}),
        ({"url": URL, "connections": '{"eu": {"url": "http://me:hidden@eu:8761"}}'}, {"connections"}),
        ({"url": URL, "connections": {"eu": {"url": URL, "pasword": "hidden"}}}, {"connections"}),
        (
            {"url": URL, "connections": {"eu": {"url": URL, "proxy": "http://me:hidden@proxy"}}},
            {"connections"},
        ),
        ({"url": URL, "connections": "[hidden"}, {"connections"}),
        ({"url": URL, "connections": UNKNOWN}, {"connections"}),
    ],
)
def test_what_holds_a_credential_is_a_secret(values: dict[str, Any], hidden: set[str]) -> None:
    """A key with a credential, in a URL or a field, becomes secret although the program wrote it in clear."""
    assert Configuration(values, is_default_provider=False).secret_keys() == hidden
