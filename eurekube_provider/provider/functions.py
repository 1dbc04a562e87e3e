"""The functions of the package, by which a program in any language reads Eureka or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.wording import suggest_name
from eurekube_provider.provider.configuration import Configuration
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION_NAME, configured_connection
from eurekube_provider.registrations.discovered import (
    FieldMapping,
    find_application,
    find_endpoints,
    find_instance,
    to_plain_data,
)
from eurekube_provider.registrations.names import to_camel_case
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.servers import SHARED_PEERS


def invoke(
    token: str, arguments: Mapping[str, Any], configuration: Configuration, *, is_preview: bool
) -> Properties:
    """Call a function of the package, and return its result; no value in it is an output.

    :raises EurekubeError: there is no such function, an argument or an offline answer is missing, or nobody
        can be asked.
    """
    function = FUNCTIONS_BY_TOKEN.get(token)
    if function is None:
        raise ConfigurationError(
            f"there is no function {token!r} (there are {', '.join(FUNCTIONS_BY_TOKEN)})"
        )
    if is_preview and configuration.is_offline:
        return _offline_answer(token, arguments)
    return function(arguments, configuration)


def _offline_answer(token: str, arguments: Mapping[str, Any]) -> Properties:
    """Return the argument ``offline`` as an offline preview's result, since the engine takes no unknown value
    from a function; missing fields are empty.
    """
    answer = arguments.get("offline")
    if not isinstance(answer, Mapping):
        raise ConfigurationError(
            f"{token} asks nobody in an offline preview (eurekube:offline or EUREKUBE_OFFLINE): give it what"
            " it is to answer then, as its argument offline ({} for nothing), or run it with the servers in"
            " reach"
        )
    nothing = _EMPTY_ANSWERS_BY_TOKEN[token]
    unknown = sorted(answer.keys() - nothing.keys() - {"instance"})
    if unknown:
        raise ConfigurationError(
            f"offline: {token} answers no {unknown[0]!r}; {suggest_name(unknown[0], nothing)}"
        )
    return {name: answer.get(name, arguments.get(name, empty)) for name, empty in nothing.items()} | dict(
        answer
    )


def _in_camel_case(found: Any) -> Any:
    """Return an answer with the schema's names; keys of maps stay."""
    if isinstance(found, FieldMapping):
        return {to_camel_case(name): _in_camel_case(item) for name, item in found.items()}
    return [_in_camel_case(item) for item in found] if isinstance(found, tuple) else to_plain_data(found)


def _get_application(arguments: Mapping[str, Any], configuration: Configuration) -> Properties:
    found = find_application(_peers(arguments, configuration), _required_text(arguments, "name"))
    return {**_in_camel_case(found), "up": _in_camel_case(found.up)}


def _get_instance(arguments: Mapping[str, Any], configuration: Configuration) -> Properties:
    peers = _peers(arguments, configuration)
    found = find_instance(
        peers, _required_text(arguments, "application"), _required_text(arguments, "instance_id")
    )
    return {"exists": found is not None, "instance": _in_camel_case(found)}


def _get_endpoints(arguments: Mapping[str, Any], configuration: Configuration) -> Properties:
    found = find_endpoints(
        _required_text(arguments, "service"),
        _required_text(arguments, "namespace"),
        arguments.get("kubeconfig") or configuration("kubeconfig"),
        arguments.get("context") or configuration("context"),
    )
    return {**_in_camel_case(found), "ready": _in_camel_case(found.ready)}


def _peers(arguments: Mapping[str, Any], configuration: Configuration) -> Any:
    name = arguments.get("connection") or DEFAULT_CONNECTION_NAME
    return SHARED_PEERS.get(configured_connection(configuration, name=name))


def _required_text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} is required: a text that is not empty")
    return value


FUNCTIONS_BY_TOKEN: Mapping[str, Callable[[Mapping[str, Any], Configuration], Properties]] = {
    "eurekube:index:getApplication": _get_application,
    "eurekube:index:getInstance": _get_instance,
    "eurekube:index:getEndpoints": _get_endpoints,
}

_EMPTY_ANSWERS_BY_TOKEN: Mapping[str, Properties] = {
    "eurekube:index:getApplication": {"name": "", "instances": [], "up": []},
    "eurekube:index:getInstance": {"exists": False},
    "eurekube:index:getEndpoints": {"namespace": "", "service": "", "endpoints": [], "ready": []},
}
