"""A real Pulumi engine: the CLI, the Kubernetes plugin, YAML's language host, and a substitute for Python's.

Each is taken from PATH or the cache, else from its official download, else, on request, built from source. A
home in the cache keeps the engine apart from the user's own Pulumi.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab import inline
from lab.cache import cache_folder, filled_atomically, locked
from lab.downloads import downloads_allowed
from lab.programs import PULUMI, PULUMI_KUBERNETES, PULUMI_PYTHON_SDK, PULUMI_YAML, find, provide
from lab.progress import say

_INSTALL_SECONDS = 180
_INSTALL = "import sys; from pulumi.automation import PulumiCommand; PulumiCommand.install(root=sys.argv[1])"
_PYTHON = "pulumi-language-python"


def provide_pulumi(caches: Path) -> None:
    """Find, download or build Pulumi's CLI, its Kubernetes plugin and its YAML host; without
    ``pulumi-language-python`` also a generator of Python SDKs.
    """
    cli = find_pulumi() or provide([PULUMI], caches)[PULUMI]
    missing = []
    if find_kubernetes_plugin(cli) is None:
        missing.append(PULUMI_KUBERNETES)
    if not (_installed(PULUMI_YAML) or find(PULUMI_YAML)):
        missing.append(PULUMI_YAML)
    if not (_installed(_PYTHON) or shutil.which(_PYTHON)):
        missing.append(PULUMI_PYTHON_SDK)
    provide(missing, caches)


def find_pulumi() -> Path | None:
    """Return the CLI on PATH or in the cache, else the one that the official installer provides, if it can
    be reached.
    """
    found = find(PULUMI) or _installed(PULUMI)
    if found or not downloads_allowed():
        return found
    say("Pulumi CLI: not on PATH; trying the official installer")
    _run([sys.executable, "-c", _INSTALL, str(_installation())])
    found = _installed(PULUMI)
    say(f"Pulumi CLI: installed in {_installation()}" if found else "Pulumi CLI: it could not be installed")
    return found


def find_kubernetes_plugin(cli: Path) -> Path | None:
    """Return the plugin on PATH, in the cache or in the lab's own home, else the official one, if it can
    be reached.
    """
    found = find(PULUMI_KUBERNETES) or _in_home(PULUMI_KUBERNETES)
    if found or not downloads_allowed():
        return found
    say("Pulumi's Kubernetes plugin: trying to install it")
    _run([str(cli), "plugin", "install", "resource", "kubernetes"])
    found = _in_home(PULUMI_KUBERNETES)
    if found is None:
        say("Pulumi's Kubernetes plugin: it could not be installed")
    return found


def pulumi_environment() -> dict[str, str]:
    """Return an environment for a CLI that leaves the user's own Pulumi alone.

    Its PATH has the user's folders first, then those of all programs that were found.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")}
    return {
        **inherited,
        "PATH": pulumi_path(),
        "PULUMI_HOME": str(_home()),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def pulumi_path() -> str:
    """Return PATH with the folders of the cached programs, and of the runner of dynamic providers, at its
    end.
    """
    built = map(find, (PULUMI, PULUMI_KUBERNETES, PULUMI_YAML, PULUMI_PYTHON_SDK))
    dynamic = _script(
        "pulumi-resource-pulumi-python",
        f'"${{{inline.PYTHON}:-{sys.executable}}}" -u -m pulumi.dynamic',
    )
    found = [_installed(PULUMI), *built, dynamic]
    before = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*before, *(str(path.parent) for path in found if path)]))


def inline_cli(cli: Path) -> Path:
    """Return a program `pulumi` that runs this CLI without a language host for Python: see
    :mod:`lab.inline`.
    """
    return _script(PULUMI, f"'{sys.executable}' -P '{inline.__file__}' '{cli}'")


def _installation() -> Path:
    return cache_folder() / "pulumi-cli"


def _installed(program: str) -> Path | None:
    """Return a program that was installed with the official CLI."""
    path = _installation() / "bin" / program
    return path if path.is_file() else None


def _home() -> Path:
    home = cache_folder() / "pulumi-home"
    home.mkdir(parents=True, exist_ok=True)
    return home


def _in_home(plugin: str) -> Path | None:
    return next((_home() / "plugins").glob(f"{plugin.removeprefix('pulumi-')}-*/{plugin}"), None)


def _script(name: str, command: str) -> Path:
    """Write a program into the cache that runs another command; return its path."""
    text = f'#!/bin/sh\nexec {command} "$@"\n'
    program = cache_folder() / "scripts" / hashlib.sha256(text.encode()).hexdigest()[:8] / name
    if not program.exists():
        with locked("scripts"), filled_atomically(program.parent) as folder:
            made = folder / name
            made.write_text(text)
            made.chmod(0o755)
    return program


def _run(command: list[str]) -> None:
    try:
        subprocess.run(
            command,
            env={**os.environ, "PULUMI_HOME": str(_home())},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        say(f"{' '.join(command[:3])} was ended after {_INSTALL_SECONDS} s")
