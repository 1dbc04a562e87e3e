"""The SDK of each language, generated and compiled with the example of that language: `make sdks`.

No generated code is committed: users run `pulumi package add`, as this script does. A language whose tools
are not on PATH is left out, with the reason. No index of Debian, Python, Node, Go or Maven has the tools of
.NET. The workflow's machine has all, and the workflow fails unless every SDK is compiled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eurekube_provider.version import __version__
from lab.programs import PULUMI_PYTHON_SDK

ROOT = Path(__file__).parents[1]
PLUGIN_PATH = Path(sys.executable).with_name("pulumi-resource-eurekube")

_TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Language:
    """A language of Pulumi programs.

    :ivar example: the folder below ``examples``.
    :ivar tools: the programs that must be on PATH beside the CLI, the language host first.
    :ivar compile_command: the command that compiles program and SDK; none where nothing is compiled, or where
        `pulumi package add` has done so.
    """

    example: str
    tools: Sequence[str]
    compile_command: Sequence[str] = ()

    def missing_tools(self) -> str:
        """Return a sentence with the tools that are not on PATH; empty if all are."""
        found = [tool for tool in ("pulumi", *self.tools) if shutil.which(tool) is None]
        return f"not on PATH: {', '.join(found)}" if found else ""


LANGUAGES: Mapping[str, Language] = {
    "typescript": Language(
        "native-typescript",
        ("pulumi-language-nodejs", "node", "npm"),
        ("npx", "--no-install", "tsc", "--noEmit"),
    ),
    "go": Language(
        "native-go", ("pulumi-language-go", "go"), ("go", "build", "-buildvcs=false", "-o", "program", ".")
    ),
    "csharp": Language(
        "native-csharp", ("pulumi-language-dotnet", "dotnet"), ("dotnet", "build", "--nologo")
    ),
    "java": Language("native-java", ("pulumi-language-java", "java", "mvn")),
    "python": Language(
        "native-python",
        ("pulumi-language-python",),
        # Python itself finds a wrong argument only in a run.
        (sys.executable, "-m", "mypy", "--strict", "--config-file=", "__main__.py"),
    ),
    "yaml": Language("native-yaml", ("pulumi-language-yaml",)),
}


class SdkFailed(Exception):
    """An SDK cannot be generated, or does not compile; the message has the tool's output."""


def build_sdk(name: str, folder: Path, environment: Mapping[str, str]) -> Path:
    """Copy a language's example, add the SDK to it and compile both.

    :param folder: gets a folder of the example's name.
    :param environment: of the CLI.
    :returns: the project.
    :raises SdkFailed: a step failed.
    """
    language = LANGUAGES[name]
    project = folder / language.example
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(ROOT / "examples" / language.example, project)
    if name == "python":
        # No installation for it: the interpreter that runs has Pulumi.
        (project / ".venv").symlink_to(sys.prefix)
        sdk = str(generate_python_sdk(project / "sdks", environment))
        environment = {**environment, "PYTHONPATH": sdk, "MYPYPATH": sdk}
    elif name != "yaml":
        _run(("pulumi", "package", "add", str(PLUGIN_PATH)), project, environment)
    if language.compile_command:
        _run(language.compile_command, project, environment)
    return project


def generate_python_sdk(folder: Path, environment: Mapping[str, str]) -> Path:
    """Generate the SDK for Python, in the form of an installed package.

    Where Python's language host is missing, a program of the lab generates the SDK with the same library.

    :returns: the folder for the module path.
    :raises SdkFailed: it cannot be generated.
    """
    folder.mkdir(exist_ok=True)
    if shutil.which("pulumi-language-python", path=environment["PATH"]):
        generate = ("gen-sdk", str(PLUGIN_PATH), "--language", "python", "--out", str(folder))
        _run(("pulumi", "package", *generate), folder, environment)
    else:
        schema = folder / "schema.json"
        described = _run(("pulumi", "package", "get-schema", str(PLUGIN_PATH)), folder, environment)
        schema.write_text(described, encoding="utf-8")
        _run((PULUMI_PYTHON_SDK, str(schema), str(folder / "python")), folder, environment)
    installed = folder / "python" / f"pulumi_eurekube-{__version__}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: pulumi_eurekube\nVersion: {__version__}\n", encoding="utf-8"
    )
    return folder / "python"


def _run(command: Sequence[str], project: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        check=False,
        cwd=project,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
    )
    if done.returncode != 0:
        raise SdkFailed(f"{' '.join(command)} in {project}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def main() -> int:
    """Build the SDKs of all languages, or of the named ones; return 1 if one failed."""
    folder = ROOT / "build" / "sdks"
    (folder / "backend").mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_BACKEND_URL": (folder / "backend").as_uri(),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    failed = False
    for name in sys.argv[1:] or (each for each in LANGUAGES if each != "yaml"):
        if name not in LANGUAGES:
            print(f"{name}: there is no such language (there are {', '.join(LANGUAGES)})", file=sys.stderr)
            return 2
        reason = LANGUAGES[name].missing_tools()
        if reason:
            print(f"{name}: left out, {reason}", flush=True)
            continue
        try:
            project = build_sdk(name, folder, environment)
        except SdkFailed as error:
            print(f"{name}: failed\n{error}", file=sys.stderr)
            failed = True
        else:
            print(f"{name}: generated and compiled in {project.relative_to(ROOT)}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
