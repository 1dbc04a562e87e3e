"""The distance of a registry from self-preservation, in which Eureka evicts nobody any more.

A server expects two renewals a minute from each instance, and goes into self-preservation when it gets less
than 85 % of that. A process that renews for many others and stops takes the whole registry there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RENEWALS_PER_INSTANCE_AND_MINUTE = 2
LARGEST_HARMLESS_SHARE = 0.15
"""The largest share of a registry that can stop renewing without taking Eureka into self-preservation."""

FEWEST_INSTANCES_TO_WARN = 20
"""The number of instances in a registry below which the share says little, and no warning is given."""

# Numbers come in the server's locale: 1,234 or 1.234 or with a space between.
_THRESHOLD_PATTERN = re.compile(r"Renews threshold</td>\s*<td[^>]*>([^<]+)<", re.IGNORECASE)
_LAST_MINUTE_PATTERN = re.compile(r"Renews \(last min\)</td>\s*<td[^>]*>([^<]+)<", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FrontPage:
    """The renewal figures of a server's front page.

    :param renewals_threshold: the renewals a minute below which the server evicts no instances.
    :param renewals_last_minute: the number of renewals that the server got in the last minute.
    """

    renewals_threshold: int
    renewals_last_minute: int

    @property
    def is_in_or_near_self_preservation(self) -> bool:
        """True if the server is in self-preservation, or would be with one renewal less."""
        return self.renewals_last_minute <= self.renewals_threshold


@dataclass(frozen=True, slots=True)
class RenewalShare:
    """This process's share of a registry's renewals.

    :param renewed_here: how many instances this process renews, of ``registered`` in the registry.
    """

    renewed_here: int
    registered: int

    @classmethod
    def of_list(cls, renewed_here: int, listed: int) -> RenewalShare:
        """Return the share by a list, which is up to half a minute old: what was registered since counts."""
        return cls(renewed_here, max(renewed_here, listed))

    @property
    def expected_renewals_per_minute(self) -> int:
        """The renewals a minute that a server expects of this process's instances."""
        return RENEWALS_PER_INSTANCE_AND_MINUTE * self.renewed_here

    @property
    def share_of_instances(self) -> float:
        """The share of the registry's instances that this process renews, 0 to 1."""
        return self.renewed_here / self.registered if self.registered else 0.0

    @property
    def warning_sentence(self) -> str:
        """A warning for a person; empty for none."""
        if self.share_of_instances <= LARGEST_HARMLESS_SHARE or self.registered < FEWEST_INSTANCES_TO_WARN:
            return ""
        return (
            f"this operator renews {self.renewed_here} of {self.registered} instances "
            f"({self.share_of_instances:.0%}): should it stop for long, Eureka goes into self-preservation "
            f"(over {LARGEST_HARMLESS_SHARE:.0%}) and forgets none of them"
        )


_MOST_DIGITS = 18
"""The most digits of a number of renewals; Python raises an error for one of thousands."""


def parse_front_page(page: str) -> FrontPage | None:
    """Parse a server's front page; None for another page, e.g. one that asks to log in."""
    threshold, last_minute = _THRESHOLD_PATTERN.search(page), _LAST_MINUTE_PATTERN.search(page)
    if threshold is None or last_minute is None:
        return None
    digits = [re.sub(r"\D", "", found[1]) for found in (threshold, last_minute)]
    are_numbers = all(0 < len(one) <= _MOST_DIGITS for one in digits)
    return FrontPage(int(digits[0]), int(digits[1])) if are_numbers else None
