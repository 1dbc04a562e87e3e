"""The resource for many registrations, in Pulumi's own plugin process, with two real Eureka peers.

Single registrations are tested here, too, where they need two servers: removals that share their second look,
and replacements that a person forces.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
from pulumi.runtime import rpc

from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable, SomeRegistrationsFailed
from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.lifecycle import create
from eurekube_provider.registrations.members import check_application
from eurekube_provider.registrations.property_check import check
from eurekube_provider.registrations.resource import APPLICATION_REGISTRATION_KIND
from eurekube_provider.registrations.secret_values import SECRET_SIGNATURE, SIGNATURE_KEY
from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.program_inputs import IN_UPDATE_KEY
from lab.eureka import FAST_LIST_SETTINGS
from lab.listing import list_keys_uncached, list_uncached
from lab.workloads import wait_for
from tests.contract.conftest import wait_everywhere
from tests.contract.plugin import NOBODY, Plugin, Properties, plugins, sentence
from tests.eureka_servers import Servers, Train, run_servers


@pytest.fixture(scope="module")
def two(one_train: Train) -> Iterator[Servers]:
    """Start two servers that are peers, whose lists are a second old at most."""
    with run_servers(one_train, 2, settings=FAST_LIST_SETTINGS) as running:
        yield running


@pytest.fixture
def eureka(two: Servers) -> Iterator[Peers]:
    """Return a client of both servers that bypasses the code under test."""
    peers = Peers(Connection(tuple(two.eureka_urls)))
    yield peers
    peers.close()


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory, shell: str) -> Iterator[Plugin]:
    """Start a plugin process for single registrations."""
    with plugins(tmp_path_factory.mktemp("single"), shell) as start:
        yield start()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory, shell: str) -> Iterator[Plugin]:
    """Start a plugin process for the resource of many registrations."""
    with plugins(tmp_path_factory.mktemp("application"), shell, APPLICATION_REGISTRATION_KIND.token) as start:
        yield start(ApplicationProvider())


@pytest.fixture
def start_run(tmp_path: Path, shell: str) -> Iterator[Callable[[], Plugin]]:
    """Return a function that starts a plugin process of its own, as each run of Pulumi does."""
    with plugins(tmp_path, shell, APPLICATION_REGISTRATION_KIND.token) as start:
        yield lambda: start(ApplicationProvider())


@pytest.fixture
def next_run(start_run: Callable[[], Plugin]) -> Plugin:
    """Return a plugin process that has no other process's lists in its memory."""
    return start_run()


@pytest.fixture
def news(two: Servers, unique_name: str) -> Properties:
    """Return the inputs of a program with two instances."""
    return {
        "application": unique_name,
        "port": 8080,
        "metadata": {"tier": "1"},
        "instances": {"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.2", "zone": "zone-b"}},
        "renewer": "eurekube",
        "service_url": ",".join(two.eureka_urls),
        "owner": f"stack/organization/shop/dev/{unique_name}",
    }


def with_instances(news: Properties, **instances: Properties) -> Properties:
    """Return the properties with other instances."""
    return {**news, "instances": instances}


def listed(peer: Peer, news: Properties) -> list[Instance]:
    """Return an application's instances as one server lists them now."""
    return list_uncached(peer.url, application=news["application"])


def held(eureka: Peers, news: Properties) -> dict[str, Instance]:
    """Return the instances that either server holds now, by the key in their ids."""
    ours = [each for peer in eureka.peers for each in listed(peer, news)]
    newest = sorted(ours, key=lambda each: each.last_dirty_timestamp_ms or 0)
    return {each.instance_id.partition(".")[0]: each for each in newest}


def addresses(eureka: Peers, news: Properties) -> dict[str, str]:
    """Return the addresses of the instances that either server holds, by the key in their ids."""
    return {key: each.ip_address for key, each in held(eureka, news).items()}


def take_out_of_service(eureka: Peers, instance: Instance) -> None:
    """Set OUT_OF_SERVICE on one server as a person would, and wait until all servers have it."""
    first, *_ = eureka.peers
    first.set_status(instance, Status.OUT_OF_SERVICE)

    def statuses() -> set[Status | None]:
        found = (peer.read(*instance.key) for peer in eureka.peers)
        return {each.status if each else None for each in found}

    wait_for(lambda: statuses() == {Status.OUT_OF_SERVICE}, "the copies of a status")


def rewrite(eureka: Peers, instance: Instance, **changes: object) -> None:
    """Register an instance with changes on every server, as another client would."""
    stamp = (instance.last_dirty_timestamp_ms or 0) + 1
    for peer in eureka.peers:
        peer.register(replace(instance, last_dirty_timestamp_ms=stamp, **changes))  # type: ignore[arg-type]


class Refusing(Peers):
    """A client of the servers that refuses to register ids with a given beginning."""

    def __init__(self, connection: Connection, beginning: str) -> None:
        super().__init__(connection)
        self._beginning = beginning
        for peer in self.peers:
            peer.register = partial(self._register, peer.register)  # type: ignore[method-assign]

    def _register(self, register: Callable[[Instance], None], instance: Instance) -> None:
        if instance.instance_id.startswith(self._beginning):
            raise RegistryRejected("somebody refused it")
        register(instance)


class Losing(Peers):
    """A client of the servers that loses each server's answer to the first registration of each incarnation.

    Of several members that are registered at the same time one is the first, at each server.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._lost = {(peer.url, "old") for peer in self.peers}
        self._first: dict[str | None, str] = {}
        for peer in self.peers:
            peer.register = partial(  # type: ignore[method-assign]
                self._register, peer.url, peer.register
            )

    def _register(self, url: str, register: Callable[[Instance], None], instance: Instance) -> None:
        """Register the instance, and raise as if no answer had come."""
        register(instance)
        first = self._first.setdefault(instance.incarnation, instance.instance_id)
        if instance.instance_id == first and (url, instance.incarnation) not in self._lost:
            self._lost.add((url, instance.incarnation))
            raise RegistryUnreachable("no answer within 5 s")


def test_an_application_from_check_to_delete(plugin: Plugin, eureka: Peers, news: Properties) -> None:
    """One instance is added, one removed, one changed; no change means no update, and delete leaves
    nothing.
    """
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    registered = held(eureka, news)
    assert addresses(eureka, news) == {"a": "192.0.2.1", "b": "192.0.2.2"}
    assert {
        "tier": "1",
        "zone": "zone-b",
        "eurekube.member": "b",
        "eurekube.owner": news["owner"],
        "eurekube.renewer": "eurekube",
        "eurekube.incarnation": state["incarnation"],
    } == registered["b"].metadata
    assert registered["a"].instance_id == f"a.{news['application']}.dev.shop:{news['application']}:8080"
    assert plugin.diff(state, plugin.check(news, inputs)) == (False, [], False)
    assert (state, inputs) == plugin.read(state)[1:]
    assert inputs["instances"] == state["instances"]  # no more of each in the state than was written

    wanted = with_instances(news, b={"host_name": "192.0.2.3"}, c={"host_name": "192.0.2.4", "port": 9090})
    changed = plugin.check(wanted, inputs)
    assert plugin.diff(state, changed) == (True, [], False)
    state = plugin.update(state, changed)
    assert addresses(eureka, news) == {"b": "192.0.2.3", "c": "192.0.2.4"}
    assert held(eureka, news)["c"].port == Port(9090)

    plugin.delete(state)
    assert held(eureka, news) == {}
    plugin.delete(state)  # a second time is no error
    assert plugin.read(state)[0] == ""


def test_check_and_diff_need_no_eureka(plugin: Plugin, news: Properties) -> None:
    """Check and diff contact no server, as in a pull request's preview, even with unknown values."""
    inputs = plugin.check({**news, "service_url": NOBODY})
    assert plugin.diff(plugin.check(news), inputs) == (True, ["service_url"], False)
    assert plugin.diff(inputs, plugin.check({**news, "service_url": NOBODY, "application": "other"}))[1] == [
        "application"
    ]
    for unknown in (
        with_instances(news, a={"host_name": rpc.UNKNOWN, "port": rpc.UNKNOWN}),
        {**news, "instances": rpc.UNKNOWN},
        {**news, "instances": {"a": rpc.UNKNOWN}},
        {**news, "metadata": {"tier": rpc.UNKNOWN}},
    ):
        checked = plugin.check({**unknown, "service_url": NOBODY})
        assert "failures" not in checked
        assert plugin.diff(inputs, checked) == (True, [], False)


def test_problems_name_the_instance(plugin: Plugin, news: Properties) -> None:
    """Each problem names the property within the map of instances."""
    failures = plugin.check(with_instances(news, a={"host_name": "h", "port": 0}, b={"host": "h"}))[
        "failures"
    ]
    assert [failure.partition(":")[0] for failure in failures] == [
        "instances.a.port",
        "instances.b.host",
        "instances.b.host_name",
    ]


def test_an_unreachable_eureka_is_an_error_and_never_a_blank_id(plugin: Plugin, news: Properties) -> None:
    """If no server answers a read raises: a blank id would drop all registrations from the state."""
    state = plugin.check({**news, "service_url": NOBODY})
    for call in (plugin.read, plugin.create, plugin.delete):
        with pytest.raises(grpc.RpcError) as raised:
            call(state)
        assert "no connection to http://127.0.0.1:9/eureka" in sentence(raised)


def test_gone_needs_the_word_of_every_server(plugin: Plugin, news: Properties, two: Servers) -> None:
    """A read calls an instance gone only if every server says so: one that does not answer may still hold
    it.
    """
    state = plugin.check({**news, "service_url": f"{NOBODY},{two.eureka_urls[0]}"})
    with pytest.raises(grpc.RpcError) as raised:
        plugin.read(state)
    assert "is not known" in sentence(raised)


def test_drift_shows_instance_by_instance_and_is_healed(
    plugin: Plugin, eureka: Peers, news: Properties
) -> None:
    """A refresh shows changed, removed and overridden instances, and an update restores them."""
    news = with_instances(news, **{**news["instances"], "c": {"host_name": "192.0.2.3", "status": "UP"}})
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    # No copy of the registrations is under way any more.
    wait_for(lambda: all(len(listed(peer, news)) == 3 for peer in eureka.peers), "the copies")
    there = held(eureka, news)
    metadata = {key: value for key, value in there["a"].metadata.items() if key != "tier"}
    rewrite(eureka, there["a"], host_name="192.0.2.99", metadata={**metadata, "by": "hand"})
    # On one server only: when the other one has it no more either, no copy of the removal is under way.
    eureka.peers[0].deregister(*there["b"].key)
    wait_for(lambda: "b" not in held(eureka, news), "b to go")
    take_out_of_service(eureka, there["c"])
    _, refreshed, refreshed_inputs = plugin.read(state)
    assert refreshed_inputs["instances"] == {
        "a": {"host_name": "192.0.2.99", "ip_address": "192.0.2.1", "metadata": {"by": "hand", "tier": ""}},
        "c": {"host_name": "192.0.2.3", "status": "OUT_OF_SERVICE"},
    }
    assert refreshed["statuses"] == {"c": "OUT_OF_SERVICE"}
    assert plugin.diff(refreshed, inputs)[0]
    state = plugin.update(refreshed, inputs)
    healed = held(eureka, news)
    assert (
        healed["a"].host_name,
        healed["a"].metadata["tier"],
        healed["a"].metadata.get("by"),
    ) == ("192.0.2.1", "1", None)
    # The server that a status is cleared on tells the other one up to half a second later.
    wait_for(lambda: {each.status for each in held(eureka, news).values()} == {Status.UP}, "all UP")
    assert inputs["instances"] == state["instances"]


def test_a_persons_override_is_kept_and_shown(plugin: Plugin, eureka: Peers, news: Properties) -> None:
    """If the program sets no status, a person's OUT_OF_SERVICE stays over an update, and shows in the
    state.
    """
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    take_out_of_service(eureka, held(eureka, news)["a"])
    _, refreshed, _ = plugin.read(state)
    assert refreshed["statuses"] == {"a": "OUT_OF_SERVICE"}
    assert plugin.diff(refreshed, inputs) == (False, [], False)
    updated = plugin.update(refreshed, plugin.check({**news, "metadata": {"tier": "2"}}, inputs))
    assert updated["statuses"] == {"a": "OUT_OF_SERVICE"}
    assert held(eureka, news)["a"].metadata["tier"] == "2"
    assert held(eureka, news)["a"].status is Status.OUT_OF_SERVICE


def test_a_conflict_registers_nothing_and_names_each(
    next_run: Plugin, eureka: Peers, news: Properties
) -> None:
    """A creation registers nothing if one id is taken or one address registered itself, and names each
    such instance.
    """
    application = news["application"]
    same_id = f"a.{application}.dev.shop:{application}:8080"
    Writer(eureka).register(Instance(application, same_id, "192.0.2.99", "192.0.2.99", Port(1)))
    itself = Instance(application, "itself", "192.0.2.2", "192.0.2.2", Port(8080))
    Writer(eureka).register(itself)
    wait_everywhere(eureka, itself)
    news = with_instances(news, **news["instances"], c={"host_name": "192.0.2.3"})
    with pytest.raises(grpc.RpcError) as raised:
        next_run.create(next_run.check(news))
    said = sentence(raised)
    assert "2 of 3 instances failed (nothing was registered): a (" in said
    assert "b (" in said
    assert re.search('on_?[Cc]onflict="adopt"', said)
    assert "registered itself" in said
    assert addresses(eureka, news) == {"a": "192.0.2.99", "itself": "192.0.2.2"}


def test_adopting_takes_over_and_a_failure_gives_back(
    plugin: Plugin, eureka: Peers, news: Properties
) -> None:
    """Adopted instances are ours, also to remove; if the creation fails they are given back unchanged."""
    application = news["application"]
    theirs = Instance(
        application, f"a.{application}.dev.shop:{application}:8080", "192.0.2.99", "192.0.2.99", Port(1)
    )
    Writer(eureka).register(theirs)
    adopting = {**news, "on_conflict": "adopt"}
    three = with_instances(adopting, **news["instances"], c={"host_name": "192.0.2.3"})
    wanted = DesiredState.from_properties(check_application({}, three).properties)
    refusing = Refusing(eureka.connection, "c.")
    with pytest.raises(
        SomeRegistrationsFailed, match=r"1 of 3 instances failed \(the others were taken back\): c \("
    ):
        create(wanted, refusing)
    refusing.close()
    assert addresses(eureka, news) == {"a": "192.0.2.99"}
    assert held(eureka, news)["a"].owner is None
    state = plugin.create(plugin.check(adopting))
    assert addresses(eureka, news) == {"a": "192.0.2.1", "b": "192.0.2.2"}
    plugin.delete(state)
    assert held(eureka, news) == {}


def test_a_creation_whose_answers_are_lost_leaves_nothing(eureka: Peers, news: Properties) -> None:
    """A creation whose answers are lost removes what it registered on either server, since no state has
    it, and gives back what it took over.
    """
    losing = Losing(eureka.connection)
    alone = {key: news[key] for key in ("application", "port", "renewer", "service_url", "owner")}
    one = check({}, {**alone, "host_name": "192.0.2.50"}).properties
    several = check_application({}, news).properties
    try:
        with pytest.raises(RegistryUnreachable, match="what was registered was taken back"):
            create(DesiredState.from_properties({**one, "incarnation": "first"}), losing)
        with pytest.raises(SomeRegistrationsFailed, match="the others were taken back"):
            create(DesiredState.from_properties({**several, "incarnation": "second"}), losing)
        wait_for(lambda: held(eureka, news) == {}, "both servers to hold nothing")
        old = DesiredState.from_properties({**one, "incarnation": "old"})

        def both_hold() -> bool:
            with suppress(RegistryRejected):  # a copied removal of the first one may take it just then
                create(old, eureka)
            for each in held(eureka, news).values():
                rewrite(eureka, each)  # on both: the next creation may ask either
            return all(listed(peer, news) for peer in eureka.peers)

        wait_for(both_hold, "both servers to hold what stands before")
        changed = DesiredState.from_properties({**one, "metadata": {"tier": "2"}, "incarnation": "third"})
        with pytest.raises(RegistryUnreachable, match="what stood there before was given back"):
            create(changed, losing)
    finally:
        losing.close()
    (left,) = held(eureka, news).values()
    assert (left.incarnation, left.metadata.get("tier"), left.status) == ("old", None, Status.UP)


def test_a_failed_update_stays_and_the_next_one_finishes(
    plugin: Plugin, next_run: Plugin, eureka: Peers, news: Properties
) -> None:
    """The next update also finds and removes instances that a failed one registered and that are no longer
    wanted.
    """
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    application = news["application"]
    blocked = f"d.{application}.dev.shop:{application}:8080"
    Writer(eureka).register(Instance(application, blocked, "192.0.2.99", "192.0.2.99", Port(1)))
    more = with_instances(
        news, a={"host_name": "192.0.2.1"}, c={"host_name": "192.0.2.3"}, d={"host_name": "192.0.2.4"}
    )
    with pytest.raises(grpc.RpcError) as raised:
        plugin.update(state, plugin.check(more, inputs))
    assert "1 of 3 instances failed (what was done stays" in sentence(raised)
    there = addresses(eureka, news)
    assert there == {"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3", "d": "192.0.2.99"}
    wait_everywhere(eureka, held(eureka, news)["c"])
    _, refreshed, _ = next_run.read(state)
    left = refreshed["instances"]["c"]  # shown, as a secret
    assert (left[SIGNATURE_KEY], left["value"]["host_name"]) == (SECRET_SIGNATURE, "192.0.2.3")
    # The engine kept the old state. The program gives d up, and never asks for c again.
    fewer = with_instances(news, a={"host_name": "192.0.2.1"}, e={"host_name": "192.0.2.5"})
    next_run.update(state, next_run.check(fewer, inputs))
    assert addresses(eureka, news) == {"a": "192.0.2.1", "e": "192.0.2.5", "d": "192.0.2.99"}


def test_a_renamed_stack_updates_in_place(
    plugin: Plugin, next_run: Plugin, eureka: Peers, news: Properties
) -> None:
    """The ids stay, the owner changes, and the old owner can change nothing any more."""
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    owner = news["owner"].replace("/dev/", "/production/")
    renamed = next_run.check({**news, "owner": owner}, inputs)
    assert next_run.diff(state, renamed) == (True, [], False)
    before = {each.instance_id for each in held(eureka, news).values()}
    updated = next_run.update(state, renamed)
    after = held(eureka, news)
    assert before == {each.instance_id for each in after.values()}
    assert {owner} == {each.owner for each in after.values()}
    plugin.delete(state)
    assert len(held(eureka, news)) == 2
    plugin.delete(updated)
    assert held(eureka, news) == {}


def test_what_was_taken_from_us_shows_and_is_not_removed(
    plugin: Plugin, eureka: Peers, news: Properties
) -> None:
    """A refresh names the new owner, an update refuses, and a delete leaves the instance."""
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    there = held(eureka, news)
    rewrite(eureka, there["a"], metadata={"eurekube.owner": "cluster/a/b/c"})
    _, refreshed, _ = plugin.read(state)
    assert refreshed["held_by_others"] == {"a": "cluster/a/b/c"}
    assert plugin.diff(refreshed, inputs)[0]
    with pytest.raises(grpc.RpcError) as raised:
        plugin.update(refreshed, inputs)
    assert "belongs to cluster/a/b/c" in sentence(raised)
    plugin.delete(refreshed)
    assert {"a"} == set(held(eureka, news))


def test_a_single_registration_of_the_same_name_is_not_touched(
    plugin: Plugin, single: Plugin, eureka: Peers, news: Properties
) -> None:
    """An update or delete leaves a single registration with the same owner, as when a program moves from
    one resource to the other.
    """
    alone = {key: news[key] for key in ("application", "port", "renewer", "service_url", "owner")}
    kept = single.create(single.check({**alone, "host_name": "192.0.2.50"}))
    state = plugin.create(plugin.check(news))
    plugin.update(state, plugin.check(with_instances(news, a={"host_name": "192.0.2.1"})))
    plugin.delete(state)
    assert [news["application"]] == list(held(eureka, news))
    single.delete(kept)


def test_draining_takes_all_out_of_service_first(plugin: Plugin, eureka: Peers, news: Properties) -> None:
    """A delete sets all instances OUT_OF_SERVICE, and waits for the drain once for all of them."""
    state = plugin.create(plugin.check({**news, "drain_seconds": 2}))
    with ThreadPoolExecutor(1) as executor:
        started = time.monotonic()
        removing = executor.submit(plugin.delete, state)
        seen: set[Status] = set()
        while not removing.done() and time.monotonic() - started < 60:
            seen |= {each.status for each in held(eureka, news).values()}
            if seen == {Status.OUT_OF_SERVICE}:
                break
            seen.discard(Status.UP)
        removing.result()
    assert {Status.OUT_OF_SERVICE} == seen
    assert time.monotonic() - started >= 2
    assert held(eureka, news) == {}


def test_hundreds_in_batches(plugin: Plugin, eureka: Peers, news: Properties) -> None:
    """550 instances are registered, read unchanged, updated and removed on both servers; the last batch is
    not full.
    """
    instances = {
        f"i{number}": {"host_name": f"10.1.{number // 250}.{number % 250 + 1}"} for number in range(550)
    }
    inputs = plugin.check({**news, "instances": instances})
    state = plugin.create(inputs)
    for peer in eureka.peers:
        assert len(list_keys_uncached(peer.url, news["application"])) == 550
    assert plugin.read(state)[1] == state
    changed = plugin.check({**news, "instances": instances, "metadata": {"tier": "2"}}, inputs)
    state = plugin.update(state, changed)
    for peer in eureka.peers:
        some = [peer.read(*key) for key in list_keys_uncached(peer.url, news["application"])[::25]]
        assert {"2"} == {each.metadata["tier"] for each in some if each is not None}
    plugin.delete(state)
    for peer in eureka.peers:
        assert not list_keys_uncached(peer.url, news["application"])


def test_a_forced_replacement_keeps_the_registrations(
    plugin: Plugin, single: Plugin, eureka: Peers, news: Properties
) -> None:
    """Pulumi registers the same ids again and then deletes the old resource, which must not remove the new
    registrations.
    """
    alone = {key: news[key] for key in ("port", "renewer", "service_url", "owner")}
    one = {**alone, "application": f"{news['application']}-one", "host_name": "192.0.2.50"}
    for process, wanted in ((plugin, news), (single, one)):
        inputs = process.check(wanted)
        old = process.create(inputs)
        count = len(held(eureka, wanted))
        new = process.create(inputs)
        process.delete(old)
        assert count == len(held(eureka, wanted)) > 0
        process.delete(new)
        assert held(eureka, wanted) == {}


def test_a_forced_replacement_keeps_what_is_new_or_had_lapsed(
    plugin: Plugin, single: Plugin, eureka: Peers, news: Properties
) -> None:
    """The delete of the old resource leaves the new resource's registrations, whether they are new or
    replaced others.
    """
    alone = {key: news[key] for key in ("port", "renewer", "service_url", "owner")}
    one = {**alone, "application": f"{news['application']}-one", "host_name": "192.0.2.50"}
    c = {"host_name": "192.0.2.3"}
    grown = with_instances(news, **news["instances"], c=c)
    moved = {**news, "port": 9090}
    changes = ((plugin, news, news), (plugin, news, grown), (plugin, news, moved), (single, one, one))
    for process, before, wanted in changes:
        for lapsed in (0, 1, None):
            old = process.create(process.check(before))
            for instance in list(held(eureka, before).values())[:lapsed]:
                for peer in eureka.peers:
                    peer.deregister(*instance.key)
            new = process.create(process.check(wanted))
            process.delete(old)
            left = held(eureka, wanted)
            assert {each.incarnation for each in left.values()} == {new["incarnation"]}
            assert len(left) == len(wanted.get("instances", "1"))
            process.delete(new)
            assert held(eureka, wanted) == {}


def test_a_resource_is_renamed_or_moved_into_an_application(
    plugin: Plugin, single: Plugin, start_run: Callable[[], Plugin], eureka: Peers, news: Properties
) -> None:
    """Pulumi creates the new resource before it deletes the old one; meanwhile both are registered at one
    address.

    A renaming happens in another run, with a process of its own: in one program two resources at one address
    are refused.
    """
    alone = {key: news[key] for key in ("application", "port", "renewer", "service_url", "owner")}
    moved = single.create(single.check({**alone, "host_name": "192.0.2.1", "owner": f"{news['owner']}-one"}))
    first = plugin.create(plugin.check(news))
    single.delete(moved)
    assert addresses(eureka, news) == {"a": "192.0.2.1", "b": "192.0.2.2"}

    renamed = {**news, "owner": f"{news['owner']}-two"}
    rename = start_run()
    second = rename.create(rename.check(renamed))
    rename.delete(first)
    assert {each.owner for each in held(eureka, news).values()} == {renamed["owner"]}
    assert addresses(eureka, news) == {"a": "192.0.2.1", "b": "192.0.2.2"}

    other_stack = {**news, "owner": news["owner"].replace("/dev/", "/prod/")}
    wait_everywhere(eureka, *held(eureka, news).values())
    next_run = start_run()
    with pytest.raises(grpc.RpcError) as raised:
        next_run.create(next_run.check(other_stack))
    assert f"belongs to {renamed['owner']}" in sentence(raised)
    rename.delete(second)


def test_removals_share_their_second_look(single: Plugin, eureka: Peers, news: Properties) -> None:
    """Each removal would wait for a renewal that may be under way; together the removals wait once."""
    alone = {key: news[key] for key in ("application", "port", "renewer", "service_url", "owner")}
    several = [
        single.check({**alone, "host_name": f"192.0.2.{number}", "instance_id": f"look-{number}"})
        for number in range(1, 25)
    ]
    with ThreadPoolExecutor(4) as executor:
        states = list(executor.map(single.create, several))
        started = time.monotonic()
        list(executor.map(single.delete, states))
        elapsed = time.monotonic() - started
    assert held(eureka, news) == {}
    assert (
        windows.RENEWAL_REPLICATION_SECONDS <= elapsed < len(states) / 4 * windows.RENEWAL_REPLICATION_SECONDS
    )


def test_a_status_that_is_no_longer_asked_for_goes_back_to_up(
    plugin: Plugin, eureka: Peers, news: Properties
) -> None:
    """A status that the program no longer sets, for the application or an instance, returns to UP unless a
    person changed it.
    """

    def statuses() -> dict[str, Status]:
        return {key: each.status for key, each in held(eureka, news).items()}

    plain = with_instances(news, **{key: {"host_name": f"192.0.2.{key}"} for key in "123"})
    special = {**plain["instances"], "2": {**plain["instances"]["2"], "status": "DOWN"}}
    state = plugin.create(plugin.check({**plain, "instances": special, "status": "OUT_OF_SERVICE"}))
    out, down = Status.OUT_OF_SERVICE, Status.DOWN
    wait_for(lambda: statuses() == {"1": out, "2": down, "3": out}, "the statuses")
    third = held(eureka, news)["3"]
    for peer in eureka.peers:  # by a person
        peer.set_status(third, Status.STARTING)
    state = plugin.update(state, plugin.check(plain))
    wait_for(lambda: statuses() == {"1": Status.UP, "2": Status.UP, "3": Status.STARTING}, "two to be UP")
    plugin.delete(state)


def test_what_a_killed_run_left_out_of_service_the_next_one_puts_back(
    eureka: Peers, news: Properties, tmp_path: Path, shell: str
) -> None:
    """The next run, in another process, finds by the state alone what a killed run left OUT_OF_SERVICE,
    and sets it UP.
    """
    news = {**news, "drain_seconds": 600}

    def standing() -> set[tuple[Status, bool]]:
        there = [each for peer in eureka.peers for each in listed(peer, news)]
        assert len(there) == 2 * len(news["instances"])
        return {(each.status, LEAVING_KEY in each.metadata) for each in there}

    with plugins(tmp_path, shell, APPLICATION_REGISTRATION_KIND.token) as start:
        first, second, third = (start(ApplicationProvider()) for _ in range(3))
        inputs = first.check(news)
        state = first.create(inputs)
        wait_for(lambda: len(list_keys_uncached(eureka.peers[1].url, news["application"])) == 2, "the copies")
        with ThreadPoolExecutor(1) as executor:
            removing = executor.submit(first.delete, state)
            wait_for(lambda: standing() == {(Status.OUT_OF_SERVICE, True)}, "a drain on both servers")
            first.kill()
            with pytest.raises(grpc.RpcError):
                removing.result(120)
        assert standing() == {(Status.OUT_OF_SERVICE, True)}
        inputs = second.check({**news, IN_UPDATE_KEY: True}, inputs)
        assert second.diff(state, inputs)[0]
        state = second.update(state, inputs)
        wait_for(lambda: standing() == {(Status.UP, False)}, "all to be back")
        third.delete({**state, "drain_seconds": 1})
    assert held(eureka, news) == {}


def test_an_interrupted_drain_is_undone_on_every_server(
    start_run: Callable[[], Plugin], eureka: Peers, news: Properties
) -> None:
    """An interrupted drain is undone on every server, even before the servers have updated each other."""
    plugin = start_run()
    state = plugin.create(plugin.check({**news, "drain_seconds": 600}))

    def standing() -> set[tuple[Status, bool]]:
        there = [each for peer in eureka.peers for each in listed(peer, news)]
        return {(each.status, LEAVING_KEY in each.metadata) for each in there}

    first, out = eureka.peers[0], Status.OUT_OF_SERVICE
    for run in (plugin, start_run(), start_run()):
        with ThreadPoolExecutor(1) as executor:
            removing = executor.submit(run.delete, state)
            wait_for(lambda: {each.status for each in listed(first, news)} == {out}, "a drain")
            run.cancel()
            with pytest.raises(grpc.RpcError, match="in service again"):
                removing.result(120)
        wait_for(lambda: standing() == {(Status.UP, False)}, "all to be back")
        time.sleep(1)  # whatever the servers still tell each other
        assert standing() == {(Status.UP, False)}
    plugin.delete({**state, "drain_seconds": 0})
