"""Registrations in a stack of their own, under a real Pulumi CLI and on real Eureka servers.

The program makes what a file beside it says, so that a test changes the program by writing the file. Home,
backend and passphrase are the test's own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer
from lab import Lab
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.listing import listed_now, wait_listed
from lab.workloads import wait_for
from tests.contract.plugin import EACH
from tests.system.conftest import ROOT
from tests.system.stacks import Shop, needs_pulumi

pytestmark = [
    pytest.mark.lab,
    pytest.mark.pulumi,
    pytest.mark.slow,
    needs_pulumi,
]

PROGRAM = """
import json
from pathlib import Path

import pulumi

import eurekube_provider
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
for item in json.loads(Path("wanted.json").read_text()):
    options = item.get("options", {})
    if "component" in item:
        options["parent"] = pulumi.ComponentResource("shop:index:Group", item["component"])
    if "alias" in options:
        options["aliases"] = [pulumi.Alias(name=options.pop("alias"))]
    kind = getattr(eurekube_provider, item["kind"])
    made = kind(item["name"], item["args"], pulumi.ResourceOptions(**options))
    if item["kind"] == "EurekaApplication":
        pulumi.export(item["name"], made.instance_ids)
"""

STATES = ROOT / "tests" / "states"
STATES_URL = "http://eureka.example.com:8761/eureka"
NOBODY = "http://127.0.0.1:9/eureka"
Wanted = dict[str, Any]


@pytest.fixture(scope="module")
def url(lab: Lab) -> str:
    """The lab's Eureka server, whose lists are never old: a run looks there for what a former one left."""
    return lab.eureka_urls[0]


@pytest.fixture(scope="module")
def other() -> Iterator[Peer]:
    """Another Eureka, which asks for a password; what was registered a moment ago is in its lists at once."""
    with Lab(eureka=1, kubernetes=False, security="basic", quick_view=True) as lab:
        (url,) = lab.eureka_urls
        peer = Peer(url, Connection.parse(url, EUREKA_USER, EUREKA_PASSWORD))
        yield peer
        peer.close()


@pytest.fixture
def eureka(url: str) -> Iterator[Peer]:
    """The server itself."""
    peer = Peer(url, Connection.parse(url))
    yield peer
    peer.close()


def one(name: str, **args: Any) -> Wanted:
    """A single registration."""
    given = {"application": name, "host_name": "192.0.2.50", "port": 8080, **args}
    return {"kind": "EurekaInstance", "name": name, "args": given}


def many(name: str, application: str, instances: dict[str, Any], **options: Any) -> Wanted:
    """Several of one application."""
    args = {"application": application, "port": 8080, "metadata": {"tier": "1"}, "instances": instances}
    return {"kind": "EurekaApplication", "name": name, "args": args, "options": options}


def host(number: int) -> dict[str, Any]:
    """One of several."""
    return {"host_name": f"192.0.2.{number}"}


def held(eureka: Peer, application: str) -> dict[str, Instance]:
    """What Eureka holds of an application at this moment, by the beginning of the id."""
    found = listed_now(eureka.url, application=application)
    return {each.instance_id.partition(".")[0]: each for each in found}


def hosts(eureka: Peer, application: str) -> dict[str, str]:
    """The same, their host names only."""
    return {key: each.host_name for key, each in held(eureka, application).items()}


def differences(stack: Shop) -> str:
    """What a preview shows, without the layout."""
    return re.sub(r"\s+:", ":", " ".join(stack.pulumi("preview", "--diff").split()))


def drift(stack: Shop, code: int = 0) -> dict[str, Any]:
    """What ``eurekube drift`` says, and with which exit code; as ``error`` what kept it from looking."""
    done = subprocess.run(
        [sys.executable, "-m", "eurekube_provider.cli.main", "drift", "--stack", stack.name],
        cwd=stack.project,
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"error": done.stderr}
    return told


def test_the_life_of_a_stack(tmp_path: Path, url: str, eureka: Peer) -> None:
    """Up, unchanged, changed, drifted, healed, failed half-way, finished, replaced, renamed, destroyed."""
    stack = Shop(tmp_path, PROGRAM, "life", f"url={url}")
    stack.wants(one("billing"), many("rating", "rating", {"a": host(1), "b": host(2)}))
    stack.up()
    assert hosts(eureka, "rating") == {"a": "192.0.2.1", "b": "192.0.2.2"}
    assert '"a": "a.rating.life.shop:rating:8080"' in stack.pulumi("stack", "output", "--json")
    stack.refresh("--expect-no-changes")
    stack.up("--expect-no-changes")
    assert drift(stack)["drifted"] is False
    rating = stack.state()["rating"]
    assert rating["outputs"]["instances"] == {"a": host(1), "b": host(2)}
    assert len(json.dumps([rating["inputs"], rating["outputs"]])) < 1_500

    # What comes, goes and changes is named; another id is another registration inside of the same resource.
    changed = many("rating", "rating", {"a": host(3), "c": {**host(4), "port": 9090}})
    stack.wants(one("billing"), changed)
    shown = differences(stack)
    assert '~ host_name: "192.0.2.1" => "192.0.2.3"' in shown
    assert '- b: { - host_name: "192.0.2.2" }' in shown
    assert '+ c: { + host_name: "192.0.2.4" + port: 9090 }' in shown
    assert "replace" not in stack.up()
    assert hosts(eureka, "rating") == {"a": "192.0.2.3", "c": "192.0.2.4"}

    # By hand: one changed, one removed.
    there = held(eureka, "rating")
    stamp = (there["a"].last_dirty_timestamp_ms or 0) + 1
    eureka.register(replace(there["a"], host_name="192.0.2.99", last_dirty_timestamp_ms=stamp))
    eureka.deregister(*there["c"].key)
    found = drift(stack, code=2)
    assert (found["drifted"], found["changes"]) == (True, {"same": 2, "update": 1})
    assert [
        (each["kind"], each["name"], each["details"]) for each in found["applications"][0]["changes"]
    ] == [("leaves", "c", {}), ("changes", "a", {"host_name": ["192.0.2.3", "192.0.2.99"]})]
    stack.refresh()
    assert drift(stack)["drifted"] is False  # the state knows by now; to heal it is up to the next update
    shown = differences(stack)
    assert '~ host_name: "192.0.2.99" => "192.0.2.3"' in shown
    assert '+ c: { + host_name: "192.0.2.4" + port: 9090 }' in shown
    stack.up()
    assert hosts(eureka, "rating") == {"a": "192.0.2.3", "c": "192.0.2.4"}

    # Somebody stands in the way of one: the rest is done, and the next up finishes.
    blocker = Instance("rating", "d.rating.life.shop:rating:8080", "192.0.2.99", "192.0.2.99", Port(1))
    eureka.register(blocker)
    stack.wants(one("billing"), many("rating", "rating", {"a": host(3), "d": host(5), "e": host(6)}))
    said = stack.up(fails=True)
    assert "1 of 3 instances failed" in said
    assert "d (RATING d.rating.life.shop:rating:8080 was not registered by Eurekube" in said
    assert set(hosts(eureka, "rating")) == {"a", "c", "d", "e"}
    eureka.deregister(*blocker.key)
    stack.up()
    assert hosts(eureka, "rating") == {"a": "192.0.2.3", "d": "192.0.2.5", "e": "192.0.2.6"}
    stack.up("--expect-no-changes")

    # Pulumi registers the same ids anew, those that had lapsed as well, and then removes "the old ones".
    state = stack.state()
    eureka.deregister(*held(eureka, "rating")["a"].key)
    eureka.deregister(*held(eureka, "billing")["billing"].key)
    members = {"a": host(3), "d": host(5), "e": host(6), "f": host(7)}
    stack.wants(one("billing"), many("rating", "rating", members))
    stack.up("--replace", state["rating"]["urn"], "--replace", state["billing"]["urn"])
    assert set(hosts(eureka, "rating")) == {"a", "d", "e", "f"}
    assert hosts(eureka, "billing") == {"billing": "192.0.2.50"}

    # Under another name it is another resource, and the old one goes last.
    stack.wants(one("billing"), many("ratings", "rating", members))
    stack.up()
    assert {each.owner for each in held(eureka, "rating").values()} == {
        f"{state['rating']['outputs']['owner']}s"
    }
    assert set(hosts(eureka, "rating")) == {"a", "d", "e", "f"}
    stack.refresh("--expect-no-changes")

    stack.destroy()
    assert (held(eureka, "rating"), held(eureka, "billing")) == ({}, {})


def test_each_property_changes_as_it_is_documented(tmp_path: Path, url: str, eureka: Peer) -> None:
    """In place or by a replacement, for one and for many, there and back; a refresh finds no more to say."""
    stack = Shop(
        tmp_path,
        PROGRAM,
        "each",
        f"url={url}",
        "connections.alias.url=" + url.replace("127.0.0.1", "localhost"),
    )

    def program(*, changed: bool) -> list[Wanted]:
        wanted = []
        for name, (value, _, several) in EACH.items():
            given = {name: value} if changed else {}
            key = name.replace("_", "-")
            wanted.append(one(f"one-{key}", **given))
            if several:
                application = many(f"many-{key}", f"many-{key}", {"a": host(1)})
                application["args"] |= given
                wanted.append(application)
        return wanted

    def steps() -> dict[str, str]:
        shown = json.loads(stack.pulumi("preview", "--json"))["steps"]
        ours = (each for each in shown if "eurekube" in each["urn"])
        return {each["urn"].rpartition("::")[2]: each["op"] for each in ours}

    stack.wants(*program(changed=False))
    stack.up()
    expected = {f"one-{name}": single for name, (_, single, _) in EACH.items()}
    expected |= {f"many-{name}": several for name, (_, _, several) in EACH.items() if several}
    expected = {key.replace("_", "-"): operation for key, operation in expected.items()}
    stack.wants(*program(changed=True))
    assert steps() == expected
    stack.up()
    stack.refresh("--expect-no-changes")
    stack.wants(*program(changed=False))
    assert steps() == expected
    stack.destroy()
    names = {f"{kind}-{name.replace('_', '-')}".upper() for kind in ("one", "many") for name in EACH}
    left = {each.application for each in listed_now(eureka.url)}
    assert left & {*names, "OTHER"} == set()


KEPT = (
    one("single", metadata={"tier": "1"}, zone="zone-a", secure_port=8443, status="UP", drain_seconds=1),
    one("plain"),
    many("several", "several", {"a": host(1), "b": {**host(2), "port": 9090, "metadata": {"canary": "yes"}}}),
)
"""What the stack of tests/states makes, whichever release exported it."""


@pytest.mark.parametrize("file", sorted(STATES.glob("*.json")), ids=lambda file: file.stem)
def test_the_state_of_an_earlier_release_goes_on(file: Path, tmp_path: Path, url: str, eureka: Peer) -> None:
    """No change in preview, none after a refresh, and its destroy leaves nothing."""
    stack = Shop(tmp_path, PROGRAM, "kept", f"url={url}")
    stack.wants(*KEPT)
    stack.up()
    for name in ("single", "plain", "several"):
        for each in held(eureka, name).values():  # as that release left them
            metadata = {key: value for key, value in each.metadata.items() if key != "eurekube.incarnation"}
            stamp = (each.last_dirty_timestamp_ms or 0) + 1
            eureka.register(replace(each, metadata=metadata, last_dirty_timestamp_ms=stamp))
    old = stack.project / "old.json"
    old.write_text(file.read_text().replace(STATES_URL, url))
    stack.pulumi("stack", "import", "--file", str(old), "--force")
    assert set(stack.state()) == {"single", "plain", "several"}
    stack.pulumi("preview", "--expect-no-changes")
    stack.refresh()
    before = [held(eureka, name) for name in ("single", "plain", "several")]
    stack.up("--expect-no-changes")
    assert [held(eureka, name) for name in ("single", "plain", "several")] == before
    stack.pulumi("stack", "import", "--file", str(old), "--force")
    stack.destroy()
    assert [held(eureka, name) for name in ("single", "plain", "several")] == [{}, {}, {}]


def test_names_change_and_the_registrations_stay(tmp_path: Path, url: str, eureka: Peer) -> None:
    """A renamed stack and a renamed resource update in place; protected and retained ones stay.

    While Eureka cannot be reached, nobody says that there is no drift.
    """
    stack = Shop(tmp_path, PROGRAM, "before", f"url={url}")
    stack.wants(one("orders"), many("cart", "cart", {"a": host(1), "b": host(2)}))
    stack.up()
    ids = {each.instance_id for each in held(eureka, "cart").values()}
    stack.environment["EUREKA_PROXY"] = NOBODY
    assert re.match(rf"eurekube: .*no connection to {url}", drift(stack, code=1)["error"], re.DOTALL)
    del stack.environment["EUREKA_PROXY"]
    (order,) = held(eureka, "orders").values()
    stack.pulumi("stack", "rename", "after")
    renamed = one("purchases", application="orders")
    stack.wants(
        {**renamed, "options": {"protect": True, "alias": "orders"}},
        many("basket", "cart", {"a": host(1), "b": host(2)}, alias="cart", retain_on_delete=True),
    )
    assert "replace" not in stack.up()
    there = held(eureka, "cart")
    assert ids == {each.instance_id for each in there.values()}
    assert {each.owner for each in there.values()} == {"stack/organization/shop/after/basket"}
    assert {each.owner for each in held(eureka, "orders").values()} == {
        "stack/organization/shop/after/purchases"
    }
    assert [each.instance_id for each in held(eureka, "orders").values()] == [order.instance_id]
    assert "protected" in stack.destroy(fails=True)
    assert held(eureka, "orders")
    stack.wants(renamed, many("basket", "cart", {"a": host(1), "b": host(2)}, retain_on_delete=True))
    stack.up()
    stack.destroy()
    assert held(eureka, "orders") == {}
    assert len(held(eureka, "cart")) == 2
    for each in held(eureka, "cart").values():
        eureka.deregister(*each.key)


class Watch:
    """Whether an application is UP in Eureka all the time, as its callers see it.

    :param names: applications that have one instance each.
    """

    def __init__(self, eureka: Peer, *names: str) -> None:
        self._eureka = eureka
        self._keys = [each.key for name in names for each in held(eureka, name).values()]
        assert len(self._keys) >= len(names)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.missed: list[str] = []
        self.looked = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self.looked > 20
        assert self.missed == []

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            for key in self._keys:
                found = self._eureka.read(*key)
                self.looked += 1
                if found is None or found.status is not Status.UP:
                    self.missed.append(f"{key}: {found and found.status}")


def below(component: str, wanted: Wanted) -> Wanted:
    """The same, moved below a component without an alias: for Pulumi another resource of the same name."""
    return {**wanted, "component": f"{component}-{wanted['name']}", "options": {}}


def test_a_removal_takes_only_its_own(tmp_path: Path, url: str, eureka: Peer) -> None:
    """The halves of a replacement in runs of their own, in each order: what is asked for stays UP."""
    stack = Shop(tmp_path, PROGRAM, "own", f"url={url}", f"connections.dead.url={NOBODY}")
    wanted = (one("hut", drain_seconds=1), many("row", "row", {"a": host(1), "b": host(2)}))
    moved = tuple(below("group", each) for each in wanted)
    broken = one("broken", connection="dead")
    stack.wants(*wanted)
    stack.up()
    with Watch(eureka, "hut", "row"):
        # Something else fails, so that the old halves are removed by the next run only.
        stack.wants(*moved, broken)
        assert "no connection to" in stack.up(fails=True)
        stack.wants(*moved)
        stack.up()
        stack.refresh("--expect-no-changes")
        # The same, and then the program goes back to what it was.
        stack.wants(*wanted, broken)
        assert "no connection to" in stack.up(fails=True)
        stack.wants(*moved)
        stack.up()
        stack.refresh("--expect-no-changes")
        stack.up("--expect-no-changes")
        # One is moved by itself, by --target; the old one goes when all is done.
        stack.wants(*wanted)
        urns = [each["urn"] for each in stack.state().values()]
        targets = [re.sub(r"shop:index:Group\$", "", urn) for urn in urns]
        assert not set(targets) & set(urns)
        stack.up(*(part for urn in targets for part in ("--target", urn)))
        stack.up()
        stack.refresh("--expect-no-changes")
        stack.up(*(part for urn in targets for part in ("--replace", urn)))
        stack.up("--expect-no-changes")
    stack.destroy()
    assert (held(eureka, "hut"), held(eureka, "row")) == ({}, {})


def test_another_spelling_of_the_url_costs_no_caller_anything(tmp_path: Path, url: str, eureka: Peer) -> None:
    """It is registered anew there, and not drained; a server that is gone for good can be let go of."""
    stack = Shop(tmp_path, PROGRAM, "spelt", f"url={url}")
    wanted = (one("inn", drain_seconds=100), many("mews", "mews", {"a": host(1), "b": host(2)}))
    wanted[1]["args"]["drain_seconds"] = 100
    stack.wants(*wanted)
    stack.up()
    with Watch(eureka, "inn", "mews"):
        spelt = url.replace("127.0.0.1", "localhost")
        stack.configure("url", spelt)
        assert "replace" in stack.up()
        stack.refresh("--expect-no-changes")
        assert {each["outputs"]["service_url"] for each in stack.state().values()} == {spelt}

        # The server that the state names is gone for good.
        state = stack.project / "state.json"
        state.write_text(stack.pulumi("stack", "export").replace(spelt, NOBODY))
        stack.pulumi("stack", "import", "--file", str(state), "--force")
        said = stack.up(fails=True)
        assert f"no connection to {NOBODY}" in said
        assert f"pulumi config set eurekube:abandonedUrls {NOBODY}" in said
        stack.configure("abandonedUrls", NOBODY)
        stack.up()
        stack.refresh("--expect-no-changes")
        stack.up("--expect-no-changes")
    # A connection goes together with what is registered there.
    stack.configure("connections.alias.url", url)
    stack.wants({**wanted[0], "args": {**wanted[0]["args"], "connection": "alias", "drain_seconds": 0}})
    stack.up(*(part for each in stack.state().values() for part in ("--target", each["urn"])))
    stack.configure("connections", "{}")
    stack.wants()
    stack.up()
    assert (held(eureka, "inn"), held(eureka, "mews")) == ({}, {})


def test_another_eureka_by_name_and_no_credential_in_the_state(
    tmp_path: Path, url: str, eureka: Peer, other: Peer
) -> None:
    """To move is a replacement that leaves nothing behind; what is wrong is said in seconds."""
    stack = Shop(tmp_path, PROGRAM, "move", f"url={url}", f"connections.eu.url={other.url}")
    stack.wants(one("moving"), many("van", "van", {"a": host(1)}))
    stack.up()
    stack.wants(
        one("moving", connection="eu"),
        {**(moved := many("van", "van", {"a": host(1)})), "args": {**moved["args"], "connection": "eu"}},
    )
    started = time.monotonic()
    said = stack.up(fails=True)
    assert "answered 401" in said
    stack.configure("connections.eu.user", EUREKA_USER)
    stack.configure("connections.eu.password", "wrong-pa55word", "--secret")
    said += stack.up(fails=True)
    assert "wrong-pa55word" not in said
    assert time.monotonic() - started < 120
    stack.configure("connections.eu.password", EUREKA_PASSWORD, "--secret")
    stack.up()
    assert (held(eureka, "moving"), held(eureka, "van")) == ({}, {})
    assert hosts(other, "van") == {"a": "192.0.2.1"}
    assert hosts(other, "moving") == {"moving": "192.0.2.50"}
    # The right password is a common word: it is looked for as a text of its own.
    exported = stack.pulumi("stack", "export")
    assert f'"{EUREKA_PASSWORD}"' not in exported
    assert f'\\"{EUREKA_PASSWORD}\\"' not in exported
    assert "wrong-pa55word" not in exported
    assert stack.state()["moving"]["outputs"]["service_url"] == other.url
    stack.destroy()
    assert (held(other, "moving"), held(other, "van")) == ({}, {})


def test_the_same_program_without_an_engine(tmp_path: Path, url: str, eureka: Peer, other: Peer) -> None:
    """The plan is shown, then done: applications and several Eurekas, two names of one Eureka among them."""
    (tmp_path / "__main__.py").write_text(PROGRAM)
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    eu = {"url": other.url, "user": EUREKA_USER, "password": EUREKA_PASSWORD}
    alias = {"url": url.replace("127.0.0.1", "localhost")}
    config = {"eurekube:url": url, "eurekube:connections": {"eu": eu, "alias": alias}}
    (tmp_path / "Pulumi.bare.yaml").write_text(yaml.safe_dump({"config": config}))

    def eurekube(command: str, *wanted: Wanted, fails: bool = False) -> list[str]:
        (tmp_path / "wanted.json").write_text(json.dumps(wanted))
        done = subprocess.run(
            [sys.executable, "-m", "eurekube_provider.cli.main", *command.split(), "--stack", "bare"],
            cwd=tmp_path,
            # Neither a cluster nor anything of this machine's.
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return (done.stderr if fails else done.stdout).splitlines()

    def at(connection: str, wanted: Wanted) -> Wanted:
        return {**wanted, "args": {**wanted["args"], "connection": connection}}

    before = (one("hut"), at("eu", one("villa")), many("row", "row", {"a": host(1), "b": host(2)}))
    planned = eurekube("apply --dry-run", *before)
    assert planned == [
        "+ HUT hut.bare.shop:hut:8080 UP 192.0.2.50:8080",
        "+ VILLA villa.bare.shop:villa:8080 UP 192.0.2.50:8080 [eu]",
        "+ ROW a.row.bare.shop:row:8080 UP 192.0.2.1:8080",
        "+ ROW b.row.bare.shop:row:8080 UP 192.0.2.2:8080",
    ]
    assert held(eureka, "row") == {}
    assert eurekube("apply", *before) == planned
    assert hosts(eureka, "row") == {"a": "192.0.2.1", "b": "192.0.2.2"}
    assert hosts(other, "villa") == {"villa": "192.0.2.50"}
    assert {line[0] for line in eurekube("apply", *before)} == {" "}

    # One moves to another Eureka, one to another name of its own; of the row one comes, goes and changes.
    after = (at("alias", one("hut")), at("eu", many("row", "row", {"b": host(3), "c": host(4)})))
    stays = held(eureka, "hut")
    planned = eurekube("apply --dry-run", *after)
    assert planned == [
        "  HUT hut.bare.shop:hut:8080 [alias]",
        "+ ROW b.row.bare.shop:row:8080 UP 192.0.2.3:8080 [eu]",
        "+ ROW c.row.bare.shop:row:8080 UP 192.0.2.4:8080 [eu]",
        "- ROW a.row.bare.shop:row:8080 [alias]",
        "- ROW b.row.bare.shop:row:8080 [alias]",
        "- ROW a.row.bare.shop:row:8080",
        "- ROW b.row.bare.shop:row:8080",
        "- VILLA villa.bare.shop:villa:8080 [eu]",
    ]
    eurekube("apply", *after)
    assert held(eureka, "hut") == stays
    assert (held(eureka, "row"), held(other, "villa")) == ({}, {})
    assert hosts(other, "row") == {"b": "192.0.2.3", "c": "192.0.2.4"}
    changed = (after[0], at("eu", many("row", "row", {"c": host(5), "d": host(6)})))
    moved = "host_name: 192.0.2.4 -> 192.0.2.5, ip_address: 192.0.2.4 -> 192.0.2.5"
    assert eurekube("apply", *changed)[1:] == [
        f"~ ROW c.row.bare.shop:row:8080 {moved} [eu]",
        "+ ROW d.row.bare.shop:row:8080 UP 192.0.2.6:8080 [eu]",
        "- ROW b.row.bare.shop:row:8080 [eu]",
    ]
    assert hosts(other, "row") == {"c": "192.0.2.5", "d": "192.0.2.6"}

    # Somebody stands in the way: said before, and refused then.
    blocker = Instance("row", "e.row.bare.shop:row:8080", "192.0.2.99", "192.0.2.99", Port(1))
    other.register(blocker)
    blocked = (after[0], at("eu", many("row", "row", {"c": host(5), "e": host(7)})))
    assert any(
        line.startswith("! ROW e.row.bare.shop:row:8080 was not registered by Eurekube")
        for line in eurekube("apply --dry-run", *blocked)
    )
    assert "1 of 2 instances failed" in "".join(eurekube("apply", *blocked, fails=True))
    other.deregister(*blocker.key)

    eurekube("remove", *blocked)
    assert (held(eureka, "hut"), held(other, "row")) == ({}, {})
    assert eurekube("remove", *blocked) == []


def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path) -> None:
    """With what to do about it, and no traceback."""
    stack = Shop(tmp_path, PROGRAM, "wrong")
    stack.wants(one("x"))
    assert "no Eureka URL is configured: set eurekube:url" in stack.up(fails=True)
    stack.configure("url", NOBODY)
    for wanted, sentence in (
        (many("x", "x", {"a": host(1)}), f"no connection to {NOBODY}"),
        (one("x", connection="eu"), "there is no connection 'eu'"),
        (many("x", "x", {"a": {"port": 0}}), "instances.a.port"),
    ):
        stack.wants(wanted)
        assert sentence in stack.up(fails=True)


def test_a_preview_asks_nobody(tmp_path: Path) -> None:
    """Without lookups never, with them where that is asked for: the CLI's preview of a pull request."""
    stack = Shop(tmp_path, PROGRAM, "offline", f"url={NOBODY}")
    stack.wants(one("x"), many("y", "y", {"a": host(1)}))
    assert "3 to create" in stack.pulumi("preview")
    program = """
import pulumi
from eurekube_provider import EurekaApplication, get_application_output, get_endpoints_output

orders = get_application_output("orders")
rating = get_endpoints_output("rating", "shop")
EurekaApplication("rating", {
    "application": "rating",
    "metadata": {"orders": orders.apply(lambda found: str(len(found.instances)))},
    "port": 8080,
    "instances": rating.apply(lambda found: {each.name: {"host_name": each.address} for each in found.ready}),
})
"""
    (stack.project / "__main__.py").write_text(program)
    assert f"no connection to {NOBODY}" in stack.pulumi("preview", fails=True)
    stack.configure("offline", "true")
    assert "2 to create" in stack.pulumi("preview")
    assert f"no connection to {NOBODY}" in stack.up(fails=True)  # an update asks whatever is said


@contextmanager
def destroying(stack: Shop) -> Iterator[subprocess.Popen[bytes]]:
    """``pulumi destroy`` as in a terminal of its own, under way; killed in the end."""
    process = subprocess.Popen(
        ["pulumi", "destroy", "--yes", "--skip-preview", "--color", "never"],
        cwd=stack.project,
        env=stack.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for each in plugins_of(stack):
            os.kill(each, signal.SIGKILL)
        process.kill()
        process.wait(30)


def plugins_of(stack: Shop) -> list[int]:
    """The process ids of Pulumi's dynamic providers that run for a stack."""
    found = []
    for directory in Path("/proc").iterdir():
        with suppress(OSError):
            command = (directory / "cmdline").read_bytes().split(b"\0")
            if b"pulumi.dynamic" in command and (directory / "cwd").resolve() == stack.project.resolve():
                found.append(int(directory.name))
    return found


def test_an_interrupted_drain_is_undone(tmp_path: Path, url: str, eureka: Peer) -> None:
    """Ctrl-C once, twice, and everything killed: what was out of service is back, at the latest by an up."""
    stack = Shop(tmp_path, PROGRAM, "interrupted", f"url={url}")
    names = [f"drained-{number}" for number in range(6)]  # more than the plugin's process serves by itself
    rows = many("drained-row", "drained-row", {"a": host(1), "b": host(2)})

    def wanted(drain_seconds: int) -> list[Wanted]:
        row = {**rows, "args": {**rows["args"], "drain_seconds": drain_seconds}}
        return [*(one(name, drain_seconds=drain_seconds) for name in names), row]

    def standing() -> set[tuple[Status, bool]]:
        found = [eureka.read(*key) for key in keys]
        return {(each.status, LEAVING_KEY in each.metadata) for each in found if each is not None}

    stack.wants(*wanted(600))
    stack.up()
    keys = [each.key for name in (*names, "drained-row") for each in held(eureka, name).values()]
    assert len(keys) == 8
    for signals in (1, 2):
        with destroying(stack) as process:
            wait_for(lambda: standing() == {(Status.OUT_OF_SERVICE, True)}, "all to be out of service", 60)
            for _ in range(signals):
                os.killpg(process.pid, signal.SIGINT)
                time.sleep(0.2 * (signals - 1))  # as fast as a person is
            assert process.wait(120) != 0  # far sooner than a drain of ten minutes
            wait_for(lambda: standing() == {(Status.UP, False)}, "all to be back", 60)
        stack.up()
        assert standing() == {(Status.UP, False)}

    # Nobody is left to undo it: our mark says to the next run that it is ours to undo.
    with destroying(stack):
        wait_for(lambda: standing() == {(Status.OUT_OF_SERVICE, True)}, "all to be out of service", 60)
    stack.pulumi("cancel", "--yes")
    assert standing() == {(Status.OUT_OF_SERVICE, True)}
    stack.up()
    assert standing() == {(Status.UP, False)}
    stack.up("--expect-no-changes")

    # A person's wish is nobody else's to undo.
    eureka.set_status(held(eureka, names[0])[names[0]], Status.OUT_OF_SERVICE)
    stack.wants(*wanted(1))
    stack.up()
    assert held(eureka, names[0])[names[0]].status is Status.OUT_OF_SERVICE
    stack.destroy()
    assert standing() == set()


SECRETS = """
import os

import pulumi

from eurekube_provider import EurekaApplication, EurekaInstance

secret = pulumi.Output.secret
number = os.environ["NUMBER"]
host = secret(f"hidden-host-{number}")
EurekaInstance("one", {"application": "hides", "host_name": host, "port": 8080, "metadata": {
    "zone": secret(f"hidden-zone-{number}"), "key": secret(f"hidden-key-{number}"), "open": number}})
EurekaInstance("name", {"application": secret("hidden-name"), "host_name": "192.0.2.1", "port": 8080,
    "metadata": {"open": number}})
many = EurekaApplication("many", {"application": "hides-many", "port": 8080,
    "metadata": {"zone": secret(f"hidden-above-{number}")},
    "instances": {"a": {"host_name": host}, "b": {"host_name": f"192.0.2.{number}",
        "metadata": {"zone": secret(f"hidden-own-{number}")}}}})
hosts = EurekaApplication("hosts", {"application": "hides-hosts", "port": 8080,
    "instances": host.apply(lambda known: {"a": {"host_name": known}})})
open = EurekaInstance("open", {"application": "open", "port": 8080,
    "host_name": pulumi.Output.from_input(f"open-host-{number}")})
pulumi.export("ids", many.instance_ids)
"""


def test_what_is_derived_from_a_secret_is_a_secret(tmp_path: Path, url: str, eureka: Peer) -> None:
    """In state, preview, refresh and the comment on a pull request; what is not, is told as ever."""
    stack = Shop(tmp_path, SECRETS, "secrets", f"url={url}")
    told = []
    stack.environment["NUMBER"] = "1"
    told.append(stack.pulumi("preview", "--diff"))
    told.append(stack.up())
    (hidden,) = held(eureka, "hidden-name").values()
    assert hidden.vip_address == "hidden-name"
    (one_,) = held(eureka, "hides").values()
    assert (one_.host_name, one_.ip_address, one_.metadata["zone"]) == (
        "hidden-host-1",
        "hidden-host-1",
        "hidden-zone-1",
    )
    told.append(stack.pulumi("stack", "export"))
    state = stack.state()["open"]
    assert "ip_address" not in {name for name in state["inputs"] if state["inputs"][name] is None}
    assert state["outputs"]["ip_address"] == "open-host-1"
    stack.up("--expect-no-changes")
    # What a failed update left is found in Eureka's list, and no program says what of it was a secret.
    member = held(eureka, "hides-many")["b"]
    marks = {**member.metadata, "eurekube.member": "left", "token": "hidden-token"}
    left = replace(member, instance_id="left", host_name="hidden-left", metadata=marks)
    eureka.register(left)
    wait_listed(eureka.url, [left])
    # Where a refresh finds another host, what was derived from the secret one is not among what it tells.
    for each in (*held(eureka, "hides").values(), *held(eureka, "hides-many").values()):
        stamp = (each.last_dirty_timestamp_ms or 0) + 1
        eureka.register(replace(each, host_name="192.0.2.99", last_dirty_timestamp_ms=stamp))
    told.append(stack.refresh("--diff"))
    told.append(stack.pulumi("stack", "export"))
    stack.environment["NUMBER"] = "2"
    told.append(stack.pulumi("preview", "--diff"))
    preview = stack.pulumi("preview", "--json")
    told.append(preview)
    (tmp_path / "preview.json").write_text(preview)
    summary = subprocess.run(
        [sys.executable, "-m", "eurekube_provider.cli.main", "summary", str(tmp_path / "preview.json")],
        cwd=stack.project,
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert summary.returncode == 0, summary.stderr
    told += [summary.stdout, stack.up(), stack.pulumi("stack", "export")]
    for text in told:
        assert "hidden" not in text.lower(), text[max(0, text.lower().index("hidden") - 300) :][:600]
    assert "open-host-2" in summary.stdout
    assert held(eureka, "hides")["one"].ip_address == "hidden-host-2"
    stack.destroy()
