"""A reader of one server's successive deltas that parses only the text which is new in each.

A delta repeats the changes of three minutes, so that most of its text was in the one before. When a thousand
instances changed lately, parsing JSON takes more time than everything else between Eureka's answer and its
consequences. So the reader remembers the parsed text of each instance by a digest of it, without the times of
the lease, which change with every renewal. :mod:`.instance_texts` splits the answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from eurekube_provider.core.model import FindInstance, Instance, InstanceKey, intern_text, share_equal_parts
from eurekube_provider.eureka.protocol.delta import (
    Delta,
    DeltaChange,
    build_delta,
    delta_from_text,
    parse_delta_change,
)
from eurekube_provider.eureka.protocol.instance_texts import (
    TextPieces,
    decode_instance_text,
    parse_text_around_instances,
    split_at_instances,
)

LONGEST_SHARED_TEXT = 64
"""The most characters of a text between two instances that is held once for all of them."""

_LEASE_START = b'"leaseInfo":{'


@dataclass(frozen=True, slots=True)
class _ParsedInstanceText:
    """The parsed text of one instance.

    :ivar text_after: the text after the instance, up to the next one.
    """

    change: DeltaChange | None
    text_after: str


class DeltaReader:
    """The reader of one server's deltas; for one thread.

    :param find_known: returns a version of an instance with which a new one shares what is equal.
    """

    def __init__(self, find_known: FindInstance = lambda _: None) -> None:
        self._find_known = find_known
        self._known: dict[bytes, _ParsedInstanceText] = {}

    def forget_texts(self) -> None:
        """Forget all parsed texts: the next delta is another server's, or the held list no longer contains
        their instances.
        """
        self._known = {}

    def read(self, pieces: TextPieces, held: Mapping[InstanceKey, Instance]) -> Delta:
        """Read the server's next delta, see :func:`delta_from_text`.

        :param held: the list after the deltas so far; the same instance objects.
        :raises ValueError: the text is not JSON.
        """
        known: dict[bytes, _ParsedInstanceText] = {}
        try:
            parts = split_at_instances(pieces())
            begin = next(parts).decode()
            found = [self._parse_part(part, held, known) for part in parts]
            document, entries = parse_text_around_instances([begin, *(one.text_after for one in found)])
            delta = build_delta(
                document["applications"],
                (
                    found[entry].change if isinstance(entry, int) else parse_delta_change(entry, held)
                    for entry in entries
                ),
            )
            self._known = known
            return delta
        except (ValueError, KeyError, TypeError, AttributeError):
            self.forget_texts()
        # Not within the handler, whose error holds all that was made so far.
        return delta_from_text(b"".join(pieces()), held)

    def _parse_part(
        self, part: bytes, held: Mapping[InstanceKey, Instance], known: dict[bytes, _ParsedInstanceText]
    ) -> _ParsedInstanceText:
        """Return the parsed text of an instance, given the text after its begin."""
        begin = part.find(_LEASE_START)
        end = part.find(b"}", begin)
        digest = b""
        if begin >= 0:
            digest = hashlib.sha256(part[:begin] + part[end:]).digest()  # processors have instructions for it
        found = self._known.get(digest)
        if found is None:
            document, text_after = decode_instance_text(part)
            change = parse_delta_change(document, held)
            if change is not None:
                share_equal_parts(change.instance, self._find_known(change.instance.key))
            # Entries without an id are part of that text, and may be of any length.
            text_after = intern_text(text_after) if len(text_after) <= LONGEST_SHARED_TEXT else text_after
            found = _ParsedInstanceText(change, text_after)
        # Of what is gone the lease says whether it was evicted.
        if digest and found.change is not None and found.change.is_registered:
            known[digest] = found
        return found
