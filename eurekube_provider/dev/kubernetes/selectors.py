"""Label and field selectors, as lists and watches are asked with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from eurekube_provider.dev.kubernetes.refusals import ApiRefusal, Object

_REQUIREMENT = re.compile(
    r"(?P<not>!)?(?P<key>[\w./-]+)( *(?P<is>==?|!=| in | notin ) *\(?(?P<values>[^()]*)\)?)?"
)


def selecting(namespace: str, query: Mapping[str, str]) -> Callable[[Object], bool]:
    """Return what tells whether an object is asked for.

    :param namespace: empty for all.
    :raises ApiRefusal: 400, a selector cannot be read, or has fields beside name and namespace.
    """
    labels = _requirements(query.get("labelSelector", ""))
    fields = _requirements(query.get("fieldSelector", ""))
    if any(key not in ("metadata.name", "metadata.namespace") for key, _ in fields):
        raise ApiRefusal(400, "BadRequest", f"field label not supported: {query['fieldSelector']}")

    def selects(item: Object) -> bool:
        metadata = item["metadata"]
        found = metadata.get("labels") or {}
        return (
            namespace in ("", metadata.get("namespace"))
            and all(holds(found.get(key)) for key, holds in labels)
            and all(holds(metadata.get(key.rpartition(".")[2])) for key, holds in fields)
        )

    return selects


def _requirements(text: str) -> list[tuple[str, Callable[[str | None], bool]]]:
    found = [_REQUIREMENT.fullmatch(one.strip()) for one in re.split(r",(?![^(]*\))", text) if one.strip()]
    if None in found:
        raise ApiRefusal(400, "BadRequest", f"unable to parse requirement: {text!r}")
    return [(one["key"], _holding(one)) for one in found if one is not None]


def _holding(found: re.Match[str]) -> Callable[[str | None], bool]:
    if found["is"] is None:
        return lambda value: (value is None) is bool(found["not"])
    values = {one.strip() for one in found["values"].split(",")}
    is_within = found["is"].strip() in ("=", "==", "in")
    return lambda value: (value in values) is is_within
