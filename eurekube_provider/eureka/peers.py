"""The servers of one Eureka: which of them to ask, and what to do when one is away.

A server that did not answer is avoided for a while, so that its time-outs do not slow everything down. A
process that can tell the server later what it missed waits for it only once: the first question that it
leaves open is given up soon after others answered.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from eurekube_provider.core.errors import (
    LeadershipLost,
    RegistryDenied,
    RegistryError,
    RegistrySilent,
    RegistryUnreachable,
)
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.avoided_peers import AvoidedPeers
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.fan_out import FanOut, PeerExecutor, is_executor_thread
from eurekube_provider.eureka.protocol.batch import ItemResponse
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.rules import may_copy_between_servers
from eurekube_provider.eureka.shared_batches import MakeItems, SharedBatches
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.eureka.topology import Topology

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

MOST_REMOVALS_UNTIL_HOLDER_ANSWERS = 5
"""The most times that a removal is sent to a single URL until a server behind it answers that it held the
instance: a load balancer takes its servers in turn, and only a holder forwards it.
"""

FEWEST_LEASES_FOR_BATCHES = 500
"""The number of Eureka leases from which on batches are used: fewer cost little as single requests."""


class Peers:
    """The servers of one Eureka cluster.

    Methods with the same name as :class:`Peer`'s ask the first server that answers. Only
    :class:`RegistryUnreachable` and :class:`RegistryDenied` move on to the next server; the first such error
    is raised if no server is left. A server that does not hold an instance may have just been restarted, so
    that the next ones are asked for it as well.

    :param may_write: asked before each change, see :class:`Peer`. Default: always yes.
    :param waits_for_all_servers: True if a server that is slower than the others is waited for until it
        answers or the time-out comes, unless it has been silent for :data:`.windows.AVOID_SERVER_SECONDS`. If
        False, questions to every server leave out avoided servers: the caller must find out later what these
        missed.
    """

    def __init__(
        self,
        connection: Connection,
        may_write: Callable[[], bool] = lambda: True,
        *,
        waits_for_all_servers: bool = True,
    ) -> None:
        self.connection = connection
        self.may_write = may_write
        self.peers = tuple(Peer(url, connection, may_write) for url in connection.service_urls)
        self._waits_for_all_servers = waits_for_all_servers or len(self.peers) == 1
        self._executors = [PeerExecutor(f"peers-{number}") for number in range(len(self.peers))]
        self.avoided = AvoidedPeers(self.peers)
        self._batches_by_url = {peer.url: SharedBatches(peer) for peer in self.peers}
        self._telling_until: dict[str, float] = {}
        self.topology = Topology(connection.service_urls, self.ask_all)
        self.table = InstanceTable(urls=[peer.url for peer in self.peers])
        """The records of the servers' instances: what each server answered and was sent."""

    def __repr__(self) -> str:
        return f"Peers({', '.join(peer.url for peer in self.peers)})"

    def close(self) -> None:
        """Close all pooled connections; later questions to several servers fail."""
        for executor in self._executors:
            executor.close()
        for peer in self.peers:
            peer.close()

    @property
    def peers_not_avoided(self) -> tuple[Peer, ...]:
        """The servers that are not avoided."""
        if not self.avoided.avoided_until:
            return self.peers
        return tuple(peer for peer in self.peers if not self.avoided.is_avoided(peer))

    def renew(self, instance: Instance, renewal_number: int = 0) -> bool:
        """Renew the Eureka lease at the first server that answers and holds the instance.

        That server tells its peers, which register what they lack, a person's override included.

        :param renewal_number: counts the renewals of this instance. Every second renewal begins at another
            server than the preferred one, each in turn: servers that cannot reach each other still get
            renewals before the Eureka lease lapses there.
        :returns: False only where no server that answers holds the instance, or where it was removed from a
            server that accepted its renewal lately, see :mod:`.rules`.
        """
        others = len(self.peers) - 1
        first_index = 1 + renewal_number // 2 % others if renewal_number % 2 and others else 0
        holders, lacking = list[Peer](), list[Peer]()
        if self._was_removed_at_another_server(instance, first_index):
            return False

        def ask(peer: Peer) -> bool | None:
            if peer.renew(instance):
                self.table.note_accepted_renewals(peer.url, [instance])
                self.table.note_held_at(peer.url, instance.key)
                holders.append(peer)
                return True
            lacking.append(peer)
            # It may hold older contents, which get a 404 as well.
            if not self.table.has_accepted_renewal_lately(peer.url, instance):
                return False
            return None if peer.read(*instance.key) is None else False

        self.ask_in_turn(ask, is_found=lambda answer: answer is not False, first_index=first_index)
        for peer in lacking if holders else ():
            if self.table.note_missing_and_check_cut_off(peer.url, instance) and self.may_write():
                self.copy_to_cut_off_server(peer, instance, holders[0])
        return bool(holders)

    def copy_to_cut_off_server(self, peer: Peer, instance: Instance, holder: Peer | None = None) -> bool:
        """Register an instance at a server that the other servers do not reach. Raises nothing.

        :param holder: the server that holds the instance; by default whichever other one does.
        :returns: True if the instance was registered.
        """
        try:
            others = [holder] if holder else [one for one in self.peers_in_order() if one is not peer]
            held = next(filter(None, (one.read(*instance.key) for one in others)), None)
            lacking = peer.read(*instance.key)
            if held is None or held.owner != instance.owner or not may_copy_between_servers(held, lacking):
                return False
            peer.register(held)
        except (RegistryError, LeadershipLost):
            return False  # its next turn finds the same
        self.table.note_held_at(peer.url, instance.key)
        _log.warning(
            "copied an instance to a Eureka server that lacked it, so that its callers find it again",
            extra={"url": peer.url, "instance": instance.instance_id},
        )
        return True

    def _was_removed_at_another_server(self, instance: Instance, first_index: int) -> bool:
        """Read the instance at the servers that accepted its renewal lately, other than the next one to ask;
        return whether one of them does not hold it any more.

        The next one may have missed the removal, and would have the others register the instance again.
        """
        for peer in self.peers_in_order(first_index)[1:]:
            has_accepted = self.table.has_accepted_renewal_lately(peer.url, instance)
            if not has_accepted or self.avoided.is_avoided(peer):
                continue
            try:
                if peer.with_timeout(windows.SHORT_TIMEOUT_SECONDS).read(*instance.key) is None:
                    return True
            except RegistryUnreachable as error:
                self.avoided.avoid(peer, "does not answer", error)
            except RegistryError:
                continue  # it tells nothing
        return False

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Read one instance past the caches; None only where no server that answers holds it."""
        return self.ask_in_turn(lambda peer: peer.read(application, instance_id), is_found=bool)

    def find_by_id(self, instance_id: str) -> Instance | None:
        """Read the instance with this id; None only where no server that answers holds it."""
        return self.ask_in_turn(lambda peer: peer.find_by_id(instance_id), is_found=bool)

    def list_instances(self) -> list[Instance]:
        """List the registry, up to 30 s old, from the first server that answers."""
        return self.list_from_first_server(lambda peer: peer.list_instances())

    def list_everywhere(self) -> tuple[list[Instance], dict[str, RegistryError]]:
        """Return the instances that any server lists, each once, in the version that was written last.

        :returns: the list, and by URL the failures of the servers that are missing in it.
        :raises RegistryError: no server answered.
        """
        lists, failures = self.ask_all_or_raise(lambda peer: peer.list_instances())
        return merge_lists(lists.values()), failures

    def find_duplicate_urls(self) -> dict[str, str]:
        """Return the URLs that lead to the same server as another URL, by what it says, with that one."""
        said = self.ask_all(lambda peer: peer.read_status().identity)[0] if len(self.peers) > 1 else {}
        first: dict[tuple[str, ...], str] = {}
        found = {one.url: first.setdefault(who, one.url) for one in self.peers if (who := said.get(one.url))}
        return {url: other for url, other in found.items() if url != other}

    def list_from_first_server(self, read: Callable[[Peer], _T]) -> _T:
        """List the registry with ``read``, from the first server that answers."""
        return self.ask_in_turn(read, may_be_slow=True)

    def uses_batches(self, lease_count: int) -> bool:
        """Return whether this number of Eureka leases is handled in batches.

        Servers do not forward batches, so that each batch must reach every server: see
        :class:`~eurekube_provider.eureka.topology.Topology`.
        """
        if self.connection.mode is not BatchMode.AUTO:
            return self.connection.mode is BatchMode.BATCH
        if lease_count < FEWEST_LEASES_FOR_BATCHES:
            return False
        return self.topology.allows_batches()

    def send_batch(self, peer: Peer, make_items: MakeItems, most_items: int) -> Sequence[ItemResponse]:
        """Have a server carry out items, perhaps in one batch with other threads' items; see
        :meth:`.SharedBatches.send`.
        """
        return self._batches_by_url[peer.url].send(make_items, most_items)

    def tells_versions(self, peer: Peer) -> bool:
        """Return whether a server was seen lately to tell versions apart: it answers 200 to a heartbeat only
        if it holds an instance with the heartbeat's timestamp (``syncWhenTimestampDiffers``).
        """
        return time.monotonic() < self._telling_until.get(peer.url, 0.0)

    def note_version_told(self, peer: Peer) -> None:
        """Note that a server answered a heartbeat with an instance that has another timestamp."""
        self._telling_until[peer.url] = time.monotonic() + windows.TOPOLOGY_CACHE_SECONDS

    def read_everywhere(
        self, application: str, instance_id: str
    ) -> tuple[dict[str, Instance | None], dict[str, RegistryError]]:
        """Ask every server for the instance, past its caches. Raises nothing.

        :returns: by URL, each server's instance, None for none; and the failures of the others.
        """
        return self.ask_all(lambda peer: peer.read(application, instance_id))

    def ask_all(
        self,
        ask: Callable[[Peer], _T],
        *,
        asks_avoided: bool = False,
        grace_seconds: float | None = None,
    ) -> tuple[dict[str, _T], dict[str, RegistryError]]:
        """Ask every server, all at once.

        :param asks_avoided: True to ask avoided servers, too, and wait a moment for them. Without effect
            where all servers are waited for, or all are avoided.
        :param grace_seconds: how long the other servers are waited for once one has answered, where not all
            are waited for; by default :data:`.windows.SERVER_GRACE_SECONDS`.
        :returns: the answers and the failures, by URL. Servers that were not asked, or not waited for, are
            failures; requests that were sent to them go on in the background.
        """
        fan_out = FanOut(ask)
        if len(self.peers) == 1 or is_executor_thread():
            for peer in self.peers:
                self._ask_one(fan_out, peer)
            fan_out.wait_and_return_unanswered(self.peers, (), for_all=True)
            return fan_out.answers, fan_out.failures
        avoided = [peer for peer in self.peers if self.avoided.is_avoided(peer)]
        if self._waits_for_all_servers:
            long_ago = time.monotonic() - windows.AVOID_SERVER_SECONDS
            avoided = [peer for peer in avoided if self.avoided.silent_since(peer.url) <= long_ago]
        if len(avoided) == len(self.peers):
            avoided = []
        needed = [peer for peer in self.peers if peer not in avoided]
        for peer, threads in zip(self.peers, self._executors, strict=True):
            if (asks_avoided or peer in needed) and not threads.submit(partial(self._ask_one, fan_out, peer)):
                fan_out.note_not_asked(peer)
        left_behind = fan_out.wait_and_return_unanswered(
            needed,
            avoided if asks_avoided else (),
            for_all=self._waits_for_all_servers,
            grace_seconds=grace_seconds,
        )
        failures = dict(fan_out.failures)
        for peer in left_behind:
            failures[peer.url] = self._not_awaited_error(peer, "did not answer when others did")
            self.avoided.avoid(peer, "is slow", failures[peer.url])
        for peer in avoided:
            if peer.url not in fan_out.answers and peer.url not in failures:
                failures[peer.url] = self._not_awaited_error(peer, "has not answered lately")
        return fan_out.answers, failures

    def _ask_one(self, fan_out: FanOut[_T], peer: Peer) -> None:
        found = fan_out.ask(peer)
        if found is True:
            self.avoided.stop_avoiding(peer)
        elif isinstance(found, RegistryUnreachable):
            self.avoided.avoid(peer, "does not answer", found)

    @staticmethod
    def _not_awaited_error(peer: Peer, why: str) -> RegistrySilent:
        return RegistrySilent(f"{peer.url} {why}, and was not waited for", url=peer.url)

    def ask_all_or_raise(
        self,
        ask: Callable[[Peer], _T],
        *,
        asks_avoided: bool = False,
        grace_seconds: float | None = None,
    ) -> tuple[dict[str, _T], dict[str, RegistryError]]:
        """Ask every server, of which at least one must answer; see :meth:`ask_all`.

        :raises RegistryError: no server answered.
        """
        answers, failures = self.ask_all(ask, asks_avoided=asks_avoided, grace_seconds=grace_seconds)
        if not answers:
            raise next(iter(failures.values()))
        return answers, failures

    def ask_in_turn(
        self,
        ask: Callable[[Peer], _T],
        is_found: Callable[[_T], bool] | None = None,
        first_index: int = 0,
        *,
        may_be_slow: bool = False,
    ) -> _T:
        """Ask one server after the other, beginning at ``first_index``, until one gives a wanted answer.

        A server that is avoided is not waited for where another one has answered.

        :param is_found: returns True for an answer that ends the search; None where any does.
        :param may_be_slow: True for an answer that takes its time: no server counts as slow for it.
        :raises RegistryError: no server answered.
        """
        failures: dict[Peer, RegistryError] = {}
        answers: list[_T] = []
        settled: set[Peer] = set()
        ordered = self.peers_in_order(first_index)
        fresh: list[Peer] = []
        if not may_be_slow and not self._waits_for_all_servers:
            # Where several servers are not avoided, each of these is first asked with a short time-out.
            fresh = [peer for peer in ordered if not self.avoided.is_avoided(peer)]
        short_count = len(fresh) if len(fresh) > 1 else 0
        for number, peer in enumerate((*fresh[:short_count], *ordered)):
            is_short = number < short_count
            if peer in settled or (answers and self.avoided.is_avoided(peer)):
                continue
            settled.add(peer)
            started = time.monotonic()
            try:
                answer = ask(peer.with_timeout(windows.SHORT_TIMEOUT_SECONDS) if is_short else peer)
            except RegistryUnreachable as error:
                if is_short and time.monotonic() - started >= windows.SHORT_TIMEOUT_SECONDS:
                    settled.discard(peer)  # it is given its time where no other one answers
                self.avoided.avoid(peer, "does not answer", error)
                failures[peer] = error
                continue
            except RegistryDenied as error:
                failures[peer] = error
                continue
            elapsed = time.monotonic() - started
            failures.pop(peer, None)
            if elapsed > windows.SLOW_SERVER_SECONDS and not may_be_slow:
                self.avoided.avoid(peer, "is slow", f"it took {elapsed:.1f} s")
            elif peer.url in self.avoided.avoided_until:
                self.avoided.stop_avoiding(peer)
            answers.append(answer)
            if is_found is None or is_found(answer):
                break
        if not answers:
            raise next(iter(failures.values()))
        for peer, failure in failures.items():
            if isinstance(failure, RegistryDenied):
                self.avoided.avoid(peer, "refuses us", failure)  # the others let us in
        return answers[-1]

    def peers_in_order(self, first_index: int = 0) -> list[Peer]:
        """Return the servers in the order in which they are asked: avoided ones last."""
        ordered = [*self.peers[first_index:], *self.peers[:first_index]]
        return sorted(ordered, key=self.avoided.is_avoided) if self.avoided.avoided_until else ordered


def still_held_error(peers: Peers, instance: Instance) -> RegistryUnreachable:
    """Return the error for an instance that a server keeps showing although it said that it removed it."""
    urls = ", ".join(peers.connection.service_urls)
    return RegistryUnreachable(
        f"deregister {instance.application} {instance.instance_id}: {urls} keeps holding it although it said"
        " that it removed it; somebody else may be registering it again",
        url=urls,
    )


def merge_lists(lists: Iterable[Iterable[Instance]]) -> list[Instance]:
    """Return each instance of several servers' lists once, in the version that was written last."""
    held: dict[InstanceKey, Instance] = {}
    for instance in itertools.chain.from_iterable(lists):
        other = held.get(instance.key)
        if other is None or instance.written_at_ms > other.written_at_ms:
            held[instance.key] = instance
    return list(held.values())
