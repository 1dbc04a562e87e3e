"""The dynamic and the native provider behind one interface: a Pulumi program that makes what a test asks for
by either.

All stacks of a test module share one project and one backend, since each start of Pulumi takes long; the
program makes the resources in wanted.json.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.identity import DYNAMIC_APPLICATION_TYPE, DYNAMIC_INSTANCE_TYPE
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.registrations.names import rename_properties, to_snake_case
from eurekube_provider.registrations.resource import APPLICATION_REGISTRATION_KIND, INSTANCE_REGISTRATION_KIND
from lab.listing import list_uncached
from tests.system.stacks import Stack, own_pulumi, python_project

PLUGINS = (b"pulumi.dynamic", b"pulumi-resource-eurekube")

PROGRAM = """
import json
from pathlib import Path

import pulumi

import eurekube_provider
from eurekube_provider.resources.program import leave_quietly_when_interrupted

leave_quietly_when_interrupted()
made = {}


def hide(args, path):
    *above, last = path
    for name in above:
        args = args[name]
    args[last] = pulumi.Output.secret(args[last])


def look_up(shell, name, application):
    if shell == "native":
        import pulumi_eurekube
        found = pulumi_eurekube.get_application_output(name=application, offline={})
    else:
        found = eurekube_provider.get_application_output(application)
    pulumi.export(name, found.up)
    return found


for item in json.loads(Path("wanted.json").read_text()):
    if item["kind"] == "Lookup":
        made[item["name"]] = look_up(item["shell"], item["name"], item["application"])
        continue
    if item["kind"] == "Get":
        import pulumi_eurekube
        found = getattr(pulumi_eurekube, item["of"]).get(item["name"], item["id"])
        pulumi.export(item["name"], found.owner)
        continue
    name, args, options = item["name"], item["args"], item.get("options", {})
    for path in item.get("secret", ()):
        hide(args, path)
    for key, (source, output) in item.get("taken", {}).items():
        args[key] = getattr(made[source], output)
    if "component" in item:
        options["parent"] = pulumi.ComponentResource("shop:index:Group", item["component"])
    if "alias" in options:
        options["aliases"] = [pulumi.Alias(**options.pop("alias"))]
    if "provider" in options:
        options["provider"] = made[options["provider"]]
    if "custom_timeouts" in options:
        options["custom_timeouts"] = pulumi.CustomTimeouts(**options["custom_timeouts"])
    opts = pulumi.ResourceOptions(**options)
    if item["shell"] == "native":
        import pulumi_eurekube
        made[name] = getattr(pulumi_eurekube, item["kind"])(name, **args, opts=opts)
    else:
        made[name] = getattr(eurekube_provider, f"Eureka{item['kind']}")(name, args, opts)
    if item.get("export"):
        pulumi.export(name, getattr(made[name], item["export"]))
"""

Wanted = dict[str, Any]
Properties = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shell:
    """One of the two providers, with the names that it gives to the common resources.

    :ivar types: the engine's types of an Instance and an Application.
    """

    name: str
    types: Mapping[str, str]

    def one(self, name: str, **args: Any) -> Wanted:
        """Return the request for an Instance resource."""
        given = {"application": name, "host_name": "192.0.2.50", "port": 8080, **args}
        return {"shell": self.name, "kind": "Instance", "name": name, "args": given}

    def many(self, name: str, instances: Mapping[str, Any], **args: Any) -> Wanted:
        """Return the request for an Application resource with several instances."""
        given = {"application": name, "port": 8080, "metadata": {"tier": "1"}, "instances": instances, **args}
        return {"shell": self.name, "kind": "Application", "name": name, "args": given}

    def lookup(self, name: str, application: str) -> Wanted:
        """Return the request for a lookup that exports Eureka's list of an application."""
        return {"shell": self.name, "kind": "Lookup", "name": name, "application": application}

    def got(self, name: str, kind: str, id_: str) -> Wanted:
        """Return the request for a get of the native provider, which exports the owner of an id."""
        return {"shell": self.name, "kind": "Get", "of": kind, "name": name, "id": id_}

    def moved_here(self, wanted: Wanted) -> Wanted:
        """Return a request that takes over another provider's resource, by an alias; the native provider's
        SDK has that alias built in.
        """
        if self.name == "native":
            return {**wanted, "shell": self.name, "options": {}}
        (other,) = (each for each in SHELLS if each.name == wanted["shell"])
        return with_options({**wanted, "shell": self.name}, alias={"type_": other.types[wanted["kind"]]})


DYNAMIC = Shell("dynamic", {"Instance": DYNAMIC_INSTANCE_TYPE, "Application": DYNAMIC_APPLICATION_TYPE})
NATIVE = Shell(
    "native",
    {"Instance": INSTANCE_REGISTRATION_KIND.token, "Application": APPLICATION_REGISTRATION_KIND.token},
)
SHELLS = (DYNAMIC, NATIVE)


def with_options(wanted: Wanted, **options: Any) -> Wanted:
    """Return a request with further resource options."""
    return {**wanted, "options": {**wanted.get("options", {}), **options}}


def host(number: int) -> Properties:
    """Return the host name with this number."""
    return {"host_name": f"192.0.2.{number}"}


class Workshop:
    """A Pulumi project, whose stacks share home, backend and environment.

    :param sdk: the folder of the native provider's SDK, whose plugin is taken from PATH; None for stacks of
        the dynamic provider alone.
    """

    def __init__(self, directory: Path, sdk: Path | None) -> None:
        self.project = python_project(directory / "project", PROGRAM)
        own = own_pulumi(directory)
        path = f"{Path(sys.prefix) / 'bin'}:{own['PATH']}"
        modules = own["PYTHONPATH"] if sdk is None else f"{own['PYTHONPATH']}:{sdk}"
        self.environment = {**own, "PYTHONPATH": modules, "PATH": path}


class ProviderStack(Stack):
    """One stack of a workshop's project.

    :param config: the text after ``eurekube:``, with a dot between the names of nested keys.
    """

    def __init__(self, workshop: Workshop, name: str, config: Mapping[str, str]) -> None:
        super().__init__(workshop.project, workshop.environment)
        self.name = name
        self._file = self.project / f"Pulumi.{name}.yaml"
        self.pulumi("stack", "init", name)
        for key, value in config.items():
            self.configure(key, value)

    def configure(self, key: str, value: Any) -> None:
        """Change a plain value in the stack's configuration file; None removes it."""
        document = (yaml.safe_load(self._file.read_text()) if self._file.exists() else None) or {}
        *above, last = f"eurekube:{key}".split(".")
        place = document.setdefault("config", {})
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
        if value is None:
            del place[last]
        self._file.write_text(yaml.safe_dump(document))

    def configure_secret(self, key: str, value: str) -> None:
        """Set a secret value by ``pulumi config set --secret --path``."""
        self.pulumi("config", "set", "--path", "--secret", f"eurekube:{key}", value)

    def wants(self, *wanted: Wanted) -> None:
        """Change the resources that the program makes."""
        (self.project / "wanted.json").write_text(json.dumps(wanted))

    def states(self) -> dict[str, Properties]:
        """The outputs of the registrations in the state, by name, with the same property names for both
        providers.
        """
        return {
            name: rename_properties(each["outputs"], to_snake_case) for name, each in self.state().items()
        }

    def urns(self, flag: str, *names: str) -> list[str]:
        """Return a flag such as ``--target`` with the URN of each named resource."""
        state = self.state()
        return [part for name in names for part in (flag, state[name]["urn"])]

    def unchanged(self) -> None:
        """Check that neither a refresh nor the following update finds a change."""
        before = self.states()
        self.up("--refresh", "--expect-no-changes")
        after = self.states()
        assert {name: state for name, state in after.items() if before.get(name) != state} == {}
        assert before.keys() == after.keys()

    def preview(self, *arguments: str) -> Preview:
        """Run ``pulumi preview --json``, and return its result."""
        return Preview(self.pulumi("preview", "--json", *arguments))


class Preview:
    """The result of a preview.

    :ivar text: the output as it was printed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        document = json.loads(text[text.index("{") : text.rindex("}") + 1])
        self._steps = [
            (each["urn"].rpartition("::")[2], each)
            for each in document["steps"]
            if "eurekube:" in each["urn"] and each["op"] != "refresh"
        ]

    def operations(self) -> dict[str, list[str]]:
        """Return the operations on each registration by name, in their order."""
        found: dict[str, list[str]] = {}
        for name, step in self._steps:
            if "pulumi:providers" not in step["urn"]:
                found.setdefault(name, []).append(step["op"])
        return found

    def inputs(self, name: str) -> tuple[Properties, Properties]:
        """Return the inputs of a registration before and after, with the same property names for both
        providers.
        """
        (step,) = (each for one, each in self._steps if one == name)
        return tuple(
            rename_properties(step[when]["inputs"], to_snake_case) for when in ("oldState", "newState")
        )  # type: ignore[return-value]

    def differing(self, name: str) -> set[str]:
        """Return the properties of a registration that the preview shows as changed."""
        return {path for one, step in self._steps if one == name for path in step.get("detailedDiff") or ()}


class Watch:
    """A watch, as callers see it, of applications that must stay UP all the time.

    :param names: applications of which each instance that stands there now must stay UP.
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
        while not self._ended.wait(0.05):
            for key in self._keys:
                found = self._eureka.read(*key)
                self.looked += 1
                if found is None or found.status is not Status.UP:
                    self.missed.append(f"{key}: {found and found.status}")


def held(eureka: Peer, application: str) -> dict[str, Instance]:
    """Return an application's instances in Eureka, by the part of their ids before the first dot."""
    found = list_uncached(eureka.url, application=application)
    return {each.instance_id.partition(".")[0]: each for each in found}


def hosts(eureka: Peer, application: str) -> dict[str, str]:
    """Return the host names of an application's instances in Eureka, by the part of their ids before the
    first dot.
    """
    return {key: each.host_name for key, each in held(eureka, application).items()}


def by_hand(eureka: Peer, instance: Instance, **changes: object) -> None:
    """Register an instance with changes, as another client would."""
    stamp = (instance.last_dirty_timestamp_ms or 0) + 1
    eureka.register(replace(instance, **changes, last_dirty_timestamp_ms=stamp))  # type: ignore[arg-type]


@contextmanager
def running(stack: Stack, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the Pulumi CLI in a session of its own; kill what is left of it at the end of the block."""
    process = subprocess.Popen(
        ["pulumi", *arguments, "--color", "never"],
        cwd=stack.project,
        env=stack.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_plugins(stack)
        process.kill()
        process.communicate()


def kill_plugins(stack: Stack) -> int:
    """Kill the plugin processes of our providers that run for a stack; return how many there were."""
    found = 0
    for directory in Path("/proc").iterdir():
        with suppress(OSError):
            is_ours = any(each in (directory / "cmdline").read_bytes() for each in PLUGINS)
            home = f"PULUMI_HOME={stack.environment['PULUMI_HOME']}".encode()
            if is_ours and home in (directory / "environ").read_bytes().split(b"\0"):
                os.kill(int(directory.name), signal.SIGKILL)
                found += 1
    return found


def eurekube(
    stack: Stack, *arguments: str, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run an ``eurekube`` command in a stack's project."""
    done = subprocess.run(
        [sys.executable, "-m", "eurekube_provider.cli.main", *arguments],
        cwd=stack.project,
        env={**stack.environment, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done
