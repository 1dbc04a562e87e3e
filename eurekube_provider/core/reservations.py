"""Reservations of names: which namespaces may register under an application's name or a VIP address.

Anyone who registers under a name is called by everybody who looks that name up. In a cluster that several
teams share, a label on one's own Service must not be enough for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache


@lru_cache(maxsize=4096)
def lookup_names(application: str, vip_address: str, secure_vip_address: str) -> frozenset[str]:
    """Return the names, in lower case, under which callers find an instance."""
    vips = f"{vip_address},{secure_vip_address}".split(",")
    return frozenset(name.strip().lower() for name in (application, *vips) if name.strip())


@dataclass(frozen=True, slots=True)
class Reservations:
    """Names that only the syncers of some namespaces may register under.

    :param namespace_and_name_patterns: namespace and name; ``*`` stands for any letters in either. Of several
        names that match, the one with the most letters besides ``*`` counts, so that ``*=*`` leaves all other
        names to everybody.
    """

    namespace_and_name_patterns: frozenset[tuple[str, str]]

    def lets_register(self, namespace: str, name: str) -> bool | None:
        """Return whether a namespace may register under ``name``; None where the name is not reserved."""
        fitting = [
            (len(pattern.replace("*", "")), who)
            for who, pattern in self.namespace_and_name_patterns
            if fnmatchcase(name.lower(), pattern.lower())
        ]
        if not fitting:
            return None
        best = max(length for length, _ in fitting)
        return any(fnmatchcase(namespace, who) for length, who in fitting if length == best)
