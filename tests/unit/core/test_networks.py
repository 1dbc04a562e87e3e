"""Texts of addresses that two readers may parse as different addresses."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.networks import check_unambiguous_address, describe_ambiguous_address


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("198.51.100.071", "198.51.100.57"),
        ("010.0.0.1", "8.0.0.1"),
        ("10.0.0.08", "10.0.0.8"),
        ("0x7f.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("3325256760", "198.51.100.56"),
        ("00.0.0.0", "0.0.0.0"),
        ("0" * 5000 + "8.0.0.1", "8.0.0.1"),
    ],
)
def test_an_old_form_of_an_address_is_read_in_two_ways(address: str, read: str) -> None:
    """A resolver parses leading zeros or hexadecimal digits as one address, libraries as another or none."""
    assert f"some read {read}, others something else" in describe_ambiguous_address(address)
    with pytest.raises(InvalidInstance, match="ip_address"):
        check_unambiguous_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("198.51.100.71", "10.0.0.0", "255.255.255.255", "fd00::1", "vm-1.example", "1password.com", ""),
        *("vm-071", "123456789012", "10.0.0.256", "1.2.3.4.5", "localhost", "[fd00::1]", "10.0.0.1."),
        *("9" * 5000, "10.0.0." + "9" * 5000, "9" * 5000 + ".0.0.1"),
    ],
)
def test_what_all_read_alike_is_none(address: str) -> None:
    """A plain address, a host name, and a text that no reader parses as an address are not ambiguous."""
    assert describe_ambiguous_address(address) == ""
    check_unambiguous_address(address)


def test_an_endless_text_is_no_address() -> None:
    """Thousands of digits, which anyone may register, are no address, and stop no reader of the registry."""
    for address in ("9" * 5000, "1." + "9" * 5000, "9" * 10**6):
        assert describe_ambiguous_address(address) == ""
    assert "some read 0.0.0.9" in describe_ambiguous_address("0" * 5000 + "9")


@given(st.text("0123456789abx.", max_size=16))
def test_whatever_a_resolver_reads_otherwise_is_reported(text: str) -> None:
    """Any text that the C library parses as an address is in the plain form, or is reported as ambiguous."""
    try:
        socket.inet_aton(text)
    except OSError:
        return
    try:
        assert str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        assert describe_ambiguous_address(text)
