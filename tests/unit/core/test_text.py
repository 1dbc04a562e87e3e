"""Texts that a Eureka server can store and return."""

from __future__ import annotations

from xml.parsers import expat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.text import (
    MAX_METADATA_BYTES,
    MAX_NAME_LENGTH_IN_URL,
    check_metadata,
    describe_oversized_metadata,
    describe_unfit_name,
    describe_unreadable_text,
)


def xml_reads(letter: str) -> bool:
    """Return True if an XML parser accepts a reference to this character."""
    try:
        expat.ParserCreate().Parse(f"<a>&#{ord(letter)};</a>", True)
    except expat.ExpatError:
        return False
    return True


@given(st.characters(codec=None, exclude_categories=()) | st.sampled_from("\x00\x1f\ud800\udfff\ufffe\uffff"))
def test_exactly_what_xml_does_not_know_is_refused(letter: str) -> None:
    """Tabs, line ends and the letters of every script are accepted."""
    assert (describe_unreadable_text(f"a{letter}b") == "") is xml_reads(letter)


@pytest.mark.parametrize(
    "name", ["a/b", "a\\b", "a;b", "a%b", "a\nb", "a\tb", "a\u2028b", ".", "..", "", "a\ufffe"]
)
def test_names_that_no_request_could_reach_are_refused(name: str) -> None:
    """Names are part of URLs, which a server would parse in its own way."""
    assert describe_unfit_name(name)


@pytest.mark.parametrize(
    "name", ["rating-1.shop.eks:rating:8080", "a b", "ä", "fd00::1.svc", "a..b", "x?y#z&w"]
)
def test_names_that_servers_read_back_are_taken(name: str) -> None:
    """Names that work in URLs are accepted, also unusual ones."""
    assert describe_unfit_name(name) == ""


@pytest.mark.parametrize(("letter", "in_a_url"), [("a", 1), (":", 3), ("\u00e4", 6), ("\U0001f600", 12)])
def test_names_have_a_bound_as_a_url_has_them(letter: str, in_a_url: int) -> None:
    """The bound counts a name's letters as they are encoded in a URL, so that the longest request fits."""
    most = MAX_NAME_LENGTH_IN_URL // in_a_url
    assert describe_unfit_name(letter * most) == ""
    assert f"more than {MAX_NAME_LENGTH_IN_URL}" in describe_unfit_name(letter * (most + 1))


def test_metadata_have_a_bound_in_sum() -> None:
    """The bound counts the bytes of keys and values, without Eurekube's own keys."""
    full = {"a": "b" * (MAX_METADATA_BYTES - 1), OWNER_KEY: "stack/" + "x" * 300}
    assert describe_oversized_metadata(full) == ""
    assert f"{MAX_METADATA_BYTES + 1} bytes" in describe_oversized_metadata({**full, "c": ""})
    assert describe_oversized_metadata({"a": "\u00e4" * (MAX_METADATA_BYTES // 2)})


def test_a_refusal_does_not_repeat_the_value() -> None:
    """The error names the key only, since the value may be a secret."""
    with pytest.raises(InvalidInstance) as refused:
        check_metadata({"token": "hunter2\ufffe"})
    assert "hunter2" not in str(refused.value)
    assert "'token'" in str(refused.value)
