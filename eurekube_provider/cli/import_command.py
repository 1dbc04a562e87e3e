"""The command ``eurekube import``, which prints a program that takes over an application's instances.

Texts that anyone registered in Eureka become quoted text here, never code, a comment or a reference.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.cli.terminal import print_error_line, print_text
from eurekube_provider.core.errors import ConfigurationError, RegistryRejected
from eurekube_provider.core.identity import StackOwner, owner_in_words
from eurekube_provider.core.model import Instance
from eurekube_provider.core.wording import format_list
from eurekube_provider.eureka.overrides import read_listed_instances
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.connections import configured_connection
from eurekube_provider.registrations.importing import import_application, import_instance
from eurekube_provider.registrations.names import rename_properties, to_camel_case
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.resource import FoundResource
from eurekube_provider.registrations.servers import SHARED_PEERS

_PLACEHOLDER_OWNER = StackOwner("-", "-", "-", "-")
"""A placeholder owner: the stack is not known here, and instances of any stack are left to it."""

_CREDENTIAL_KEY_PATTERN = re.compile("pass|secret|token|credential", re.IGNORECASE)
_MAX_LISTED_INSTANCES = 5

_NATIVE_INSTRUCTIONS_TEMPLATE = """\
# {what} in Eureka. What adopts it changes nothing but whose it is:
#   {command}
#   pulumi import --file {file} --protect=false
# Then put this into the program in place of what the import printed, and run `pulumi up`, which adopts it.
# {conflict} may go afterwards.
"""
_DYNAMIC_INSTRUCTIONS_TEMPLATE = """\
# {what} in Eureka. `pulumi up` adopts it, which changes nothing but whose it is. {conflict} may go
# afterwards.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a program that asks for everything an application has in Eureka and no Eurekube owns, so that"
        " a stack can adopt it; with --file also write what `pulumi import --file` reads. Changes nothing."
        " What belongs to a syncer or to a stack is left out, and named on standard error. Credentials for"
        " Eureka are read from the environment (EUREKA_USER, EUREKA_PASSWORD, EUREKA_CA_FILE ...)."
    )
    parser.add_argument("application", metavar="APPLICATION", help="its name in Eureka")
    parser.add_argument("--eureka-url", metavar="URL[,URL...]", help="the Eureka servers [EUREKA_URL]")
    parser.add_argument("--provider", choices=("native", "dynamic"), default="native", help="[native]")
    parser.add_argument("--language", choices=("python", "yaml"), default="python", help="[python]")
    parser.add_argument(
        "--one-by-one",
        action="store_true",
        help="an Instance for each registration, in place of one Application for all",
    )
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="write the file for `pulumi import --file`; must be new"
    )


def run(options: argparse.Namespace) -> None:
    """Print the program that adopts an application's instances.

    :raises ArgumentError: options conflict.
    :raises ConfigurationError: there is no URL, a file cannot be written, or a program
        could not ask for the instances.
    :raises RegistryError: Eureka cannot be asked, or has no instance that can be imported.
    """
    if options.provider == "dynamic" and options.language != "python":
        raise argparse.ArgumentError(None, "--language: the dynamic provider has Python only")
    if options.provider == "dynamic" and options.file:
        reason = "--file: pulumi import knows no dynamic resources; `pulumi up` adopts them"
        raise argparse.ArgumentError(None, reason)
    connection = configured_connection(lambda _: None, service_url=options.eureka_url)
    resources = list(_read_resources(SHARED_PEERS.get(connection), options))
    if not resources:
        raise RegistryRejected(f"what Eureka listed of {options.application!r} is gone by now")
    if options.file:
        try:
            with options.file.open("x", encoding="utf-8") as file:
                file.write(format_import_file(resources))
        except OSError as error:
            raise ConfigurationError(f"--file {options.file}: {error.strerror}") from None
    print_text(format_program(resources, options))


def format_program(resources: Sequence[ProgramResource], options: argparse.Namespace) -> str:
    """Return the program's text, with instructions as comments above it."""
    # An application's name is somebody's text: quoted, it stays inside of the comment.
    shown = repr(str(options.application))
    if options.provider == "dynamic":
        steps = _DYNAMIC_INSTRUCTIONS_TEMPLATE.format(what=shown, conflict="on_conflict")
        return f"{steps}{dynamic_python_program(resources)}"
    language = "" if options.language == "python" else f" --language {options.language}"
    each = " --one-by-one" if options.one_by_one else ""
    file = repr(str(options.file)) if options.file else "imports.json"
    again = f"eurekube import {shown}{language}{each} --file {file}"
    steps = _NATIVE_INSTRUCTIONS_TEMPLATE.format(
        what=shown,
        command=f"{again} (done)" if options.file else again,
        file=file,
        conflict="onConflict" if options.language == "yaml" else "on_conflict",
    )
    return steps + (native_yaml_resources if options.language == "yaml" else native_python_program)(resources)


def _read_resources(peers: Peers, options: argparse.Namespace) -> Iterator[ProgramResource]:
    free = _read_unowned_instances(peers, options.application)
    url = ",".join(peer.url for peer in peers.peers)
    name = unique_resource_name(options.application.lower())
    if not options.one_by_one:
        found = import_application(options.application, _PLACEHOLDER_OWNER, url, peers)
        if found is not None:
            yield _build_resource("Application", name, options.application.upper(), found)
        return
    taken: set[str] = set()
    for each in free:
        id_ = "/".join(each.key)
        found = import_instance(id_, _PLACEHOLDER_OWNER, url, peers)
        if found is not None:
            own = unique_resource_name(f"{name}-{each.instance_id}", taken)
            taken.add(own)
            yield _build_resource("Instance", own, id_, found)


def _build_resource(kind: str, name: str, id_: str, found: FoundResource) -> ProgramResource:
    asked = found.inputs
    metadata = [
        asked.get("metadata"),
        *(each.get("metadata") for each in asked.get("instances", {}).values()),
    ]
    keys = {key for each in metadata for key in each or () if _CREDENTIAL_KEY_PATTERN.search(key)}
    if keys:
        print_error_line(
            f"eurekube import: metadata {', '.join(sorted(keys))} of {name} may be credentials: they stand in"
            " clear in Eureka and in this program; give them as secrets from the stack's configuration"
        )
    return ProgramResource(kind, name, id_, asked)


def _read_unowned_instances(peers: Peers, application: str) -> list[Instance]:
    """Return an application's instances that no Eurekube owns, or raise; name the others."""
    everything = peers.list_instances()
    there = sorted(
        (one for one in everything if one.application == application.upper()), key=lambda each: each.key
    )
    if not there:
        near = get_close_matches(application.upper(), {one.application for one in everything}, n=1)
        hint = f" ({near[0]} is one)" if near else ""
        raise RegistryRejected(
            f"Eureka lists no application {application!r}{hint}; what was registered within the last 30 s "
            "may not be listed yet"
        )
    others = [one for one in there if one.owner]
    for one in others[:_MAX_LISTED_INSTANCES]:
        print_error_line(
            f"eurekube import: left out {'/'.join(one.key)}, which belongs to {owner_in_words(one.owner)}"
        )
    if len(others) > _MAX_LISTED_INSTANCES:
        print_error_line(
            f"eurekube import: left out {len(others) - _MAX_LISTED_INSTANCES} more that belong to others"
        )
    named = read_listed_instances(peers, [one for one in there if not one.owner])
    for one in (*named.unreadable, *(one for one in named.registered if one.unreadable)):
        print_error_line(f"eurekube import: left out {one.application} {one.instance_id!r}: {one.unreadable}")
    for one in named.only_listed:
        print_error_line(
            f"eurekube import: left out {'/'.join(one.key)}, which Eureka lists and no server holds: the list"
            " may be a minute older than that"
        )
    free = [one for one in named.registered if not one.unreadable]
    if not free and not others:
        raise RegistryRejected(f"nothing of {application!r} can be imported: see what was left out")
    if not free:
        owners = sorted({owner_in_words(one.owner) for one in others})
        raise RegistryRejected(
            f"nothing of {application!r} can be imported: all of it belongs to "
            f"{format_list(owners, _MAX_LISTED_INSTANCES)}"
        )
    return free


INDENT = "    "


@dataclass(frozen=True, slots=True)
class ProgramResource:
    """One resource of a program.

    :ivar kind: ``Instance`` or ``Application``.
    :ivar id: the id for ``pulumi import``.
    :ivar properties: the properties that a person would write, in snake case.
    """

    kind: str
    name: str
    id: str
    properties: Properties


def native_python_program(resources: Iterable[ProgramResource]) -> str:
    """Return a program for the SDK that ``pulumi package add`` makes."""
    lines = ["import pulumi_eurekube as eurekube", ""]
    for each in resources:
        given = [f"{INDENT}{key}={_python_literal(value, 1)},\n" for key, value in each.properties.items()]
        lines.append(f"eurekube.{each.kind}(\n{INDENT}{_python_string(each.name)},\n{''.join(given)})")
    return "\n".join(lines) + "\n"


def dynamic_python_program(resources: Sequence[ProgramResource]) -> str:
    """Return a program for the dynamic provider, which needs no plugin."""
    kinds = sorted({f"Eureka{each.kind}" for each in resources})
    lines = [f"from eurekube_provider import {', '.join(kinds)}", ""]
    for each in resources:
        given = _python_literal(each.properties, 1)
        lines.append(f"Eureka{each.kind}(\n{INDENT}{_python_string(each.name)},\n{INDENT}{given},\n)")
    return "\n".join(lines) + "\n"


def native_yaml_resources(resources: Iterable[ProgramResource]) -> str:
    """Return the resources for Pulumi.yaml below ``runtime: yaml``."""
    made = {
        each.name: {
            "type": f"eurekube:{each.kind}",
            "properties": _escape_pulumi_references(rename_properties(each.properties, to_camel_case)),
        }
        for each in resources
    }
    text: str = yaml.safe_dump({"resources": made}, sort_keys=False, allow_unicode=False)
    return text


def format_import_file(resources: Iterable[ProgramResource]) -> str:
    """Return the input of ``pulumi import --file``."""
    found = [{"type": f"eurekube:index:{each.kind}", "name": each.name, "id": each.id} for each in resources]
    return json.dumps({"resources": found}, indent=2) + "\n"


def unique_resource_name(text: str, taken: Iterable[str] = ()) -> str:
    """Return a resource name made from ``text`` that is not among ``taken``."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "unnamed"
    used, number, result = set(taken), 2, name
    while result in used:
        result, number = f"{name}-{number}", number + 1
    return result


def _python_string(text: str) -> str:
    """Return a text as a Python literal; only ASCII, so that no character can be mistaken for another."""
    escaped = text.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'


def _python_literal(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = INDENT * (depth + 1)
        items = (
            f"{inner}{_python_string(str(key))}: {_python_literal(item, depth + 1)},\n"
            for key, item in value.items()
        )
        return f"{{\n{''.join(items)}{INDENT * depth}}}"
    return _python_string(value) if isinstance(value, str) else repr(value)


def _escape_pulumi_references(value: Any) -> Any:
    """Return a value whose texts have each ``${`` escaped, so that Pulumi finds no reference."""
    if isinstance(value, Mapping):
        return {key: _escape_pulumi_references(item) for key, item in value.items()}
    return value.replace("${", "$${") if isinstance(value, str) else value
