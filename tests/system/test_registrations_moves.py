"""States of earlier releases, moves between the providers, imports, and programs without an engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from eurekube_provider.core.identity import INCARNATION_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.protocol.peer import Peer
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.listing import list_uncached
from tests.system.shells import (
    DYNAMIC,
    NATIVE,
    PROGRAM,
    Preview,
    ProviderStack,
    Wanted,
    Watch,
    Workshop,
    eurekube,
    held,
    host,
    hosts,
)
from tests.system.stacks import ROOT, Shop, needs_language_host, needs_pulumi, needs_python_sdk, needs_yaml

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(1200)]

STATES = ROOT / "tests" / "states"
STATES_URL = "http://eureka.example.com:8761/eureka"

SEVERAL = {"a": host(1), "b": {**host(2), "port": 9090, "metadata": {"canary": "yes"}}}
KEPT = (
    DYNAMIC.one(
        "single", metadata={"tier": "1"}, zone="zone-a", secure_port=8443, status="UP", drain_seconds=1
    ),
    DYNAMIC.one("plain"),
    {**DYNAMIC.many("several", SEVERAL), "export": "instance_ids"},
)
"""Resources of the stack whose exported states are in tests/states."""


@needs_python_sdk
@pytest.mark.parametrize("file", sorted(STATES.glob("*.json")), ids=lambda file: file.stem)
def test_a_state_goes_on_under_another_provider_and_another_release(
    file: Path, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """An alias moves a state to the native provider without any change in Eureka; a move back is not
    possible.

    Without an alias the dynamic provider registers again in the same place, and no instance is missed
    meanwhile. The state of an earlier release shows no change, not even after a refresh, and its destroy
    leaves nothing.
    """
    stack = ProviderStack(workshop, "kept", {"url": plain_url})
    stack.wants(*KEPT)
    stack.up()
    assert stack.outputs()["several"]["a"] == "a.several.kept.shop:several:8080"
    there = by_key(plain)
    native = [{**NATIVE.moved_here(each), "export": "application"} for each in KEPT]
    stack.wants(*native)
    said = stack.up()
    assert "replace" not in said
    assert "created" not in said.partition("Resources:")[2]
    assert by_key(plain) == there
    stack.wants(*(DYNAMIC.moved_here({**each, "export": ""}) for each in native))
    said = stack.up(fails=True)
    assert "its state was written by the native provider, and a state moves from the dynamic" in said
    assert "Traceback" not in said
    assert by_key(plain) == there
    stack.wants(*KEPT)
    with Watch(plain, "single", "plain", "several"):
        stack.up()
    assert by_key(plain).keys() == there.keys()
    stack.unchanged()
    there = by_key(plain)

    for each in there.values():  # as that release left them
        metadata = {key: value for key, value in each.metadata.items() if key != INCARNATION_KEY}
        stamp = (each.last_dirty_timestamp_ms or 0) + 1
        plain.register(replace(each, metadata=metadata, last_dirty_timestamp_ms=stamp))
    before = by_key(plain)
    old = json.loads(file.read_text().replace(STATES_URL, plain_url))["deployment"]["resources"]
    stack.wants(*KEPT)
    stack.write_state(old)
    assert set(stack.state()) == {"single", "plain", "several"}
    stack.pulumi("preview", "--expect-no-changes")
    stack.up("--refresh", "--expect-no-changes")
    assert by_key(plain) == before
    stack.write_state(old)
    stack.destroy()
    assert by_key(plain) == {}


def by_key(eureka: Peer) -> dict[tuple[str, str], Instance]:
    """Return all instances in Eureka, by key."""
    return {each.key: each for each in list_uncached(eureka.url)}


def started_before(eureka: Peer, application: str) -> dict[str, Instance]:
    """Register two machines as their own clients would, and one instance of a cluster; return them by
    name.
    """
    for number, mark in enumerate(({}, {}, {OWNER_KEY: "cluster/eu/shop/rating"}), start=1):
        name = f"vm-{number}"
        metadata = {"zone": "zone-a", "note": "${pulumi.stack}", **mark}
        id_ = f"{name}:{application}:8080"
        there = Instance(application.upper(), id_, name, f"192.0.2.{number}", Port(8080), metadata=metadata)
        eureka.register(there)
    return held(eureka, application)


def check_adopted(eureka: Peer, application: str, before: dict[str, Instance], *owners: str) -> None:
    """Check that these owners have the instances now, and that nothing which callers see has changed."""
    after = held(eureka, application)
    assert sorted(str(each.owner) for each in after.values()) == ["cluster/eu/shop/rating", *owners]
    for name, old in before.items():
        new = after[name]
        assert (new.host_name, new.ip_address, new.port, new.status) == (
            old.host_name,
            old.ip_address,
            old.port,
            old.status,
        )
        kept = {key: value for key, value in old.metadata.items() if key != OWNER_KEY}
        assert {key: new.metadata[key] for key in kept} == kept


def shop(directory: Path, workshop: Workshop, url: str) -> Shop:
    """Return a stack of a project of its own, with the native provider."""
    stack = Shop(directory, "", "imports", f"url={url}")
    stack.environment |= {name: workshop.environment[name] for name in ("PATH", "PYTHONPATH")}
    return stack


@needs_language_host("writes the program of an import")
def test_what_is_there_is_imported_and_adopted(
    tmp_path: Path, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """An import changes nothing in Eureka; the first up takes ownership, and the former renewer goes on
    renewing.
    """
    stack = shop(tmp_path, workshop, plain_url)
    metadata = {"zone": "zone-a", "managementPort": "9000"}
    plain.register(Instance("OLD", "vm-17:old:8080", "vm-17", "192.0.2.17", Port(8080), metadata=metadata))
    before = {name: started_before(plain, name) for name in ("older", "oldish")}
    there = by_key(plain)
    what = ("eurekube:index:Instance", "old", "OLD/vm-17:old:8080")
    generated = stack.project / "generated.py"
    stack.pulumi("import", *what, "--yes", "--protect=false", "--skip-preview", "--out", str(generated))
    program = generated.read_text()
    written = {name: re.search(rf"\b{name}=(.+?),?\n", program) for name in ("host_name", "renewer")}
    assert {name: found and found[1].rstrip(",)") for name, found in written.items()} == {
        "host_name": '"vm-17"',
        "renewer": '"self"',
    }
    assert "OnConflict.ADOPT" in program
    printed = eurekube(stack, "import", "older", "--file", "imports.json", EUREKA_URL=plain_url)
    assert "left out" in printed.stderr
    stack.pulumi("import", "--file", "imports.json", "--yes", "--protect=false", "--skip-preview")
    dynamic = eurekube(stack, "import", "oldish", "--provider", "dynamic", EUREKA_URL=plain_url)
    (stack.project / "__main__.py").write_text("\n".join((program, printed.stdout, dynamic.stdout)))
    assert by_key(plain) == there
    stack.refresh("--expect-no-changes")

    # What an import has yet to do is to make them ours; no property differs.
    preview = Preview(stack.pulumi("preview", "--json"))
    assert preview.operations() == {"old": ["update"], "older": ["update"], "oldish": ["create"]}
    assert preview.differing("old") == {"seenOwner"}
    stack.up()
    (single,) = held(plain, "old").values()
    assert (single.owner, single.renewer) == ("stack/organization/shop/imports/old", "self")
    for name, instances in before.items():
        check_adopted(plain, name, instances, *[f"stack/organization/shop/imports/{name}"] * 2)
    stack.up("--refresh", "--expect-no-changes")
    stack.destroy()
    assert {each.owner for each in by_key(plain).values()} == {"cluster/eu/shop/rating"}


@needs_yaml
def test_a_printed_program_in_yaml_adopts_one_by_one(
    tmp_path: Path, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """Each printed resource has a name of its own and adopts one instance; an instance of another Eurekube
    is left out.
    """
    before = started_before(plain, "oldest")
    stack = shop(tmp_path, workshop, plain_url)
    options = ("--one-by-one", "--language", "yaml", "--file", "imports.json")
    printed = eurekube(stack, "import", "oldest", *options, EUREKA_URL=plain_url).stdout
    (stack.project / "Pulumi.yaml").write_text(f"name: shop\nruntime: yaml\n{printed}")
    stack.pulumi("import", "--file", "imports.json", "--yes", "--protect=false", "--skip-preview")
    assert held(plain, "oldest") == before
    stack.up()
    owner = "stack/organization/shop/imports/oldest"
    check_adopted(plain, "oldest", before, f"{owner}-vm-1-oldest-8080", f"{owner}-vm-2-oldest-8080")
    stack.destroy()
    assert set(held(plain, "oldest")) == {"vm-3:oldest:8080"}


def test_the_same_program_without_an_engine(
    tmp_path: Path, plain_url: str, plain: Peer, secured: Peer
) -> None:
    """``eurekube apply`` shows the plan and then carries it out, for applications and several Eurekas, two
    of which are the same.
    """
    (tmp_path / "__main__.py").write_text(PROGRAM)
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    eu = {"url": secured.url, "user": EUREKA_USER, "password": EUREKA_PASSWORD}
    alias = {"url": plain_url.replace("127.0.0.1", "localhost")}
    config = {"eurekube:url": plain_url, "eurekube:connections": {"eu": eu, "alias": alias}}
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

    before = (
        DYNAMIC.one("hut"),
        at("eu", DYNAMIC.one("villa")),
        DYNAMIC.many("row", {"a": host(1), "b": host(2)}),
    )
    planned = eurekube("apply --dry-run", *before)
    assert planned == [
        "+ HUT hut.bare.shop:hut:8080 UP 192.0.2.50:8080",
        "+ VILLA villa.bare.shop:villa:8080 UP 192.0.2.50:8080 [eu]",
        "+ ROW a.row.bare.shop:row:8080 UP 192.0.2.1:8080",
        "+ ROW b.row.bare.shop:row:8080 UP 192.0.2.2:8080",
    ]
    assert held(plain, "row") == {}
    assert eurekube("apply", *before) == planned
    assert hosts(plain, "row") == {"a": "192.0.2.1", "b": "192.0.2.2"}
    assert hosts(secured, "villa") == {"villa": "192.0.2.50"}
    assert {line[0] for line in eurekube("apply", *before)} == {" "}

    # One moves to another Eureka, one to another name of its own; of the row one comes, goes and changes.
    after = (at("alias", DYNAMIC.one("hut")), at("eu", DYNAMIC.many("row", {"b": host(3), "c": host(4)})))
    stays = held(plain, "hut")
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
    assert held(plain, "hut") == stays
    assert (held(plain, "row"), held(secured, "villa")) == ({}, {})
    assert hosts(secured, "row") == {"b": "192.0.2.3", "c": "192.0.2.4"}
    changed = (after[0], at("eu", DYNAMIC.many("row", {"c": host(5), "d": host(6)})))
    moved = "host_name: 192.0.2.4 -> 192.0.2.5, ip_address: 192.0.2.4 -> 192.0.2.5"
    assert eurekube("apply", *changed)[1:] == [
        f"~ ROW c.row.bare.shop:row:8080 {moved} [eu]",
        "+ ROW d.row.bare.shop:row:8080 UP 192.0.2.6:8080 [eu]",
        "- ROW b.row.bare.shop:row:8080 [eu]",
    ]
    assert hosts(secured, "row") == {"c": "192.0.2.5", "d": "192.0.2.6"}

    # Somebody stands in the way: said before, and refused then.
    blocker = Instance("row", "e.row.bare.shop:row:8080", "192.0.2.99", "192.0.2.99", Port(1))
    secured.register(blocker)
    blocked = (after[0], at("eu", DYNAMIC.many("row", {"c": host(5), "e": host(7)})))
    assert any(
        line.startswith("! ROW e.row.bare.shop:row:8080 was not registered by Eurekube")
        for line in eurekube("apply --dry-run", *blocked)
    )
    assert "1 of 2 instances failed" in "".join(eurekube("apply", *blocked, fails=True))
    secured.deregister(*blocker.key)

    eurekube("remove", *blocked)
    assert (held(plain, "hut"), held(secured, "row")) == ({}, {})
    assert eurekube("remove", *blocked) == []
