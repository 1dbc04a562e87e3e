"""A reader of one server's successive deltas that parses only the text which is new in each.

A delta repeats the changes of three minutes, so that most of its text was in the one before. When a thousand
instances changed lately, parsing JSON takes more time than everything else between Eureka's answer and its
consequences. So the reader remembers what it parsed by each instance's text, without the times of the lease,
which change with every renewal. The text around the instances, with a number in place of each, is parsed as
JSON, so that no other text is taken for an instance's. An instance without an ``instanceId`` is part of that
text, and is parsed each time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance, InstanceKey, intern_text
from eurekube_provider.eureka.protocol.codec import iterate_items
from eurekube_provider.eureka.protocol.delta import (
    Delta,
    DeltaChange,
    build_delta,
    delta_from_text,
    parse_delta_change,
)

_INSTANCE_START = b'{"instanceId":"'
"""The text with which servers begin an instance. Within a JSON string its quotes would be escaped."""

_LEASE_START = b'"leaseInfo":{'

_decode_json = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class _ParsedInstanceText:
    """The parsed text of one instance.

    :ivar text_after: the text after the instance, up to the next one.
    """

    change: DeltaChange | None
    text_after: str


class DeltaReader:
    """The reader of one server's deltas; for one thread."""

    def __init__(self) -> None:
        self._known: dict[bytes, _ParsedInstanceText] = {}

    def forget_texts(self) -> None:
        """Forget all parsed texts: the next delta is another server's, or the held list no longer contains
        their instances.
        """
        self._known = {}

    def read(self, text: bytes | str, held: Mapping[InstanceKey, Instance]) -> Delta:
        """Read the server's next delta, see :func:`delta_from_text`.

        :param held: the list after the deltas so far; the same instance objects.
        :raises ValueError: the text is not JSON.
        """
        parts = (text.encode() if isinstance(text, str) else text).split(_INSTANCE_START)
        known: dict[bytes, _ParsedInstanceText] = {}
        try:
            found = [self._parse_part(part, held, known) for part in parts[1:]]
            delta = _build_delta(parts[0].decode(), found, held)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.forget_texts()
            return delta_from_text(text, held)
        self._known = known
        return delta

    def _parse_part(
        self, part: bytes, held: Mapping[InstanceKey, Instance], known: dict[bytes, _ParsedInstanceText]
    ) -> _ParsedInstanceText:
        """Return the parsed text of an instance, given the text after :data:`_INSTANCE_START`."""
        begin = part.find(_LEASE_START)
        end = part.find(b"}", begin)
        lasting = part[:begin] + part[end:] if begin >= 0 else b""
        found = self._known.get(lasting)
        if found is None:
            whole = (_INSTANCE_START + part).decode()
            document, length = _decode_json(whole)
            found = _ParsedInstanceText(parse_delta_change(document, held), intern_text(whole[length:]))
        # Of what is gone the lease says whether it was evicted.
        if lasting and found.change is not None and found.change.is_registered:
            known[lasting] = found
        return found


def _build_delta(
    begin: str, parts: Sequence[_ParsedInstanceText], held: Mapping[InstanceKey, Instance]
) -> Delta:
    """Make the delta of the parsed instances and the text between them.

    :raises ValueError: an instance's text was found where no instance may be.
    """
    between = [f"{number}{part.text_after}" for number, part in enumerate(parts)]
    applications: Mapping[str, Any] = json.loads(begin + "".join(between))["applications"]
    entries = [
        entry
        for application in iterate_items(applications.get("application"))
        for entry in iterate_items(application.get("instance"))
    ]
    if [entry for entry in entries if isinstance(entry, int)] != list(range(len(parts))):
        raise ValueError("not as servers write it")
    return build_delta(
        applications,
        [
            parts[entry].change if isinstance(entry, int) else parse_delta_change(entry, held)
            for entry in entries
        ],
    )
