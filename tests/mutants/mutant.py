"""One small change of the code that breaks one safety rule, and the test that must fail for it.

Mutants stand in the ``.toml`` files beside this module. Old and new text are whole lines, as they stand in
the code: where the code has moved on, a mutant says so instead of changing something else.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository's."""

FOLDER = Path(__file__).parent

KEYS = frozenset({"rule", "file", "old", "new", "tests"})


class DoesNotApply(Exception):
    """The code is not what the mutant changes."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change and what finds it.

    :ivar rule: the sentence that holds no more with it.
    :ivar file: the file that is changed, from the repository's root.
    :ivar tests: pytest's ids; one of them fails with it, and all pass without.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """``text`` of :attr:`file` with the change.

        :raises DoesNotApply: the old lines are not there, or more than once; or the new ones are no Python,
            or say the same.
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
    """All of them, file by file.

    :raises ValueError: one is not complete, or two have the same name.
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
