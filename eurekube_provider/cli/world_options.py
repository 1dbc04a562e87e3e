"""The options of the commands that look at both worlds, and how they read them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from eurekube_provider.cli.output import OutputFormat, console
from eurekube_provider.cli.terminal import complain
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.quoting import printable
from eurekube_provider.doctor.worlds_reader import Progress, Worlds, WorldsReader
from eurekube_provider.operator.options import variable
from eurekube_provider.operator.settings import CONFIG, OPTIONS, Settings, settings_from

WELL, DIFFERS, COULD_NOT_READ = 0, 1, 2
"""Exit codes, those of ``eurekube doctor``: what could not be looked at counts more than what was found."""

_SETTINGS = ("config", "eureka-url", "kubeconfig", "context", "cluster-name", "cluster-domain")

_F = TypeVar("_F", bound=Callable[..., Any])


def world_options(function: _F) -> _F:
    """Add the options that say which worlds are looked at, and how they are shown."""
    for add in reversed(_options()):
        function = add(function)
    return function


def _options() -> list[Callable[[_F], _F]]:
    named = {one.name: one for one in (CONFIG, *OPTIONS)}
    found: list[Callable[[_F], _F]] = [
        click.option("--namespace", "-n", metavar="NAME[,NAME...]", help="The namespaces to look at. [all]")
    ]
    for name in _SETTINGS:
        one = named[name]
        default = f" [{one.shown_default}]" if one.shown_default else ""
        also = f"; {variable(name)}" if one.variable else ""
        sentence = f"{one.help[0].upper()}{one.help[1:]}{default}{also}"
        found.append(click.option(f"--{name}", metavar=one.metavar, help=sentence))
    found.append(
        click.option(
            "--output",
            "-o",
            type=click.Choice([str(one) for one in OutputFormat]),
            default=str(OutputFormat.TABLE),
            help="How it is written. [table]",
        )
    )
    return found


def settings_of(options: dict[str, Any]) -> Settings:
    """Read the settings that the options name; no connection where nobody gave an Eureka.

    :param options: those of :func:`world_options`, as click has them.
    :raises ConfigurationError: one of them cannot be used.
    """
    flags = {name.replace("-", "_"): options.get(name.replace("-", "_")) for name in _SETTINGS}
    return settings_from({**flags, "watch_namespace": options.get("namespace")}, needs_eureka=False)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show on standard error what is under way, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with console(sys.stderr).status("") as status:
        yield lambda sentence: status.update(printable(sentence))


@contextmanager
def reading(command: str, options: dict[str, Any]) -> Iterator[WorldsReader]:
    """Have both worlds at hand; what keeps that from happening ends the command with one sentence.

    :raises SystemExit: with :data:`COULD_NOT_READ`.
    """
    try:
        with WorldsReader(settings_of(options)) as reader:
            yield reader
    except EurekubeError as error:
        complain(f"eurekube {command}: could not look: {error}")
        raise SystemExit(COULD_NOT_READ) from None


def read_once(command: str, options: dict[str, Any]) -> Worlds:
    """Read both worlds.

    :raises SystemExit: neither can be read.
    """
    with reading(command, options) as reader, shown_progress() as progress:
        worlds = reader.read(progress)
    require_one(command, worlds)
    return worlds


def require_one(command: str, worlds: Worlds) -> None:
    """Say what is missing or could not be read.

    :raises SystemExit: nothing was read at all.
    """
    for sentence in worlds.missing:
        complain(f"eurekube {command}: {sentence}")
    for sentence in worlds.unread:
        complain(f"eurekube {command}: could not read {sentence}")
    if worlds.kubernetes is None and not worlds.instances:
        raise SystemExit(COULD_NOT_READ)


def exit_code(worlds: Worlds, *, differs: bool) -> int:
    """The code that says what was found; of worlds that were not both read nothing can be said."""
    if not worlds.is_complete:
        return COULD_NOT_READ
    return DIFFERS if differs else WELL
