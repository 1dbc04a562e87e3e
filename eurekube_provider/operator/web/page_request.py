"""A person's request for the status page: a filter of syncers, and a page number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.comparison.reported_state import SyncState

PAGE_SIZE = 50
"""Number of rows on a page."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A filter and a page; an empty text asks for everything.

    :ivar syncer: ``namespace/name`` of the only syncer to show.
    :ivar application: name, in any case, of the only application to show.
    :ivar state: state of the syncers to show, e.g. ``not ready``.
    :ivar find: a part of a syncer's or an application's name, in any case.
    :ivar page: from 1; None for all rows at once.
    """

    syncer: str = ""
    application: str = ""
    state: str = ""
    find: str = ""
    page: int | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str], *, is_paged: bool) -> PageRequest:
        """Parse a URL's parameters; an invalid one counts as absent.

        :param is_paged: True if the first page is meant where none is named.
        """
        state = query.get("state", "").strip()
        number = query.get("page", "").strip()
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 7 else 0
        return cls(
            query.get("syncer", "").strip(),
            query.get("application", "").strip(),
            state if state in list(SyncState) else "",
            query.get("find", "").strip(),
            max(1, page) if page or is_paged else None,
        )

    def matches_names(self, syncer: str, application: str) -> bool:
        """Return whether the filter lets a syncer (empty for none) and an application through."""
        return (not self.syncer or syncer == self.syncer) and (
            not self.application or application.upper() == self.application.upper()
        )

    def matches_row(self, row: Mapping[str, Any]) -> bool:
        """Return whether the filter lets a syncer's row through."""
        name = f"{row['namespace']}/{row['name']}"
        if not self.matches_names(name, row["application"]):
            return False
        is_named = not self.find or self.find.lower() in f"{name} {row['application']}".lower()
        return is_named and (not self.state or row["state"] == self.state)

    def filter_to_dict(self) -> dict[str, str]:
        """Return the filter without the page number as plain JSON values."""
        return {
            "syncer": self.syncer,
            "application": self.application,
            "state": self.state,
            "find": self.find,
        }


UNFILTERED_REQUEST = PageRequest()
