"""A generator of EurekaSyncer specs that the CRD accepts, and a check of refused ones.

The values follow the schema's own types, enums, bounds and rules, so that a new field is drawn without being
named here. An unknown rule or type raises instead of being ignored.
"""

from __future__ import annotations

import copy
import functools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Schema = Mapping[str, Any]

_CRD = Path(__file__).parents[3] / "crds" / "eurekasyncers.eurekube.io.yaml"
_MATCHES = re.compile(r"(!?)self\.matches\('(.*)'\)")


def _keys_match(pattern: str, longest: int) -> Callable[[Any], bool]:
    return lambda value: all(len(key) <= longest and re.search(pattern, key) for key in value)


_RULES: dict[str, Callable[[Any], bool]] = {
    (
        "has(self.application) || has(self.selector.app) || has(self.selector.service) ||"
        " has(self.selector.services)"
    ): lambda spec: (
        "application" in spec or not {"app", "service", "services"}.isdisjoint(spec.get("selector", {}))
    ),
    (
        "!has(self.selector.services) || !has(self.application) || self.application.contains('{service}')"
    ): lambda spec: (
        "services" not in spec.get("selector", {}) or "{service}" in spec.get("application", "{service}")
    ),
    "has(self.selector.services) || !has(self.application) || !self.application.contains('{')": lambda spec: (
        "services" in spec.get("selector", {}) or "{" not in spec.get("application", "")
    ),
    (
        "!has(self.selector.services) || !(has(self.vipAddress) || has(self.secureVipAddress) ||"
        " has(self.address))"
    ): lambda spec: (
        "services" not in spec.get("selector", {})
        or {"vipAddress", "secureVipAddress", "address"}.isdisjoint(spec)
    ),
    "has(self.selector.services) || !has(self.annotations)": lambda spec: (
        "services" in spec.get("selector", {}) or "annotations" not in spec
    ),
    # of changes, where what stood before is known
    "has(self.selector.services) == has(oldSelf.selector.services)": lambda _: True,
    "!has(self.advertise) || (self.mode == 'pod') == (self.advertise == 'HostPort')": lambda spec: (
        "advertise" not in spec or (spec.get("mode") == "pod") == (spec["advertise"] == "HostPort")
    ),
    "!has(self.address) || (self.mode == 'service' && !has(self.advertise))": lambda spec: (
        "address" not in spec or (spec.get("mode") == "service" and "advertise" not in spec)
    ),
    "!has(self.nodes) || (has(self.advertise) && self.advertise == 'NodePort')": lambda spec: (
        "nodes" not in spec or spec.get("advertise") == "NodePort"
    ),
    "self.mode == 'pod' || !has(self.metadataFromPodLabels)": lambda spec: (
        spec.get("mode") == "pod" or "metadataFromPodLabels" not in spec
    ),
    "!has(self.healthCheckPort) || has(self.healthCheckPath)": lambda spec: (
        "healthCheckPort" not in spec or "healthCheckPath" in spec
    ),
    "self.mode == 'pod' || self.onTermination == 'Deregister'": lambda spec: (
        spec.get("mode") == "pod" or spec["onTermination"] == "Deregister"
    ),
    (
        "!has(self.removeDeadSelfRegistered) || !self.removeDeadSelfRegistered ||"
        " (self.mode == 'pod' && self.policy == 'Sync')"
    ): lambda spec: (
        not spec.get("removeDeadSelfRegistered") or (spec["mode"] == "pod" and spec["policy"] == "Sync")
    ),
    "self.policy == 'Sync' || self.notReady == 'Down'": lambda spec: (
        spec["policy"] == "Sync" or spec["notReady"] == "Down"
    ),
    "!has(self.port) || !has(self.securePort) || string(self.port) != string(self.securePort)": lambda spec: (
        "port" not in spec or "securePort" not in spec or str(spec["port"]) != str(spec["securePort"])
    ),
    "has(self.app) || has(self.matchLabels) || has(self.service) || has(self.services)": lambda value: (
        not {"app", "matchLabels", "service", "services"}.isdisjoint(value)
    ),
    "!has(self.service) || !(has(self.app) || has(self.matchLabels))": lambda value: (
        "service" not in value or {"app", "matchLabels"}.isdisjoint(value)
    ),
    (
        "!has(self.services) || !(has(self.app) || has(self.matchLabels) || has(self.service) ||"
        " has(self.namespace))"
    ): lambda value: (
        "services" not in value or {"app", "matchLabels", "service", "namespace"}.isdisjoint(value)
    ),
    "self.durationSeconds > self.renewalIntervalSeconds": lambda lease: (
        lease["durationSeconds"] > lease["renewalIntervalSeconds"]
    ),
    (
        "self.all(key, size(key) <= 317 &&"
        " key.matches('^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))"
    ): _keys_match(r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z", 317),
    "self.all(key, size(key) <= 253 && key.matches('^[A-Za-z][A-Za-z0-9.-]*$'))": _keys_match(
        r"^[A-Za-z][A-Za-z0-9.-]*\Z", 253
    ),
    "self.all(key, !key.startsWith('eurekube.'))": lambda value: (
        not any(key.startswith("eurekube.") for key in value)
    ),
    "self.map(key, size(bytes(key)) + size(bytes(self[key]))).sum() <= 4096": lambda value: (
        sum(len(f"{key}{one}".encode()) for key, one in value.items()) <= 4096
    ),
    "type(self) != string || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')": lambda value: (
        not isinstance(value, str) or bool(re.search(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z", value))
    ),
    "type(self) != string || self == 'Computed'": lambda value: (
        not isinstance(value, str) or value == "Computed"
    ),
}
"""Python versions of the CEL rules that are more than a pattern, by their text."""

_KNOWN = {
    "type", "description", "default", "enum", "format", "required", "properties", "additionalProperties",
    "items", "anyOf", "minimum", "maximum", "minLength", "maxLength", "maxItems", "minProperties",
    "maxProperties", "x-kubernetes-validations", "x-kubernetes-int-or-string", "x-kubernetes-list-type",
}  # fmt: skip
"""Keywords of a schema that the generator knows."""

_STRINGS = ("one", "other", "/one", "/other")
"""Texts from which a value is drawn, if the field's rules accept it."""

_TELLING: dict[str, tuple[Any, ...]] = {
    "mode": ("pod", "pod", "pod", "service"),
    "selector.namespace": ("shop",),
    "selector.app": ("rating", "rating", "rating", "stars", "stars", "nothing"),
    "selector.service": ("rating", "rating", "nothing"),
    "selector.matchLabels": ({"tier": "web"}, {"tier": "web"}, {"tier": "web"}, {"tier": "none"}),
    "application": ("rating", "stars", "billing"),
    "vipAddress": ("rating", "stars", "rating,stars", "billing"),
    "secureVipAddress": ("rating", "stars"),
    "port": ("http", 8080, 80, 9090),
    "securePort": ("https", 8443),
    "metadataFromLabels": (["tier"], ["tier", "app"]),
    "metadataFromPorts": ({"management.port": "http"}, {"management.port": "admin"}),
    "metadataFromAnnotations": ({"team": "example.com/team"},),
    "healthCheckPort": ("http", "admin", 8080),
    "readinessGate.callersSeconds": ("Computed", 0, 60),
    "lease.renewalIntervalSeconds": (10, 30),
    "lease.durationSeconds": (60, 90, 300),
    "eureka": ("default", "other", "nowhere"),
}
"""Values that have a meaning in the model's cluster, by field, where a random value would have none."""

NOT_DRAWN = frozenset({"selector.services", "annotations"})
"""Fields of a syncer for all Services of a namespace: it makes others, which the edits play."""

_NEEDS = {"nodes": {"mode": "service", "advertise": "NodePort"}, "advertise": {"mode": "service"}}
"""Values that the rules demand beside a field, and that a random spec would hardly have."""


class UnknownField(Exception):
    """The schema uses a keyword, rule or type that the generator does not know."""


@functools.cache
def spec_schema() -> Schema:
    """Return the schema of a EurekaSyncer's spec, of which callers change only copies."""
    (version,) = yaml.safe_load(_CRD.read_text(encoding="utf-8"))["spec"]["versions"]
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def check_known(schema: Schema, path: str = "spec") -> None:
    """Check that the generator knows every keyword and rule of a schema.

    :raises UnknownField: it does not.
    """
    if unknown := schema.keys() - _KNOWN:
        raise UnknownField(f"{path}: nothing here heeds {', '.join(sorted(unknown))}")
    for validation in schema.get("x-kubernetes-validations", ()):
        rule = " ".join(validation["rule"].split())
        if not _MATCHES.fullmatch(rule) and rule not in _RULES:
            raise UnknownField(f"{path}: the rule is not known here: {rule}")
    for name, child in schema.get("properties", {}).items():
        check_known(child, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            check_known(schema[word], f"{path}[]")


def with_defaults(schema: Schema, value: Any) -> Any:
    """Return a value with the schema's defaults, which the API server fills in before it checks the rules."""
    if not isinstance(value, Mapping) or "properties" not in schema:
        return copy.deepcopy(value)
    given = {
        **{name: child["default"] for name, child in schema["properties"].items() if "default" in child},
        **value,
    }
    return {name: with_defaults(schema["properties"].get(name, {}), one) for name, one in given.items()}


def refusals(schema: Schema, value: Any) -> Iterator[str]:
    """Yield the reasons why the API server refuses a value with its defaults."""
    if not _is_of_type(schema, value):
        yield f"must be of type {schema.get('type')}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield "unsupported value"
    if isinstance(value, int) and not isinstance(value, bool):
        size, least, most = value, schema.get("minimum"), schema.get("maximum")
    elif isinstance(value, str):
        size, least, most = len(value), schema.get("minLength"), schema.get("maxLength")
    elif isinstance(value, list):
        size, least, most = len(value), None, schema.get("maxItems")
    elif isinstance(value, Mapping):
        size, least, most = len(value), schema.get("minProperties"), schema.get("maxProperties")
    else:
        size, least, most = 0, None, None
    if (least is not None and size < least) or (most is not None and size > most):
        yield f"must be from {least} to {most}"
    for children in _children(schema, value):
        yield from refusals(*children)
    if isinstance(value, Mapping):
        yield from (f"{name}: required" for name in schema.get("required", ()) if name not in value)
    for validation in schema.get("x-kubernetes-validations", ()):
        if not _holds(" ".join(validation["rule"].split()), value):
            yield validation["message"]


def _is_of_type(schema: Schema, value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    types = {"string": str, "boolean": bool, "integer": int, "array": list, "object": Mapping}
    is_bool = isinstance(value, bool)
    return isinstance(value, types[schema["type"]]) and is_bool == (schema["type"] == "boolean")


def _children(schema: Schema, value: Any) -> Iterator[tuple[Schema, Any]]:
    if isinstance(value, list):
        yield from ((schema["items"], one) for one in value)
    elif isinstance(value, Mapping) and "properties" in schema:
        yield from ((schema["properties"][name], one) for name, one in value.items())
    elif isinstance(value, Mapping):
        yield from ((schema["additionalProperties"], one) for one in value.values())


def _holds(rule: str, value: Any) -> bool:
    plain = _MATCHES.fullmatch(rule)
    if plain is None:
        return _RULES[rule](value)
    pattern = re.sub(r"\$$", r"\\Z", plain[2])
    return bool(re.search(pattern, value)) != bool(plain[1])


def drawn(draw: random.Random, schema: Schema) -> dict[str, Any]:
    """Draw a spec that the API server accepts, with its defaults."""
    while True:
        spec = _object(draw, schema, "")
        for name, needed in _NEEDS.items():
            if name in spec:
                spec.update(needed)
        spec = with_defaults(schema, spec)
        if "services" in spec.get("selector", {}):
            continue  # see NOT_DRAWN
        if not any(refusals(schema, spec)):
            return dict(spec)


def _object(draw: random.Random, schema: Schema, path: str) -> dict[str, Any]:
    required = schema.get("required", ())
    others = sorted(schema["properties"].keys() - set(required))
    chosen = [*required, *draw.sample(others, draw.randint(0, min(3, len(others))))]
    return {name: _value(draw, schema["properties"][name], f"{path}{name}") for name in chosen}


def _value(draw: random.Random, schema: Schema, path: str) -> Any:
    """Draw a value for a field that the field's own rules accept."""
    if path in _TELLING:
        return copy.deepcopy(draw.choice(_TELLING[path]))
    if "properties" in schema:
        return _object(draw, schema, f"{path}.")
    fitting = [one for one in _any_of(schema, path) if not any(refusals(schema, one))]
    if not fitting:
        raise UnknownField(f"{path}: no value is known that its rules let pass: name some in _TELLING")
    return draw.choice(fitting)


def _any_of(schema: Schema, path: str) -> tuple[Any, ...]:
    if "enum" in schema:
        return tuple(schema["enum"])
    match schema.get("type"):
        case "boolean":
            return (True, False)
        case "integer":
            least = schema.get("minimum", 0)
            return (least, least + 1, schema.get("maximum", least + 2))
        case "string":
            return _STRINGS
        case "array":
            items = _any_of(schema["items"], f"{path}[]")
            return ([], [items[0]], list(items[:2]))
        case "object" if "additionalProperties" in schema:
            values = _any_of(schema["additionalProperties"], f"{path}[]")
            return ({"one": values[0]}, {"one": values[1], "other": values[0]})
    raise UnknownField(f"{path}: no value is known of its type: name some in _TELLING")
