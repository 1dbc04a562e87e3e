"""Conversion of foreign text for people: without credentials, and without characters that a terminal
obeys.

Anyone who may register in Eureka chooses ids, host names and metadata, and anyone who writes to a cluster
chooses labels. A terminal obeys escape sequences, and reverses letters at bidirectional marks: an attacker
could write "safe" over "not safe".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

REDACTION_PLACEHOLDER = "[secret]"
"""The text that stands in place of a credential."""


_SECRET_VARIABLE_PATTERN = re.compile(r"PASS|SECRET|TOKEN|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
MIN_SECRET_LENGTH = 6
"""The fewest characters of a secret that is hidden: shorter values are in many texts by chance."""

_URL_USER_INFO_PATTERN = re.compile(r"(?<=://)[^\s/@]*@")
_AUTHORIZATION_PATTERN = re.compile(r"\b(bearer|basic|token)(\s+)[^\s'\",;]{6,}", re.IGNORECASE)


def printable(text: str) -> str:
    """Return ``text`` on one line, with a space for each character that a terminal would obey or not show."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else " " for sign in text)


def encodable(text: str) -> str:
    """Return ``text`` with a question mark for each half of a surrogate pair, which UTF-8 cannot hold.

    Eureka answers the read of an instance with such a half as somebody registered it.
    """
    return text.encode(errors="replace").decode()


def printable_lines(text: str) -> str:
    """Return ``text`` with its line ends, and a space for each other character that is not printable."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    """Escape the unprintable characters of a JSON document, which can only be in its strings."""
    if document.isprintable():
        return document
    return "".join(sign if sign.isprintable() else _json_escape(sign) for sign in document)


def _json_escape(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def redact_secrets(text: str, environment: Mapping[str, str]) -> str:
    """Replace in ``text`` everything that looks like a credential by :data:`REDACTION_PLACEHOLDER`.

    :param environment: the program's environment: values of variables that are named like secrets are hidden.
    """
    secrets = {
        line
        for name, value in environment.items()
        if _SECRET_VARIABLE_PATTERN.search(name)
        for line in (value, *value.splitlines())
        if len(line.strip()) >= MIN_SECRET_LENGTH
    }
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTION_PLACEHOLDER)
    return _AUTHORIZATION_PATTERN.sub(
        rf"\1\2{REDACTION_PLACEHOLDER}", _URL_USER_INFO_PATTERN.sub(f"{REDACTION_PLACEHOLDER}@", text)
    )
