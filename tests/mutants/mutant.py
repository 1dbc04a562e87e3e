"""A mutant: a small change of the code that breaks one safety rule, and the tests of which one must then
fail.

Mutants stand in the ``.toml`` files beside this module. Old and new text are whole lines of the code: if the
code does not have the old lines any more, the mutant raises instead of changing something else.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The root of the repository."""

FOLDER = Path(__file__).parent

KEYS = frozenset({"rule", "file", "old", "new", "tests"})


class DoesNotApply(Exception):
    """The mutant cannot be applied to the code of today."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A small change of the code, and the tests that find it.

    :ivar rule: the safety rule that the change breaks.
    :ivar file: the file that is changed, from the repository's root.
    :ivar tests: pytest's ids; one of them fails with the change, and all pass without it.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return ``text``, the content of :attr:`file`, with the change applied.

        :raises DoesNotApply: the old lines are not in the text exactly once, the new ones are not valid
            Python, or both mean the same.
        """
        place = re.compile(f"^{re.escape(self.old)}", re.MULTILINE)
        found = place.findall(text)
        if len(found) != 1:
            times = "more than once" if found else "no more"
            raise DoesNotApply(
                f"{self.name}: its old lines stand {times} in {self.file}; write it again for the code of"
                f" today, so that it breaks this again: {self.rule}"
            )
        changed = place.sub(lambda _: self.new, text)
        if self.old.split() == self.new.split():
            raise DoesNotApply(f"{self.name}: {self.file} says the same with it")
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise DoesNotApply(f"{self.name}: {self.file} is no Python with it ({error})") from None
        return changed


def mutants(folder: Path = FOLDER) -> list[Mutant]:
    """Return all mutants, file by file.

    :raises ValueError: a mutant is incomplete, or two have the same name.
    """
    found: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        for name, written in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in found or written.keys() != KEYS or not written["tests"]:
                raise ValueError(f"{path.name}: {name} needs a name of its own and {', '.join(sorted(KEYS))}")
            found[name] = _read(name, written)
    return list(found.values())


def _read(name: str, written: Mapping[str, object]) -> Mutant:
    tests = written["tests"]
    assert isinstance(tests, list)
    rule, file, old, new = (str(written[key]) for key in ("rule", "file", "old", "new"))
    return Mutant(name, rule, file, old, new, tuple(map(str, tests)))
