"""Stacks of a real Pulumi CLI, each made for one sample, and their programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from lab.pulumi import pulumi_search_path

ROOT = Path(__file__).parent.parent
PEER_MODULE = Path(__file__).parent / "peers" / "plain_dynamic.py"
_SOURCE_POSITION_KEYS = ("sourcePosition", "stackTrace")
_numbers = count(1)

SINGLE_PROGRAM = """
import os
from eurekube_provider import EurekaInstance
for number in range(int(os.environ["BENCH_COUNT"])):
    EurekaInstance(f"r{number}", {
        "application": f"{os.environ['BENCH_APPLICATION']}-{number // 100}",
        "host_name": f"10.1.{number // 250}.{number % 250 + 1}",
        "port": 8080,
    })
"""

APPLICATION_PROGRAM = """
import os
from eurekube_provider import EurekaApplication
EurekaApplication("all", {
    "application": os.environ["BENCH_APPLICATION"],
    "port": 8080,
    "instances": {
        f"r{number}": {"host_name": f"10.1.{number // 250}.{number % 250 + 1}"}
        for number in range(int(os.environ["BENCH_COUNT"]))
    },
})
"""

PEER_PROGRAM = """
import plain_dynamic
plain_dynamic.main()
"""

NATIVE_PROGRAM = """
import os
import pulumi_eurekube as eurekube
for number in range(int(os.environ["BENCH_COUNT"])):
    eurekube.Instance(
        f"r{number}",
        application=f"{os.environ['BENCH_APPLICATION']}-{number // 100}",
        host_name=f"10.1.{number // 250}.{number % 250 + 1}",
        port=8080,
    )
"""

YAML_PROGRAM_MARKER = "the same without a programming language"
"""Marker in place of a program's text: the same instances of the native provider, declared in Pulumi.yaml."""

_EMPTY_PLUGIN = f"#!/bin/sh\nexec '{sys.executable}' -m bench.peers.empty_native \"$@\"\n"


def install_empty_plugin(folder: Path) -> Path:
    """Write the native provider that does nothing under Eurekube's plugin name, so that the same program runs
    with it.

    :returns: the folder for a stack's ``plugins``.
    """
    folder.mkdir()
    program = folder / "pulumi-resource-eurekube"
    program.write_text(_EMPTY_PLUGIN)
    program.chmod(0o755)
    return folder


def _yaml_resources(application: str, resources: int) -> dict[str, Any]:
    """Return :data:`NATIVE_PROGRAM`'s resources as a program in YAML."""
    return {
        f"r{number}": {
            "type": "eurekube:Instance",
            "properties": {
                "application": f"{application}-{number // 100}",
                "hostName": f"10.1.{number // 250}.{number % 250 + 1}",
                "port": 8080,
            },
        }
        for number in range(resources)
    }


class Stack:
    """A stack that is made for one sample.

    :param program: the text of ``__main__.py``, or :data:`YAML_PROGRAM_MARKER`.
    :param modules: a folder with modules that its program may import beside Eurekube's.
    :param plugins: a folder with plugins that are used in place of Eurekube's.
    """

    def __init__(
        self,
        directory: Path,
        program: str,
        url: str,
        resources: int,
        modules: Path,
        plugins: Path | None = None,
    ) -> None:
        application = f"bench{next(_numbers)}"
        self._resources = resources
        self._project = directory / application
        self._project.mkdir()
        if program == YAML_PROGRAM_MARKER:
            described = {
                "name": "bench",
                "runtime": "yaml",
                "resources": _yaml_resources(application, resources),
            }
        else:
            (self._project / "__main__.py").write_text(program)
            shutil.copy(PEER_MODULE, self._project)
            runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}}
            described = {"name": "bench", "runtime": runtime}
            (self._project / ".venv").symlink_to(sys.prefix)
        (self._project / "Pulumi.yaml").write_text(yaml.safe_dump(described))
        self._backend = directory / f"{application}-backend"
        self._backend.mkdir()
        foreign = ("PULUMI_", "EUREKA_", "EUREKUBE_")
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
            "PATH": os.pathsep.join(
                [*([str(plugins)] if plugins else []), str(Path(sys.prefix) / "bin"), pulumi_search_path()]
            ),
            "PYTHONPATH": f"{ROOT}:{modules}",
            "PULUMI_HOME": str(directory / "home"),
            "PULUMI_BACKEND_URL": self._backend.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "bench",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "EUREKA_URL": url,
            "BENCH_URL": url,
            "BENCH_APPLICATION": application,
            "BENCH_COUNT": str(resources),
        }
        self._run("stack", "init", "bench")

    def up(self) -> None:
        """Run ``pulumi up``."""
        self._run("up", "--yes", "--skip-preview")

    def preview(self) -> None:
        """Run ``pulumi preview``, which must find nothing to do."""
        self._run("preview", "--expect-no-changes")

    def offline_preview(self) -> None:
        """Run ``pulumi preview`` without a request to Eureka; it must find nothing to do."""
        self._run("preview", "--expect-no-changes", EUREKUBE_OFFLINE="true")

    def state_bytes(self) -> float:
        """Return the bytes of the state's file for each resource, without the SDK's notes on the program's
        lines.

        Pulumi's Python SDK writes the frames of the program's stack into each resource, and no setting
        prevents that.
        """
        (file,) = (self._backend / ".pulumi" / "stacks" / "bench").glob("*.json")
        resources = json.loads(file.read_text())["checkpoint"]["latest"]["resources"]
        described = (
            {key: item for key, item in each.items() if key not in _SOURCE_POSITION_KEYS}
            for each in resources
        )
        return len(json.dumps(list(described), separators=(",", ":"))) / self._resources

    def _run(self, *arguments: str, **more: str) -> None:
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=self._project,
            env={**self._environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
