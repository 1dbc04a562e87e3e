"""Foreign text as it may be shown to people: without credentials, and without characters that a terminal
obeys.

Anyone who may register in Eureka chooses ids, host names and metadata, and anyone who writes to a cluster
chooses labels. A terminal obeys escape sequences, and reverses letters at bidirectional marks: an attacker
could write "safe" over "not safe".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "[secret]"

_SECRET_NAME = re.compile(r"PASS|SECRET|TOKEN|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
_SHORTEST = 6
"""The number of characters below which a secret's value is not hidden: short values are in many texts by
chance.
"""

_USER_INFO = re.compile(r"(?<=://)[^\s/@]*@")
_SCHEME = re.compile(r"\b(bearer|basic|token)(\s+)[^\s'\",;]{6,}", re.IGNORECASE)


def printable(text: str) -> str:
    """Return ``text`` on one line, with a space for each character that a terminal would obey or not show."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else " " for sign in text)


def printable_lines(text: str) -> str:
    """Return ``text`` with its line ends, and a space for each other character that is not printable."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    """Escape the unprintable characters of a JSON document, which can only be in its strings."""
    if document.isprintable():
        return document
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in document)


def _escaped(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def redacted(text: str, environment: Mapping[str, str]) -> str:
    """Replace in ``text`` everything that looks like a credential by :data:`HIDDEN`.

    :param environment: the program's environment: values of variables that are named like secrets are hidden.
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
