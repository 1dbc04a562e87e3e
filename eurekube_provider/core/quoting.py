"""Escaping of foreign text that is shown to people, so that no terminal obeys it.

Whoever may register in Eureka chooses what stands in ids, host names and metadata, and whoever writes to a
cluster chooses labels. A terminal obeys escape sequences, and turns letters round for bidirectional marks: so
one could write "safe" over "not safe".
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return ``text`` on one line, with a space for each character that a terminal would obey or not show."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else " " for sign in text)


def printable_lines(text: str) -> str:
    """Return ``text`` with its line ends, and a space for each other character that is not printable."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    """Escape the characters of a JSON document that are not printable; they can stand in its texts only."""
    if document.isprintable():
        return document
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in document)


def _escaped(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
