"""The life of registrations by both dynamic providers: whose a removal takes, and what a failure leaves."""

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
    SomeFailed,
)
from eurekube_provider.core.identity import INCARNATION_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.removal_checks import RemovalChecks
from eurekube_provider.registrations import lifecycle, registry_lists
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.properties import INCARNATION, Properties
from eurekube_provider.registrations.run_resources import RUN_RESOURCES
from eurekube_provider.registrations.servers import PEERS
from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.instance import InstanceProvider
from eurekube_provider.resources.program_inputs import IN_UPDATE
from tests.unit.fake_eureka import FakeEureka, FakeServers
from tests.unit.registrations.test_members import ALL
from tests.unit.registrations.test_properties import LEAST

URL = "http://eureka:8761/eureka"

SPELT = "https://eureka.example.com/eureka"

OTHER = "http://other:8761/eureka"

GONE = "http://gone:8761/eureka"

Provider = InstanceProvider | ApplicationProvider

Kind = tuple[Callable[[], Provider], Properties]

KINDS = pytest.mark.parametrize(
    "kind", [(InstanceProvider, LEAST), (ApplicationProvider, ALL)], ids=["one", "many"]
)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that holds something else is asked again at once, and nobody waits for a drain."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(CANCELLATION, "wait_of_this_call", lambda: lambda _: None)
    RUN_RESOURCES.__init__()  # type: ignore[misc]
    monkeypatch.setattr(registry_lists, "LISTED_FOR_SECONDS", -1.0)


@pytest.fixture
def eureka() -> FakeEureka:
    """One Eureka."""
    return FakeEureka()


@pytest.fixture
def other() -> FakeEureka:
    """Another one."""
    return FakeEureka()


@pytest.fixture
def servers(eureka: FakeEureka, other: FakeEureka, monkeypatch: pytest.MonkeyPatch) -> FakeServers:
    """The first one has two URLs."""
    made = FakeServers({URL: eureka, SPELT: eureka, OTHER: other})
    monkeypatch.setattr(PEERS, "of", made)
    return made


def run(kind: Kind, **config: str) -> Provider:
    """What a new plugin process has."""
    RUN_RESOURCES.__init__()  # type: ignore[misc]
    provider = kind[0]()
    settings = {f"eurekube:{key}": value for key, value in config.items()}
    provider.configure(ConfigureRequest(Config(settings, "shop")))
    return provider


def checked(kind: Kind, **changes: Any) -> Properties:
    """What the engine creates with."""
    result = kind[0]().check({}, {**kind[1], "service_url": URL, **changes})
    assert not result.failures
    return dict(result.inputs)


def created(kind: Kind, **changes: Any) -> Properties:
    """The state after a creation, in a process of its own."""
    return dict(run(kind).create(checked(kind, **changes)).outs or {})


@KINDS
def test_a_removal_takes_its_own_incarnation_only(
    kind: Kind, eureka: FakeEureka, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new half of a replacement takes the place over, and the old one leaves it, in whichever run."""
    old, new = created(kind, drain_seconds=9), created(kind, drain_seconds=9)
    stands = dict(eureka.held)
    assert {each.incarnation for each in stands.values()} == {new[INCARNATION]} != {old[INCARNATION]}
    run(kind).delete("", old)
    assert eureka.held == stands
    assert "was left as it is" in capsys.readouterr().err
    updated = dict(run(kind).update("", new, checked(kind, metadata={"tier": "2"})).outs or {})
    assert updated[INCARNATION] == new[INCARNATION]
    run(kind).delete("", updated)
    assert eureka.held == {}
    assert servers.users == {URL: None}


@KINDS
def test_a_state_without_an_incarnation_goes_on(kind: Kind, eureka: FakeEureka, servers: FakeServers) -> None:
    """As 0.1.0 wrote it: no change by itself, removed where Eureka names none; an update gives none.

    Or what an update has written whose answer got lost could not be removed any more.
    """
    assert servers
    old = created(kind)
    del old[INCARNATION]
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
    assert {each.incarnation for each in eureka.held.values()} == {moved[INCARNATION]}
    result = run(kind).read("x", old)
    assert run(kind).diff("", dict(result.outs or {}), checked(kind)).changes
    new = dict(run(kind).update("", old, checked(kind, metadata={"tier": "2"})).outs or {})
    assert INCARNATION not in new
    assert {each.incarnation for each in eureka.held.values()} == {""}
    run(kind).delete("", old)
    assert eureka.held == {}


@KINDS
@pytest.mark.parametrize("url", [URL, SPELT])
def test_a_move_that_is_taken_back_leaves_what_stood(
    kind: Kind, url: str, eureka: FakeEureka, servers: FakeServers
) -> None:
    """The state has both for a while; the engine finds the first unchanged, and removes the second."""
    assert servers
    old = created(kind)
    moved = created(kind, service_url=url)
    provider = run(kind)
    assert not provider.diff("", old, checked(kind)).changes
    provider.delete("", moved)
    assert {each.incarnation for each in eureka.held.values()} == {old[INCARNATION]}
    run(kind).delete("", old)
    assert eureka.held == {}


@KINDS
def test_what_was_renamed_is_given_back_to_nobody(
    kind: Kind, eureka: FakeEureka, servers: FakeServers
) -> None:
    """The state before its update has another owner, and is the same resource."""
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
    kind: Kind, eureka: FakeEureka, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody copied it by hand, mark included. With the program's own gone, too, it goes."""
    assert servers
    state = created(kind, drain_seconds=9)
    before = dict(eureka.held)
    provider = run(kind)
    provider.check(checked(kind, drain_seconds=9), {**kind[1], "drain_seconds": 9, IN_UPDATE: True})
    eureka.asked.clear()
    provider.delete("", state)
    assert eureka.held == before
    assert "set_status" not in eureka.asked
    assert "is asked for by the program" in capsys.readouterr().err
    provider.delete("", {**state, "service_url": SPELT})
    assert eureka.held == {}, "another Eureka may hold the same place"


@KINDS
def test_what_is_previewed_or_refreshed_is_not_asked_for(
    kind: Kind, eureka: FakeEureka, servers: FakeServers
) -> None:
    """An up begins with both, and removes what it finds there and the program does not have."""
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
    kind: Kind, eureka: FakeEureka, servers: FakeServers
) -> None:
    """What carries another mark than the state's could not be removed by it."""
    assert servers
    state, _ = created(kind), created(kind)
    result = run(kind).read("x", state)
    assert run(kind).diff("", dict(result.outs or {}), checked(kind)).changes
    healed = dict(run(kind).update("", dict(result.outs or {}), checked(kind)).outs or {})
    assert {each.incarnation for each in eureka.held.values()} == {state[INCARNATION]}
    assert not run(kind).diff("", healed, checked(kind)).changes


@KINDS
def test_another_spelling_drains_nothing_and_another_eureka_is_left(
    kind: Kind, eureka: FakeEureka, other: FakeEureka, servers: FakeServers
) -> None:
    """Registered first, at the new URL; at the old one it is removed where it is the old one still."""
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
def test_the_order_of_urls_changes_nothing(kind: Kind) -> None:
    """A laptop in another zone asks other servers first."""
    both = checked(kind, service_url=f"{URL},{OTHER}")
    state = {**both, "status": "UP", "status_is_enforced": False} if kind[0] is InstanceProvider else both
    assert not kind[0]().diff("", state, checked(kind, service_url=f"{OTHER},{URL}")).changes
    assert kind[0]().diff("", state, checked(kind, service_url=f"{OTHER},{URL},{SPELT}")).changes


@KINDS
def test_a_server_that_is_gone_for_good_is_let_go_of(
    kind: Kind, servers: FakeServers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error of the removal says how; then nothing is asked of it, and a refresh drops it."""
    state = {**created(kind), "service_url": GONE}
    for call in (lambda: run(kind, url=URL).delete("", state), lambda: run(kind, url=URL).read("", state)):
        with pytest.raises(RegistryUnreachable, match=f"pulumi config set eurekube:abandonedUrls {GONE}"):
            call()
    servers.users.clear()
    run(kind, url=URL, abandonedUrls=f"{OTHER}, {GONE}/").delete("", state)
    assert "was let go of" in capsys.readouterr().err
    assert run(kind, url=URL, abandonedUrls=f'["{GONE}"]').read("x", state).id == ""
    assert servers.users == {}


@KINDS
def test_credentials_go_to_the_urls_that_they_were_configured_for(kind: Kind, servers: FakeServers) -> None:
    """A URL that is not configured any more gets none; that of another connection gets its own."""
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
def test_a_refresh_tells_nobody_to_abandon_a_server_that_is_in_use(kind: Kind, servers: FakeServers) -> None:
    """It is away for a while; what is to be removed there may be abandoned."""
    assert servers
    state = {**created(kind), "service_url": GONE}
    with pytest.raises(RegistryUnreachable) as raised:
        run(kind, url=GONE).read("x", state)
    assert "abandonedUrls" not in str(raised.value)
    with pytest.raises(RegistryUnreachable, match="abandonedUrls"):
        run(kind, url=GONE).delete("", state)


@KINDS
def test_a_server_that_wants_credentials_has_them_in_a_connection(
    kind: Kind, eureka: FakeEureka, servers: FakeServers
) -> None:
    """Said where the state's URL is none that is configured."""
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
    kind: Kind, other: FakeEureka, servers: FakeServers
) -> None:
    """What is to be removed need not be configured any more."""
    assert servers
    state = created(kind, service_url=OTHER, connection="eu")
    assert other.held
    run(kind, url=URL).delete("", state)
    assert other.held == {}


def lost(usual: Callable[[], Any]) -> Any:
    """The server does it, and its answer gets lost."""
    usual()
    raise RegistryUnreachable("no answer within 5 s", url=URL)


def refused(_: Callable[[], Any]) -> Any:
    """The server does not do it."""
    raise RegistryRejected("answered 500", url=URL)


def away(_: Callable[[], Any]) -> Any:
    """The server is away."""
    raise RegistryUnreachable("no connection", url=URL)


ONE: Kind = (InstanceProvider, LEAST)


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
    """Nobody's state would remove it; the corrected program may ask for another id."""
    assert servers
    eureka.fails = {name: list(each) for name, each in fails.items()}
    with pytest.raises((RegistryRejected, RegistryUnreachable), match="was taken back"):
        created(ONE, **changes)
    assert eureka.held == {}


def test_what_a_failed_creation_took_over_is_given_back(eureka: FakeEureka, servers: FakeServers) -> None:
    """A person's status included; the old half of the replacement is still in the state."""
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
    """The state says so: a program that asks for it again changes nothing, and one without it removes it."""
    assert servers
    old = created(ONE)
    before = dict(eureka.held)
    wanted = {**checked(ONE, **changes), "instance_id": old["instance_id"]}
    eureka.fails = {name: list(each) for name, each in fails.items()}
    with pytest.raises((RegistryRejected, RegistryUnreachable), match="what stood there before stands there"):
        run(ONE).update("", old, wanted)
    now = {key: replace(each, last_dirty_timestamp_ms=0) for key, each in eureka.held.items()}
    assert now == {key: replace(each, last_dirty_timestamp_ms=0) for key, each in before.items()}
    run(ONE).delete("", old)
    assert eureka.held == {}


def test_an_update_that_fails_takes_nothing_out_of_service(eureka: FakeEureka, servers: FakeServers) -> None:
    """What a drain had left out stays in service, although it did not stand there before."""
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
    """It is put back although the state does not know, whichever of them it is."""
    assert servers
    instances = {f"i{at:03}": {"host_name": f"192.0.2.{at}"} for at in range(1, count + 1)}
    many: Kind = (ApplicationProvider, {**ALL, "instances": instances})
    old = created(many)
    given = {**many[1], "service_url": URL, "in_update": True}
    assert not run(many).diff("", old, run(many).check(old, given).inputs).changes
    key = sorted(eureka.held)[count // 2]
    one = eureka.held[key]
    out = Status.OUT_OF_SERVICE
    marked = {**one.metadata, "eurekube.leaving": "true"}
    eureka.held[key] = replace(one, metadata=marked, status=out, overridden_status=out)
    news = run(many).check(old, given).inputs
    assert run(many).diff("", old, news).changes
    run(many).update("", old, news)
    assert (eureka.held[key].status, eureka.held[key].metadata) == (Status.UP, one.metadata)


def test_what_cannot_be_taken_back_is_named(eureka: FakeEureka, servers: FakeServers) -> None:
    """With the way to remove it, and no second writer is touched."""
    assert servers
    eureka.fails = {"register": [lost], "deregister": [away]}
    path = f"{URL}/apps/BILLING/billing.dev.shop:billing:8080"
    with pytest.raises(RegistryUnreachable, match=f"may be registered all the same.*DELETE of {path}"):
        created(ONE)
    assert len(eureka.held) == 1


def test_a_failed_creation_of_many_gives_back_what_it_took_over(
    eureka: FakeEureka, servers: FakeServers
) -> None:
    """The old half goes on with its own incarnation."""
    assert servers
    many: Kind = (ApplicationProvider, ALL)
    old = created(many)
    before = {key: each.metadata for key, each in eureka.held.items()}
    instances: Any = {**cast("Properties", ALL["instances"]), "c": {"host_name": "192.0.2.3"}}
    eureka.fails = {"register": [refused]}
    with pytest.raises(SomeFailed, match="were taken back"):
        created(many, instances=instances)
    assert {key: each.metadata for key, each in eureka.held.items()} == before
    run(many).delete("", old)
    assert eureka.held == {}


def test_a_machine_that_registers_itself_is_refused(eureka: FakeEureka, servers: FakeServers) -> None:
    """Callers would find it twice. A list suggests it, and its own read says so; adopting takes it over."""
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
    """Somebody wrote there meanwhile: another owner, or another creation of the same one."""
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
    kind: Kind, owner: str | None, eureka: FakeEureka, servers: FakeServers
) -> None:
    """One that has our id, of whomever it is, stands as it stood; with ``adopt`` it is taken over."""
    assert servers
    created(kind)
    theirs = {
        key: replace(each, metadata={"eurekube.owner": owner} if owner else {}, host_name="theirs")
        for key, each in eureka.held.items()
    }
    eureka.held = dict(theirs)
    with pytest.raises((OwnershipConflict, SomeFailed)):
        created(kind)
    assert eureka.held == theirs
    created(kind, on_conflict="adopt")
    assert {each.owner for each in eureka.held.values()} == {kind[1]["owner"]}


def test_what_was_removed_from_several_servers_is_looked_at_a_second_time(servers: FakeServers) -> None:
    """Unless its application renews it itself: then it would be the application's wish that it came back."""
    for renewer, count in (("eurekube", 1), ("self", 0)):
        state = created(ONE, service_url=f"{URL},{OTHER}", renewer=renewer)
        looks = Mock(RemovalChecks)
        peers = next(peers for peers in servers.made.values() if len(peers.peers) > 1)
        wanted = DesiredState.from_properties(state)
        removal = lifecycle.delete(wanted, peers, checks=looks)
        assert [each.key for each in removal.removed] == list(wanted.keys)
        assert looks.add.call_count == count


def test_what_a_list_has_and_nobody_holds_is_in_nobodys_way(eureka: FakeEureka, servers: FakeServers) -> None:
    """Lists are old; and another resource of the stack at the address is being renamed."""
    assert servers
    eureka.listed = [Instance("BILLING", "gone", "host", "192.0.2.10", Port(8080))]
    state = created(ONE)
    eureka.listed = None
    created(ONE, owner=f"{LEAST['owner']}-renamed", instance_id="renamed")
    assert len(eureka.held) == 2
    with pytest.raises(OwnershipConflict, match=f"belongs to {state['owner']}"):
        created(ONE, owner="stack/organization/shop/prod/billing", instance_id="prod")


def test_the_sentence_about_what_was_left_names_it() -> None:
    """Whichever of both reasons it has."""
    sentence = lifecycle.left_alone(Instance("A", "a-1", "h", "h", Port(1)))
    assert sentence.startswith(
        "A a-1 was registered anew, is asked for by the program or belongs to somebody else"
    )
