"""Options and reading of the commands that show Kubernetes and Eureka."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from eurekube_provider.cli.output import OutputFormat, create_console
from eurekube_provider.cli.terminal import print_error_line
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.quoting import printable
from eurekube_provider.doctor.inventory_reader import Inventory, InventoryReader, ReportProgress
from eurekube_provider.operator.options import help_of
from eurekube_provider.operator.settings import ALL_OPTIONS, CONFIG_OPTION, load_settings

WELL_EXIT_CODE, DIFFERS_EXIT_CODE, COULD_NOT_READ_EXIT_CODE = 0, 1, 2
"""Exit codes, those of ``eurekube doctor``: a part that could not be read outweighs a difference."""

INVENTORY_SETTING_NAMES = ("config", "eureka-url", "kubeconfig", "context", "cluster-name", "cluster-domain")


def add_inventory_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster and Eureka to read, and for the output's format."""
    parser.add_argument(
        "--namespace", "-n", metavar="NAME[,NAME...]", help="The namespaces to look at. [all]"
    )
    named = {one.name: one for one in (CONFIG_OPTION, *ALL_OPTIONS)}
    for name in INVENTORY_SETTING_NAMES:
        sentence = help_of(named[name])
        sentence = f"{sentence[0].upper()}{sentence[1:]}"
        parser.add_argument(f"--{name}", metavar=named[name].metavar, help=sentence)
    outputs = list(map(str, OutputFormat))
    parser.add_argument(
        "--output", "-o", choices=outputs, default=str(OutputFormat.TABLE), help="How it is written. [table]"
    )


@contextmanager
def show_progress() -> Iterator[ReportProgress]:
    """Provide a function that shows a sentence on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with create_console(sys.stderr).status("") as status:
        yield lambda sentence: status.update(printable(sentence))


@contextmanager
def open_inventory_reader(command: str, options: argparse.Namespace) -> Iterator[InventoryReader]:
    """Provide a reader of Kubernetes and Eureka; an error becomes one sentence and SystemExit."""
    keys = (name.replace("-", "_") for name in INVENTORY_SETTING_NAMES)
    said = {**{key: getattr(options, key) for key in keys}, "watch_namespace": options.namespace}
    try:
        with InventoryReader(load_settings(said, needs_eureka=False)) as reader:
            yield reader
    except EurekubeError as error:
        print_error_line(f"eurekube {command}: could not look: {error}")
        raise SystemExit(COULD_NOT_READ_EXIT_CODE) from None


def read_inventory(command: str, options: argparse.Namespace) -> Inventory:
    """Read Kubernetes and Eureka once, or raise SystemExit if neither can be read."""
    with open_inventory_reader(command, options) as reader, show_progress() as progress:
        inventory = reader.read(progress, asks_operators=command == "status")
    exit_if_nothing_read(command, inventory)
    return inventory


def exit_if_nothing_read(command: str, inventory: Inventory) -> None:
    """Report parts that are not configured or were not read; raise SystemExit if nothing was read."""
    for sentence in inventory.missing_sources:
        print_error_line(f"eurekube {command}: {sentence}")
    for sentence in inventory.unread_parts:
        print_error_line(f"eurekube {command}: could not read {sentence}")
    if inventory.kubernetes is None and not inventory.instances:
        raise SystemExit(COULD_NOT_READ_EXIT_CODE)


def exit_code(inventory: Inventory, *, differs: bool) -> int:
    """Return the exit code: that Kubernetes or Eureka was not read in full outweighs a difference."""
    if not inventory.is_complete:
        return COULD_NOT_READ_EXIT_CODE
    return DIFFERS_EXIT_CODE if differs else WELL_EXIT_CODE
