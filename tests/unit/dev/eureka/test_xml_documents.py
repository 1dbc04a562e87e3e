"""XML of instances: written instances are read back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.dev.eureka import xml_documents
from eurekube_provider.dev.eureka.documents import UnreadableBody, instance_info_document, parse_instance_info
from tests.model.commands import DATA_CENTER

TEXTS = st.text(st.characters(max_codepoint=0xFF, categories=("L", "N", "P", "S")), max_size=12)
KEYS = TEXTS.filter(lambda key: key not in ("", "@class") and ":" not in key)

SENT = {
    "instanceId": "rating-1",
    "app": "RATING",
    "hostName": "10.0.0.1",
    "ipAddr": "10.0.0.1",
    "status": "DOWN",
    "port": {"$": 8080, "@enabled": "false"},
    "securePort": {"$": 8443, "@enabled": "true"},
    "dataCenterInfo": DATA_CENTER,
    "leaseInfo": {"durationInSecs": 40, "renewalIntervalInSecs": 10},
    "lastDirtyTimestamp": "1000",
}


@given(metadata=st.dictionaries(KEYS, TEXTS, max_size=4), host_name=TEXTS)
def test_an_instance_comes_back_as_it_was(metadata: dict[str, str], host_name: str) -> None:
    """An instance is read back from its XML unchanged, also with metadata keys that are no valid element
    names.
    """
    sent = parse_instance_info({**SENT, "metadata": metadata, "hostName": host_name}, 0)
    document = instance_info_document(sent, None)
    text = xml_documents.to_xml({"instance": document})
    read = parse_instance_info(xml_documents.parse_instance_xml(text.encode())["instance"], 0)
    assert instance_info_document(read, None) == document


def test_each_element_has_a_line_but_in_the_compact_form() -> None:
    """The XML has one line for each element, as XStream writes it, or none at all in the compact form, as
    Jackson does.
    """
    document = {
        "instance": {"hostName": "a & b", "port": {"$": 80, "@enabled": "true"}, "metadata": {"k": ""}}
    }
    pretty = xml_documents.to_xml(document)
    assert pretty.splitlines() == [
        "<instance>",
        "  <hostName>a &amp; b</hostName>",
        '  <port enabled="true">80</port>',
        "  <metadata>",
        "    <k></k>",
        "  </metadata>",
        "</instance>",
    ]
    assert xml_documents.to_xml(document, is_pretty=False) == "".join(map(str.strip, pretty.splitlines()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "<instance>",
        "<other/>",
        "<instance><port>x</port></instance>",
        '<!DOCTYPE a [<!ENTITY b "c">',
    ],
)
def test_what_is_no_instance_is_refused(text: str) -> None:
    """Malformed XML, another element, and a port that is no number are refused."""
    with pytest.raises(UnreadableBody):
        xml_documents.parse_instance_xml(text.encode())


def test_an_entity_does_not_grow_without_end() -> None:
    """Nested XML entities that would grow to gigabytes are refused."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    text = f'<!DOCTYPE instance [<!ENTITY e0 "x">{entities}]><instance><hostName>&e11;</hostName></instance>'
    with pytest.raises(UnreadableBody):
        xml_documents.parse_instance_xml(text.encode())
