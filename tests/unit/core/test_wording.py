"""Lists, counts and names as messages contain them."""

from __future__ import annotations

import pytest

from eurekube_provider.core.wording import camel_case, format_count, format_list, join_sentences, suggest_name


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 instances"), (1, "1 instance"), (2, "2 instances"), (21, "21 instances")]
)
def test_one_thing_has_no_plural(number: int, words: str) -> None:
    """The noun is in the plural for every number except 1."""
    assert format_count(number) == words


def test_other_things_are_counted_alike() -> None:
    """Another noun can be counted, and large numbers can be grouped."""
    assert [format_count(number, "server") for number in (1, 3)] == ["1 server", "3 servers"]
    assert [format_count(number, grouped=True) for number in (1, 9999)] == ["1 instance", "9,999 instances"]


def test_many_sentences_are_counted() -> None:
    """The first three sentences are joined, and the rest is counted."""
    assert join_sentences([]) == ""
    assert join_sentences(["a", "b"]) == "a; b"
    assert join_sentences(["a", "b", "c"]) == "a; b; c"
    assert join_sentences(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"
    assert join_sentences(["a", "b", "c", "d"], "Services") == "a; b; c; and 1 Services"


def test_many_names_are_counted() -> None:
    """As many names as requested are listed, and the rest is counted."""
    assert format_list(["a", "b"], 2) == "a, b"
    assert format_list(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    """If no name is near, all names are listed."""
    assert suggest_name("prot", ["host", "port"]) == "port is one"
    assert suggest_name("xyz", ["host", "port"]) == "there are host, port"


def test_names_are_written_as_kubernetes_writes_them() -> None:
    """Snake case becomes camel case."""
    assert camel_case("match_labels") == "matchLabels"
