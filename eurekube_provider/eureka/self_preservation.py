"""How near a registry is to self-preservation, in which Eureka forgets nobody any more.

A server expects two renewals a minute from each instance and goes into self-preservation when it gets less
than 85 % of that. Somebody who renews for many others and stops, takes the whole registry there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RENEWALS_A_MINUTE = 2
LARGEST_HARMLESS_SHARE = 0.15
"""An operator that renews a larger share takes Eureka into self-preservation when it stops."""

FEWEST_TO_WARN_OF = 20
"""In smaller registries a share says little."""

# Numbers come in the server's locale: 1,234 or 1.234 or with a space between.
_THRESHOLD = re.compile(r"Renews threshold</td>\s*<td[^>]*>([^<]+)<", re.IGNORECASE)
_LAST_MINUTE = re.compile(r"Renews \(last min\)</td>\s*<td[^>]*>([^<]+)<", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FrontPage:
    """A server's front page.

    :param threshold: renewals a minute below which it stops forgetting instances.
    :param last_minute: renewals that it got.
    """

    threshold: int
    last_minute: int

    @property
    def is_endangered(self) -> bool:
        """Return whether the server is in self-preservation, or would be with the next renewal that is
        missing.
        """
        return self.last_minute <= self.threshold


@dataclass(frozen=True, slots=True)
class RenewalShare:
    """Our part in a registry.

    :param held: instances that we renew; ``registered`` all that the registry holds.
    :param renewals_last_minute: accepted by one server, in the mean of all of them.
    """

    held: int
    registered: int
    renewals_last_minute: float

    @property
    def renewals_expected(self) -> int:
        """Return the renewals a minute that a server expects of our instances."""
        return RENEWALS_A_MINUTE * self.held

    @property
    def share(self) -> float:
        """Our share of the registry, 0 to 1."""
        return self.held / self.registered if self.registered else 0.0

    @property
    def warning(self) -> str:
        """Return a warning for a person; empty where there is none."""
        if self.share <= LARGEST_HARMLESS_SHARE or self.registered < FEWEST_TO_WARN_OF:
            return ""
        return (
            f"this operator renews {self.held} of {self.registered} instances ({self.share:.0%}): should it"
            f" stop for long, Eureka goes into self-preservation (over {LARGEST_HARMLESS_SHARE:.0%}) and"
            " forgets none of them"
        )


def figures_from_page(page: str) -> FrontPage | None:
    """Read a server's front page; None where it is another page, e.g. one that asks to log in."""
    threshold, last_minute = _THRESHOLD.search(page), _LAST_MINUTE.search(page)
    if threshold is None or last_minute is None:
        return None
    digits = [re.sub(r"\D", "", found[1]) for found in (threshold, last_minute)]
    return FrontPage(int(digits[0]), int(digits[1])) if all(digits) else None
