"""Checks of the text that is sent to Eureka, so that all of its clients can read it.

A server takes any JSON, and sends XML to many of its clients: one character that XML 1.0 does not allow makes
the whole of ``/apps`` unreadable for them (in tests/contract, ``test_one_character_breaks_the_list``). Names
that are part of a URL must also survive the server's parsing of paths: a name that does not can be
registered, and never be read, renewed or removed again (``test_ids_that_cannot_be_addressed``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.identity import RESERVED_METADATA_PREFIX

MAX_METADATA_BYTES = 4096
"""The most bytes, in UTF-8, of one instance's metadata; each server and each client holds all of them."""

MAX_METADATA_VALUE_LENGTH = 1024
"""The most characters of one metadata value."""

MAX_NAME_LENGTH_IN_URL = 2048
"""The most letters of a name in a URL.

A server takes 8 KiB of URL and headers, which also hold an application's name, a time stamp and perhaps a
token: ``test_an_id_that_is_too_long_for_a_request``.
"""

_MAX_URL_LETTERS_PER_CHARACTER = 12
"""The most letters of one character in a URL: four bytes in UTF-8, and three letters for each."""

# https://www.w3.org/TR/xml/#charsets
_NOT_IN_XML_PATTERN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What servers refuse in a URL, tried one by one; and a half of a surrogate pair, which no URL can hold.
_NOT_IN_PATHS_PATTERN = re.compile("[/\\\\;%\x00\n\r\u2028\u2029\ud800-\udfff]")
_CONTROL_CHARACTERS_PATTERN = re.compile(r"[\x00-\x1f]")
_NOT_IN_VALUES_PATTERN = re.compile(r"[\x00-\x1f\x7f]")


def describe_unreadable_text(text: str) -> str:
    """Return why Eureka's clients could not read ``text``; empty where they can."""
    found = _NOT_IN_XML_PATTERN.search(text)
    if found is None:
        return ""
    return (
        f"has the character U+{ord(found[0]):04X}, which XML does not know: every client that reads Eureka's"
        " list of all applications as XML would fail; leave it out"
    )


def describe_unfit_metadata_value(value: str) -> str:
    """Return why a text that somebody wrote may not become a metadata value; empty where it may.

    The bounds are those of ``spec.metadata`` in the CRD.
    """
    if len(value) > MAX_METADATA_VALUE_LENGTH:
        return f"has more than {MAX_METADATA_VALUE_LENGTH} characters"
    if found := _NOT_IN_VALUES_PATTERN.search(value):
        return f"has the control character U+{ord(found[0]):04X}"
    return describe_unreadable_text(value)


def describe_unfit_name(name: str) -> str:
    """Return why ``name`` may be no application's name and no instance's id; empty where it may."""
    found = _CONTROL_CHARACTERS_PATTERN.search(name)
    if found is not None:
        return _describe_unaddressable_part(found[0])
    return (
        describe_unaddressable_name(name) or describe_unreadable_text(name) or _describe_overlong_name(name)
    )


def describe_unaddressable_name(name: str) -> str:
    """Return why no URL can address an application or an instance of this name; empty where one can."""
    found = _NOT_IN_PATHS_PATTERN.search(name)
    if found is not None:
        return _describe_unaddressable_part(found[0])
    return "" if name not in ("", ".", "..") else _describe_unaddressable_part(name)


def _describe_unaddressable_part(part: str) -> str:
    what = "a slash" if part == "/" else "such a name" if part in ("", ".", "..") else repr(part)
    return (
        f"must be a name without {what}: Eureka would accept it once and could never read or remove it again"
    )


def _describe_overlong_name(name: str) -> str:
    if len(name) * _MAX_URL_LETTERS_PER_CHARACTER <= MAX_NAME_LENGTH_IN_URL:
        return ""  # as nearly all are
    length = len(quote(name, safe=""))
    if length <= MAX_NAME_LENGTH_IN_URL:
        return ""
    return (
        f"has {length} letters in a URL, more than {MAX_NAME_LENGTH_IN_URL}: Eureka would accept it once, and"
        " refuse the longer requests that renew, drain or remove it; take a shorter name"
    )


def describe_oversized_metadata(metadata: Mapping[str, str]) -> str:
    """Return why metadata are too large for one instance; empty if not. Eurekube's own do not count."""
    size = sum(
        len(f"{key}{value}".encode("utf-8", "surrogatepass"))
        for key, value in metadata.items()
        if not key.startswith(RESERVED_METADATA_PREFIX)
    )
    if size <= MAX_METADATA_BYTES:
        return ""
    return (
        f"keys and values have {size} bytes together, more than {MAX_METADATA_BYTES}: every Eureka server"
        " and every client holds them for each instance; give callers the address of such data instead"
    )


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse values that Eureka's clients could not read, and metadata that are too large in total.

    :raises InvalidInstance: the message says which value or size is wrong, and why.
    """
    for key, value in metadata.items():
        if problem := describe_unreadable_text(value):
            raise InvalidInstance("metadata", f"the value of {key!r} {problem}")
    if problem := describe_oversized_metadata(metadata):
        raise InvalidInstance("metadata", problem)


def check_instance_id(instance_id: str) -> None:
    """Refuse an id with which an instance could not be read or removed again.

    :raises InvalidInstance: the message says why.
    """
    if problem := describe_unfit_name(instance_id):
        raise InvalidInstance("instance_id", f"{instance_id!r} {problem}")
