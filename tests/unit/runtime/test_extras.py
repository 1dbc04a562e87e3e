"""An installation without extras: the features that work, and the messages about the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eurekube_provider.runtime.extras import MissingExtra, require_extra

ROOT = Path(__file__).parents[3]

ONLY_THE_CORE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        optional = ("jinja2", "kubernetes", "prometheus_client", "pulumi_kubernetes", "rich")
        if name.partition(".")[0] in optional:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in which the packages of all extras are missing."""
    return subprocess.run(
        [sys.executable, "-c", ONLY_THE_CORE + program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_missing_package_is_one_sentence() -> None:
    """The message names the feature, the missing package and the command that installs it."""
    with pytest.raises(MissingExtra) as raised, require_extra("kubernetes", "a lookup of endpoints"):
        raise ModuleNotFoundError("No module named 'kubernetes.client'", name="kubernetes.client")
    assert str(raised.value) == (
        "a lookup of endpoints needs the package kubernetes, which is not installed:"
        " pip install 'eurekube-provider[kubernetes]'"
    )


def test_a_fault_of_our_own_is_no_missing_extra() -> None:
    """A missing module that belongs to no extra raises the original error."""
    with pytest.raises(ModuleNotFoundError), require_extra("cli", "a command"):
        raise ModuleNotFoundError("No module named 'eurekube_provider.nonsense'", name="eurekube_provider.x")


def test_the_core_registers_and_looks_up_in_eureka() -> None:
    """Without extras all public names except components can be imported, and both providers."""
    done = run(
        "import eurekube_provider as package\n"
        "import eurekube_provider.provider.server, eurekube_provider.resources.plugin\n"
        "import eurekube_provider.automation.summary, eurekube_provider.cli.summary_command\n"
        "from eurekube_provider.resources.application import ApplicationProvider\n"
        "from eurekube_provider.resources.instance import InstanceProvider\n"
        "from eurekube_provider.resources.program import ProgramError\n"
        "refused = []\n"
        "for name in package.__all__:\n"
        "    try:\n"
        "        getattr(package, name)\n"
        "    except ProgramError as error:\n"
        "        assert \"pip install 'eurekube-provider[kubernetes]'\" in str(error), error\n"
        "        refused.append(name)\n"
        "print(*refused)\n"
    )
    assert done.returncode == 0, done.stderr
    refused = set(done.stdout.split())
    assert {"EurekaSyncer", "EurekubeOperator"} <= refused
    needed = ("Drain", "EurekaApplication", "EurekaInstance", "ApplicationInstance", "Found", "get_")
    assert not [name for name in refused if name.startswith(needed)]


@pytest.mark.parametrize(
    ("command", "extra", "what"),
    [("doctor", "cli", "the command doctor"), ("operator", "operator", "the operator")],
)
def test_a_command_names_its_extra(command: str, extra: str, what: str) -> None:
    """A command whose extra is missing ends with 1 and names the extra."""
    done = run("from eurekube_provider.cli.main import main\nsys.exit(main())", command)
    assert done.returncode == 1
    assert done.stderr == (
        f"eurekube: {what} needs the package kubernetes, which is not installed:"
        f" pip install 'eurekube-provider[{extra}]'\n"
    )


def test_a_lookup_of_endpoints_names_its_extra() -> None:
    """A lookup of endpoints without the package kubernetes raises an error that names it."""
    done = run(
        "from eurekube_provider.registrations.discovered import find_endpoints\n"
        "from eurekube_provider.runtime.extras import MissingExtra\n"
        "try:\n"
        "    find_endpoints('rating', 'shop')\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    assert done.stdout.startswith("a lookup of endpoints needs the package kubernetes"), done.stderr
