"""The package's pages for Pulumi's registry, written into plugin/docs by `make reference`.

Their programs come from `examples`, which `make sdks` compiles, so that no page shows a program that does not
compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eurekube_provider.provider.configuration import CONFIGURATION_KEYS
from eurekube_provider.registrations.connections import OFFLINE_VARIABLE, SETTING_NAMES_BY_CONNECTION_FIELD
from eurekube_provider.version import __version__

ROOT = Path(__file__).parents[1]
REGISTRY_DOCS_FOLDER = ROOT / "plugin" / "docs"

EXAMPLE_PROGRAMS: Mapping[str, tuple[str, str]] = {
    "typescript": ("typescript", "native-typescript/index.ts"),
    "python": ("python", "native-python/__main__.py"),
    "go": ("go", "native-go/main.go"),
    "csharp": ("csharp", "native-csharp/Program.cs"),
    "java": ("java", "native-java/src/main/java/shop/App.java"),
    "yaml": ("yaml", "native-yaml/Pulumi.yaml"),
}
"""Language of the code block, and path of the example, by the registry's name of a language."""

_ENVIRONMENT_VARIABLES = {
    **{
        name: f"EUREKA_{written.upper().replace('-', '_')}"
        for name, written in SETTING_NAMES_BY_CONNECTION_FIELD.items()
    },
    "offline": OFFLINE_VARIABLE,
}


def index_page() -> str:
    """Return the text of ``_index.md``: an introduction to the package, and a program in each language."""
    choices = "".join(
        _chooser_section(name, code, _read_example(path)) for name, (code, path) in EXAMPLE_PROGRAMS.items()
    )
    return (
        "---\ntitle: Eurekube\nmeta_desc: Registrations in Netflix Eureka as Pulumi resources, for programs "
        "in every language.\nlayout: package\n---\n\nThe Eurekube provider registers instances in Netflix "
        "Eureka for a stack, which owns them. An operator, `eurekube keepalive` or the application sends "
        "their renewals. The registrations are found by Spring Cloud's and by all other clients of "
        "Eureka.\n\n## Example\n\n"
        f'{{{{< chooser language "{",".join(EXAMPLE_PROGRAMS)}" >}}}}\n{choices}{{{{< /chooser >}}}}\n'
    )


def installation_page() -> str:
    """Return ``installation-configuration.md``: how to get plugin and SDK, and each key of the
    configuration.
    """
    rows = "".join(
        f"| `eurekube:{name}` | "
        f"{f'`{_ENVIRONMENT_VARIABLES[name]}`' if name in _ENVIRONMENT_VARIABLES else ''} |"
        f" {'yes' if key.is_secret else ''} | {key.description} |\n"
        for name, key in CONFIGURATION_KEYS.items()
    )
    return (
        "---\ntitle: Eurekube Installation & Configuration\nmeta_desc: How to install the Eurekube provider "
        "and how to configure it.\nlayout: package\n---\n\n## Installation\n\nThe plugin needs Python 3.11 "
        "or later on PATH. A release has an archive for each system, architecture and minor version of "
        "Python, which carries its libraries:\n\n```bash\npulumi plugin install resource eurekube "
        f"{__version__} --file pulumi-resource-eurekube-v{__version__}-linux-amd64-cp312.tar.gz\npulumi "
        "package add eurekube\n```\n\nThe second command makes the SDK for the language of the program and "
        "adds it to the project; YAML needs none.\n\n## Configuration\n\n```bash\npulumi config set "
        "eurekube:url https://eureka.example.com/eureka\npulumi config set eurekube:user pulumi\npulumi "
        "config set --secret eurekube:password\n```\n\n"
        "| key | environment | secret | what it is |\n|---|---|---|---|\n" + rows
    )


def render_pages() -> dict[Path, str]:
    """Return the text of each page, by path."""
    return {
        REGISTRY_DOCS_FOLDER / "_index.md": index_page(),
        REGISTRY_DOCS_FOLDER / "installation-configuration.md": installation_page(),
    }


def _chooser_section(name: str, code: str, program: str) -> str:
    """Return one language's program for the registry's language chooser."""
    begins, ends = (f"{{{{% {word} %}}}}" for word in (f"choosable language {name}", "/choosable"))
    return f"{begins}\n\n```{code}\n{program}```\n\n{ends}\n"


def _read_example(path: str) -> str:
    return (ROOT / "examples" / path).read_text(encoding="utf-8")
