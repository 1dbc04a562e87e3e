"""The readings of one Eureka: their failures, silent servers, and how far its lists can be believed.

A single failed reading says little: it is repeated at once. A server that accepts a request and does not
answer is noticed before the time-out, since until then the syncers' statuses would show the state before.

A replica that begins to lead starts with the list that every client gets, which a server answers at once from
its cache. A list made for it alone would be up to date, but would stay in that cache for good, one for each
change of leader. So the first list may be wrong about the last half minute, and nothing is done by it alone:

* An instance that it shows is read by itself before it is changed or removed. One that is gone by then is not
registered again because of the list, and a renewal that finds nothing reports it.
* An instance that it lacks does not count as new: it is read before it is registered, so that neither a newer
version nor a person's status is overwritten. An instance that must leave is read as well.
* An instance that was registered then and has since left Kubernetes is removed by the next list.

There is no such half minute where nobody led before: the first operator of a cluster makes the Lease.
"""

from __future__ import annotations

import time

from eurekube_provider.core.errors import ConfigurationError, RegistryError, RegistryUnreachable
from eurekube_provider.core.registry import Failing, Healthy, Misconfigured, NeverRead, RegistryCondition
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.runtime.clock import format_utc_time

LASTING_FAILURE_COUNT = 2


class Reachability:
    """The results of one Eureka's readings, which one thread at a time makes, and any may ask about."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._failures = 0
        self._failing_since = 0.0
        self._refusal: ConfigurationError | None = None
        self._failed_at = float("-inf")
        self._lags_until: float | None = None
        self.failure: RegistryError | None = None
        """Why the last reading failed; None if it succeeded."""
        self.read_at: float | None = None
        """Unix time of the last complete reading; None before the first."""

    @property
    def has_been_read(self) -> bool:
        """True if the registry has been read once: nothing may be removed before."""
        return self.read_at is not None

    @property
    def awaits_list_after_takeover(self) -> bool:
        """True while no list was read yet that shows every write of the leader before this replica."""
        return self._lags_until is not None

    @property
    def fails_repeatedly(self) -> bool:
        """True if several readings in a row failed, and not a single one."""
        return self._failures >= LASTING_FAILURE_COUNT

    @property
    def knows_all_instances(self) -> bool:
        """True if the last reading succeeded and no take-over waits for a newer list, so that no instance
        is unknown; a server's lost memory is asked for separately.
        """
        return self.read_at is not None and self.failure is None and self._lags_until is None

    def await_list_after_takeover(self) -> None:
        """Wait for lists that show every write, since another replica may have led just before."""
        self._lags_until = time.monotonic() + windows.LIST_LAG_SECONDS

    def would_list_end_takeover(self, asked_at: float) -> bool:
        """Return whether a list asked for at this time would show every write of the former leader."""
        return self._lags_until is not None and asked_at >= self._lags_until

    def stop_awaiting_list_after_takeover(self) -> None:
        """Stop waiting for lists after a take-over: those of every server that answers were read."""
        self._lags_until = None

    def clear_failure_and_check_recovery(self) -> bool:
        """Note that a list came; return whether the reading before failed."""
        was_away = self.failure is not None
        self.failure, self._failures = None, 0
        return was_away

    def note_read_and_check_first(self) -> bool:
        """Note that a list was fully processed; return whether it was the first."""
        is_first = not self.has_been_read
        self.read_at = time.time()
        return is_first

    def note_failure_and_check_lasting(self, error: RegistryError) -> bool:
        """Note a failed reading; return True only for the one from which failures count as lasting."""
        if self.failure is None:
            self._failing_since = time.time()
        self.failure = error
        self._failed_at = time.monotonic()
        self._failures += 1
        return self._failures == LASTING_FAILURE_COUNT

    def note_misconfiguration(self, why: ConfigurationError) -> None:
        """Remember that the registry must not be worked on."""
        self._refusal = why

    def failed_within(self, seconds: float) -> bool:
        """Return whether a reading failed in the last ``seconds``, or all servers were silent at once."""
        if time.monotonic() - self._failed_at < seconds:
            return True
        silences = [peer.traffic.long_silences_within(seconds) for peer in self._peers.peers]
        # The last of them to fall silent began what they have in common.
        return any(
            all(
                any(began <= last and last + windows.LONG_SILENCE_SECONDS <= ended for began, ended in one)
                for one in silences
            )
            for last in {began for one in silences for began, _ in one}
        )

    def condition(self) -> RegistryCondition:
        """Return whether the registry was read, and whether it answers."""
        if self._refusal is not None:
            return Misconfigured(self._refusal)
        failure = self.failure
        # For how long none of its servers has answered although it was asked.
        silence = min([peer.traffic.unanswered_seconds for peer in self._peers.peers], default=0.0)
        is_silent = silence >= windows.SILENCE_SECONDS and (
            silence >= windows.LONG_SILENCE_SECONDS
            or not any(peer.traffic.state is not None for peer in self._peers.peers)
        )
        if self.read_at is None:
            return NeverRead(failure or (self._no_answer_error(silence) if is_silent else None))
        if failure is not None and self.fails_repeatedly:
            return Failing(failure, self._failing_since)
        if silence >= windows.SILENCE_SECONDS:
            return Failing(self._no_answer_error(silence), time.time() - silence, lasts=is_silent)
        return Healthy(failure)

    def _no_answer_error(self, seconds: float) -> RegistryUnreachable:
        urls = ", ".join(peer.url for peer in self._peers.peers)
        since = format_utc_time(time.time() - seconds)
        return RegistryUnreachable(
            f"{urls} was asked and has not answered since {since}: what waits is tried again until it does",
            url=urls,
        )
