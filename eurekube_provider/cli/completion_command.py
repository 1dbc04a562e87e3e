"""The command ``eurekube completion``, by which a shell completes commands and options. It asks no server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from eurekube_provider.cli.commands import COMMAND_SUMMARIES, load_command_parser, program_parser
from eurekube_provider.cli.terminal import print_text

_NO_FILE_COMPLETION_DIRECTIVE = 4
"""kubectl's directive (cobra's ShellCompDirectiveNoFileComp) that forbids completion with file names."""

_BASH_SCRIPT = r"""_eurekube() {
    local IFS=$'\n'
    COMPREPLY=($(kubectl_complete-eurekube "${COMP_WORDS[@]:1:COMP_CWORD}" | sed '$d' | cut -f 1))
}
complete -o nosort -F _eurekube eurekube
"""
_ZSH_SCRIPT = r"""#compdef eurekube
_eurekube() {
    local -a found
    found=(${(f)"$(kubectl_complete-eurekube "${(@)words[2,CURRENT]}" | sed '$d')"})
    found=(${${found//:/\\:}/$'\t'/:})
    _describe -V command found
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _eurekube "$@"; else compdef _eurekube eurekube; fi
"""
_FISH_SCRIPT = r"""function _eurekube
    set -l words (commandline --cut-at-cursor --tokenize --current-process) "$(commandline --current-token)"
    kubectl_complete-eurekube $words[2..] | string match --invert ':*'
end
complete --no-files --command eurekube --arguments '(_eurekube)'
"""
COMPLETION_SCRIPTS = {"bash": _BASH_SCRIPT, "zsh": _ZSH_SCRIPT, "fish": _FISH_SCRIPT}
"""The completion script of each shell; it asks the same program that answers kubectl."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Print the script that has a shell complete commands and options. It asks no server.

  bash  eurekube completion bash >> ~/.bashrc     (bash 4.4 or newer)
  zsh   eurekube completion zsh >> ~/.zshrc
  fish  eurekube completion fish > ~/.config/fish/completions/eurekube.fish

kubectl completes `kubectl eurekube` by itself: it asks the program kubectl_complete-eurekube.
"""
    parser.add_argument("shell", choices=list(COMPLETION_SCRIPTS), help="Whose script.")


def run(options: argparse.Namespace) -> None:
    print_text(COMPLETION_SCRIPTS[options.shell])


def complete_for_kubectl() -> int:
    """Print what may follow ``kubectl_complete-eurekube WORD... INCOMPLETE``; return the exit code."""
    *words, incomplete = sys.argv[1:] or [""]
    for value, description in completions(words, incomplete):
        print_text(f"{value}\t{description}\n" if description else f"{value}\n")
    print_text(f":{_NO_FILE_COMPLETION_DIRECTIVE}\n")
    return 0


def completions(words: Sequence[str], incomplete: str) -> list[tuple[str, str]]:
    """Return the completions of a word after other words, each with a description."""
    start = incomplete.lower()
    return [one for one in _possible_completions(words, start) if one[0].lower().startswith(start)]


def _possible_completions(words: Sequence[str], start: str) -> Iterator[tuple[str, str]]:
    """Yield what may follow ``words``, whatever it begins with, each with a description."""
    if not words:
        yield from COMMAND_SUMMARIES.items()
    elif words[0] not in COMMAND_SUMMARIES:
        return
    parameters = (load_command_parser(words[0]) if words else program_parser()).parameters
    last = next((one for one in parameters if words and words[-1] in one.option_strings), None)
    if last is not None and last.nargs is None:
        yield from _choice_completions(last)
    elif start.startswith("-"):
        for one in parameters:
            is_given = not set(one.option_strings).isdisjoint(words)
            if not is_given or isinstance(one.default, list):  # which may be repeated
                yield from ((name, str(one.help).replace("%%", "%")) for name in one.option_strings)
    elif words:
        for one in parameters:
            if not one.option_strings:
                yield from _choice_completions(one)


def _choice_completions(parameter: argparse.Action) -> Iterator[tuple[str, str]]:
    return ((str(one), "") for one in parameter.choices or ())
