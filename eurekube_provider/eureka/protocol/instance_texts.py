"""The text of a list or a delta, split at its instances, so that it is never in memory as a whole.

The JSON of ten thousand instances takes ten megabytes, and several times as much once it is parsed. So each
instance is parsed by itself, as soon as its text has been decompressed. The text around the instances, with a
number in place of each, is parsed as JSON in the end, so that no other text is taken for an instance's.

An instance without an ``instanceId`` is part of the text around; what no server writes is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from eurekube_provider.core.model import FindInstance, Instance, share_equal_parts
from eurekube_provider.eureka.protocol.codec import (
    instance_from_json,
    instance_id_of,
    instances_from_json,
    instances_from_text,
    iterate_items,
)

TextPieces = Callable[[], Iterable[bytes]]
"""A function that yields an answer's text in pieces, from the beginning at each call."""

INSTANCE_START = b'{"instanceId":"'
"""The text with which servers begin an instance. Within a JSON string its quotes would be escaped."""

LARGEST_PART_BYTES = 2**22
"""The largest text without the begin of an instance that is waited for, in bytes."""

_FIRST_APPLICATION_START = b'"application":[{"name":"'
_BETWEEN_APPLICATIONS = b']},{"name":"'
_APPLICATIONS_END = b"]}]}}"
"""The text with which servers begin the first application, the text between two, and the text that ends the
last one and everything around it. Within a JSON string their quotes would be escaped.
"""

_decode_json = json.JSONDecoder().raw_decode


def split_at_applications(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text around the applications, as JSON without any, then the text of each application.

    An application's text begins with its name and ends within its list of instances;
    :func:`complete_application_text` makes it a list of one application. Where each of these texts is JSON by
    itself, the whole text is the JSON of these applications.

    :raises ValueError: no server that knows an application wrote it.
    """
    texts = _split_at(_BETWEEN_APPLICATIONS, pieces)
    begin, start, text = next(texts).partition(_FIRST_APPLICATION_START)
    if not start:
        raise ValueError("not as servers write it")
    yield begin + b'"application":[]}}'
    for following in texts:
        yield text
        text = following
    if not text.endswith(_APPLICATIONS_END):
        raise ValueError("not as servers write it")
    yield text.removesuffix(_APPLICATIONS_END)


def complete_application_text(text: bytes) -> bytes:
    """Return the JSON of a list or delta of one application from :func:`split_at_applications`."""
    return b'{"applications":{' + _FIRST_APPLICATION_START + text + _APPLICATIONS_END


def _split_at(separator: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *parts, rest = (rest + piece).split(separator)
        yield from parts
    yield rest


def split_at_instances(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text before the first instance, then the text after each :data:`INSTANCE_START`.

    :raises ValueError: a part is so large that no server wrote it.
    """
    rest = b""
    for piece in pieces:
        *parts, rest = (rest + piece).split(INSTANCE_START)
        whole = b""
        for part in parts:
            whole += part
            if whole.endswith(b'":') and not whole.endswith(b'"instance":'):
                whole += INSTANCE_START  # the value of another field, such as metadata
                continue
            yield whole
            whole = b""
        rest = whole + rest
        if len(rest) > LARGEST_PART_BYTES:
            raise ValueError("not as servers write it")
    yield rest


def decode_instance_text(part: bytes) -> tuple[Any, str]:
    """Parse the text after an :data:`INSTANCE_START`; return the instance's JSON, and the text after it.

    :raises ValueError: the text is not JSON.
    """
    whole = (INSTANCE_START + part).decode()
    document, length = _decode_json(whole)
    return document, whole[length:]


def parse_text_around_instances(texts: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
    """Parse the text around the instances.

    :param texts: the text before the first instance, then the text after each.
    :returns: the list's or delta's JSON, and its entries in their order: numbers in place of the instances.
    :raises ValueError: an instance's text was found where no instance may be.
    """
    numbered = [texts[0]]
    for number, text in enumerate(texts[1:]):
        numbered += (str(number), text)
    document: dict[str, Any] = json.loads("".join(numbered))
    entries = [
        entry
        for application in iterate_items(document["applications"].get("application"))
        for entry in iterate_items(application.get("instance"))
    ]
    if [entry for entry in entries if isinstance(entry, int)] != list(range(len(texts) - 1)):
        raise ValueError("not as servers write it")
    return document, entries


def instances_from_pieces(pieces: TextPieces, find_known: FindInstance = lambda _: None) -> list[Instance]:
    """Read the text of a list, see :func:`.codec.instances_from_json`.

    :param find_known: returns a version of an instance with which a new one shares what is equal.
    :raises ValueError: the text is not JSON.
    """
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        return _instances_one_by_one(pieces(), find_known)
    return instances_from_text(b"".join(pieces()))


def _instances_one_by_one(pieces: Iterable[bytes], find_known: FindInstance) -> list[Instance]:
    """Read a list as servers write it.

    :raises ValueError: no server writes it like this, or an instance does not name its application.
    """
    parts = split_at_instances(pieces)
    texts = [next(parts).decode()]
    instances: list[Instance] = []
    for part in parts:
        document, text_after = decode_instance_text(part)
        if not (document.get("app") and instance_id_of(document)):
            raise ValueError("an instance is named by the list around it")
        instance = instance_from_json(document)
        share_equal_parts(instance, find_known(instance.key))
        instances.append(instance)
        texts.append(text_after)
    found, _ = parse_text_around_instances(texts)
    for application in iterate_items(found["applications"].get("application")):
        application["instance"] = [
            instances[entry] if isinstance(entry, int) else entry
            for entry in iterate_items(application.get("instance"))
        ]
    return instances_from_json(found)
