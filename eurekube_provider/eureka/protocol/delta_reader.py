"""A reader of one server's successive deltas that parses only the text which is new in each.

A delta repeats the changes of three minutes, so that most of its text was in the one before. When a thousand
instances changed lately, parsing JSON takes more time than everything else between Eureka's answer and its
consequences. So the reader remembers what each application's text meant, by a digest of it, and in an
application that changed what each instance's text meant. The leases do not count, since their times change
with every renewal. A digest is Python's keyed hash, twice as fast as SHA-256, during which other threads run;
if two texts ever had the same one, a delta's counts would show it. :mod:`.instance_texts` splits the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from eurekube_provider.core.model import FindInstance, Instance, InstanceKey, intern_text, share_equal_parts
from eurekube_provider.eureka.protocol.delta import (
    Delta,
    DeltaChange,
    DeltaPart,
    build_delta,
    build_part,
    delta_from_text,
    parse_delta_change,
)
from eurekube_provider.eureka.protocol.instance_texts import (
    TextPieces,
    complete_application_text,
    decode_instance_text,
    parse_text_around_instances,
    split_at_applications,
    split_at_instances,
)

LONGEST_SHARED_TEXT = 64
"""The most characters of a text between two instances that is held once for all of them."""

_LEASE_PATTERN = re.compile(rb'"leaseInfo":\{[^}]*')


@dataclass(frozen=True, slots=True)
class _ParsedInstanceText:
    """The parsed text of one instance.

    :ivar text_after: the text after the instance, up to the next one.
    """

    change: DeltaChange | None
    text_after: str


@dataclass(frozen=True, slots=True)
class _ParsedApplicationText:
    """The parsed text of one application.

    :ivar digest: the digest of the text; ``digest_without_leases`` likewise, None where a lease counts.
    :ivar instances: the parsed texts of its registered instances, by their digests.
    """

    digest: int
    digest_without_leases: int | None
    part: DeltaPart
    instances: Mapping[int, _ParsedInstanceText]


class DeltaReader:
    """The reader of one server's deltas; for one thread.

    :param find_known: returns a version of an instance with which a new one shares what is equal.
    """

    def __init__(self, find_known: FindInstance = lambda _: None) -> None:
        self._find_known = find_known
        self._known: dict[bytes, _ParsedApplicationText] = {}

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
        known: dict[bytes, _ParsedApplicationText] = {}
        try:
            texts = split_at_applications(pieces())
            applications = json.loads(next(texts))["applications"]
            if applications["application"]:
                raise ValueError("not as servers write it")
            parts = [self._parse_application(text, held, known) for text in texts]
            delta = build_delta(applications, parts)
            self._known = known
            return delta
        except (ValueError, KeyError, TypeError, AttributeError):
            self.forget_texts()
        # Not within the handler, whose error holds all that was made so far.
        return delta_from_text(b"".join(pieces()), held)

    def _parse_application(
        self, text: bytes, held: Mapping[InstanceKey, Instance], known: dict[bytes, _ParsedApplicationText]
    ) -> DeltaPart:
        """Return the changes in an application's text, and note what they were parsed from."""
        digest, name = hash(text), text[: text.find(b'"')]
        found = self._known.get(name)
        if found is None or found.digest != digest:
            found = self._parse_changed_application(text, digest, held, found)
        known[name] = found
        return found.part

    def _parse_changed_application(
        self,
        text: bytes,
        digest: int,
        held: Mapping[InstanceKey, Instance],
        before: _ParsedApplicationText | None,
    ) -> _ParsedApplicationText:
        digest_without_leases: int | None = hash(_without_leases(text))
        if before is not None and before.digest_without_leases == digest_without_leases:
            return replace(before, digest=digest)
        known_before = before.instances if before is not None else {}
        parts = split_at_instances([complete_application_text(text)])
        begin = next(parts).decode()
        known: dict[int, _ParsedInstanceText] = {}
        found = [self._parse_instance(part, held, known_before, known) for part in parts]
        _, entries = parse_text_around_instances([begin, *(one.text_after for one in found)])
        changes = [
            found[entry].change if isinstance(entry, int) else parse_delta_change(entry, held)
            for entry in entries
        ]
        if any(one is not None and not one.is_registered for one in changes):
            digest_without_leases = None  # of what is gone the lease says whether it was evicted
        return _ParsedApplicationText(digest, digest_without_leases, build_part(changes), known)

    def _parse_instance(
        self,
        part: bytes,
        held: Mapping[InstanceKey, Instance],
        before: Mapping[int, _ParsedInstanceText],
        known: dict[int, _ParsedInstanceText],
    ) -> _ParsedInstanceText:
        """Return the parsed text of an instance, given the text after its begin."""
        digest = hash(_without_leases(part))
        found = before.get(digest)
        if found is None:
            document, text_after = decode_instance_text(part)
            change = parse_delta_change(document, held)
            if change is not None:
                share_equal_parts(change.instance, self._find_known(change.instance.key))
            # Entries without an id are part of that text, and may be of any length.
            text_after = intern_text(text_after) if len(text_after) <= LONGEST_SHARED_TEXT else text_after
            found = _ParsedInstanceText(change, text_after)
        # Of what is gone the lease says whether it was evicted.
        if found.change is not None and found.change.is_registered:
            known[digest] = found
        return found


def _without_leases(text: bytes) -> bytes:
    return _LEASE_PATTERN.sub(b"-", text)
