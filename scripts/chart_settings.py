"""The operator's settings as rules that a Helm template can apply: a part of `make chart`.

The operator ends if a setting cannot be used, and then only its log says so. Helm cannot run the operator's
code, so each rule is a pattern here, beside the sentence with which the operator refuses a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.operator.options import (
    HTTP_URL_TYPE,
    MEBIBYTES_TYPE,
    OBJECT_NAME_TYPE,
    SECONDS_TYPE,
    WHOLE_SECONDS_TYPE,
    Option,
    ValueType,
    environment_variable_name,
)
from eurekube_provider.operator.settings import ALL_OPTIONS, CONFIG_OPTION
from eurekube_provider.operator.triggers.targets import (
    COMMON_TARGET_OPTIONS,
    OPTIONS_BY_TARGET_KIND,
    REQUIRED_KEYS_BY_TARGET_KIND,
    SECRET_KEYS,
)

_INVALID_VALUE = "\x7f"
"""Text that every kind of value refuses, with an error that names the expected values."""

_BELOW_86400_PATTERN = "[1-9][0-9]{0,3}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}"
_NAME_PATTERN = r"[-A-Za-z0-9._*?!\[\]]+"
_PAIR_PATTERN = f"{_NAME_PATTERN}={_NAME_PATTERN}"
_HOST_PATTERN = r"(\[[0-9a-fA-F:]+\]|[-A-Za-z0-9._]+)"
_PORT_PATTERN = "(:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"

PATTERNS_BY_TYPE: Mapping[ValueType, str] = {
    SECONDS_TYPE: rf"0*({_BELOW_86400_PATTERN})(\.[0-9]*)?|0*86400(\.0*)?|0*\.[1-9][0-9]*",
    MEBIBYTES_TYPE: r"[1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-6]",
    WHOLE_SECONDS_TYPE: r"[0-9]{1,4}|[0-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}|86400",
    OBJECT_NAME_TYPE: r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
    HTTP_URL_TYPE: rf"https?://{_HOST_PATTERN}{_PORT_PATTERN}([/?#][^\s]*)?",
}
"""Pattern of the texts that a kind of value accepts, without those that are too hard for a pattern."""

_ACTION_PATTERN = "[Rr][Ee][Ff][Rr][Ee][Ss][Hh]|[Uu][Pp]|[Pp][Rr][Ee][Vv][Ii][Ee][Ww]"
_ROUTE_KIND_PATTERN = "[Ii][Nn][Gg][Rr][Ee][Ss][Ss]|[Gg][Aa][Tt][Ee][Ww][Aa][Yy]"
_CLUSTER_NAME_PATTERN = "[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?"
PATTERNS_BY_SETTING: Mapping[str, str] = {
    "cluster-name": _CLUSTER_NAME_PATTERN,
    "previous-cluster-name": f" *{_CLUSTER_NAME_PATTERN}( *, *{_CLUSTER_NAME_PATTERN})* *,? *",
    "actions": f" *({_ACTION_PATTERN})( *, *({_ACTION_PATTERN}))* *,? *",
    "advertise-from": f" *({_ROUTE_KIND_PATTERN})( *, *({_ROUTE_KIND_PATTERN}))* *,? *",
    "stack": "[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
}
"""Pattern of a setting whose kind of value no other setting has, by the setting's name."""

SERVICE_URL_PATTERN = rf"([^=/:,]+=)?https?://{_HOST_PATTERN}{_PORT_PATTERN}(/[^\s,?#@]*)?"
PROXY_PATTERN = rf"(https?://)?{_HOST_PATTERN}{_PORT_PATTERN}(/[^\s@]*)?"

ONE_TASK_FLAGS = ("--check", "--check-removal", "--help", "--once", "--output", "--without-lease", "-h")
"""Flags with which the operator does one task and ends: a Deployment would restart its pods for ever."""


def settings_text() -> str:
    """Return the text of ``charts/eurekube/files/settings.json``."""
    return json.dumps(make_chart_rules(), indent=2, ensure_ascii=False) + "\n"


def make_chart_rules() -> dict[str, Any]:
    """Return the rules by which the chart's templates check settings, as JSON values."""
    return {
        "note": "Written by `make chart` from the operator's settings; do not edit.",
        "settings": {
            environment_variable_name(one.name): _rule_with_flag(one)
            for one in ALL_OPTIONS
            if one.has_environment_variable
        },
        "flags": [*sorted(f"--{one.name}" for one in (CONFIG_OPTION, *ALL_OPTIONS)), "--dry-run"],
        "ending": list(ONE_TASK_FLAGS),
        "urls": {"service": anchor_pattern(SERVICE_URL_PATTERN), "proxy": anchor_pattern(PROXY_PATTERN)},
        "target": {
            "common": _target_key_rules(COMMON_TARGET_OPTIONS),
            "kinds": {kind: _target_key_rules(options) for kind, options in OPTIONS_BY_TARGET_KIND.items()},
            "required": {kind: ["namespaces", *keys] for kind, keys in REQUIRED_KEYS_BY_TARGET_KIND.items()},
            "secret": list(SECRET_KEYS),
        },
    }


def _rule_with_flag(option: Option) -> dict[str, Any]:
    return {"flag": f"--{option.name}", **_value_rule(option)}


def _target_key_rules(options: Iterable[Option]) -> dict[str, Any]:
    """Return the rules of a target's keys, with the kinds of YAML values that each accepts."""
    kinds = {str: ["string"], list: ["slice"], bool: ["bool"], int: ["int", "int64"], float: ["float64"]}
    found = {}
    for option in options:
        # Helm reads every number of a YAML file as a float64.
        accepted = (
            {int, float, *option.value_type.yaml_types}
            if int in option.value_type.yaml_types
            else option.value_type.yaml_types
        )
        accepts = sorted(word for one in accepted for word in kinds[one])
        found[option.name] = {"kinds": accepts, "word": option.value_type.type_name, **_value_rule(option)}
    return found


def _value_rule(option: Option) -> dict[str, str]:
    """Return a setting's pattern and error; empty where it accepts any text, or only the running operator
    can check it.
    """
    must = describe_expected_value(option.value_type)
    pattern = (
        PATTERNS_BY_TYPE.get(option.value_type)
        or PATTERNS_BY_SETTING.get(option.name)
        or _pattern_of_words(option.value_type)
    )
    return {"pattern": anchor_pattern(pattern), "must": must} if pattern and must else {}


def _pattern_of_words(kind: ValueType) -> str:
    """Return the pattern of a kind whose placeholder lists its words, or shows pairs of names; "" for
    others.
    """
    if "|" in kind.metavar:
        return "|".join(_word_pattern(word, kind) for word in kind.metavar.split("|"))
    return f" *{_PAIR_PATTERN}( *, *{_PAIR_PATTERN})* *,? *" if "=" in kind.metavar else ""


def describe_expected_value(kind: ValueType) -> str:
    """Return the end of a kind's error sentence, ``must be ...``; empty if the kind accepts every text."""
    try:
        kind.parse(_INVALID_VALUE)
    except (ConfigurationError, ValueError) as error:
        return f"must {str(error).partition('must ')[2]}"
    return ""


def anchor_pattern(pattern: str) -> str:
    """Return the pattern between ``^(`` and ``)$``, so that it must match the whole text."""
    return f"^({pattern})$"


def _word_pattern(word: str, kind: ValueType) -> str:
    """Return a pattern of a word, in upper and lower case if the operator accepts both."""
    try:
        kind.parse(word.swapcase())
    except (ConfigurationError, ValueError):
        return re.escape(word).replace(r"\-", "-")
    return "".join(f"[{sign.upper()}{sign.lower()}]" if sign.isalpha() else sign for sign in word)
