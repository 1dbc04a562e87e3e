"""Redaction of credentials in the output of another program."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "[secret]"

_SECRET_NAME = re.compile(r"PASS|SECRET|TOKEN|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
_SHORTEST = 6
"""A shorter value stands everywhere by chance."""

_USER_INFO = re.compile(r"(?<=://)[^\s/@]*@")
_SCHEME = re.compile(r"\b(bearer|basic|token)(\s+)[^\s'\",;]{6,}", re.IGNORECASE)


def redacted(text: str, environment: Mapping[str, str]) -> str:
    """Replace in ``text`` what looks like a credential by :data:`HIDDEN`.

    :param environment: the program's: values of variables that are named like secrets are hidden.
    """
    secrets = {
        line
        for name, value in environment.items()
        if _SECRET_NAME.search(name)
        for line in (value, *value.splitlines())
        if len(line.strip()) >= _SHORTEST
    }
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _SCHEME.sub(rf"\1\2{HIDDEN}", _USER_INFO.sub(f"{HIDDEN}@", text))
