"""Reads the deltas of one server one after the other, each at the price of what it says for the first time.

A delta repeats the changes of three minutes, so that most of its text stood in the one before: where a
thousand instances changed lately, JSON takes more time than all else between Eureka's answer and what follows
from it. So what stands in the text of one instance is remembered by its digest, without the times of its
lease, which change with every renewal. What remains, with a number for each instance, is read as JSON, so
that nothing is taken for an instance's text that is not one. An instance without an ``instanceId`` is part of
what remains, and is read each time.
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
"""How servers begin an instance. Within a string its quotes would have backslashes."""

_LEASE = b'"leaseInfo":{'

_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class _InstanceText:
    """The text of one instance.

    :ivar rest: the text after it, up to the next instance.
    """

    item: DeltaItem | None
    rest: str


class DeltaReader:
    """The reader of one server's deltas; for one thread."""

    def __init__(self) -> None:
        self._known: dict[bytes, _InstanceText] = {}

    def forget(self) -> None:
        """The next delta is another server's, or what is held is no more what the last one made of it."""
        self._known = {}

    def read(self, text: bytes | str, held: Mapping[Key, Instance]) -> Delta:
        """Read the next one, see :func:`delta_from_text`.

        :param held: the list with the deltas so far; the same instances.
        :raises ValueError: as there.
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
        """Return the parsed text of an instance, which begins behind :data:`_INSTANCE`."""
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
    """Read the text between the instances.

    :raises ValueError: an instance's text stood elsewhere than an instance does.
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
