"""The pages about commands in docs/reference, written by `make commands`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import PurePosixPath
from textwrap import dedent

from eurekube_provider.cli.commands import COMMAND_SUMMARIES, load_command_parser
from eurekube_provider.cli.comparison_blocks import build_status_report, status_blocks
from eurekube_provider.cli.output import format_blocks
from scripts.sample_inventory import sample_inventory

COMMAND_EXAMPLES = {
    "status": """eurekube status                              # everything, worst first
eurekube status rating --output markdown     # one application, for a ticket
eurekube status --differences || page-me     # in a pipeline""",
    "watch": """eurekube watch --differences
eurekube watch rating --interval 5
eurekube watch --output json | jq --unbuffered .headline""",
    "plan": """eurekube plan
eurekube plan shop/rating --output json""",
    "instances": """eurekube instances rating
eurekube instances --status OUT_OF_SERVICE
eurekube instances --owner 'stack/acme/*' --output yaml
eurekube instances --address 10.0.0.17""",
    "explain": """eurekube explain rating
eurekube explain rating-7d4b9.shop.eks:rating:8080""",
}
"""Examples of the commands that have no page of their own."""

GUIDE_PAGES = {
    "doctor": "../guides/doctor.md",
    "drain": "../guides/doctor.md",
    "undrain": "../guides/doctor.md",
    "render": "pulumi.md",
    "apply": "pulumi.md",
    "remove": "pulumi.md",
    "summary": "../guides/automation.md",
    "drift": "../guides/automation.md",
    "keepalive": "pulumi.md",
    "operator": "flags.md",
}
"""Page with more about a command, by command."""

EXIT_CODES = (
    ("every command", "0 done; 1 failed, with one sentence on standard error; 2 wrong usage"),
    (
        "`status`, `plan`",
        "0 in sync, or nothing to do; 1 something differs; 2 Kubernetes or Eureka is missing or unread",
    ),
    ("`watch`", "0 ended by Ctrl-C or `--count`; 2 neither Kubernetes nor Eureka could be read at first"),
    ("`instances`", "0 listed; 1 nothing fits; 2 Eureka is missing or unread"),
    ("`explain`", "0 explained; 1 Eureka holds nothing of that name; 2 Eureka is missing or unread"),
    ("`doctor`", "0 all is well; 1 an error or a warning was found; 2 something could not be looked at"),
    ("`drain`, `undrain`", "0 done, and safe; 1 a caller may still find something UP, or may not find it"),
    ("`drift`", "0 no drift; 1 it could not be looked for; 2 drift"),
    ("`operator --once`", "0 all was reconciled; 1 not everything was"),
)
"""Meanings of the exit codes, by command."""


READ_ONLY_COMMANDS = ("demo", "status", "watch", "plan", "instances", "explain", "doctor")
"""Commands that only read, or run on servers of their own."""

_GENERATED_MARK = (
    "<!-- Written by `make commands` from eurekube_provider/cli and scripts/command_reference.py; do not "
    "edit. -->"
)


def commands_pages() -> dict[str, str]:
    """Return the pages of the commands in docs/reference, by file name."""
    return {"cli.md": _index_page(), "cli-look.md": _looking_page(), "cli-act.md": _acting_page()}


def _page_of_command(name: str) -> str:
    return "cli-look.md" if name in READ_ONLY_COMMANDS else "cli-act.md"


def _commands_table(names: Iterable[str]) -> str:
    rows = (
        f"| [`{name}`]({_page_of_command(name)}#eurekube-{name}) | {COMMAND_SUMMARIES[name]} |"
        for name in names
    )
    return "\n".join(("| command | what it does |", "|---|---|", *rows))


def _index_page() -> str:
    codes = "\n".join(f"| {which} | {meaning} |" for which, meaning in EXIT_CODES)
    return f"""# The command line

{_GENERATED_MARK}

`kubectl eurekube ...` is the same program as `eurekube ...`.

## Commands that look

They change nothing: [their options](cli-look.md).

{_commands_table(name for name in COMMAND_SUMMARIES if name in READ_ONLY_COMMANDS)}

## Commands that act

They change Eureka, a cluster or a stack, or run until they are stopped: [their options](cli-act.md).

{_commands_table(name for name in COMMAND_SUMMARIES if name not in READ_ONLY_COMMANDS)}

## Output

`--output table` is for people: colours and a cut last column on a terminal, neither in a pipe.
`NO_COLOR=1` switches colours off, `FORCE_COLOR=1` on. `json` and `yaml` have every sentence whole; keys
stay, and new ones may be added. `markdown` is for a ticket or a pull request. Long work shows on standard
error what it waits for, where that is a terminal.

## Exit codes

| command | exit code |
|---|---|
{codes}
"""


def _looking_page() -> str:
    shown = format_blocks(status_blocks(build_status_report(sample_inventory())), plain=True)
    commands = "\n".join(command_section(name) for name in COMMAND_SUMMARIES if name in READ_ONLY_COMMANDS)
    return f"""# Commands that look

{_GENERATED_MARK}

They change nothing. [All commands](cli.md), their output and exit codes.

## Both worlds

```
$ eurekube status
{shown}```

`status`, `watch`, `plan`, `instances` and `explain` only read. They take Eureka from `--eureka-url` or
`EUREKA_URL` and Kubernetes from the kubeconfig, as the operator and `doctor` do, with its variables for
credentials (`EUREKA_USER`, `EUREKA_PASSWORD`, `EUREKA_CA_FILE`, ...; [flags.md](flags.md)). With only one
of the two at hand they show what they can, and standard error says what is missing. Of Eureka they read
the list that every client gets, once from each server; it is up to 30 s old. `explain` reads the
instances that it explains one by one, past the servers' caches. No request leaves anything behind in a
server.

A syncer's instances are known by the name of their cluster. The commands learn that name from what the
syncer's operator has registered, so two operators may call one cluster by different names. Where nothing is
registered yet, it is the default name, or what `--cluster-name` says.

| state | means |
|---|---|
| `not ready` | callers find nothing although something is meant to be found, or no operator has looked |
| `not known` | no operator has looked, or the brake holds back all that is UP; nothing is lost meanwhile |
| `not synced` | Eureka does not hold what Kubernetes has; the reason says why |
| `synced` | Kubernetes and Eureka agree |
| `not compared` | a stack, another cluster or the application itself keeps it |

This is the order of the rows, too. WHY begins with a reason. It is that of the syncer's conditions
([EurekaSyncer](conditions.md#eurekasyncer)), or one that only a comparison of both gives
([beside the conditions](conditions.md#beside-the-conditions)). The line `to fix it:` says what to do.

{commands}"""


def _acting_page() -> str:
    commands = "\n".join(
        command_section(name) for name in COMMAND_SUMMARIES if name not in READ_ONLY_COMMANDS
    )
    return f"""# Commands that act

{_GENERATED_MARK}

They change Eureka, a cluster or a stack, or run until they are stopped. [All commands](cli.md), their output
and exit codes.

{commands}"""


def command_section(name: str) -> str:
    """Return the Markdown section about one command."""
    parser = load_command_parser(name)
    arguments = [one for one in parser.parameters if not one.option_strings]
    usage = " ".join(("eurekube", name, "[OPTIONS]", *map(_format_argument, arguments)))
    described = _format_paragraphs(parser.description or "")
    parts = [f"## `eurekube {name}`\n", f"```\n{usage}\n```\n", f"{described}\n"]
    if name in GUIDE_PAGES:
        parts.append(f"More: [{PurePosixPath(GUIDE_PAGES[name]).name}]({GUIDE_PAGES[name]}).\n")
    if name in COMMAND_EXAMPLES:
        parts.append(f"```sh\n{COMMAND_EXAMPLES[name]}\n```\n")
    options = [one for one in parser.parameters if one.option_strings]
    if name == "operator":
        parts.append(f"{len(options)} options: [flags.md](flags.md).\n")
    elif options:
        rows = ["| option | value | meaning |", "|---|---|---|"]
        for one in options:
            names = ", ".join(f"`{each}`" for each in one.option_strings)
            value = "" if one.nargs == 0 else f"`{one.metavar or ' '.join(map(str, one.choices or ()))}`"
            rows.append(f"| {names} | {value} | {(one.help or '').replace('%%', '%')} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _format_argument(argument: argparse.Action) -> str:
    shown = str(argument.metavar or f"{{{'|'.join(map(str, argument.choices or ()))}}}")
    return {"*": f"[{shown}]...", "?": f"[{shown}]"}.get(str(argument.nargs), shown)


def _format_paragraphs(text: str) -> str:
    """Return a description as Markdown: indented paragraphs as blocks, each other paragraph on one line."""
    found = []
    for paragraph in text.strip().split("\n\n"):
        is_formatted = paragraph.startswith(" ")
        found.append(f"```\n{dedent(paragraph)}\n```" if is_formatted else " ".join(paragraph.split()))
    return "\n\n".join(found)
