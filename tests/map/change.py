"""A usual change of the code, as the edits that make it and the tests that it must pass.

Changes stand in the ``.toml`` files beside this module. An edit replaces whole lines of a file: if the file
does not have those lines any more, the edit raises instead of changing something else.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The root of the repository."""

FOLDER = Path(__file__).parent


class DoesNotApply(Exception):
    """An edit's old lines are not in the file exactly once."""


@dataclass(frozen=True, slots=True)
class Edit:
    """New lines that replace old ones in a file, or a whole new file if there are no old lines."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return ``text``, the content of :attr:`file`, with the edit applied.

        :raises DoesNotApply: the old lines are not there, or more than once.
        """
        place = re.compile(f"^{re.escape(self.old)}", re.MULTILINE)
        found = len(place.findall(text))
        if found != 1:
            raise DoesNotApply(f"{self.file} has these lines {found} times, not once:\n{self.old}")
        return place.sub(lambda _: self.new, text)


@dataclass(frozen=True, slots=True)
class Change:
    """One usual change of the code.

    :ivar title: the change in words.
    :ivar example: the addition that the edits make.
    :ivar edits: all edits, those of tests included.
    :ivar tests: pytest's ids: they pass with all edits, and one fails if the edits of any file are left out.
    :ivar written: generated files by path, each with the command that writes it.
    """

    name: str
    title: str
    example: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    written: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> Mapping[str, int]:
        """The number of new lines in each file that a person must edit, tests left out."""
        return {file: count for file, count in self.files.items() if file not in self.written}

    @property
    def files(self) -> Mapping[str, int]:
        """The number of new lines in each file but tests; 0 for generated files that no edit touches."""
        lines = Counter[str]()
        for edit in self.edits:
            if not edit.file.startswith("tests/"):
                before = edit.old.splitlines()
                lines[edit.file] += sum(line not in before for line in edit.new.splitlines())
        lines.update(dict.fromkeys(self.written, 0))
        return lines

    def without(self, file: str) -> Change:
        """Return the change without its edits of one file."""
        kept = tuple(edit for edit in self.edits if edit.file != file)
        return replace(self, edits=kept)

    def applied(self, read: Callable[[str], str]) -> dict[str, str]:
        """Return the new text of each file.

        :param read: gives the text of a file by its path from the repository's root.
        :raises DoesNotApply: the code is not what an edit changes.
        """
        texts: dict[str, str] = {}
        for edit in self.edits:
            if edit.old:
                before = texts.get(edit.file)
                texts[edit.file] = edit.applied(read(edit.file) if before is None else before)
            else:
                texts[edit.file] = edit.new
        return texts


def changes(folder: Path = FOLDER) -> list[Change]:
    """Read all changes, in the order of their files."""
    return [_read(path) for path in sorted(folder.glob("*.toml"))]


def _read(path: Path) -> Change:
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    edits = tuple(Edit(one["file"], one.get("old", ""), one["new"]) for one in written["edits"])
    tests, by_command = tuple(written["tests"]), written.get("written", {})
    return Change(path.stem, written["title"], written["example"], edits, tests, by_command)
