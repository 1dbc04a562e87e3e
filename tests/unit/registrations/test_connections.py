"""Connections made from a stack's configuration and the environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.registrations.connections import configured_connection, connection_problems

URL = "http://eureka:8761/eureka"
OTHER = "http://other:8761/eureka"
SECRET = "pa55-w0rd"


@dataclass(frozen=True)
class Configured:
    """A configuration with an environment of its own."""

    texts: dict[str, str]
    environment: dict[str, str]

    def __call__(self, name: str) -> str | None:
        """Return a setting's text, or None."""
        return self.texts.get(name)


def connection(name: str = "default", environment: dict[str, str] | None = None, **config: Any) -> Connection:
    """Return the connection of this name; values that are not texts are encoded as JSON, as by Pulumi."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    return configured_connection(Configured(texts, environment or {}), name=name)


def test_the_configuration_wins_over_the_environment() -> None:
    """Each field of the default connection is taken from the configuration first."""
    environment = {"EUREKA_URL": OTHER, "EUREKA_USER": "them", "EUREKA_PASSWORD": SECRET}
    made = connection(environment=environment, url=URL, user="us")
    assert (made.service_urls, made.user, made.password) == ((URL,), "us", SECRET)


def test_a_line_end_is_no_part_of_a_credential() -> None:
    """A variable or value that was filled from a file has the file's line end."""
    environment = {"EUREKA_URL": URL, "EUREKA_USER": "us\n", "EUREKA_PASSWORD": f"{SECRET}\r\n"}
    for made in (connection(environment=environment), connection(url=URL, user="us", password=f"{SECRET}\n")):
        assert (made.user, made.password) == ("us", SECRET)


def test_a_named_connection_has_its_own_fields_only() -> None:
    """The default connection's credentials are never sent to another Eureka."""
    named = {"eu": {"url": OTHER, "user": "bridge"}}
    environment = {"EUREKA_PASSWORD": SECRET, "EUREKA_EU_PASSWORD": "eu"}
    made = connection("eu", environment, url=URL, token="t", connections=named)
    assert (made.service_urls, made.user, made.password, made.token) == ((OTHER,), "bridge", "eu", None)


def test_a_named_connection_may_come_from_the_environment_alone() -> None:
    """The variable contains the connection's name in capitals, with underscores."""
    made = connection("eu-1", {"EUREKA_EU_1_URL": OTHER}, url=URL)
    assert made.service_urls == (OTHER,)


def test_a_states_urls_are_used_with_todays_credentials() -> None:
    """A state keeps the URLs without credentials, and the configured URL may have changed since."""
    texts = {"connections": json.dumps({"eu": {"url": URL, "token": SECRET}})}
    made = configured_connection(Configured(texts, {}), service_url=OTHER, name="eu")
    assert (made.service_urls, made.token) == ((OTHER,), SECRET)


def test_the_largest_answer_of_a_named_connection_may_be_a_number() -> None:
    """``pulumi config set --path`` writes ``maxAnswerMib`` as a number, which the engine converts to a
    float.
    """
    for size in (256, 256.0, "256"):
        made = connection("eu", connections={"eu": {"url": URL, "maxAnswerMib": size}})
        assert made.max_answer_mib == 256


def test_a_missing_secret_file_is_reported_for_the_used_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file may exist only on machines that use the connection."""
    monkeypatch.setenv("EUREKA_EU_PASSWORD_FILE", "/nowhere")
    named = {"eu": {"url": URL, "user": "bridge"}}
    assert connection_problems({"connections": json.dumps(named)}.get) == []
    with pytest.raises(ConfigurationError, match="EUREKA_EU_PASSWORD_FILE: /nowhere cannot be read"):
        configured_connection({"connections": json.dumps(named)}.get, name="eu")


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("default", {}, "no Eureka URL is configured"),
        ("eu", {"url": URL}, "there is no connection 'eu' (there are default): pulumi config set --path"),
        ("us", {"connections": {"eu": {"url": URL}}}, "(there are default, eu)"),
        ("eu", {"connections": {"eu": {"user": "me"}}}, "the connection 'eu' has no URL"),
        ("eu", {"connections": {"eu": {"url": URL, "pasword": SECRET}}}, "password is one"),
        ("eu", {"connections": {"eu": {"url": URL, "password": [SECRET]}}}, "must be a text"),
        ("eu", {"connections": {"eu": SECRET}}, "eurekube:connections.eu must be an object"),
        ("eu", {"connections": f"[{SECRET}"}, "eurekube:connections must be an object"),
        ("eu", {"connections": {"default": {"url": URL}}}, "call this connection otherwise"),
        ("eu", {"connections": {"eu": {"url": URL, "caFile": "/nowhere"}}}, "does not exist"),
    ],
)
def test_what_cannot_be_used_is_reported_without_any_value_of_it(
    name: str, config: dict[str, Any], sentence: str
) -> None:
    """The one-sentence error gives the remedy, and contains no secret."""
    with pytest.raises(ConfigurationError) as raised:
        connection(name, **config)
    assert sentence in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("connections", "sentences"),
    [
        ({}, []),
        ({"eu": {"url": URL, "user": "bridge", "password": SECRET}, "us": {"url": OTHER}}, []),
        ({"eu": {"user": "bridge", "password": SECRET}}, []),  # for the URLs of a state
        (f"[{SECRET}", ["eurekube:connections must be an object"]),
        ([URL], ["eurekube:connections must be an object"]),
        (
            {"eu": {"url": URL, "pasword": SECRET}, "us": {"url": OTHER, "password": [SECRET]}},
            [
                "connections.eu: there is no field 'pasword'; password is one",
                "connections.us.password must be a",
            ],
        ),
        ({"eu": {"url": SECRET}}, ["connections.eu: the Eureka URL '[secret]' cannot be used"]),
        ({"eu": {"url": URL, "user": "u", "token": SECRET}}, ["connections.eu: Eureka takes a user"]),
        ({"eu": {"url": URL, "mode": SECRET}}, ["connections.eu: the Eureka mode '[secret]'"]),
        ({"eu": {"url": URL, "caFile": "/nowhere"}}, []),  # on the machine of those that use it
        (
            {"eu": {"url": URL, "caFile": "/nowhere", "maxAnswerMib": "0"}},
            ["connections.eu: Eureka's max-answer-mib '0'"],
        ),
        (
            {"eu": {"url": URL, "clientKey": "/nowhere"}},
            ["connections.eu: a client key is of no use without"],
        ),
        ({"eu": {"url": URL, "maxAnswerMib": 256}}, []),
        ({"eu": {"url": URL, "maxAnswerMib": 256.0}}, []),
        ({"eu": {"url": URL, "maxAnswerMib": 0.5}}, ["connections.eu.maxAnswerMib must be a text"]),
        ({"eu": {"url": URL, "maxAnswerMib": True}}, ["connections.eu.maxAnswerMib must be a text"]),
        ({"eu": {"url": URL, "maxAnswerMib": 5000}}, ["connections.eu: Eureka's max-answer-mib '5000'"]),
        ({"default": {"url": URL}}, ["call this connection otherwise"]),
        ({"eu": None}, []),
        ({"eu": SECRET}, ["eurekube:connections.eu must be an object"]),
    ],
)
def test_all_connections_are_looked_at_whether_used_or_not(connections: Any, sentences: list[str]) -> None:
    """Each invalid connection yields one sentence, without a value that may be a credential."""
    text = connections if isinstance(connections, str) else json.dumps(connections)
    found = connection_problems({"url": URL, "connections": text}.get)
    assert len(found) == len(sentences)
    for problem, sentence in zip(found, sentences, strict=True):
        assert sentence in problem
        assert SECRET not in problem
        assert problem.startswith("eurekube:connections")
