"""The status page of a server, parsed."""

from __future__ import annotations

import pytest

from eurekube_provider.eureka.protocol.server_status import status_from_xml

PAGE = (
    "<StatusResponse><applicationStats/><instanceInfo><hostName>eureka-1</hostName>"
    "<lastUpdatedTimestamp>{}</lastUpdatedTimestamp></instanceInfo></StatusResponse>"
)


@pytest.mark.parametrize(
    ("text", "started"), [("1764500000000", 1764500000000), ("9" * 5000, None), ("²", None), ("", None)]
)
def test_a_start_time_that_is_none_is_left_out(text: str, started: int | None) -> None:
    """Thousands of digits, of which Python makes no number, and other texts are no time."""
    page = status_from_xml(PAGE.format(text), None)
    assert page is not None
    assert page.started_timestamp_ms == started
