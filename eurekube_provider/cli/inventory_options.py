"""Options and reading of the commands that show Kubernetes and Eureka."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from eurekube_provider.cli.output import OutputFormat, console
from eurekube_provider.cli.terminal import complain
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.quoting import printable
from eurekube_provider.doctor.inventory_reader import Inventory, InventoryReader, Progress
from eurekube_provider.operator.options import help_of
from eurekube_provider.operator.settings import CONFIG, OPTIONS, Settings, settings_from

WELL, DIFFERS, COULD_NOT_READ = 0, 1, 2
"""Exit codes, those of ``eurekube doctor``: a part that could not be read outweighs a difference."""

_SETTINGS = ("config", "eureka-url", "kubeconfig", "context", "cluster-name", "cluster-domain")


def add_inventory_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster and Eureka to read, and for the output's format."""
    parser.add_argument(
        "--namespace", "-n", metavar="NAME[,NAME...]", help="The namespaces to look at. [all]"
    )
    named = {one.name: one for one in (CONFIG, *OPTIONS)}
    for name in _SETTINGS:
        sentence = help_of(named[name])
        sentence = f"{sentence[0].upper()}{sentence[1:]}"
        parser.add_argument(f"--{name}", metavar=named[name].metavar, help=sentence)
    outputs = list(map(str, OutputFormat))
    parser.add_argument(
        "--output", "-o", choices=outputs, default=str(OutputFormat.TABLE), help="How it is written. [table]"
    )


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings that the options give; without a connection if no Eureka is given.

    :param options: the options of :func:`add_inventory_options`.
    :raises ConfigurationError: an option cannot be used.
    """
    said = vars(options)
    flags = {key: said[key] for name in _SETTINGS if (key := name.replace("-", "_"))}
    return settings_from({**flags, "watch_namespace": options.namespace}, needs_eureka=False)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show the current read on standard error, within the context, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with console(sys.stderr).status("") as status:
        yield lambda sentence: status.update(printable(sentence))


@contextmanager
def reading(command: str, options: argparse.Namespace) -> Iterator[InventoryReader]:
    """Provide a reader of Kubernetes and Eureka, within the context; an error ends the command with one
    sentence.

    :raises SystemExit: with :data:`COULD_NOT_READ`.
    """
    try:
        with InventoryReader(settings_of(options)) as reader:
            yield reader
    except EurekubeError as error:
        complain(f"eurekube {command}: could not look: {error}")
        raise SystemExit(COULD_NOT_READ) from None


def read_once(command: str, options: argparse.Namespace) -> Inventory:
    """Read Kubernetes and Eureka once.

    :raises SystemExit: neither can be read.
    """
    with reading(command, options) as reader, shown_progress() as progress:
        inventory = reader.read(progress, asks_operators=command == "status")
    require_one(command, inventory)
    return inventory


def require_one(command: str, inventory: Inventory) -> None:
    """Report parts that are not configured or could not be read.

    :raises SystemExit: neither Kubernetes nor Eureka was read.
    """
    for sentence in inventory.missing:
        complain(f"eurekube {command}: {sentence}")
    for sentence in inventory.unread:
        complain(f"eurekube {command}: could not read {sentence}")
    if inventory.kubernetes is None and not inventory.instances:
        raise SystemExit(COULD_NOT_READ)


def exit_code(inventory: Inventory, *, differs: bool) -> int:
    """Return the exit code; :data:`COULD_NOT_READ` unless both Kubernetes and Eureka were read in full."""
    if not inventory.is_complete:
        return COULD_NOT_READ
    return DIFFERS if differs else WELL
