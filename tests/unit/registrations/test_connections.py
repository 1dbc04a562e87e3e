"""How a stack's configuration and the environment become a connection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.registrations.connections import configured_connection

URL = "http://eureka:8761/eureka"
OTHER = "http://other:8761/eureka"
SECRET = "pa55-w0rd"


def connection(name: str = "default", environment: dict[str, str] | None = None, **config: Any) -> Connection:
    """The connection of this name; objects of the configuration arrive as JSON."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    return configured_connection(texts.get, environment or {}, name=name)


def test_the_configuration_wins_over_the_environment() -> None:
    """Field by field."""
    environment = {"EUREKA_URL": OTHER, "EUREKA_USER": "them", "EUREKA_PASSWORD": SECRET}
    made = connection(environment=environment, url=URL, user="us")
    assert (made.service_urls, made.user, made.password) == ((URL,), "us", SECRET)


def test_a_named_connection_has_its_own_fields_only() -> None:
    """The default one's credentials are never sent to another Eureka."""
    named = {"eu": {"url": OTHER, "user": "bridge"}}
    environment = {"EUREKA_PASSWORD": SECRET, "EUREKA_EU_PASSWORD": "eu"}
    made = connection("eu", environment, url=URL, token="t", connections=named)
    assert (made.service_urls, made.user, made.password, made.token) == ((OTHER,), "bridge", "eu", None)


def test_a_named_connection_may_come_from_the_environment_alone() -> None:
    """Its name in capitals, with underscores."""
    made = connection("eu-1", {"EUREKA_EU_1_URL": OTHER}, url=URL)
    assert made.service_urls == (OTHER,)


def test_a_states_urls_are_used_with_todays_credentials() -> None:
    """A state has no credentials, and the configuration may have moved on."""
    texts = {"connections": json.dumps({"eu": {"url": URL, "token": SECRET}})}
    made = configured_connection(texts.get, {}, service_url=OTHER, name="eu")
    assert (made.service_urls, made.token) == ((OTHER,), SECRET)


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
def test_what_cannot_be_used_is_told_without_any_value_of_it(
    name: str, config: dict[str, Any], sentence: str
) -> None:
    """One sentence that says what to do, and never a secret."""
    with pytest.raises(ConfigurationError) as raised:
        connection(name, **config)
    assert sentence in str(raised.value)
    assert SECRET not in str(raised.value)
