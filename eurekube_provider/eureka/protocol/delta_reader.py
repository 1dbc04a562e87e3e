"""A reader of one server's successive deltas that parses only the text which is new in each.

A delta repeats the changes of three minutes, so that most of its text was in the one before. When a thousand
instances changed lately, parsing JSON takes more time than everything else between Eureka's answer and its
consequences. So the reader remembers the parsed text of each instance by a digest of it, without the times of
the lease, which change with every renewal. The text around the instances, with a number in place of each, is
parsed as JSON, so that no other text is taken for an instance's. An instance without an ``instanceId`` is
part of that text, and is parsed each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka.protocol.codec import listed
from eurekube_provider.eureka.protocol.delta import Delta, DeltaItem, delta_from_text, delta_item_of, delta_of

_INSTANCE = b'{"instanceId":"'
"""The text with which servers begin an instance. Within a JSON string its quotes would be escaped."""

_LEASE = b'"leaseInfo":{'

_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class _InstanceText:
    """The parsed text of one instance.

    :ivar rest: the text after the instance, up to the next one.
    """

    item: DeltaItem | None
    rest: str


class DeltaReader:
    """The reader of one server's deltas; for one thread."""

    def __init__(self) -> None:
        self._known: dict[bytes, _InstanceText] = {}

    def forget(self) -> None:
        """Forget all parsed texts: the next delta is another server's, or the held list no longer contains
        their instances.
        """
        self._known = {}

    def read(self, text: bytes | str, held: Mapping[Key, Instance]) -> Delta:
        """Read the server's next delta, see :func:`delta_from_text`.

        :param held: the list after the deltas so far; the same instance objects.
        :raises ValueError: the text is not JSON.
        """
        parts = (text.encode() if isinstance(text, str) else text).split(_INSTANCE)
        known: dict[bytes, _InstanceText] = {}
        try:
            found = [self._part(part, held, known) for part in parts[1:]]
            delta = _delta(parts[0].decode(), found, held)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.forget()
            return delta_from_text(text, held)
        self._known = known
        return delta

    def _part(
        self, part: bytes, held: Mapping[Key, Instance], known: dict[bytes, _InstanceText]
    ) -> _InstanceText:
        """Return the parsed text of an instance, given the text after :data:`_INSTANCE`."""
        begin = part.find(_LEASE)
        end = part.find(b"}", begin)
        digest = hashlib.sha256(part[:begin] + part[end:]).digest() if begin >= 0 else b""
        found = self._known.get(digest)
        if found is None:
            whole = (_INSTANCE + part).decode()
            document, length = _decode(whole)
            found = _InstanceText(delta_item_of(document, held), whole[length:])
        # Of what is gone the lease says whether it was evicted.
        if digest and found.item is not None and found.item.stands:
            known[digest] = found
        return found


def _delta(begin: str, parts: Sequence[_InstanceText], held: Mapping[Key, Instance]) -> Delta:
    """Make the delta of the parsed instances and the text between them.

    :raises ValueError: an instance's text was found where no instance may be.
    """
    between = [begin]
    for number, part in enumerate(parts):
        between += (str(number), part.rest)
    applications: Mapping[str, Any] = json.loads("".join(between))["applications"]
    entries = [
        entry
        for application in listed(applications.get("application"))
        for entry in listed(application.get("instance"))
    ]
    if [entry for entry in entries if isinstance(entry, int)] != list(range(len(parts))):
        raise ValueError("not as servers write it")
    return delta_of(
        applications,
        (parts[entry].item if isinstance(entry, int) else delta_item_of(entry, held) for entry in entries),
    )
