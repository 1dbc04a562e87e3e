"""Figures of Eureka's front page about self-preservation, and the share of instances that one client
renews.
"""

from __future__ import annotations

import pytest

from eurekube_provider.eureka.self_preservation import FrontPage, RenewalShare, parse_front_page

PAGE = """<table><tr><td>Lease expiration enabled</td><td>true</td></tr>
<tr><td>Renews threshold</td>
  <td>{threshold}</td></tr><tr class="x"><td>Renews (last min)</td><td>{last}</td></tr></table>"""


@pytest.mark.parametrize(("written", "number"), [("7", 7), ("1,234", 1234), ("17\u202f000", 17000)])
def test_front_page(written: str, number: int) -> None:
    """The numbers of the front page are read in any locale's format."""
    page = PAGE.format(threshold=written, last="20")
    assert parse_front_page(page) == FrontPage(renewals_threshold=number, renewals_last_minute=20)


def test_other_pages() -> None:
    """A login page, or a page with empty figures, gives no figures."""
    assert parse_front_page("<form>Please sign in</form>") is None
    assert parse_front_page(PAGE.format(threshold="", last="")) is None
    assert parse_front_page(PAGE.format(threshold="9" * 5000, last="20")) is None


def test_endangered() -> None:
    """A server is endangered unless its renewals of the last minute exceed the threshold."""
    assert FrontPage(renewals_threshold=17, renewals_last_minute=17).is_in_or_near_self_preservation
    assert not FrontPage(renewals_threshold=17, renewals_last_minute=18).is_in_or_near_self_preservation


def test_share() -> None:
    """A client that renews more than 15 % of a registry gets a warning; at an empty registry it gets none."""
    assert RenewalShare(renewed_here=15, registered=100).warning_sentence == ""
    assert "16 of 100 instances (16%)" in RenewalShare(renewed_here=16, registered=100).warning_sentence
    assert "84 of 84 instances (100%)" in RenewalShare.of_list(renewed_here=84, listed=66).warning_sentence
    assert RenewalShare(renewed_here=0, registered=0).warning_sentence == ""
    assert RenewalShare(renewed_here=50, registered=100).expected_renewals_per_minute == 100
