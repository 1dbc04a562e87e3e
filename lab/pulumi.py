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
from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.downloads import are_downloads_allowed
from lab.programs import (
    PULUMI,
    PULUMI_KUBERNETES,
    PULUMI_PYTHON_SDK,
    PULUMI_YAML,
    find_program_path,
    provide_programs,
)
from lab.progress import say

_INSTALL_TIMEOUT_SECONDS = 180
_INSTALL_SCRIPT = (
    "import sys; from pulumi.automation import PulumiCommand; PulumiCommand.install(root=sys.argv[1])"
)
_PYTHON_LANGUAGE_HOST_NAME = "pulumi-language-python"


def provide_pulumi(caches: Path) -> None:
    """Find, download or build Pulumi's CLI, its Kubernetes plugin and its YAML host; without
    ``pulumi-language-python`` also a generator of Python SDKs.
    """
    cli = find_pulumi() or provide_programs([PULUMI], caches)[PULUMI]
    missing = []
    if find_kubernetes_plugin(cli) is None:
        missing.append(PULUMI_KUBERNETES)
    if not (_find_installed(PULUMI_YAML) or find_program_path(PULUMI_YAML)):
        missing.append(PULUMI_YAML)
    if not (_find_installed(_PYTHON_LANGUAGE_HOST_NAME) or shutil.which(_PYTHON_LANGUAGE_HOST_NAME)):
        missing.append(PULUMI_PYTHON_SDK)
    provide_programs(missing, caches)


def find_pulumi() -> Path | None:
    """Return the CLI on PATH or in the cache, else the one that the official installer provides, if it can
    be reached.
    """
    found = find_program_path(PULUMI) or _find_installed(PULUMI)
    if found or not are_downloads_allowed():
        return found
    say("Pulumi CLI: not on PATH; trying the official installer")
    _run_installer([sys.executable, "-c", _INSTALL_SCRIPT, str(_installation_folder())])
    found = _find_installed(PULUMI)
    say(
        f"Pulumi CLI: installed in {_installation_folder()}"
        if found
        else "Pulumi CLI: it could not be installed"
    )
    return found


def find_kubernetes_plugin(cli: Path) -> Path | None:
    """Return the plugin on PATH, in the cache or in the lab's own home, else the official one, if it can
    be reached.
    """
    found = find_program_path(PULUMI_KUBERNETES) or _find_plugin_in_home(PULUMI_KUBERNETES)
    if found or not are_downloads_allowed():
        return found
    say("Pulumi's Kubernetes plugin: trying to install it")
    _run_installer([str(cli), "plugin", "install", "resource", "kubernetes"])
    found = _find_plugin_in_home(PULUMI_KUBERNETES)
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
        "PATH": pulumi_search_path(),
        "PULUMI_HOME": str(_pulumi_home()),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def pulumi_search_path() -> str:
    """Return PATH with the folders of the cached programs, and of the runner of dynamic providers, at its
    end.
    """
    built = map(find_program_path, (PULUMI, PULUMI_KUBERNETES, PULUMI_YAML, PULUMI_PYTHON_SDK))
    dynamic = _write_script(
        "pulumi-resource-pulumi-python",
        f'"${{{inline.PYTHON_COMMAND_VARIABLE}:-{sys.executable}}}" -u -m pulumi.dynamic',
    )
    found = [_find_installed(PULUMI), *built, dynamic]
    before = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*before, *(str(path.parent) for path in found if path)]))


def write_inline_cli(cli: Path) -> Path:
    """Return a program `pulumi` that runs this CLI without a language host for Python: see
    :mod:`lab.inline`.
    """
    return _write_script(PULUMI, f"'{sys.executable}' -P '{inline.__file__}' '{cli}'")


def _installation_folder() -> Path:
    return cache_folder() / "pulumi-cli"


def _find_installed(program: str) -> Path | None:
    """Return a program that was installed with the official CLI."""
    path = _installation_folder() / "bin" / program
    return path if path.is_file() else None


def _pulumi_home() -> Path:
    home = cache_folder() / "pulumi-home"
    home.mkdir(parents=True, exist_ok=True)
    return home


def _find_plugin_in_home(plugin: str) -> Path | None:
    return next((_pulumi_home() / "plugins").glob(f"{plugin.removeprefix('pulumi-')}-*/{plugin}"), None)


def _write_script(name: str, command: str) -> Path:
    """Write a program into the cache that runs another command; return its path."""
    text = f'#!/bin/sh\nexec {command} "$@"\n'
    program = cache_folder() / "scripts" / hashlib.sha256(text.encode()).hexdigest()[:8] / name
    if not program.exists():
        with hold_cache_lock("scripts"), fill_folder_atomically(program.parent) as folder:
            made = folder / name
            made.write_text(text)
            made.chmod(0o755)
    return program


def _run_installer(command: list[str]) -> None:
    try:
        subprocess.run(
            command,
            env={**os.environ, "PULUMI_HOME": str(_pulumi_home())},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_INSTALL_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        say(f"{' '.join(command[:3])} was ended after {_INSTALL_TIMEOUT_SECONDS} s")
