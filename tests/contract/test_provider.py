"""The dynamic and the native provider in plugin processes, over gRPC, with a real Eureka.

Only such a process shows what gRPC and SDK do: floats, keys that vanish, the marker for unknown values, four
calls at once, and the text of errors.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from pulumi.runtime import rpc

from eurekube_provider.core.identity import DYNAMIC_INSTANCE_TYPE
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.registrations.defaults import with_defaults
from lab import EUREKA_PASSWORD, EUREKA_USER, Lab
from lab.waiting import wait_until
from tests.contract.conftest import wait_until_listed
from tests.contract.plugin import EACH, NOBODY, Plugin, Properties, StartPlugin, plugins, sentence
from tests.eureka_servers import Servers

STATES = Path(__file__).parents[1] / "states"


@pytest.fixture(scope="module")
def start_plugin(tmp_path_factory: pytest.TempPathFactory, shell: str) -> Iterator[StartPlugin]:
    """Return a function that starts plugin processes, which are ended afterwards."""
    with plugins(tmp_path_factory.mktemp("project"), shell) as start:
        yield start


@pytest.fixture(scope="module")
def plugin(start_plugin: StartPlugin) -> Plugin:
    """Start one process for all tests that need no other."""
    return start_plugin()


@pytest.fixture
def next_run(start_plugin: StartPlugin) -> Plugin:
    """Start a process of a later run, whose program may declare everything under other owners."""
    return start_plugin()


@pytest.fixture
def peer(shared: Servers) -> Iterator[Peer]:
    """Return a client of the Eureka server that bypasses the code under test."""
    url = shared.eureka_urls[0]
    peer = Peer(url, Connection.parse(url))
    yield peer
    peer.close()


@pytest.fixture
def news(shared: Servers, unique_name: str) -> Properties:
    """Return the inputs of a program."""
    return {
        "application": unique_name,
        "host_name": "192.0.2.10",
        "port": 8080,
        "metadata": {"tier": "1"},
        "zone": None,
        "renewer": "eurekube",
        "service_url": shared.eureka_urls[0],
        "owner": f"stack/organization/shop/dev/{unique_name}",
    }


def held(peer: Peer, state: Properties) -> Instance | None:
    """Return a registration as Eureka holds it; None if it is not there."""
    return peer.read(state["application"], state["instance_id"])


def test_a_registration_from_check_to_delete(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """A registration passes check, create, read, update and delete, with numbers as floats and without
    keys that gRPC drops.
    """
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    instance = held(peer, state)
    assert instance is not None
    assert (Port(8080), "192.0.2.10", Status.UP) == (instance.port, instance.ip_address, instance.status)
    assert {
        "tier": "1",
        "eurekube.owner": news["owner"],
        "eurekube.renewer": "eurekube",
        "eurekube.incarnation": state["incarnation"],
    } == instance.metadata
    assert plugin.diff(state, plugin.check(news, inputs)) == (False, [], False)
    assert (state, inputs) == plugin.read(state)[1:]

    changed = plugin.check({**news, "metadata": {"tier": "2"}, "zone": "zone-a"}, inputs)
    assert plugin.diff(state, changed) == (True, [], False)
    state = plugin.update(state, changed)
    instance = held(peer, state)
    assert instance is not None
    assert (instance.metadata["tier"], instance.zone) == ("2", "zone-a")

    plugin.delete(state)
    assert held(peer, state) is None
    plugin.delete(state)  # a second time is no error
    assert plugin.read(state)[0] == ""


def test_each_property_is_compared_and_updated(plugin: Plugin, news: Properties) -> None:
    """Each changed property is updated in place, after which the state equals Eureka, or needs a
    replacement.
    """
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    for name, (value, single, _) in EACH.items():
        where = {"service_url": news["service_url"].replace("127.0.0.1", "localhost")}
        changed = plugin.check({**news, name: value, **(where if name == "connection" else {})}, inputs)
        changes, replaces, _ = plugin.diff(state, changed)
        assert (changes, bool(replaces)) == (True, single == "replace"), name
        if single == "update":
            updated = plugin.update(state, changed)
            assert updated[name] == value
            assert plugin.read(updated)[1:] == (updated, changed)
            assert plugin.diff(updated, changed) == (False, [], False)
            state = plugin.update(updated, inputs)
            assert plugin.diff(state, inputs) == (False, [], False)
    plugin.delete(state)


def test_unknown_values_in_a_preview(plugin: Plugin, news: Properties) -> None:
    """Check and diff accept unknown values, as in previews, and return the engine's marker for them."""
    state = {**plugin.check(news), "status": "UP"}
    unknown = plugin.check(
        {**news, "host_name": rpc.UNKNOWN, "port": rpc.UNKNOWN, "metadata": {"a": rpc.UNKNOWN}}
    )
    assert (
        unknown["host_name"],
        unknown["instance_id"],
        unknown["metadata"],
    ) == (rpc.UNKNOWN, rpc.UNKNOWN, {"a": rpc.UNKNOWN})
    assert plugin.diff(state, unknown) == (True, ["instance_id"], False)


def test_check_and_diff_need_no_eureka(plugin: Plugin, news: Properties) -> None:
    """Check and diff contact no server, as in a pull request's preview."""
    inputs = plugin.check({**news, "service_url": NOBODY})
    assert plugin.diff({**plugin.check(news), "status": "UP"}, inputs) == (True, ["service_url"], False)


def test_problems_come_with_their_property(plugin: Plugin, news: Properties) -> None:
    """Each problem names its property, as Pulumi shows it."""
    port, renewer = plugin.check({**news, "port": 0, "renewer": ""})["failures"]
    assert re.fullmatch(r"port: (0 )?must be a whole number from 1 to 65535", port)
    assert renewer.startswith("renewer: a registration that nobody renews lapses")


def test_an_unreachable_eureka_is_an_error_and_never_a_blank_id(plugin: Plugin, news: Properties) -> None:
    """If no server answers, calls raise: a blank id would drop the registration from the state."""
    state = plugin.check({**news, "service_url": NOBODY})
    for call in (plugin.read, plugin.create, plugin.delete):
        with pytest.raises(grpc.RpcError) as raised:
            call(state)
        assert "no connection to http://127.0.0.1:9/eureka" in sentence(raised)


def test_gone_needs_the_word_of_every_server(plugin: Plugin, news: Properties, shared: Servers) -> None:
    """A read calls an instance gone only if every server says so: one that does not answer may still hold
    it.
    """
    state = plugin.check({**news, "service_url": f"{NOBODY},{shared.eureka_urls[0]}"})
    with pytest.raises(grpc.RpcError) as raised:
        plugin.read(state)
    assert "is not known" in sentence(raised)
    state = plugin.create(state)
    assert plugin.read(state)[1]["status"] == "UP"
    plugin.delete(state)  # a server that is away keeps no stack from being removed


def test_creating_twice_is_creating_once(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """A second create with the same inputs succeeds, since the CLI may die before it has written the
    state.
    """
    inputs = plugin.check(news)
    first = plugin.create(inputs)
    second = plugin.create(inputs)
    changing = {"incarnation", "last_updated"}
    assert {key for key in first if first[key] != second[key]} <= changing
    plugin.delete(second)
    assert held(peer, first) is None


def test_four_calls_at_once(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """Four calls run at once, as many as the plugin process allows, even for one registration."""
    several = [plugin.check({**news, "instance_id": f"at-once-{number % 8}"}) for number in range(16)]
    with ThreadPoolExecutor(4) as executor:
        states = list(executor.map(plugin.create, several))
        assert all(held(peer, state) for state in states)
        list(executor.map(plugin.delete, states))
    assert not any(held(peer, state) for state in states)


def test_somebody_elses_instance_is_left_alone(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """Create refuses an id that another application or another Eurekube has registered."""
    inputs = plugin.check(news)
    theirs = Instance(inputs["application"], inputs["instance_id"], "192.0.2.99", "192.0.2.99", Port(1))
    peer.register(theirs)
    with pytest.raises(grpc.RpcError) as raised:
        plugin.create(inputs)
    assert "was not registered by Eurekube and was left as it is" in sentence(raised)
    instance = held(peer, inputs)
    assert instance is not None
    assert instance.host_name == "192.0.2.99"


def test_adopting_takes_over(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """With ``on_conflict`` set to adopt, create takes over the instance, and delete removes it."""
    inputs = plugin.check({**news, "on_conflict": "adopt"})
    peer.register(Instance(inputs["application"], inputs["instance_id"], "192.0.2.99", "192.0.2.99", Port(1)))
    state = plugin.create(inputs)
    instance = held(peer, state)
    assert instance is not None
    assert (news["owner"], "192.0.2.10") == (instance.owner, instance.host_name)
    plugin.delete(state)
    assert held(peer, state) is None


def test_the_states_owner_decides_what_may_be_updated(
    plugin: Plugin, next_run: Plugin, peer: Peer, news: Properties
) -> None:
    """A renamed stack updates its registration in place, under the same id."""
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    owner = news["owner"].replace("/dev/", "/production/")
    renamed = next_run.check({**news, "owner": owner}, inputs)
    assert next_run.diff(state, renamed) == (True, [], False)
    updated = next_run.update(state, renamed)
    instance = held(peer, state)
    assert instance is not None
    assert owner == instance.owner == updated["owner"]
    plugin.delete(state)  # the old state's owner has no say any more
    assert held(peer, updated) is not None
    plugin.delete(updated)
    assert held(peer, updated) is None


def test_a_stolen_registration_shows_and_is_not_removed(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """If another owner takes the registration a refresh shows it, an update refuses, and a delete leaves
    it.
    """
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    instance = held(peer, state)
    assert instance is not None
    peer.register(
        replace(
            instance,
            metadata={"eurekube.owner": "cluster/a/b/c"},
            last_dirty_timestamp_ms=(instance.last_dirty_timestamp_ms or 0) + 1,
        )
    )
    _, refreshed, refreshed_inputs = plugin.read(state)
    for found in (refreshed, refreshed_inputs):
        assert (news["owner"], "cluster/a/b/c") == (found["owner"], found["seen_owner"])
    assert plugin.diff(refreshed, inputs)[0]
    with pytest.raises(grpc.RpcError) as raised:
        plugin.update(refreshed, inputs)
    assert "belongs to cluster/a/b/c" in sentence(raised)
    plugin.delete(refreshed)
    assert held(peer, state) is not None


def test_a_machine_that_registers_itself_is_refused(
    start_plugin: StartPlugin, peer: Peer, news: Properties
) -> None:
    """Create refuses an address that registered itself as soon as a list shows it, since callers would
    find it twice.
    """
    plugin = start_plugin()
    inputs = plugin.check(news)
    itself = Instance(inputs["application"], "itself", "host", "192.0.2.10", Port(8080))
    peer.register(itself)
    wait_until_listed(peer, itself)
    with pytest.raises(grpc.RpcError) as raised:
        plugin.create(inputs)
    assert "itself at 192.0.2.10:8080 registered itself" in sentence(raised)
    assert held(peer, inputs) is None


def test_a_persons_override_outlives_updates(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """If the program sets no status, a person's OUT_OF_SERVICE stays over an update."""
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    instance = held(peer, state)
    assert instance is not None
    peer.set_status(instance, Status.OUT_OF_SERVICE)
    _, refreshed, _ = plugin.read(state)
    assert plugin.diff(refreshed, inputs) == (False, [], False)
    updated = plugin.update(refreshed, plugin.check({**news, "metadata": {"tier": "2"}}, inputs))
    assert (updated["status"], updated["overridden_status"]) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")


def test_a_status_that_is_asked_for_is_enforced(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """A status of the program is reached from any other, including those that Eureka accepts only from a
    person.
    """
    state: Properties | None = None
    for status in ("OUT_OF_SERVICE", "UP", "DOWN", "OUT_OF_SERVICE", "DOWN", "STARTING", "UP"):
        inputs = plugin.check({**news, "status": status})
        state = plugin.create(inputs) if state is None else plugin.update(state, inputs)
        assert (status, status) == (state["status"], getattr(held(peer, state), "status", None))
    assert state is not None
    instance = held(peer, state)
    assert instance is not None
    peer.set_status(instance, Status.OUT_OF_SERVICE)
    _, refreshed, _ = plugin.read(state)
    wanted = plugin.check({**news, "status": "UP"})
    assert plugin.diff(refreshed, wanted)[0]
    assert plugin.update(refreshed, wanted)["status"] == "UP"


@pytest.mark.parametrize("shell", ["dynamic"], indirect=True)
@pytest.mark.parametrize("file", sorted(STATES.glob("*.json")), ids=lambda file: file.stem)
def test_the_state_of_an_earlier_release_is_understood(
    file: Path, start_plugin: StartPlugin, shared: Servers
) -> None:
    """A state of an earlier release, with its pickled provider, can be checked, compared, registered, read
    and removed.
    """
    text = file.read_text().replace("http://eureka.example.com:8761/eureka", shared.eureka_urls[0])
    exported = json.loads(text)["deployment"]["resources"]
    resources = [each for each in exported if "__provider" in each.get("inputs", {})]
    assert len(resources) == 3
    bookkeeping = {"instance_id", "instance_id_is_default", "id_base"}
    for resource in resources:
        plugin = start_plugin(resource["inputs"].pop("__provider"))
        olds = {key: value for key, value in resource["outputs"].items() if key != "__provider"}
        inputs = resource["inputs"]
        written = {key: value for key, value in inputs.items() if key not in bookkeeping}
        checked = plugin.check(written, inputs)
        is_single = resource["type"].endswith(DYNAMIC_INSTANCE_TYPE)
        # Less of a single one stands there today.
        assert inputs == (with_defaults(checked) if is_single else checked)
        for news in (inputs, checked):
            assert plugin.diff(olds, news) == (False, [], False)
        state = plugin.create(inputs)
        assert olds.keys() == state.keys() - {"created", "incarnation"}
        seen = state["incarnation"] if is_single else dict.fromkeys(state["instances"], state["incarnation"])
        assert plugin.read(olds)[2] == {**checked, "seen_incarnation": seen}
        plugin.delete(olds)  # which knows no incarnation, so that this is none of its own
        assert plugin.read(state)[1] == state
        plugin.delete(state)  # which gives it back, since the process has found the olds unchanged
        assert plugin.read(olds)[0] != ""
        plugin.delete(olds)
        assert plugin.read(olds)[0] == ""


def test_draining_takes_out_of_service_first(plugin: Plugin, peer: Peer, news: Properties) -> None:
    """A delete sets OUT_OF_SERVICE and waits for the drain before it removes."""
    state = plugin.create(plugin.check({**news, "drain_seconds": 2}))
    with ThreadPoolExecutor(1) as executor:
        started = time.monotonic()
        removing = executor.submit(plugin.delete, state)
        while (instance := held(peer, state)) is not None and instance.status is Status.UP:
            assert time.monotonic() - started < 60
        assert instance is not None
        assert instance.status is Status.OUT_OF_SERVICE
        removing.result()
    assert time.monotonic() - started >= 2
    assert held(peer, state) is None


@pytest.fixture(scope="module")
def secured() -> Iterator[Lab]:
    """Start a server that asks for a password."""
    with Lab(eureka=1, kubernetes=False, security="basic") as running:
        yield running


@pytest.mark.real_server("it asks for passwords")
def test_credentials_come_from_configuration_or_environment(start_plugin: StartPlugin, secured: Lab) -> None:
    """Credentials come from configuration or environment, never from the state; if a server refuses them,
    one sentence says so.
    """
    news = {
        "application": "secured",
        "host_name": "192.0.2.10",
        "port": 8080,
        "renewer": "self",
        "service_url": secured.eureka_urls[0],
        "owner": "stack/organization/shop/dev/secured",
    }
    nobody = start_plugin()
    somebody = start_plugin(EUREKA_USER=EUREKA_USER, EUREKA_PASSWORD=EUREKA_PASSWORD)
    configured = start_plugin()
    configured.configure({"eurekube:user": EUREKA_USER, "eurekube:password": EUREKA_PASSWORD})
    in_url = start_plugin()
    in_url.configure(
        {"eurekube:url": secured.eureka_urls[0].replace("//", f"//{EUREKA_USER}:{EUREKA_PASSWORD}@")}
    )
    with pytest.raises(grpc.RpcError) as raised:
        nobody.create(nobody.check(news))
    assert "answered 401" in sentence(raised)
    for plugin in (somebody, configured, in_url):
        state = plugin.create(plugin.check(news))
        assert EUREKA_PASSWORD not in str(state)
        plugin.delete(state)


@pytest.mark.parametrize("status", [Status.OUT_OF_SERVICE, Status.DOWN])
def test_a_status_that_is_no_longer_asked_for_goes_back_to_up(
    plugin: Plugin, peer: Peer, news: Properties, status: Status
) -> None:
    """A status that the program no longer sets returns to UP, unless a person changed it, whether or not a
    refresh saw that.
    """
    asked, not_asked = plugin.check({**news, "status": status}), plugin.check(news)
    state = plugin.create(asked)
    assert plugin.diff(state, not_asked)[0]
    state = plugin.update(state, not_asked)
    instance = held(peer, state)
    assert instance is not None
    assert (instance.status, instance.is_overridden, state["status"]) == (Status.UP, False, "UP")
    for is_refreshed in (False, True):
        state = plugin.update(state, asked)
        peer.set_status(instance, Status.STARTING)  # by a person
        if is_refreshed:
            _, state, _ = plugin.read(state)
            _, state, _ = plugin.read(state)
            assert state["asked_status"] == status
        state = plugin.update(state, not_asked)
        instance = held(peer, state)
        assert instance is not None
        assert instance.status is Status.STARTING
    plugin.delete(state)


def test_four_drains_end_when_the_engine_says_cancel(
    start_plugin: StartPlugin, peer: Peer, news: Properties
) -> None:
    """A cancel ends four drains that occupy all of the SDK's threads, puts instances back into service,
    and lets no further drain begin.
    """
    plugin = start_plugin()
    states = [
        plugin.create(plugin.check({**news, "instance_id": f"{number}", "drain_seconds": 600}))
        for number in range(5)
    ]

    def standing() -> set[Status]:
        return {instance.status for state in states if (instance := held(peer, state))}

    def delete(state: Properties) -> str:
        with pytest.raises(grpc.RpcError) as raised:
            plugin.delete(state)
        return sentence(raised)

    with ThreadPoolExecutor(5) as executor:
        said = executor.map(delete, states)
        wait_until(lambda: standing() == {Status.OUT_OF_SERVICE}, "all to be out of service", 30)
        plugin.cancel()
        for line in said:  # long before the drains are over
            assert "interrupted, and nothing was removed; in service again" in line
    assert "interrupted before it began, and nothing was changed" in delete(states[0])
    assert standing() == {Status.UP}
    for state in states:
        plugin.delete({**state, "drain_seconds": 0})
