"""XML of instances and lists, as a Eureka server writes and reads it beside JSON.

Source: Converters and XmlXStream of Netflix/eureka, XmlFriendlyNameCoder and PrettyPrintWriter of XStream.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

from eurekube_provider.dev.eureka.documents import (
    AMAZON_DATA_CENTER_CLASS,
    EMPTY_METADATA,
    INSTANCE_STATUSES,
    MY_OWN_DATA_CENTER_CLASS,
    UnreadableBody,
)
from eurekube_provider.dev.eureka.instance_registry import UNKNOWN, Document

_XML_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;", "\r": "&#xd;"}
)
_NAME_START_CHARACTERS = (
    r":A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    r"\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd"
)
_INVALID_NAME_CHARACTER_PATTERN = re.compile(
    rf"^[^{_NAME_START_CHARACTERS}]|[^{_NAME_START_CHARACTERS}\-.0-9\u00b7\u0300-\u036f\u203f\u2040]"
)
_NAME_ESCAPE_PATTERN = re.compile(r"__|_-|_\.([0-9a-f]{4})")


def to_xml(document: Document, *, is_pretty: bool = True) -> str:
    """Return the XML of a document of JSON with one name at its root, with or without line breaks."""
    ((name, value),) = document.items()
    return ("\n" if is_pretty else "").join(_xml_lines(name, value, "  " if is_pretty else ""))


def _xml_lines(name: str, value: Any, indent: str) -> Iterator[str]:
    name = "overriddenstatus" if name == "overriddenStatus" else name
    if isinstance(value, list):
        for one in value:
            yield from _xml_lines(name, one, indent)
        return
    if not isinstance(value, dict):
        yield f"<{name}>{_escape_text(value)}</{name}>"
        return
    if name == "metadata" and value != EMPTY_METADATA:
        attributes, children = "", {_encode_name(key): one for key, one in value.items()}
    else:
        found = {key[1:]: one for key, one in value.items() if key.startswith("@")}
        attributes = "".join(f' {key}="{_escape_text(one)}"' for key, one in found.items())
        children = {key: one for key, one in value.items() if not key.startswith("@")}
    if "$" in children:
        yield f"<{name}{attributes}>{_escape_text(children['$'])}</{name}>"
    elif not children:
        yield f"<{name}{attributes}/>"
    else:
        yield f"<{name}{attributes}>"
        for key, one in children.items():
            for line in _xml_lines(key, one, indent):
                yield indent + line
        yield f"</{name}>"


def parse_instance_xml(text: bytes) -> Document:
    """Read the XML of an instance into its JSON form, or raise UnreadableBody."""
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - a client of a development server, and expat has limits
    except ElementTree.ParseError as error:
        raise UnreadableBody(str(error)) from None
    if root.tag != "instance":
        raise UnreadableBody(f"{root.tag} is no instance")
    document: Document = {element.tag: _parse_element(element) for element in root}
    status = [name for name in ("status", "overriddenStatus", "overriddenstatus") if document.get(name)]
    for name in status:
        word = str(document[name]).upper()
        document[name] = word if word in INSTANCE_STATUSES else UNKNOWN
    return {"instance": document}


def _parse_element(element: ElementTree.Element) -> Any:
    match element.tag:
        case "port":
            return {"$": _parse_number(element), "@enabled": element.get("enabled") != "false"}
        case "securePort":
            return {"$": _parse_number(element), "@enabled": element.get("enabled") == "true"}
        case "countryId":
            return _parse_number(element)
        case "metadata":
            return {_decode_name(one.tag): _element_text(one) for one in element}
        case "leaseInfo":
            return {one.tag: one.text for one in element}
        case "dataCenterInfo":
            name = element.findtext("name")
            if name is not None and name.lower() == "amazon":
                found = element.find("metadata")
                return {
                    "@class": AMAZON_DATA_CENTER_CLASS,
                    "metadata": {} if found is None else _parse_element(found),
                }
            return {"@class": MY_OWN_DATA_CENTER_CLASS, "name": name}
        case _:
            return element.text or ""


def _parse_number(element: ElementTree.Element) -> int:
    try:
        return int(element.text or "")
    except ValueError:
        raise UnreadableBody(f"{element.tag} is no number") from None


def _element_text(element: ElementTree.Element) -> str:
    return (element.text or "") + "".join(one.tail or "" for one in element)


def _escape_text(value: Any) -> str:
    return str(value).translate(_XML_ESCAPES)


def _encode_name(name: str) -> str:
    return _INVALID_NAME_CHARACTER_PATTERN.sub(
        lambda found: {"_": "__", "$": "_-"}.get(found[0], f"_.{ord(found[0]):04x}"), name
    )


def _decode_name(name: str) -> str:
    return _NAME_ESCAPE_PATTERN.sub(
        lambda found: {"__": "_", "_-": "$"}.get(found[0]) or chr(int(found[1], 16)), name
    )
