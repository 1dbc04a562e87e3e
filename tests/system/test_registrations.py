"""Registrations in stacks of their own, by either provider, under a real CLI and on real Eureka servers.

Since each start of the CLI takes long, a stack has many registrations, one for each case, and each run tests
all of them. The state is read from the backend's file.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from eurekube_provider.core.identity import INCARNATION_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.registrations.names import to_camel_case
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.listing import list_uncached
from tests.contract.plugin import EACH, NOBODY
from tests.system.shells import (
    DYNAMIC,
    NATIVE,
    ProviderStack,
    Shell,
    Wanted,
    Watch,
    Workshop,
    by_hand,
    eurekube,
    held,
    host,
    hosts,
    with_options,
)
from tests.system.stacks import needs_pulumi

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(1200)]

STEPS = {
    "update": ["update"],
    "replace": ["create-replacement", "replace", "delete-replaced"],
}


IN_PLACE = {name: value for name, (value, single, _) in EACH.items() if single == "update"}
IN_PLACE_OF_MANY = {name: value for name, (value, _, several) in EACH.items() if several == "update"}
REPLACED = {f"one-{name}": name for name, (_, single, _) in EACH.items() if single == "replace"}
REPLACED_OF_MANY = {f"many-{name}": name for name, (_, _, several) in EACH.items() if several == "replace"}


def every_property(shell: Shell, *, changed: bool) -> list[Wanted]:
    """Return one registration with all properties that update in place, and one for each other property.

    The tests of the contract over gRPC check that each property alone is a change.
    """
    one, many = (IN_PLACE, IN_PLACE_OF_MANY) if changed else ({}, {})
    wanted = [shell.one("all", **one), shell.many("all-of-many", {"a": host(1)}, **many)]
    for key, name in REPLACED.items():
        wanted.append(shell.one(key.replace("_", "-"), **({name: EACH[name][0]} if changed else {})))
    for key, name in REPLACED_OF_MANY.items():
        given = {name: EACH[name][0]} if changed else {}
        wanted.append(shell.many(key.replace("_", "-"), {"a": host(1)}, **given))
    return wanted


def their_steps() -> dict[str, list[str]]:
    """Return the expected steps when each property changes and changes back."""
    again = {key.replace("_", "-"): STEPS["replace"] for key in (*REPLACED, *REPLACED_OF_MANY)}
    return {"all": STEPS["update"], "all-of-many": STEPS["update"], **again}


def test_the_life_of_a_stack(shell: Shell, workshop: Workshop, plain_url: str, plain: Peer) -> None:
    """A stack comes up, is unchanged, changes each property, drifts, fails half-way, recovers, runs with
    targets, and is destroyed.
    """
    alias = plain_url.replace("127.0.0.1", "localhost")
    stack = ProviderStack(workshop, f"life-{shell.name}", {"url": plain_url, "connections.alias.url": alias})
    cases = [
        {**shell.one("drifted", metadata={"tier": "1"}), "export": "host_name"},
        shell.one("vanished"),
        shell.many("row", {"a": host(1), "b": {**host(2), "port": 9090}}),
        shell.one("overridden"),
        shell.one("enforced", status="UP"),
        with_options(shell.one("protected"), protect=True),
        with_options(shell.one("retained"), retain_on_delete=True),
    ]

    def program(*, changed: bool) -> list[Wanted]:
        id_ = "second" if changed else "first"
        first = with_options(shell.one("gap", instance_id=id_), delete_before_replace=True)
        members = {"a": host(3), "d": host(4), "e": host(5)} if changed else {"a": host(1), "b": host(2)}
        shed = shell.many("shed", {"a": host(1)})
        named = {**shed, "name": "sheds"} if changed else shed  # for Pulumi another resource
        changing = [shell.one("swap", instance_id=id_), first, shell.many("queue", members), named]
        return [*changing, *every_property(shell, changed=changed), *cases]

    stack.wants(*program(changed=False))
    stack.up()
    owner = f"stack/organization/shop/{stack.name}"
    assert held(plain, "drifted")["drifted"].owner == f"{owner}/drifted"
    assert stack.outputs()["drifted"] == "192.0.2.50"
    row = stack.state()["row"]
    assert len(json.dumps([row["inputs"], row["outputs"]])) < 1_500
    assert len(row["outputs"].get("__provider", "")) < 150
    # What was registered can be looked up and exported, by the program that registers it as well.
    stack.wants(*program(changed=False), shell.lookup("listed", "row"), shell.lookup("nobody", "nobody"))
    stack.unchanged()
    hosts_listed = {each.get("hostName", each.get("host_name")) for each in stack.outputs()["listed"]}
    assert hosts_listed == {"192.0.2.1", "192.0.2.2"}
    assert stack.outputs()["nobody"] == []

    before = {name: held(plain, name)[name] for name in ("drifted", "vanished", "overridden", "enforced")}
    drifted = {**before["drifted"].metadata, "tier": "99", "added": "by-hand"}
    by_hand(plain, before["drifted"], host_name="192.0.2.99", metadata=drifted)
    by_hand(plain, held(plain, "row")["a"], host_name="192.0.2.99")
    for instance in (before["vanished"], held(plain, "row")["b"]):
        plain.deregister(*instance.key)
    for name in ("overridden", "enforced"):
        plain.set_status(before[name], Status.OUT_OF_SERVICE)
    if shell is DYNAMIC:
        document = json.loads(eurekube(stack, "drift", "--stack", stack.name, code=2).stdout)
        assert document["drifted"] is True
        changes = {each["name"]: each for one in document["applications"] for each in one["changes"]}
        assert changes["b"]["kind"] == "leaves"
        assert changes["a"]["details"] == {"host_name": ["192.0.2.1", "192.0.2.99"]}

    # A preview tells what each property does, and what somebody has changed.
    stack.wants(*program(changed=True))
    preview = stack.preview("--refresh", "--show-replacement-steps")
    operations = preview.operations()
    assert operations == their_steps() | {
        "swap": STEPS["replace"],
        "gap": ["delete-replaced", "replace", "create-replacement"],
        "queue": ["update"],
        "sheds": ["create"],
        "shed": ["delete"],
        "drifted": ["update"],
        "vanished": ["create"],
        "row": ["update"],
        "enforced": ["update"],
    }
    for name, properties in (("all", IN_PLACE), ("all-of-many", IN_PLACE_OF_MANY)):
        was, is_wanted = preview.inputs(name)
        assert {key for key, value in is_wanted.items() if was.get(key) != value} >= properties.keys()
        if shell is NATIVE:  # no dynamic provider can tell
            shown = {path.partition(".")[0] for path in preview.differing(name)}
            # Naming a secure port enables it: that is filled in, and not what the program says.
            assert shown == {to_camel_case(key) for key in properties} - {"securePortEnabled"}
    if shell is NATIVE:
        # The address that was found is not the one that the host name found would imply.
        a = {"instances.a.hostName", "instances.a.ipAddress"}
        assert preview.differing("row") == {*a, "instances.b"}
    was, is_wanted = preview.inputs("drifted")
    assert (was["host_name"], is_wanted["host_name"]) == ("192.0.2.99", "192.0.2.50")
    assert was["metadata"] == {"tier": "99", "added": "by-hand"}
    was, is_wanted = preview.inputs("row")
    assert (was["instances"]["a"]["host_name"], "b" in was["instances"]) == ("192.0.2.99", False)
    assert is_wanted["instances"]["b"]["port"] == 9090
    assert held(plain, "drifted")["drifted"].host_name == "192.0.2.99"

    # Somebody stands in the way of one of several: what was done stays, and the next up finishes all of it.
    blocker = Instance("queue", f"d.queue.{stack.name}.shop:queue:8080", "192.0.2.98", "192.0.2.98", Port(1))
    plain.register(blocker)
    said = stack.up("--refresh", fails=True)
    assert "1 of 3 instances failed" in said
    assert f"d (QUEUE {blocker.instance_id} was not registered by Eurekube" in said
    assert set(hosts(plain, "queue")) == {"a", "b", "d", "e"}
    plain.deregister(*blocker.key)
    stack.up()
    assert hosts(plain, "queue") == {"a": "192.0.2.3", "d": "192.0.2.4", "e": "192.0.2.5"}
    assert (set(held(plain, "swap")), set(held(plain, "gap"))) == ({"second"}, {"second"})
    assert {key: each.owner for key, each in held(plain, "shed").items()} == {"a": f"{owner}/sheds"}
    healed = {name: held(plain, name)[name] for name in before}
    assert (healed["drifted"].host_name, healed["drifted"].metadata) == (
        "192.0.2.50",
        before["drifted"].metadata,
    )
    assert healed["vanished"].incarnation != before["vanished"].incarnation
    again = {INCARNATION_KEY: healed["vanished"].incarnation}
    assert healed["vanished"].metadata == {**before["vanished"].metadata, **again}
    assert hosts(plain, "row") == {"a": "192.0.2.1", "b": "192.0.2.2"}
    statuses = (healed["overridden"].status, healed["enforced"].status)
    assert statuses == (Status.OUT_OF_SERVICE, Status.UP)  # a person's is theirs, a program's counts
    assert held(plain, "one-port")["one-port"].instance_id == f"one-port.{stack.name}.shop:one-port:9090"
    assert held(plain, "all-of-many")["a"].port.number == 9090
    single = held(plain, "all")["all"]
    assert (single.host_name, single.ip_address, single.status) == ("192.0.2.51", "192.0.2.52", Status.DOWN)
    assert (single.port.enabled, single.secure_port) == (False, Port(8443))
    assert (single.zone, single.renewer, single.metadata["tier"]) == ("zone-b", "self", "2")
    assert (single.lease.renewal_interval_seconds, single.lease.duration_seconds) == (10, 60)
    stack.unchanged()

    # Back, of which only what is named is done.
    stack.wants(*program(changed=False))
    stack.up(*stack.urns("--target", "all", "swap"))
    assert hosts(plain, "all") == {"all": "192.0.2.50"}
    assert set(held(plain, "swap")) == {"first"}
    assert held(plain, "all-of-many")["a"].port.number == 9090

    assert "protect" in stack.destroy(fails=True)
    assert held(plain, "protected")
    stack.pulumi("state", "unprotect", "--all", "--yes")
    stack.destroy()
    assert {each.application for each in all_of(plain)} == {"RETAINED"}


def all_of(eureka: Peer) -> list[Instance]:
    """Return all instances in Eureka."""
    return list_uncached(eureka.url)


def below(component: str, wanted: Wanted) -> Wanted:
    """Move a program's resource below a component without an alias, which makes it a new resource for
    Pulumi.
    """
    return {**wanted, "component": f"{component}-{wanted['name']}", "options": {}}


@pytest.mark.parametrize("shell", [DYNAMIC], ids=["dynamic"], indirect=True)  # the engine's order is one
def test_a_removal_takes_only_its_own(shell: Shell, workshop: Workshop, plain_url: str, plain: Peer) -> None:
    """If the two halves of a replacement happen in separate runs, in either order, the wanted instances
    stay UP.
    """
    config = {"url": plain_url, "connections.dead.url": NOBODY}
    stack = ProviderStack(workshop, f"own-{shell.name}", config)
    wanted = (shell.one("hut", drain_seconds=1), shell.many("lane", {"a": host(1), "b": host(2)}))
    moved = tuple(below("group", each) for each in wanted)
    broken = shell.one("broken", connection="dead")
    stack.wants(*wanted)
    stack.up()
    urns = [each["urn"] for each in stack.state().values()]
    with Watch(plain, "hut", "lane"):
        # Something else fails, so that the old halves are left for the next run; then the program goes back.
        for program in (moved, wanted):
            stack.wants(*program, broken)
            assert "no connection to" in stack.up(fails=True)
        # One is moved by itself, by --target, and the others go when all is done.
        stack.wants(*moved)
        moved_urns = [
            re.sub(r"(eurekube:|pulumi-python:)", r"shop:index:Group$\1", urn, count=1) for urn in urns
        ]
        stack.up(*(part for urn in moved_urns for part in ("--target", urn)))
        # The same ids again, before "the old ones" are removed.
        stack.up(*(part for urn in moved_urns for part in ("--replace", urn)))
        assert {each["urn"] for each in stack.state().values()} == set(moved_urns)
    # So it is with those that had lapsed.
    plain.deregister(*held(plain, "lane")["a"].key)
    stack.up("--replace", moved_urns[1])
    assert set(held(plain, "lane")) == {"a", "b"}
    stack.unchanged()
    assert len(all_of(plain)) == 3


def test_names_change_and_the_registrations_stay(
    shell: Shell, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """A renamed stack, and resources with an alias, update in place."""
    stack = ProviderStack(workshop, f"before-{shell.name}", {"url": plain_url})
    members = {"a": host(1), "b": host(2)}
    stack.wants(shell.one("orders"), shell.many("cart", members))
    stack.up()
    ids = {each.instance_id for name in ("orders", "cart") for each in held(plain, name).values()}
    after = f"after-{shell.name}"
    stack.pulumi("stack", "rename", after)
    stack.wants(
        with_options(shell.one("purchases", application="orders"), alias={"name": "orders"}),
        with_options(shell.many("basket", members, application="cart"), alias={"name": "cart"}),
    )
    said = stack.up()
    assert "replace" not in said
    there = [*held(plain, "orders").values(), *held(plain, "cart").values()]
    assert {each.instance_id for each in there} == ids
    owner = f"stack/organization/shop/{after}"
    assert {each.owner for each in there} == {f"{owner}/purchases", f"{owner}/basket"}
    assert len(all_of(plain)) == 3


def test_servers_and_credentials_change(
    shell: Shell, workshop: Workshop, plain_url: str, plain: Peer, secured: Peer
) -> None:
    """Another spelling of a URL changes nothing for callers; a move to another Eureka leaves nothing behind.

    A server that is gone for good can be abandoned. No output shows a credential.
    """
    stack = ProviderStack(
        workshop,
        f"servers-{shell.name}",
        {
            "url": plain_url,
            "connections.eu.url": secured.url,
            "connections.eu.user": EUREKA_USER,
            "connections.alias.url": plain_url,
        },
    )
    stack.configure_secret("connections.eu.password", "wrong-pa55word")

    def staying(drain_seconds: int) -> tuple[Wanted, ...]:
        several = shell.many("mews", {"a": host(1), "b": host(2)}, drain_seconds=drain_seconds)
        return shell.one("inn", drain_seconds=drain_seconds), several, shell.one("den", connection="alias")

    def moving(connection: str) -> tuple[Wanted, ...]:
        single = shell.one("moving", connection=connection)
        return single, shell.many("van", {"a": host(1)}, connection=connection)

    def provider(given: dict[str, Any], *secret: str) -> tuple[Wanted, ...]:
        """Return a provider resource and a registration that uses it, for the native provider only."""
        if shell is not NATIVE:
            return ()
        hidden = [[name] for name in secret]
        made = {"shell": shell.name, "kind": "Provider", "name": "eu", "args": given, "secret": hidden}
        return made, with_options(shell.one("there"), provider="eu")

    def explicit(password: str, **more: str) -> tuple[Wanted, ...]:
        given = {"url": secured.url, "user": EUREKA_USER, "password": password, **more}
        return provider(given, "password")

    stack.wants(*staying(100), *moving("default"))
    stack.up()
    stack.wants(*staying(100), *moving("eu"), *explicit("wrong-pa55word"))
    output = stack.up(fails=True)
    assert "answered 401" in output
    assert (set(held(plain, "moving")), set(held(plain, "van"))) == ({"moving"}, {"a"})
    stack.configure_secret("connections.eu.password", EUREKA_PASSWORD)
    spelt = plain_url.replace("127.0.0.1", "localhost")
    stack.configure("url", spelt)
    stack.wants(*staying(100), *moving("eu"), *explicit(EUREKA_PASSWORD))
    with Watch(plain, "inn", "mews", "den"):
        output += stack.up("--diff")
        assert (held(plain, "moving"), held(plain, "van")) == ({}, {})
        assert hosts(secured, "van") == {"a": "192.0.2.1"}
        assert hosts(secured, "moving") == {"moving": "192.0.2.50"}
        states = stack.states()
        assert {states[name]["service_url"] for name in ("inn", "mews")} == {spelt}
        assert {states[name]["service_url"] for name in ("moving", "van")} == {secured.url}

        # The server that the state names is gone for good.
        output += stack.state_text()
        stack.write_state(json.loads(json.dumps(stack.resources()).replace(spelt, NOBODY)))
        said = stack.up(fails=True)
        assert f"no connection to {NOBODY}" in said
        assert f"pulumi config set eurekube:abandonedUrls {NOBODY}" in said
        stack.configure("abandonedUrls", NOBODY)
        # Another setting of a provider is no replacement of what it has registered.
        stack.wants(*staying(1), *moving("eu"), *explicit(EUREKA_PASSWORD, mode="rest"))
        output += said + stack.up("--diff")
    if shell is NATIVE:
        assert stack.states()["there"]["incarnation"] == states["there"]["incarnation"]
        assert set(held(secured, "there")) == {"there"}
        # Its own Eureka has another URL: another spelling, and credentials in clear, none of which stays so.
        known = {"url": secured.url, "user": EUREKA_USER, "password": EUREKA_PASSWORD}
        aliased = secured.url.replace("127.0.0.1", "localhost")
        in_clear = aliased.replace("//", f"//{EUREKA_USER}:{EUREKA_PASSWORD}@")
        respelt = provider({"url": in_clear, "connections": {"old": known}})
        stack.wants(*staying(1), *moving("eu"), *respelt)
        with Watch(secured, "there"):
            output += stack.preview().text + stack.up("--diff") + stack.state_text()
        assert stack.states()["there"]["service_url"] == aliased
        assert f"{EUREKA_PASSWORD}@" not in output
        stack.wants(*staying(1), *moving("eu"), *respelt[:1])
        output += stack.up()
        assert "there" not in stack.states()
        assert held(secured, "there") == {}
        stack.wants(*staying(1), *moving("eu"))
    output += stack.state_text()
    assert f"{EUREKA_PASSWORD}@" not in output
    assert "wrong-pa55word" not in output
    # The right password is a common word: it is looked for as a text of its own.
    for quote in ('"', '\\"', "'"):
        assert f"{quote}{EUREKA_PASSWORD}{quote}" not in output
    # A connection goes together with what is registered there.
    stack.configure("connections.alias", None)
    stack.wants()
    stack.up()
    assert (all_of(plain), all_of(secured)) == ([], [])
