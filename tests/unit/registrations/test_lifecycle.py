"""The life of registrations by both dynamic providers: what a removal takes, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pulumi.dynamic import Config, ConfigureRequest

from eurekube_provider.core.errors import (
    OwnershipConflict,
    RegistryDenied,
    RegistryRejected,
    RegistryUnreachable,
    SomeRegistrationsFailed,
)
from eurekube_provider.core.identity import INCARNATION_KEY, StackOwner, parse_owner
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.removal_checks import RemovalChecks
from eurekube_provider.registrations import lifecycle, registry_lists
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.declared_resources import DECLARED_RESOURCES
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.importing import (
    import_application,
    import_instance,
    mark_not_adopted_unless_owned,
)
from eurekube_provider.registrations.properties import (
    INCARNATION_PROPERTY,
    LEFTOVER_MARKS,
    SEEN_INCARNATION_PROPERTY,
    Properties,
)
from eurekube_provider.registrations.servers import SHARED_PEERS
from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.instance import InstanceProvider
from eurekube_provider.resources.program_inputs import IN_PREVIEW_KEY, IN_UPDATE_KEY
from tests.unit.fake_eureka import FakeEureka, FakeServers
from tests.unit.registrations.test_members import ALL
from tests.unit.registrations.test_properties import LEAST

URL = "http://eureka:8761/eureka"

SPELT = "https://eureka.example.com/eureka"

OTHER = "http://other:8761/eureka"

GONE = "http://gone:8761/eureka"

Provider = InstanceProvider | ApplicationProvider

ResourceType = tuple[Callable[[], Provider], Properties]

KINDS = pytest.mark.parametrize(
    "kind", [(InstanceProvider, LEAST), (ApplicationProvider, ALL)], ids=["one", "many"]
)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip all pauses between requests and all drains."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(CANCELLATION, "make_interruptible_sleep", lambda: lambda _: None)
    DECLARED_RESOURCES.__init__()  # type: ignore[misc]
    monkeypatch.setattr(registry_lists, "LIST_CACHE_SECONDS", -1.0)


@pytest.fixture
def eureka() -> FakeEureka:
    """Return a fake Eureka."""
    return FakeEureka()


@pytest.fixture
def other() -> FakeEureka:
    """Return a second fake Eureka."""
    return FakeEureka()


@pytest.fixture
def servers(eureka: FakeEureka, other: FakeEureka, monkeypatch: pytest.MonkeyPatch) -> FakeServers:
    """Return the servers by URL; the first Eureka has two URLs."""
    made = FakeServers({URL: eureka, SPELT: eureka, OTHER: other})
    monkeypatch.setattr(SHARED_PEERS, "get", made)
    return made


def run(kind: ResourceType, **config: str) -> Provider:
    """Return a configured provider as in a new plugin process."""
    DECLARED_RESOURCES.__init__()  # type: ignore[misc]
    SHARED_PEERS.unresponsive.clear()
    provider = kind[0]()
    settings = {f"eurekube:{key}": value for key, value in config.items()}
    provider.configure(ConfigureRequest(Config(settings, "shop")))
    return provider


def checked(kind: ResourceType, **changes: Any) -> Properties:
    """Return the checked inputs, with which the engine creates."""
    result = kind[0]().check({}, {**kind[1], "service_url": URL, **changes})
    assert not result.failures
    return dict(result.inputs)


def created(kind: ResourceType, **changes: Any) -> Properties:
    """Create the resource in a new process, and return its state."""
    return dict(run(kind).create(checked(kind, **changes)).outs or {})


@KINDS
def test_a_removal_takes_its_own_incarnation_only(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """When a replacement's new half has taken the place, the old half's removal leaves the instance, in
    whichever run.
    """
    old, new = created(kind, drain_seconds=9), created(kind, drain_seconds=9)
    stands = dict(eureka.held)
    assert (
        {each.incarnation for each in stands.values()}
        == {new[INCARNATION_PROPERTY]}
        != {old[INCARNATION_PROPERTY]}
    )
    run(kind).delete("", old)
    assert eureka.held == stands
    assert "was left as it is" in capsys.readouterr().err
    updated = dict(run(kind).update("", new, checked(kind, metadata={"tier": "2"})).outs or {})
    assert updated[INCARNATION_PROPERTY] == new[INCARNATION_PROPERTY]
    run(kind).delete("", updated)
    assert eureka.held == {}
    assert servers.users == {URL: None}


@KINDS
def test_a_replacement_in_place_warns_of_nothing(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the engine replaces a resource that keeps its place, as `replaceOnChanges` asks, the removal of
    the old half leaves the new one, and says nothing.
    """
    assert servers
    old = created(kind)
    provider = run(kind)
    given = {**kind[1], "service_url": URL, "metadata": {"tier": "2"}, IN_UPDATE_KEY: True}
    inputs = dict(provider.check(old, given).inputs)
    assert provider.diff("", old, inputs).changes
    new = dict(provider.create(inputs).outs or {})
    provider.delete("", old)
    assert {each.incarnation for each in eureka.held.values()} == {new[INCARNATION_PROPERTY]}
    assert "was left as it is" not in capsys.readouterr().err


@KINDS
def test_a_state_without_an_incarnation_goes_on(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """A state of 0.1.0 yields no change, and removes only instances without an incarnation; an update adds
    none.

    If an update added one and its answer were lost, the state could not remove the instance any more.
    """
    assert servers
    old = created(kind)
    del old[INCARNATION_PROPERTY]
    metadata = {
        key: {name: value for name, value in each.metadata.items() if name != "eurekube.incarnation"}
        for key, each in eureka.held.items()
    }
    earlier = {key: replace(each, metadata=metadata[key]) for key, each in eureka.held.items()}
    eureka.held = dict(earlier)
    assert not run(kind).diff("", old, checked(kind)).changes
    result = run(kind).read("x", old)
    assert not run(kind).diff("", dict(result.outs or {}), checked(kind)).changes
    assert eureka.held == earlier
    moved = created(kind)
    run(kind).delete("", old)
    assert {each.incarnation for each in eureka.held.values()} == {moved[INCARNATION_PROPERTY]}
    result = run(kind).read("x", old)
    assert run(kind).diff("", dict(result.outs or {}), checked(kind)).changes
    new = dict(run(kind).update("", old, checked(kind, metadata={"tier": "2"})).outs or {})
    assert INCARNATION_PROPERTY not in new
    assert {each.incarnation for each in eureka.held.values()} == {""}
    run(kind).delete("", old)
    assert eureka.held == {}


@KINDS
@pytest.mark.parametrize("url", [URL, SPELT])
def test_a_move_that_is_taken_back_leaves_what_stood(
    kind: ResourceType, url: str, eureka: FakeEureka, servers: FakeServers
) -> None:
    """When a changed URL is reverted before the old half is removed, the engine removes only the new half."""
    assert servers
    old = created(kind)
    moved = created(kind, service_url=url)
    provider = run(kind)
    assert not provider.diff("", old, checked(kind)).changes
    provider.delete("", moved)
    assert {each.incarnation for each in eureka.held.values()} == {old[INCARNATION_PROPERTY]}
    run(kind).delete("", old)
    assert eureka.held == {}


def test_an_alias_to_another_kind_of_resource_is_a_replacement(
    eureka: FakeEureka, servers: FakeServers
) -> None:
    """The state of the other kind is removed by itself, in both directions, so that nothing of it is left."""
    assert servers
    many: ResourceType = (ApplicationProvider, ALL)
    for old_kind, new_kind, reason in ((ONE, many, "instances"), (many, ONE, "instance_id")):
        old = created(old_kind)
        provider = run(new_kind)
        difference = provider.diff("", old, checked(new_kind))
        assert difference.changes
        assert reason in (difference.replaces or ())
        new = dict(provider.create(checked(new_kind)).outs or {})
        run(old_kind).delete("", old)
        assert {each.incarnation for each in eureka.held.values()} == {new[INCARNATION_PROPERTY]}
        run(new_kind).delete("", new)
        assert eureka.held == {}


@KINDS
def test_what_comes_back_from_the_state_is_no_property_of_the_program(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """With ignoreChanges of everything the engine gives the inputs of the last update, marks and findings
    included.
    """
    assert servers
    state = created(kind)
    inputs = checked(kind)
    for mark in (*LEFTOVER_MARKS, SEEN_INCARNATION_PROPERTY, "seen_owner", "held_by_others"):
        marked = {**inputs, mark: True}
        result = run(kind).check(marked, marked)
        assert not result.failures
        assert result.inputs == inputs
    assert run(kind).check(inputs, {**inputs, LEFTOVER_MARKS[0]: True}).failures
    assert not run(kind).diff("", state, inputs).changes
    assert eureka.held


@KINDS
def test_what_was_renamed_is_given_back_to_nobody(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """After an update to a renamed owner the resource's own deletion removes the instance."""
    assert servers
    old = created(kind)
    provider = run(kind)
    wanted = checked(kind, owner=str(kind[1]["owner"]).replace("/dev/", "/production/"))
    wanted |= {name: old[name] for name in ("instance_id", "id_base") if name in old}
    assert provider.diff("", old, wanted).changes
    provider.delete("", dict(provider.update("", old, wanted).outs or {}))
    assert eureka.held == {}


@KINDS
def test_a_copy_in_the_state_takes_nothing_that_the_program_has(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The deletion of a resource that somebody copied in the state, incarnation included, leaves the
    program's registration.
    """
    assert servers
    state = created(kind, drain_seconds=9)
    before = dict(eureka.held)
    provider = run(kind)
    provider.check(checked(kind, drain_seconds=9), {**kind[1], "drain_seconds": 9, IN_UPDATE_KEY: True})
    eureka.asked.clear()
    provider.delete("", state)
    assert eureka.held == before
    assert "set_status" not in eureka.asked
    assert "is asked for by the program" in capsys.readouterr().err
    provider.delete("", {**state, "service_url": SPELT})
    assert eureka.held == {}, "another Eureka may hold the same place"


@KINDS
def test_what_is_previewed_or_refreshed_is_not_asked_for(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """A preview and a refresh at the start of an update do not protect a resource that the program has
    dropped.
    """
    assert servers
    state = created(kind)
    provider = run(kind)
    provider.check(checked(kind), kind[1])
    result = provider.read("x", state)
    provider.diff("", dict(result.outs or {}), checked(kind))
    provider.delete("", state)
    assert eureka.held == {}


@KINDS
def test_another_incarnation_shows_in_a_refresh_and_is_put_right(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """An update restores the state's incarnation, without which the state could not remove the instance."""
    assert servers
    state, _ = created(kind), created(kind)
    result = run(kind).read("x", state)
    assert run(kind).diff("", dict(result.outs or {}), checked(kind)).changes
    healed = dict(run(kind).update("", dict(result.outs or {}), checked(kind)).outs or {})
    assert {each.incarnation for each in eureka.held.values()} == {state[INCARNATION_PROPERTY]}
    assert not run(kind).diff("", healed, checked(kind)).changes


@KINDS
def test_another_spelling_drains_nothing_and_another_eureka_is_left(
    kind: ResourceType, eureka: FakeEureka, other: FakeEureka, servers: FakeServers
) -> None:
    """A new URL of the same Eureka replaces the registration without a drain; after a move to another Eureka
    the old registration is drained.
    """
    assert servers
    old = created(kind, drain_seconds=9)
    difference = run(kind).diff("", old, checked(kind, service_url=SPELT, drain_seconds=9))
    assert list(difference.replaces or []) == ["service_url"]
    assert not difference.delete_before_replace
    spelt = created(kind, service_url=SPELT, drain_seconds=9)
    run(kind, url=SPELT).delete("", old)
    assert {each.status for each in eureka.held.values()} == {Status.UP}
    assert "set_status" not in eureka.asked
    created(kind, service_url=OTHER, drain_seconds=9)
    run(kind, url=OTHER).delete("", spelt)
    assert (eureka.held, "set_status" in eureka.asked) == ({}, True)
    assert {each.status for each in other.held.values()} == {Status.UP}


@KINDS
def test_the_order_of_urls_changes_nothing(kind: ResourceType) -> None:
    """A program in another zone lists the same servers in another order."""
    both = checked(kind, service_url=f"{URL},{OTHER}")
    state = {**both, "status": "UP", "status_is_enforced": False} if kind[0] is InstanceProvider else both
    assert not kind[0]().diff("", state, checked(kind, service_url=f"{OTHER},{URL}")).changes
    assert kind[0]().diff("", state, checked(kind, service_url=f"{OTHER},{URL},{SPELT}")).changes


@KINDS
def test_a_server_that_is_gone_for_good_is_forgotten(
    kind: ResourceType, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The removal's error names ``abandonedUrls``; with that setting the server is not asked, and a
    refresh drops the state.
    """
    state = {**created(kind), "service_url": GONE}
    for call in (lambda: run(kind, url=URL).delete("", state), lambda: run(kind, url=URL).read("", state)):
        with pytest.raises(RegistryUnreachable, match=f"pulumi config set eurekube:abandonedUrls {GONE}"):
            call()
    servers.users.clear()
    run(kind, url=URL, abandonedUrls=f"{OTHER}, {GONE}/").delete("", state)
    assert "was forgotten" in capsys.readouterr().err
    assert run(kind, url=URL, abandonedUrls=f'["{GONE}"]').read("x", state).id == ""
    assert servers.users == {}


@KINDS
def test_a_removal_that_finds_nothing_says_so(
    kind: ResourceType, servers: FakeServers, eureka: FakeEureka, capsys: pytest.CaptureFixture[str]
) -> None:
    """A removal reports a missing instance, since another Eureka may answer at the URL now."""
    assert servers
    state = created(kind)
    capsys.readouterr()
    eureka.held.clear()
    kind[0]().delete("", state)
    said = capsys.readouterr().err
    assert f"is not registered at {URL}: nothing was removed" in said
    kind[0]().delete("", created(kind))
    assert capsys.readouterr().err == ""


@KINDS
def test_credentials_go_to_the_urls_that_they_were_configured_for(
    kind: ResourceType, servers: FakeServers
) -> None:
    """A state's URL that is no longer configured gets no credentials; one of another connection gets that
    one's.
    """
    state = created(kind)
    today = {"url": SPELT, "user": "bridge", "password": "pa55"}
    run(kind, **today).delete("", state)
    assert servers.users == {URL: None}
    old = f'{{"old": {{"url": "{URL}", "user": "former"}}}}'
    run(kind, **today, connections=old).delete("", state)
    assert servers.users == {URL: "former"}
    run(kind, **{**today, "url": f"{SPELT},{URL}"}).delete("", state)
    assert servers.users == {SPELT: "bridge", URL: "bridge"}
    run(kind, user="bridge", password="pa55").delete("", state)
    assert servers.users[URL] == "bridge"  # there is no other URL that they could be for


@KINDS
def test_a_refresh_tells_nobody_to_abandon_a_server_that_is_in_use(
    kind: ResourceType, servers: FakeServers
) -> None:
    """Only the error of a removal suggests ``abandonedUrls`` for a configured server that is unreachable."""
    assert servers
    state = {**created(kind), "service_url": GONE}
    with pytest.raises(RegistryUnreachable) as raised:
        run(kind, url=GONE).read("x", state)
    assert "abandonedUrls" not in str(raised.value)
    with pytest.raises(RegistryUnreachable, match="abandonedUrls"):
        run(kind, url=GONE).delete("", state)


@KINDS
def test_a_server_that_wants_credentials_has_them_in_a_connection(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """If a state's URL is not configured, the error of a 401 suggests a connection for that URL."""
    assert servers
    state = created(kind)

    def denied(_: Callable[[], Any]) -> Any:
        raise RegistryDenied("answered 401", url=URL, status_code=401)

    for url, is_said in ((SPELT, True), (URL, False)):
        eureka.fails = {"read": [denied] * 9}
        with pytest.raises(RegistryDenied) as raised:
            run(kind, url=url, user="u", password="p").read("x", state)
        assert ("pulumi config set --path eurekube:connections.old.url" in str(raised.value)) is is_said


@KINDS
def test_a_connection_goes_together_with_what_is_registered_there(
    kind: ResourceType, other: FakeEureka, servers: FakeServers
) -> None:
    """A registration can be removed after its connection left the configuration."""
    assert servers
    state = created(kind, service_url=OTHER, connection="eu")
    assert other.held
    run(kind, url=URL).delete("", state)
    assert other.held == {}


def lost(usual: Callable[[], Any]) -> Any:
    """Carry out a request whose answer is lost."""
    usual()
    raise RegistryUnreachable("no answer within 5 s", url=URL)


def refused(_: Callable[[], Any]) -> Any:
    """Fail as a server that does not carry out the request."""
    raise RegistryRejected("answered 500", url=URL)


def away(_: Callable[[], Any]) -> Any:
    """Fail as a server that cannot be reached."""
    raise RegistryUnreachable("no connection", url=URL)


ONE: ResourceType = (InstanceProvider, LEAST)


@pytest.mark.parametrize(
    ("fails", "changes"),
    [
        ({"register": [lost]}, {}),
        ({"set_status": [refused]}, {"status": "OUT_OF_SERVICE"}),
        ({"read": [lambda usual: usual(), *[lambda _: None] * 5]}, {}),
    ],
    ids=["lost", "status", "not verified"],
)
def test_a_creation_that_fails_leaves_nothing(
    fails: dict[str, Any], changes: Properties, eureka: FakeEureka, servers: FakeServers
) -> None:
    """No state would remove a leftover, since the corrected program may use another id."""
    assert servers
    eureka.fails = {name: list(each) for name, each in fails.items()}
    with pytest.raises((RegistryRejected, RegistryUnreachable), match="was taken back"):
        created(ONE, **changes)
    assert eureka.held == {}


def test_what_a_failed_creation_took_over_is_given_back(eureka: FakeEureka, servers: FakeServers) -> None:
    """The instance of a replacement's old half is restored, with a person's status, since the state still
    has it.
    """
    assert servers
    old = created(ONE)
    before = dict(eureka.held)
    eureka.fails = {"set_status": [refused]}
    with pytest.raises(RegistryRejected, match="what stood there before was given back"):
        created(ONE, status="OUT_OF_SERVICE", metadata={"tier": "2"})
    now = {key: replace(each, last_dirty_timestamp_ms=0) for key, each in eureka.held.items()}
    assert now == {key: replace(each, last_dirty_timestamp_ms=0) for key, each in before.items()}
    run(ONE).delete("", old)
    assert eureka.held == {}


@pytest.mark.parametrize(
    ("fails", "changes"),
    [
        ({"register": [lost]}, {"metadata": {"tier": "2"}}),
        ({"set_status": [refused]}, {"metadata": {"tier": "2"}, "status": "OUT_OF_SERVICE"}),
        ({"set_status": [lost]}, {"status": "OUT_OF_SERVICE"}),
        ({"register": [lost]}, {"status": "DOWN"}),
        ({"register": [lost]}, {"owner": str(LEAST["owner"]).replace("billing", "renamed")}),
    ],
    ids=["contents", "status", "status lost", "DOWN", "owner"],
)
def test_an_update_that_fails_leaves_what_stood(
    fails: dict[str, Any], changes: Properties, eureka: FakeEureka, servers: FakeServers
) -> None:
    """Eureka and the state keep the former registration, which a later run can update or remove."""
    assert servers
    old = created(ONE)
    before = dict(eureka.held)
    run(ONE)
    wanted = {**checked(ONE, **changes), "instance_id": old["instance_id"]}
    eureka.fails = {name: list(each) for name, each in fails.items()}
    with pytest.raises((RegistryRejected, RegistryUnreachable), match="what stood there before stands there"):
        run(ONE).update("", old, wanted)
    now = {key: replace(each, last_dirty_timestamp_ms=0) for key, each in eureka.held.items()}
    assert now == {key: replace(each, last_dirty_timestamp_ms=0) for key, each in before.items()}
    run(ONE).delete("", old)
    assert eureka.held == {}


def test_an_update_that_fails_takes_nothing_out_of_service(eureka: FakeEureka, servers: FakeServers) -> None:
    """An instance that an interrupted drain left out of service stays in service after the failed update."""
    assert servers
    old = created(ONE)
    ((key, one),) = eureka.held.items()
    marked = {**one.metadata, "eurekube.leaving": "true"}
    out = Status.OUT_OF_SERVICE
    eureka.held[key] = replace(one, metadata=marked, status=out, overridden_status=out)
    eureka.fails = {"register": [lambda usual: usual(), lost]}
    with pytest.raises(RegistryUnreachable):
        run(ONE).update("", old, checked(ONE, metadata={"tier": "2"}))
    left = eureka.held[key]
    assert (left.status, left.is_overridden, left.metadata) == (Status.UP, False, one.metadata)


@pytest.mark.parametrize("count", [5, 100])
def test_one_of_many_that_a_drain_left_out_is_found(
    count: int, eureka: FakeEureka, servers: FakeServers
) -> None:
    """The update puts the instance in service, although only its mark in Eureka, not the state, shows the
    drain.
    """
    assert servers
    instances = {f"i{at:03}": {"host_name": f"192.0.2.{at}"} for at in range(1, count + 1)}
    many: ResourceType = (ApplicationProvider, {**ALL, "instances": instances})
    old = created(many)
    given = {**many[1], "service_url": URL, "in_update": True}
    first = run(many)
    assert not first.diff("", old, first.check(old, given).inputs).changes
    key = sorted(eureka.held)[count // 2]
    one = eureka.held[key]
    out = Status.OUT_OF_SERVICE
    marked = {**one.metadata, "eurekube.leaving": "true"}
    eureka.held[key] = replace(one, metadata=marked, status=out, overridden_status=out)
    second = run(many)
    news = second.check(old, given).inputs
    assert second.diff("", old, news).changes
    second.update("", old, news)
    assert (eureka.held[key].status, eureka.held[key].metadata) == (Status.UP, one.metadata)


def test_what_cannot_be_taken_back_is_named(eureka: FakeEureka, servers: FakeServers) -> None:
    """The error gives the request that removes the registration."""
    assert servers
    eureka.fails = {"register": [lost], "deregister": [away]}
    path = f"{URL}/apps/BILLING/billing.dev.shop:billing:8080"
    with pytest.raises(RegistryUnreachable, match=f"may be registered all the same.*DELETE of {path}"):
        created(ONE)
    assert len(eureka.held) == 1


def test_a_failed_creation_of_many_gives_back_what_it_took_over(
    eureka: FakeEureka, servers: FakeServers
) -> None:
    """The old half's instances get their former incarnation back, and can be removed by its state."""
    assert servers
    many: ResourceType = (ApplicationProvider, ALL)
    old = created(many)
    before = {key: each.metadata for key, each in eureka.held.items()}
    instances: Any = {**cast("Properties", ALL["instances"]), "c": {"host_name": "192.0.2.3"}}
    eureka.fails = {"register": [refused]}
    with pytest.raises(SomeRegistrationsFailed, match="were taken back"):
        created(many, instances=instances)
    assert {key: each.metadata for key, each in eureka.held.items()} == before
    run(many).delete("", old)
    assert eureka.held == {}


def test_an_error_about_all_members_tells_of_no_others(eureka: FakeEureka, servers: FakeServers) -> None:
    """Where every instance failed, the error says that nothing stands, or that none was removed."""
    assert servers
    many: ResourceType = (ApplicationProvider, ALL)
    eureka.fails = {"register": [refused, refused]}
    with pytest.raises(SomeRegistrationsFailed, match=r"2 of 2 .* \(nothing of it is left\)"):
        created(many)
    eureka.fails = {}
    old = created(many)
    eureka.fails = {"deregister": [refused, refused]}
    with pytest.raises(SomeRegistrationsFailed, match=r"2 of 2 .* \(none was removed\)"):
        run(many).delete("", old)


def test_a_machine_that_registers_itself_is_refused(eureka: FakeEureka, servers: FakeServers) -> None:
    """A self-registered instance at the address, found in a list and confirmed by a read, is refused
    unless it is adopted.
    """
    assert servers
    itself = Instance("BILLING", "itself", "host", "192.0.2.10", Port(8080))
    eureka.held = {itself.key: itself}
    with pytest.raises(OwnershipConflict, match=r"BILLING itself .* registered itself"):
        created(ONE)
    assert set(eureka.held) == {itself.key}
    created(ONE, instance_id="itself", on_conflict="adopt")
    assert [each.owner for each in eureka.held.values()] == [LEAST["owner"]]


@pytest.mark.parametrize("owner", [None, "stack/organization/shop/prod/billing", LEAST["owner"]])
def test_a_creation_that_fails_takes_back_nothing_but_its_own(
    owner: str | None, eureka: FakeEureka, servers: FakeServers
) -> None:
    """An instance that another owner or creation wrote in the meantime stays."""
    assert servers

    def taken(_usual: Callable[[], Any]) -> Any:
        key = ("BILLING", str(checked(ONE)["instance_id"]))
        metadata = {"eurekube.owner": owner, INCARNATION_KEY: "another"} if owner else {}
        eureka.held[key] = Instance(*key, "theirs", "10.9.9.9", Port(8080), metadata=metadata)
        raise RegistryRejected("no", url=URL)

    eureka.fails = {"register": [taken]}
    with pytest.raises(RegistryRejected, match="nothing of it is left"):
        created(ONE)
    assert [each.host_name for each in eureka.held.values()] == ["theirs"]


@pytest.mark.parametrize("owner", [None, "cluster/eks/shop/billing", "stack/organization/shop/prod/billing"])
@KINDS
def test_nobody_elses_instance_is_adopted_unasked(
    kind: ResourceType, owner: str | None, eureka: FakeEureka, servers: FakeServers
) -> None:
    """An instance of another owner at the same id stays; with ``on_conflict="adopt"`` it is taken over."""
    assert servers
    created(kind)
    theirs = {
        key: replace(each, metadata={"eurekube.owner": owner} if owner else {}, host_name="theirs")
        for key, each in eureka.held.items()
    }
    eureka.held = dict(theirs)
    with pytest.raises((OwnershipConflict, SomeRegistrationsFailed)):
        created(kind)
    assert eureka.held == theirs
    created(kind, on_conflict="adopt")
    assert {each.owner for each in eureka.held.values()} == {kind[1]["owner"]}


def test_a_removal_from_several_servers_is_checked_twice(servers: FakeServers) -> None:
    """Another check follows the removal, except for an application that renews itself and may rightly come
    back.
    """
    for renewer, count in (("eurekube", 1), ("self", 0)):
        state = created(ONE, service_url=f"{URL},{OTHER}", renewer=renewer)
        looks = Mock(RemovalChecks)
        peers = next(peers for peers in servers.made.values() if len(peers.peers) > 1)
        wanted = DesiredState.from_properties(state)
        removal = lifecycle.delete(wanted, peers, checks=looks)
        assert [each.key for each in removal.removed] == list(wanted.program_keys)
        assert looks.add_removal.call_count == count


def test_what_a_list_has_and_nobody_holds_is_in_nobodys_way(eureka: FakeEureka, servers: FakeServers) -> None:
    """A list may be outdated, and another resource of the same stack at the address may be about to be
    renamed.
    """
    assert servers
    eureka.listed = [Instance("BILLING", "gone", "host", "192.0.2.10", Port(8080))]
    state = created(ONE)
    eureka.listed = None
    created(ONE, owner=f"{LEAST['owner']}-renamed", instance_id="renamed")
    assert len(eureka.held) == 2
    with pytest.raises(OwnershipConflict, match=f"belongs to {state['owner']}"):
        created(ONE, owner="stack/organization/shop/prod/billing", instance_id="prod")


THEIRS = "stack/acme/legacy/prod/billing"

BEHIND_THE_STACKS_BACK = {
    "taken over": {"owner": THEIRS, "renewer": "theirs", "incarnation": "0123abcd"},
    "another renewer": {"renewer": "theirs"},
    "another incarnation": {"incarnation": "0123abcd"},
    "a mark of a status": {"enforced": "DOWN"},
    "a drain that was interrupted": {"leaving": "true"},
    "other contents": {},
}
"""Metadata that somebody changed in Eureka; an empty entry stands for a changed address."""


@pytest.mark.parametrize("marks", BEHIND_THE_STACKS_BACK.values(), ids=BEHIND_THE_STACKS_BACK)
@KINDS
def test_a_refresh_settles(
    kind: ResourceType, marks: dict[str, str], eureka: FakeEureka, servers: FakeServers
) -> None:
    """Only the first refresh reports the difference; updates report it until it is corrected, and the
    owner stays.
    """
    assert servers
    state, inputs = created(kind), checked(kind)
    key = sorted(eureka.held)[0]
    changed = {f"eurekube.{name}": value for name, value in marks.items()}
    one = eureka.held[key]
    host = "192.0.2.99" if not marks else one.host_name
    eureka.held[key] = replace(one, host_name=host, metadata={**one.metadata, **changed})
    found = []
    for _ in range(3):
        refresh = run(kind)
        result = refresh.read("x", state)
        assert (result.outs or {})["owner"] == (result.inputs or {})["owner"] == inputs["owner"]
        found.append(refresh.diff("x", dict(result.outs or {}), inputs).changes)
        state, inputs = dict(result.outs or {}), dict(result.inputs or {})
    assert found == [True, False, False]
    update = run(kind)
    news = update.check(inputs, {**kind[1], "service_url": URL}).inputs
    assert update.diff("x", state, news).changes


@KINDS
def test_what_an_update_has_healed_is_no_change_of_a_refresh(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """The mark ``absent`` that caused an update stays among the inputs, and causes no difference
    afterwards.
    """
    assert servers
    state = created(kind)
    eureka.held.clear()
    update = run(kind)
    inputs = update.check(checked(kind), {**kind[1], "service_url": URL, IN_UPDATE_KEY: True}).inputs
    assert inputs["absent"]
    assert update.diff("x", state, inputs).changes
    state = dict(update.update("x", state, inputs).outs or {})
    refresh = run(kind)
    found = dict(refresh.read("x", state).outs or {})
    assert not refresh.diff("x", found, inputs).changes


CAME_BACK: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "as it was": ({}, {}, True),
    "under its host name alone": ({"host_name": "192.0.2.10", "ip_address": "10.1.1.1"}, {}, True),
    "at another address": ({"host_name": "vm", "ip_address": "10.1.1.1"}, {}, False),
    "at another port": ({"port": Port(9090)}, {}, False),
    "of another stack": ({"metadata": {"eurekube.owner": THEIRS}}, {}, False),
    "of a cluster": ({"metadata": {"eurekube.owner": "cluster/eks/shop/billing"}}, {}, False),
    "with contents that nobody reads for certain": ({"unreadable": "its address"}, {}, False),
    "with an owner that nobody can read": ({"metadata": {"eurekube.owner": ""}}, {}, False),
    "of a program that has an operator renew it": ({}, {"renewer": "eurekube"}, False),
}
"""Changes that make an application's own instance in the registration's place, the program's changes, and
whether the stack takes the instance over.
"""


@pytest.mark.parametrize("is_refreshed", [False, True], ids=["", "after a refresh"])
@pytest.mark.parametrize(("found", "changes", "is_ours"), CAME_BACK.values(), ids=CAME_BACK)
@KINDS
def test_an_application_that_came_back_is_taken_over(
    kind: ResourceType,
    found: dict[str, Any],
    changes: dict[str, Any],
    is_ours: bool,
    is_refreshed: bool,
    eureka: FakeEureka,
    servers: FakeServers,
) -> None:
    """A self-renewed instance at the state's id and address is taken over if it has no owner, and
    otherwise refused.
    """
    assert servers
    # What it registers has its own metadata, and no mark of ours.
    instances = {"a": {"host_name": "192.0.2.10"}}
    given = {"renewer": "self", **({"instances": instances} if "instances" in kind[1] else {})}
    state, inputs = created(kind, **given), checked(kind, **given)
    (key,) = eureka.held
    client = replace(eureka.held[key], metadata={"management.port": "9000"}, status=Status.UP)
    eureka.held[key] = there = replace(client, **found)
    if is_refreshed:
        result = run(kind).read("x", state)
        state, inputs = dict(result.outs or {}), dict(result.inputs or {})
    update = run(kind)
    asked = {**kind[1], "service_url": URL, **given, **changes}
    news = update.check(inputs, {**asked, IN_UPDATE_KEY: True}).inputs
    assert update.diff("x", state, news).changes is (is_ours or is_refreshed or bool(changes))
    if not is_ours:
        with pytest.raises((OwnershipConflict, SomeRegistrationsFailed)):
            update.update("x", state, news)
        assert eureka.held == {key: there}
        return
    state = dict(update.update("x", state, news).outs or {})
    assert (eureka.held[key].owner, eureka.held[key].renewer) == (kind[1]["owner"], "self")
    assert "management.port" not in eureka.held[key].metadata
    run(kind).delete("x", state)
    assert eureka.held == {}


@pytest.mark.parametrize("is_marked", [True, False], ids=["", "in the name of the stack"])
@KINDS
def test_what_was_only_imported_is_not_taken_over(
    kind: ResourceType, is_marked: bool, eureka: FakeEureka, servers: FakeServers
) -> None:
    """An imported instance may be anybody's until the program adopts it; an adopted one that comes back is
    taken over.
    """
    place = {"host_name": "192.0.2.10", "instance_id": "vm-1"}
    given = {"renewer": "self", **({"instances": {"vm-1": place}} if "instances" in kind[1] else place)}
    there = Instance("BILLING", "vm-1", "192.0.2.10", "192.0.2.10", Port(8080), status=Status.UP)
    eureka.held[there.key] = there
    is_many = "instances" in kind[1]
    (imports, id_) = (import_application, "BILLING") if is_many else (import_instance, "BILLING/vm-1")
    found = imports(id_, cast("StackOwner", parse_owner(kind[1]["owner"])), URL, servers(Connection((URL,))))
    assert found is not None
    if is_marked:
        found = mark_not_adopted_unless_owned(found)
        assert "service_url" not in found.properties
    state = dict(found.properties)
    inputs = {name: value for name, value in found.inputs.items() if name != "on_conflict"}

    def up(state: Properties, **more: Any) -> Properties:
        update = run(kind)
        news = update.check(
            inputs, {**kind[1], "service_url": URL, **given, **more, IN_UPDATE_KEY: True}
        ).inputs
        return dict(update.update("x", state, news).outs or {})

    with pytest.raises((OwnershipConflict, SomeRegistrationsFailed)):
        up(state)
    assert eureka.held == {there.key: there}
    state = up(state, on_conflict="adopt")
    assert eureka.held[there.key].owner == kind[1]["owner"]
    assert eureka.held[there.key].incarnation == state.get(INCARNATION_PROPERTY, "")
    assert (INCARNATION_PROPERTY in state) is is_marked
    eureka.held[there.key] = there
    refreshed = dict(run(kind).read("x", state).outs or {})
    for each in (state, refreshed) if is_marked else (state,):
        eureka.held[there.key] = there
        state = up(each)
        assert eureka.held[there.key].owner == kind[1]["owner"]
    run(kind).delete("x", state)
    assert eureka.held == {}


STRANGERS: dict[str, dict[str, str]] = {
    "of nobody": {},
    "with the owner of the stack": {"eurekube.owner": str(LEAST["owner"]), "eurekube.member": "x"},
}


@pytest.mark.parametrize("metadata", STRANGERS.values(), ids=STRANGERS)
@KINDS
def test_a_stranger_that_no_request_can_name_stops_nothing(
    kind: ResourceType,
    metadata: dict[str, str],
    eureka: FakeEureka,
    servers: FakeServers,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Eureka accepts an id with a slash, which no request can name: the providers report the instance and
    leave it.
    """
    assert servers
    state, inputs = created(kind), checked(kind)
    ours = eureka.held[min(eureka.held)]
    theirs = replace(ours, instance_id="vm/17", metadata=metadata, unreadable="its id")
    eureka.held[theirs.key] = theirs

    def reports(calls: Callable[[Provider], Any]) -> bool:
        capsys.readouterr()
        state.update(dict(getattr(calls(run(kind)), "outs", None) or {}))
        return "vm/17" in capsys.readouterr().err

    is_member = bool(metadata) and "instances" in kind[1]
    assert reports(lambda provider: provider.read("x", state))
    update = {**kind[1], "service_url": URL, IN_UPDATE_KEY: True}
    assert reports(lambda provider: provider.check(inputs, update)) is not bool(metadata)
    assert not SHARED_PEERS.unresponsive
    news = checked(kind, metadata={"tier": "2"})
    assert reports(lambda provider: provider.update("x", state, news)) is is_member
    assert eureka.held[ours.key].metadata["tier"] == "2"
    assert reports(lambda provider: provider.delete("x", state)) is is_member
    assert list(eureka.held) == [theirs.key]


@KINDS
def test_without_a_state_nothing_is_known_to_have_come_back(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """A creation or a stateless update does not take over an instance without an owner."""
    made = created(kind, renewer="self")
    bare = {key: replace(each, metadata={}) for key, each in eureka.held.items()}
    eureka.held = dict(bare)
    with pytest.raises((OwnershipConflict, SomeRegistrationsFailed)):
        created(kind, renewer="self")
    stateless = DesiredState.from_properties(made).for_any_incarnation()
    (peers,) = servers.made.values()
    with pytest.raises((OwnershipConflict, SomeRegistrationsFailed)):
        lifecycle.update(stateless, stateless, peers)
    assert eureka.held == bare


@KINDS
def test_a_removal_leaves_an_application_that_came_back(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A self-registered instance stays, since its application serves and removes it at its own end."""
    assert servers
    state = created(kind, renewer="self")
    bare = {key: replace(each, metadata={}) for key, each in eureka.held.items()}
    eureka.held = dict(bare)
    run(kind).delete("x", state)
    assert eureka.held == bare
    assert "was left as it is" in capsys.readouterr().err


def test_the_sentence_about_what_was_left_names_it() -> None:
    """The sentence names the instance and the possible reasons."""
    sentence = lifecycle.not_removed_message(Instance("A", "a-1", "h", "h", Port(1)))
    assert sentence.startswith(
        "A a-1 was registered again, is asked for by the program or belongs to somebody else"
    )


@KINDS
def test_an_unusable_connection_is_reported_before_the_first_creation(
    kind: ResourceType, eureka: FakeEureka, servers: FakeServers
) -> None:
    """Every check reports the connection, also if no resource names it; refreshes and removals still work."""
    assert servers
    old = created(kind)
    stands = dict(eureka.held)
    provider = run(kind, url=URL, connections='{"eu": {"url": "http://eu:8761/eureka", "pasword": "pa55"}}')
    (failure,) = provider.check({}, {**kind[1], "service_url": URL}).failures
    assert failure.reason == "eurekube:connections.eu: there is no field 'pasword'; password is one"
    assert provider.read("id", old).id == "id"
    assert eureka.held == stands
    provider.delete("id", old)
    assert eureka.held == {}


@KINDS
@pytest.mark.parametrize("key", [IN_UPDATE_KEY, IN_PREVIEW_KEY])
def test_two_resources_of_one_name_in_a_program(kind: ResourceType, key: str) -> None:
    """The number that the program gives each of its resources tells two of one name apart."""
    provider = run(kind)
    asked = {**kind[1], "service_url": URL}
    host = {"host_name": "192.0.2.99"}
    other: Properties = {"instances": {"z": host}} if "instances" in kind[1] else host
    for _ in range(2):  # the engine checks what is replaced twice
        result = provider.check({}, {**asked, key: 1.0})
        assert not result.failures
        assert key not in result.inputs
    (failure,) = provider.check({}, {**asked, **other, key: 2.0}).failures
    assert "another resource of the name 'billing' in this program" in failure.reason
    # With ignoreChanges of everything the number is lost.
    assert not provider.check({}, {**asked, **other}).failures


def test_warnings_of_the_dynamic_provider_repeat_no_address(
    eureka: FakeEureka, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning on standard error names a foreign instance's id, not its address: a host name may be a
    secret.
    """
    assert servers
    address = str(LEAST["host_name"])
    created(ONE)
    ((_, ours),) = eureka.held.items()
    metadata = {**ours.metadata, "eurekube.owner": "stack/organization/other/dev/billing"}
    theirs = replace(ours, instance_id="theirs", metadata=metadata)
    eureka.held[theirs.key] = theirs
    olds = checked(ONE)
    provider = run(ONE)
    other = {**LEAST, "service_url": URL, "owner": f"{LEAST['owner']}-2", "instance_id": "another"}
    provider.check({}, other)
    assert not provider.check(olds, {**LEAST, "service_url": URL, IN_UPDATE_KEY: True}).failures
    output = capsys.readouterr().err
    assert "host_name: the resource 'billing-2' of this program registers the same" in output
    assert "callers of BILLING find an address twice, since theirs is registered there, too" in output
    many = {**ALL, "service_url": URL, "instances": {key: {"host_name": address} for key in ("a", "b")}}
    assert not run((ApplicationProvider, ALL)).check(many, many).failures
    output += capsys.readouterr().err
    assert "instances.b.host_name: the instance 'a' of this application registers the same" in output
    assert address not in output
