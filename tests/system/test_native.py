"""The native provider under a real Pulumi CLI and on a real Eureka, by an SDK that the CLI makes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.version import __version__
from lab import Lab
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.listing import listed_now
from lab.workloads import wait_for
from tests.system.stacks import Shop, needs_pulumi, own_pulumi

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi]

PROGRAM = """
import json
from pathlib import Path

import pulumi
import pulumi_eurekube as eurekube

import eurekube_provider
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
PROVIDERS = {}
for item in json.loads(Path("wanted.json").read_text()):
    options = item.get("options", {})
    args = item["args"]
    for name in item.get("secret", ()):
        args[name] = pulumi.Output.secret(args[name])
    if "provider" in options:
        options["provider"] = PROVIDERS[options["provider"]]
    if "alias" in options:
        options["aliases"] = [pulumi.Alias(type_=options.pop("alias"))]
    if "custom_timeouts" in options:
        options["custom_timeouts"] = pulumi.CustomTimeouts(**options["custom_timeouts"])
    if item["kind"] in ("EurekaInstance", "EurekaApplication"):
        made = getattr(eurekube_provider, item["kind"])(item["name"], args, pulumi.ResourceOptions(**options))
    else:
        made = getattr(eurekube, item["kind"])(item["name"], **args, opts=pulumi.ResourceOptions(**options))
    if item["kind"] == "Provider":
        PROVIDERS[item["name"]] = made
    if item["kind"] == "Instance" and not item["secret"]:
        found = eurekube.get_instance_output(
            application=made.application,
            instance_id=made.instance_id,
            opts=pulumi.InvokeOutputOptions(provider=options.get("provider")),
        )
        pulumi.export(item["name"], found.instance.host_name)
"""

Wanted = dict[str, Any]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """One Eureka server, its lists a second old at most: a run looks there for what a former one left."""
    with Lab(eureka=1, kubernetes=False, quick_view=True) as lab:
        yield lab.eureka_urls[0]


@pytest.fixture(scope="module")
def secured() -> Iterator[Peer]:
    """Another Eureka, which asks for a password."""
    with Lab(eureka=1, kubernetes=False, security="basic", quick_view=True) as lab:
        peer = Peer(lab.eureka_urls[0], Connection.parse(lab.eureka_urls[0], EUREKA_USER, EUREKA_PASSWORD))
        yield peer
        peer.close()


@pytest.fixture
def eureka(url: str) -> Iterator[Peer]:
    """The server itself."""
    peer = Peer(url, Connection.parse(url))
    yield peer
    peer.close()


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the SDK for Python lies that the CLI makes, as pip would install it."""
    folder = tmp_path_factory.mktemp("sdk")
    plugin = Path(sys.prefix) / "bin" / "pulumi-resource-eurekube"
    subprocess.run(
        ["pulumi", "package", "gen-sdk", str(plugin), "--language", "python", "--out", str(folder)],
        env=own_pulumi(folder),
        check=True,
        capture_output=True,
        timeout=120,
    )
    described = folder / "python" / f"pulumi_eurekube-{__version__}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: pulumi_eurekube\nVersion: {__version__}\n"
    )
    return folder / "python"


class NativeShop(Shop):
    """A stack whose program uses the SDK, with the plugin on PATH."""

    def __init__(self, directory: Path, sdk: Path, name: str, *config: str) -> None:
        super().__init__(directory, PROGRAM, name, *config)
        self.environment["PYTHONPATH"] += f":{sdk}"
        self.environment["PATH"] = f"{Path(sys.prefix) / 'bin'}:{self.environment['PATH']}"

    def resources(self) -> dict[str, dict[str, Any]]:
        """Ours in the state, by name; secrets are masked."""
        exported = json.loads(self.pulumi("stack", "export"))["deployment"].get("resources", [])
        ours = (each for each in exported if re.search("eurekube:(index:)?[AIE]", each["type"]))
        return {each["urn"].rpartition("::")[2]: each for each in ours}


def one(name: str, *, secret: tuple[str, ...] = (), options: Any = None, **args: Any) -> Wanted:
    """A single registration."""
    given = {"application": name, "host_name": "192.0.2.50", "port": 8080, **args}
    return {"kind": "Instance", "name": name, "args": given, "secret": secret, "options": options or {}}


def many(name: str, instances: dict[str, Any], **options: Any) -> Wanted:
    """Several of one application."""
    args = {"application": name, "port": 8080, "instances": instances}
    return {"kind": "Application", "name": name, "args": args, "options": options}


def held(eureka: Peer, application: str) -> dict[str, Instance]:
    """What Eureka holds of an application at this moment, by the beginning of the id."""
    found = listed_now(eureka.url, application=application)
    return {each.instance_id.partition(".")[0]: each for each in found}


def test_the_life_of_a_stack(tmp_path: Path, sdk: Path, url: str, eureka: Peer) -> None:
    """Up, unchanged, changed, drifted, healed, replaced, destroyed; a preview tells each property."""
    stack = NativeShop(tmp_path, sdk, "life", f"url={url}")
    stack.wants(one("billing", metadata={"tier": "1"}), many("rating", {"a": {"host_name": "192.0.2.1"}}))
    stack.up()
    assert held(eureka, "billing")["billing"].owner == "stack/organization/shop/life/billing"
    assert stack.pulumi("stack", "output", "billing").strip() == "192.0.2.50"
    stack.up("--expect-no-changes")
    stack.refresh("--expect-no-changes")

    changed = many("rating", {"a": {"host_name": "192.0.2.2"}, "b": {"host_name": "192.0.2.3"}})
    stack.wants(one("billing", metadata={"tier": "2"}, drain_seconds=1), changed)
    shown = " ".join(stack.pulumi("preview", "--diff").split())
    assert '~ tier: "1" => "2"' in shown
    assert "+ drainSeconds: 1" in shown
    assert '~ hostName: "192.0.2.1" => "192.0.2.2"' in shown
    assert re.search(r'\+ b ?: \{ \+ hostName ?: "192.0.2.3" \}', shown), shown
    stack.up()
    assert held(eureka, "rating")["b"].host_name == "192.0.2.3"

    # By hand: one removed, one changed.
    eureka.deregister(*held(eureka, "rating")["a"].key)
    eureka.set_status(held(eureka, "billing")["billing"], Status.OUT_OF_SERVICE)
    stack.refresh()
    assert stack.resources()["billing"]["outputs"]["status"] == "OUT_OF_SERVICE"
    stack.up()
    assert set(held(eureka, "rating")) == {"a", "b"}
    assert held(eureka, "billing")["billing"].status is Status.OUT_OF_SERVICE  # a person's

    # Another id is a new registration, made before the old one goes.
    stack.wants(one("billing", instance_id="of-its-own", metadata={"tier": "2"}), changed)
    assert "+-" in stack.pulumi("preview", "--diff")
    stack.up()
    assert set(held(eureka, "billing")) == {"of-its-own"}
    stack.destroy()
    assert (held(eureka, "rating"), held(eureka, "billing")) == ({}, {})


def test_what_is_there_is_imported_and_adopted(tmp_path: Path, sdk: Path, url: str, eureka: Peer) -> None:
    """The import changes nothing in Eureka; the first up makes it ours, and who renews it goes on."""
    stack = NativeShop(tmp_path, sdk, "imports", f"url={url}")
    metadata = {"zone": "zone-a", "managementPort": "9000"}
    there = Instance("OLD", "vm-17:old:8080", "vm-17", "192.0.2.17", Port(8080), metadata=metadata)
    eureka.register(there)
    before = held(eureka, "old")
    stack.wants()
    what = ("eurekube:index:Instance", "old", "OLD/vm-17:old:8080")
    said = stack.pulumi("import", *what, "--yes", "--protect=false")
    assert held(eureka, "old") == before
    written = {
        name: re.search(rf"\b{name}=(.+?),?\n", said) for name in ("host_name", "on_conflict", "renewer")
    }
    assert {name: found and found[1].rstrip(",)") for name, found in written.items()} == {
        "host_name": '"vm-17"',
        "on_conflict": "eurekube.OnConflict.ADOPT",
        "renewer": '"self"',
    }
    imported = one(
        "old",
        host_name="vm-17",
        ip_address="192.0.2.17",
        instance_id="vm-17:old:8080",
        zone="zone-a",
        metadata={"managementPort": "9000"},
        renewer="self",
        on_conflict="adopt",
        vip_address="",
    )
    del imported["args"]["vip_address"]
    stack.wants(imported)
    shown = stack.pulumi("preview", "--diff")
    assert re.search(r"~ eurekube:index:Instance: \(update\)", shown), shown
    stack.up()
    (adopted,) = held(eureka, "old").values()
    assert (adopted.owner, adopted.renewer) == ("stack/organization/shop/imports/old", "self")
    stack.up("--expect-no-changes")
    stack.destroy()
    assert held(eureka, "old") == {}


def test_two_eurekas_in_one_program(tmp_path: Path, sdk: Path, url: str, eureka: Peer, secured: Peer) -> None:
    """Each by a provider of its own; a password is in no state, preview or log in clear, and can change."""
    stack = NativeShop(tmp_path, sdk, "two", f"url={url}")
    provider: Wanted = {
        "kind": "Provider",
        "name": "eu",
        "args": {"url": secured.url, "user": EUREKA_USER, "password": "wrong-password"},
        "secret": ("password",),
    }
    wanted = (one("here"), one("there", options={"provider": "eu"}))
    stack.wants(provider, *wanted)
    assert "answered 401" in stack.up(fails=True)
    provider["args"]["password"] = EUREKA_PASSWORD
    stack.wants(provider, *wanted)
    told = stack.pulumi("preview", "--diff") + stack.up()
    assert "replace" not in told
    state = stack.pulumi("stack", "export")
    assert EUREKA_PASSWORD not in told + state
    assert "wrong-password" not in told + state
    assert held(eureka, "here")
    assert secured.read("THERE", "there.dev.shop:there:8080") is None
    assert secured.read("THERE", "there.two.shop:there:8080") is not None
    stack.destroy()
    assert secured.read("THERE", "there.two.shop:there:8080") is None


def test_secrets_stay_secrets(tmp_path: Path, sdk: Path, url: str, eureka: Peer) -> None:
    """Those that were written, and what is derived from them; also after a refresh."""
    stack = NativeShop(tmp_path, sdk, "hidden", f"url={url}")
    hidden: Wanted = {
        "metadata": {"key": "hidden-value", "zone": "hidden-zone"},
        "secret": ("host_name", "metadata"),
    }
    stack.wants(one("vault", host_name="hidden-host", **hidden))
    told = stack.pulumi("preview", "--diff") + stack.up()
    assert held(eureka, "vault")["vault"].ip_address == "hidden-host"
    told += stack.pulumi("stack", "export") + stack.refresh("--expect-no-changes")
    stack.wants(one("vault", host_name="hidden-other", **hidden))
    told += stack.pulumi("preview", "--diff") + stack.up() + stack.pulumi("stack", "export")
    assert "hidden-" not in told
    stack.destroy()


def test_a_drain_ends_by_its_time_out_or_by_a_person(
    tmp_path: Path, sdk: Path, url: str, eureka: Peer
) -> None:
    """At once, and nothing is left out of service."""
    stack = NativeShop(tmp_path, sdk, "drains", f"url={url}")
    stack.wants(one("slow", drain_seconds=600, options={"custom_timeouts": {"delete": "20s"}}))
    stack.up()
    stack.wants()
    began = time.monotonic()
    assert "custom time-out ends before the 600 seconds" in stack.up(fails=True)
    assert time.monotonic() - began < 60
    assert held(eureka, "slow")["slow"].status is Status.UP

    stack.wants(one("slow", drain_seconds=600))
    stack.up()
    stack.wants()
    run = subprocess.Popen(
        ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--color", "never"],
        cwd=stack.project,
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    out = Status.OUT_OF_SERVICE
    wait_for(lambda: held(eureka, "slow")["slow"].status is out, "a drain")
    run.send_signal(signal.SIGINT)
    told, _ = run.communicate(timeout=60)
    assert "in service again" in told
    assert held(eureka, "slow")["slow"].status is Status.UP
    stack.wants(one("slow"))
    stack.up()
    stack.destroy()
    assert held(eureka, "slow") == {}


def test_from_the_dynamic_provider_and_back(tmp_path: Path, sdk: Path, url: str, eureka: Peer) -> None:
    """In place, by an alias: Eureka holds the same as before, to the time of its last change."""
    stack = NativeShop(tmp_path, sdk, "moves", f"url={url}")
    instances = {"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.2", "port": 9090}}
    native = [one("mover", metadata={"tier": "1"}), many("movers", instances)]
    dynamic = [{**each, "kind": f"Eureka{each['kind']}"} for each in native]

    stack.wants(*dynamic)
    stack.up()
    there = [held(eureka, name) for name in ("mover", "movers")]
    to_native = [
        {**new, "options": {"alias": f"pulumi-python:dynamic/eurekube:{old['kind']}"}}
        for new, old in zip(native, dynamic, strict=True)
    ]
    to_dynamic = [
        {**old, "options": {"alias": f"eurekube:index:{new['kind']}"}}
        for new, old in zip(native, dynamic, strict=True)
    ]
    for wanted in (to_native, to_dynamic, to_native):
        stack.wants(*wanted)
        said = stack.up()
        assert "replace" not in said
        assert "create" not in re.sub("created in|creating", "", said.partition("Resources:")[2])
        assert [held(eureka, name) for name in ("mover", "movers")] == there
        stack.refresh("--expect-no-changes")
        stack.up("--expect-no-changes")
    stack.destroy()
    assert [held(eureka, name) for name in ("mover", "movers")] == [{}, {}]
