"""The parts of docs/ that are generated from settings, properties and commands: `make flags`, `make
properties`, `make commands`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eurekube_provider.operator.options import CONNECTION_OPTIONS, Option, environment_variable_name
from eurekube_provider.operator.settings import ALL_OPTIONS, CONFIG_OPTION
from eurekube_provider.operator.triggers.targets import (
    COMMON_TARGET_OPTIONS,
    OPTIONS_BY_TARGET_KIND,
    REQUIRED_KEYS_BY_TARGET_KIND,
)
from eurekube_provider.registrations.properties import PROPERTIES
from scripts.command_reference import commands_pages

REFERENCE_FOLDER = Path(__file__).parents[1] / "docs" / "reference"

PROGRAM_PROPERTIES = ("service_url", "owner")
"""Properties that a running program adds, and that are no arguments."""


def flags_page() -> str:
    """Return the text of ``docs/reference/flags.md``."""
    below = (f"`{option.name}`" for option in CONNECTION_OPTIONS)
    return f"""# The operator's settings

<!-- Written by `make flags` from eurekube_provider/operator/settings.py; do not edit. -->

Every setting is a flag, an environment variable and a key of the file that `--config` names; a key is the
flag without its dashes. A flag wins over the environment, the environment over the file, the file over the
default. An empty value counts as not set.

{options_table((CONFIG_OPTION, *ALL_OPTIONS))}
Secrets are no flags and stand in no configuration file. They come from the variables `EUREKA_PASSWORD` and
`EUREKA_TOKEN`, or from files of their own, which the flags that end with `-file` name.

Where the flag takes commas, the file takes a list, too. `connections` exists in the file only: Eureka
clusters by name, each with the keys
{", ".join(below)}.
The one called `default` is what the `eureka-` flags describe, so that those win over its keys. Paths are
relative to the working directory.

```yaml
watch-namespace: [shop, billing]
log-level: DEBUG
connections:
  default:
    url: [https://eureka-1.example.com/eureka, https://eureka-2.example.com/eureka]
    user: eurekube
    password-file: /etc/eurekube/password
    ca-file: /etc/eurekube/ca.crt
  legacy:
    url: http://eureka.legacy.example.com:8761/eureka/v2
    mode: rest
```

`targets` exists in the file only, too: what StackRefreshes may have run, see
[triggers.md](../guides/triggers.md).

{target_keys_table()}"""


def options_table(options: Iterable[Option]) -> str:
    """Return a table of the options."""
    lines = ["| flag | variable | value | meaning | default |", "|---|---|---|---|---|"]
    for option in options:
        also = f"`{environment_variable_name(option.name)}`" if option.has_environment_variable else ""
        cells = (f"`--{option.name}`", also, f"`{option.metavar}`", option.help, option.default_in_help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def target_keys_table() -> str:
    """Return the table of the keys of each kind of target."""
    lines = ["| kind | key | value | meaning | default |", "|---|---|---|---|---|"]
    for kind, options in (("all", COMMON_TARGET_OPTIONS), *OPTIONS_BY_TARGET_KIND.items()):
        required = ("kind", "namespaces", *REQUIRED_KEYS_BY_TARGET_KIND.get(kind, ()))
        for option in options:
            default = "required" if option.name in required else option.default_in_help
            cells = (
                kind if kind == "all" else f"`{kind}`",
                f"`{option.name}`",
                f"`{option.metavar}`",
                option.help,
                default,
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def properties_table() -> str:
    """Return the table of properties for docs/reference/pulumi.md."""
    rows = ["| property | default | what it means |", "|---|---|---|"]
    for each in PROPERTIES:
        if each.name in PROGRAM_PROPERTIES:
            continue
        default = each.default_text or ("required" if each.is_required else _format_default(each.default))
        rows.append(f"| `{each.name}` | {default} | {each.description} |")
    return "\n".join(rows) + "\n"


def _format_default(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if default is None:
        return "none"
    return f"`{default}`" if isinstance(default, str) else str(default)


if __name__ == "__main__":
    if sys.argv[1:] == ["flags"]:
        (REFERENCE_FOLDER / "flags.md").write_text(flags_page())
    elif sys.argv[1:] == ["commands"]:
        for name, page in commands_pages().items():
            (REFERENCE_FOLDER / name).write_text(page)
    else:
        properties = REFERENCE_FOLDER / "pulumi.md"
        text = properties.read_text()
        properties.write_text(
            re.sub(r"\| property \|.*?\n(?=\n)", lambda _: properties_table(), text, count=1, flags=re.S)
        )
