"""Every command of the pages about both providers, run as written, one after the other."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.protocol.peer import Peer
from lab.listing import list_uncached
from tests.system.stacks import (
    ROOT,
    lay_plugin_folder,
    needs_language_host,
    needs_linking_yaml,
    needs_pulumi,
    needs_yaml,
    own_pulumi,
)

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi]

PAGES = ROOT / "docs" / "reference"
WRITTEN_URL = "http://127.0.0.1:8761/eureka"
ANY_PLUGIN = "<path or repository>/plugin"

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {"sh", "bash", "python", "yaml"}


def blocks(page: str, *wanted: str) -> list[str]:
    """Return the code blocks of a page in the ``wanted`` languages, or its commands."""
    found = _FENCE.findall((PAGES / page).read_text())
    # What has no language could be a command that nobody runs.
    assert {language for _, language, _ in found} <= _LANGUAGES
    return [
        "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))
        for indent, language, text in found
        if language in (wanted or ("sh", "bash"))
    ]


class Reader:
    """A reader who types a page's commands, in a shell that stays in the last command's directory."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self._folder = folder
        self._environment = {**own_pulumi(folder), "EUREKA_URL": url}
        # As in an activated environment; the Pulumi of the machine comes after it.
        self._environment["PATH"] = f"{Path(sys.prefix) / 'bin'}:{self._environment['PATH']}"
        self._where = folder
        shutil.copytree(ROOT / "examples", folder / "examples")

    def has_a_clone_and_nothing_installed(self) -> None:
        """Copy the rest of a clone beside the examples, for a plugin that is installed without a package
        index.

        No other plugin is on PATH.
        """
        lay_plugin_folder(self._folder)
        self.has_an_environment_for_the_plugin()
        engine = ("pulumi", "pulumi-language-python", "pulumi-language-yaml")
        programs = (
            *(Path(str(shutil.which(name))).parent for name in engine),
            Path(sys.base_prefix) / "bin",
            "/usr/bin",
            "/bin",
        )
        path = os.pathsep.join(map(str, programs))
        assert shutil.which("pulumi-resource-eurekube", path=path) is None
        self._environment |= {"PATH": path, "PIP_NO_INDEX": "true", "PIP_NO_BUILD_ISOLATION": "false"}

    def has_an_environment_for_the_plugin(self) -> None:
        """Create the plugin's environment that the CLI would fill; it imports the packages of these tests."""
        venv = self._folder / "plugin" / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        (packages,) = venv.glob("lib/python*/site-packages")
        (packages / "around.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
        for name in ("setuptools", "wheel"):  # which the CLI brings up to date, and nothing here needs
            if not list(packages.glob(f"{name}-*.dist-info")):
                described = packages / f"{name}-99.dist-info"
                described.mkdir()
                (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 99\n")

    def types(self, commands: str) -> str:
        """Run a block of commands, each of which must succeed; return the output."""
        remember = self._folder / "where"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{self._here(commands)}\npwd > {remember}"],
            cwd=self._where,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        self._where = Path(remember.read_text().strip())
        return done.stdout

    def writes(self, name: str, text: str) -> None:
        """Write a file into the current directory."""
        (self._where / name).write_text(self._here(text))

    def starts(self, commands: str, until: str) -> None:
        """Start commands that run until they are stopped; wait for the text ``until``, then stop them."""
        with subprocess.Popen(
            ["bash", "-c", f"exec env {self._here(commands).strip()}"],
            cwd=self._where,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as run:
            assert run.stderr is not None
            assert any(until in line for line in run.stderr)
            run.send_signal(signal.SIGTERM)
            run.stderr.read()
            assert run.wait(timeout=30) == 0

    def _here(self, commands: str) -> str:
        return commands.replace(WRITTEN_URL, self.url)


@pytest.fixture
def eureka(plain: Peer) -> Peer:
    """Return a client of one Eureka server, whose lists are as fresh as reads and which is empty."""
    return plain


@pytest.fixture
def reader(tmp_path: Path, eureka: Peer) -> Reader:
    """Return a reader with a checkout and a Eureka server."""
    return Reader(tmp_path, eureka.url)


def registered_before(eureka: Peer, application: str, **metadata: str) -> Instance:
    """Register a machine's instance before the reader begins."""
    id_ = f"vm-17:{application}:8080"
    there = Instance(application.upper(), id_, "vm-17", "192.0.2.17", Port(8080), metadata=metadata)
    eureka.register(there)
    return there


@needs_yaml
def test_registrations(reader: Reader, eureka: Peer) -> None:
    """Commands of pulumi.md: the example from start to end, a lost incarnation, renewers, and connections."""
    start, _, takes_over, ends, incarnations, renews, connections, abandons, _ = blocks("pulumi.md")
    registered_before(eureka, "legacy")

    printed = reader.types(start)
    assert "stack/organization/native-yaml/dev/rating" in printed
    assert len(list_uncached(eureka.url, "rating")) == 2
    assert "eurekube:Application" in reader.types(takes_over)
    reader.types(ends)
    assert list_uncached(eureka.url, "rating") == []

    owner = "stack/organization/native-yaml/dev/billing"
    registered_before(eureka, "lost", **{"eurekube.owner": owner, "eurekube.incarnation": "0123456789ab"})
    if shutil.which("jq"):
        names = "<organization>/<project>/<stack>"
        assert names in incarnations
        assert reader.types(incarnations.replace(names, "organization/native-yaml/dev")) == "0123456789ab\n"
    reader.starts(renews, "starting keepalive")
    reader.types(connections + abandons)
    configured = reader.types("pulumi config --json --show-secrets")
    assert "eureka.eu.example.com" in configured
    assert "http://old:8761/eureka" in configured


@needs_yaml
def test_lookups_without_a_language(reader: Reader, eureka: Peer) -> None:
    """pulumi.md: a stack of a program in YAML exports what Eureka lists."""
    (program,) = blocks("pulumi.md", "yaml")
    there = registered_before(eureka, "rating")
    reader.types("mkdir lookups && cd lookups")
    reader.writes("Pulumi.yaml", program)
    reader.types(f"pulumi stack init dev && pulumi config set eurekube:url {WRITTEN_URL} && pulumi up --yes")
    shown = reader.types("pulumi stack output up --json")
    assert [each["instanceId"] for each in json.loads(shown)] == [there.instance_id]


def test_a_program_without_an_engine(reader: Reader, eureka: Peer) -> None:
    """pulumi.md: the dynamic provider's program is rendered, planned, applied and removed without a Pulumi
    CLI.
    """
    program, *_ = blocks("pulumi.md", "python")
    *_, engineless = blocks("pulumi.md")
    render, plan, apply, remove = engineless.splitlines()
    reader.types("mkdir program && cd program")
    reader.writes("Pulumi.yaml", "name: shop\nruntime: python\n")
    reader.writes("__main__.py", program)
    reader.writes("Pulumi.dev.yaml", f"config: {{eurekube:url: '{WRITTEN_URL}'}}\n")
    printed = reader.types(render)
    rendered = json.loads(printed[printed.index("{") :])
    assert set(rendered) == {"billing", "rating/a", "rating/b"}
    planned = reader.types(plan)

    def of_this_stack() -> set[str]:
        owned = (each for each in list_uncached(eureka.url) if "/shop/dev/" in (each.owner or ""))
        return {each.host_name for each in owned}

    assert (planned.count("+ "), of_this_stack()) == (3, set())
    reader.types(apply)
    assert of_this_stack() == {f"192.0.2.{end}" for end in (10, 11, 12)}
    reader.types(remove)
    assert of_this_stack() == set()


@needs_yaml
@needs_language_host("writes an SDK for Python")
def test_the_native_provider(reader: Reader, eureka: Peer) -> None:
    """native-provider.md: the CLI makes an SDK, and both ways to import work."""
    _, sdk, *_, imports, printed = blocks("native-provider.md")
    reader.types("mkdir project && cd project && printf 'name: project\\nruntime: yaml\\n' > Pulumi.yaml")
    reader.types(f"pulumi stack init dev && pulumi config set eurekube:url {WRITTEN_URL}")
    before = [registered_before(eureka, name) for name in ("billing", "rating", "ledger")]
    reader.types(sdk)
    reader.types("test -f sdk/python/pulumi_eurekube/instance.py")
    reader.types(imports)
    reader.types(printed)
    state = reader.types("pulumi stack export")
    for one in before:
        assert list_uncached(eureka.url, one.application)[0].owner is None
        assert f'"{one.application}' in state


@needs_linking_yaml
@needs_language_host("makes the plugin's environment and runs the plugin")
def test_a_plugin_is_added_from_a_folder(reader: Reader, eureka: Peer) -> None:
    """pulumi.md and native-provider.md: the CLI makes the plugin's environment and the SDK, and runs the
    plugin.
    """
    reader.has_a_clone_and_nothing_installed()
    _, added, *_ = blocks("pulumi.md")
    reader.types(added)
    described = yaml.safe_load(reader.types("cat Pulumi.yaml"))
    assert described["packages"] == {"eurekube": "../plugin"}
    reader.types(f"pulumi stack init dev && pulumi config set eurekube:url {WRITTEN_URL}")
    reader.types("pulumi up --yes")
    assert len(list_uncached(eureka.url, "rating")) == 2
    reader.types("pulumi destroy --yes")

    added, *_ = blocks("native-provider.md")
    assert ANY_PLUGIN in added
    reader.types("cd .. && mkdir other && cd other && printf 'name: other\\nruntime: yaml\\n' > Pulumi.yaml")
    reader.types(added.replace(ANY_PLUGIN, "../plugin"))
    assert "plugin" in reader.types("cat Pulumi.yaml")


@needs_language_host("makes the plugin's environment")
def test_a_plugin_in_a_folder_is_upgraded(reader: Reader) -> None:
    """native-provider.md: a plugin survives a newer checkout and a removed Python, and is made again without
    a package index.

    A language host for YAML that does not link packages fails once the environment exists: then the CLI is
    asked for the schema, which makes the environment in the same way. Without an index the environment is
    half made before. The command that downloads wheels needs an index, and is not run.
    """
    _, _, upgraded, made_again, downloads, offline, *_ = blocks("native-provider.md")
    assert downloads.startswith("python3 -m pip download --dest wheels")
    adds, asks = "pulumi package add <path>/plugin", "pulumi package get-schema ./plugin > schema.json"
    assert all(adds in block for block in (upgraded, made_again, offline))
    upgraded, made_again, offline = (
        block.replace(adds, asks).replace("<path>", ".") for block in (upgraded, made_again, offline)
    )
    reader.has_a_clone_and_nothing_installed()
    copy = "plugin/venv/lib/python*/site-packages/eurekube_provider/__init__.py"
    reader.types(upgraded)
    reader.types("echo '# newer' >> eurekube_provider/__init__.py")
    assert "# newer" not in reader.types(f"cat {copy}")
    reader.types(upgraded)
    assert "# newer" in reader.types(f"cat {copy}")
    reader.types("ln -sfn /gone/python3 plugin/venv/bin/python3 && ln -sfn python3 plugin/venv/bin/python")
    assert "creating virtual environment" in reader.types(f"! {{ {upgraded.strip()}; }} 2>&1")
    removes, makes = made_again.splitlines()
    for command in (makes, offline):
        reader.types(removes)
        reader.has_an_environment_for_the_plugin()
        reader.types(command)
        assert "# newer" in reader.types(f"cat {copy}")
