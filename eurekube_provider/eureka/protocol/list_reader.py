"""A reader of the list of a whole registry that makes each instance as soon as its text has come."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from eurekube_provider.core.model import FindInstance, Instance, share_equal_parts
from eurekube_provider.eureka.protocol.codec import (
    instance_from_json,
    instance_id_of,
    instances_from_json,
    instances_from_text,
    iterate_items,
)
from eurekube_provider.eureka.protocol.instance_texts import (
    TextPieces,
    decode_instance_text,
    parse_text_around_instances,
    split_at_instances,
)


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
