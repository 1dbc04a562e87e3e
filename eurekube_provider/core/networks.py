"""Networks as people write them: CIDRs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read networks as people write them.

    :raises ValueError: one is none; says which, and what would be right.
    """
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(str(text).strip()))
        except ValueError:
            raise ValueError(
                f"{text!r} must be a network such as 192.0.2.0/24 or 2001:db8::/32, without bits set behind"
                " its length"
            ) from None
    return tuple(found)
