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
    HTTP_URL,
    MEBIBYTES,
    OBJECT_NAME,
    SECONDS,
    WHOLE_SECONDS,
    Option,
    ValueType,
    variable,
)
from eurekube_provider.operator.settings import CONFIG, OPTIONS
from eurekube_provider.operator.triggers.targets import COMMON_KEYS, KEYS_OF_KIND, REQUIRED_KEYS, SECRET_KEYS

_UNUSABLE = "\x7f"
"""Text that no kind of value accepts, so that each kind's error says what it expects."""

_BELOW_86400 = "[1-9][0-9]{0,3}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}"
_NAME = r"[-A-Za-z0-9._*?!\[\]]+"
_PAIR = f"{_NAME}={_NAME}"
_HOST = r"(\[[0-9a-fA-F:]+\]|[-A-Za-z0-9._]+)"
_PORT = "(:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"

PATTERNS: Mapping[ValueType, str] = {
    SECONDS: rf"0*({_BELOW_86400})(\.[0-9]*)?|0*86400(\.0*)?|0*\.[1-9][0-9]*",
    MEBIBYTES: r"[1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-6]",
    WHOLE_SECONDS: r"[0-9]{1,4}|[0-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}|86400",
    OBJECT_NAME: r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
    HTTP_URL: rf"https?://{_HOST}{_PORT}([/?#][^\s]*)?",
}
"""Pattern of the texts that a kind of value accepts, without those that are too hard for a pattern."""

_ACTION = "[Rr][Ee][Ff][Rr][Ee][Ss][Hh]|[Uu][Pp]|[Pp][Rr][Ee][Vv][Ii][Ee][Ww]"
_ROUTED = "[Ii][Nn][Gg][Rr][Ee][Ss][Ss]|[Gg][Aa][Tt][Ee][Ww][Aa][Yy]"
_CLUSTER = "[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?"
OWN_PATTERNS: Mapping[str, str] = {
    "cluster-name": _CLUSTER,
    "previous-cluster-name": f" *{_CLUSTER}( *, *{_CLUSTER})* *,? *",
    "actions": f" *({_ACTION})( *, *({_ACTION}))* *,? *",
    "advertise-from": f" *({_ROUTED})( *, *({_ROUTED}))* *,? *",
    "stack": "[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
}
"""Pattern of a setting whose kind of value no other setting has, by the setting's name."""

SERVICE_URL = rf"([^=/:,]+=)?https?://{_HOST}{_PORT}(/[^\s,?#@]*)?"
PROXY = rf"(https?://)?{_HOST}{_PORT}(/[^\s@]*)?"

ENDING = ("--check", "--check-removal", "--help", "--once", "--output", "--without-lease", "-h")
"""Flags with which the operator does one task and ends, so that its pods would be restarted for ever."""


def settings_text() -> str:
    """Return the text of ``charts/eurekube/files/settings.json``."""
    return json.dumps(rules(), indent=2, ensure_ascii=False) + "\n"


def rules() -> dict[str, Any]:
    """Return the rules that the chart's templates apply."""
    return {
        "note": "Written by `make chart` from the operator's settings; do not edit.",
        "settings": {variable(one.name): _rule_of(one) for one in OPTIONS if one.variable},
        "flags": [*sorted(f"--{one.name}" for one in (CONFIG, *OPTIONS)), "--dry-run"],
        "ending": list(ENDING),
        "urls": {"service": whole(SERVICE_URL), "proxy": whole(PROXY)},
        "target": {
            "common": _keys(COMMON_KEYS),
            "kinds": {kind: _keys(options) for kind, options in KEYS_OF_KIND.items()},
            "required": {kind: ["namespaces", *keys] for kind, keys in REQUIRED_KEYS.items()},
            "secret": list(SECRET_KEYS),
        },
    }


def _rule_of(option: Option) -> dict[str, Any]:
    return {"flag": f"--{option.name}", **_rule(option)}


def _keys(options: Iterable[Option]) -> dict[str, Any]:
    """Return the rules of a target's keys, with the kinds of YAML values that each accepts."""
    kinds = {str: ["string"], list: ["slice"], bool: ["bool"], int: ["int", "int64"], float: ["float64"]}
    found = {}
    for option in options:
        # Helm reads every number of a YAML file as a float64.
        accepted = {int, float, *option.kind.accepts} if int in option.kind.accepts else option.kind.accepts
        accepts = sorted(word for one in accepted for word in kinds[one])
        found[option.name] = {"kinds": accepts, "word": option.kind.word, **_rule(option)}
    return found


def _rule(option: Option) -> dict[str, str]:
    """Return a setting's pattern and error; empty where it accepts any text, or only the running operator
    can check it.
    """
    must = wish(option.kind)
    pattern = PATTERNS.get(option.kind) or OWN_PATTERNS.get(option.name) or _pattern_of_words(option.kind)
    return {"pattern": whole(pattern), "must": must} if pattern and must else {}


def _pattern_of_words(kind: ValueType) -> str:
    """Return the pattern of a kind whose placeholder lists its words, or shows pairs of names; "" for
    others.
    """
    if "|" in kind.metavar:
        return "|".join(_in_any_case(word, kind) for word in kind.metavar.split("|"))
    return f" *{_PAIR}( *, *{_PAIR})* *,? *" if "=" in kind.metavar else ""


def wish(kind: ValueType) -> str:
    """Return what a kind of value expects, ``must be ...``; empty where it accepts every text."""
    try:
        kind.parse(_UNUSABLE)
    except (ConfigurationError, ValueError) as error:
        return f"must {str(error).partition('must ')[2]}"
    return ""


def whole(pattern: str) -> str:
    """Return a pattern that must match the whole text."""
    return f"^({pattern})$"


def _in_any_case(word: str, kind: ValueType) -> str:
    """Return a word as a pattern, in either case if the operator accepts either."""
    try:
        kind.parse(word.swapcase())
    except (ConfigurationError, ValueError):
        return re.escape(word).replace(r"\-", "-")
    return "".join(f"[{sign.upper()}{sign.lower()}]" if sign.isalpha() else sign for sign in word)
