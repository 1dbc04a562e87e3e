"""Parsing and checks of networks and addresses that people write."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from eurekube_provider.core.errors import InvalidInstance

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks as people write them.

    :raises ValueError: a text is no network; the message says which, and what would be right.
    """
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(str(text).strip()))
        except ValueError:
            raise ValueError(
                f"{text!r} must be a network such as 192.0.2.0/24 or 2001:db8::/32, without bits set behind "
                "its length"
            ) from None
    return tuple(found)


_INET_ATON_PATTERN = re.compile(r"(?:0[xX][0-9a-fA-F]+|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]+|[0-9]+)){0,3}")
_MAX_ADDRESS_DIGITS = len(str(2**32))
_DOTTED_DECIMAL_PATTERN = re.compile(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){3}")


def describe_ambiguous_address(address: str) -> str:
    """Return why two readers may take a text for different IPv4 addresses; empty where they cannot.

    Resolvers of the C library still read the forms of ``inet_aton``: a part with a leading zero is octal, one
    with ``0x`` hexadecimal, and the last of fewer than four parts fills the rest. Libraries of most languages
    read such a part as decimal, or refuse it.
    """
    if (
        not address[:1].isdigit()
        or _DOTTED_DECIMAL_PATTERN.fullmatch(address)
        or not _INET_ATON_PATTERN.fullmatch(address)
    ):
        return ""
    *leading, last = map(_parse_address_part, address.split("."))
    if any(one > 255 for one in leading) or last >= 256 ** (4 - len(leading)):
        return ""  # nobody takes it for an address
    number = last + sum(one << (24 - 8 * place) for place, one in enumerate(leading))
    return (
        f"is no address that all read alike: some read {ipaddress.IPv4Address(number)}, others something else"
        " or nothing; write four decimal numbers without leading zeros"
    )


def check_unambiguous_address(address: str) -> None:
    """Refuse an address that two readers may take for different ones.

    :raises InvalidInstance: the address is ambiguous; the message says why.
    """
    if problem := describe_ambiguous_address(address):
        raise InvalidInstance("ip_address", f"{address!r} {problem}")


def _parse_address_part(text: str) -> int:
    if text[:2].lower() == "0x":
        return int(text, 16)
    if text.startswith("0") and set(text) <= set("01234567"):
        return int(text, 8)
    # 08 and 09 are no octal numbers, and are refused or read as decimal. Python refuses to read thousands of
    # digits, and anyone may register such a text: it is above any address.
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= _MAX_ADDRESS_DIGITS else 2**32
