"""Lets the built site carry all that its scripts load: a part of `make site`.

The generator's script fetches Mermaid, which draws the diagrams, from another host when a page with a diagram
is read. Here the site gets a copy, out of a package of the index that carries it. Every other address from
which that script would load something, for features that no page uses, is taken away.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
PACKAGES = ROOT / "build" / "site-diagrams"
MERMAID = "mermaidx/assets/mermaid.js"
SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
"""Of ``dist/mermaid.min.js`` of Mermaid 11.16.0 as its authors publish it: the package adds nothing."""

PLACE = "assets/javascripts/mermaid.min.js"
OWN = f'new URL("{PLACE}",__md_scope).href'
"""The address of the site's own copy, from whichever of its pages."""

LOADED = re.compile(r"""(["'`])https?://(?!www\.w3\.org/)[\w.-]+/[^"'`${\s]*\1""")
"""An address of another host in a script, but for names of XML; one with ``${`` asks nothing by itself."""


class Unexpected(Exception):
    """Generator or package are other ones than this knows; the message says what differs."""


def carried(script: str) -> str:
    """Return the generator's script, which loads nothing from another host.

    :raises Unexpected: it does not load Mermaid as it did.
    """
    own, found = re.subn(r'"https://[\w.-]+/mermaid@[\w.-]+/dist/mermaid\.min\.js"', OWN, script)
    if found != 1:
        raise Unexpected(f"the generator's script names Mermaid's address {found} times, and not once")
    return LOADED.sub('"data:,"', own)


def mermaid(packages: Path) -> bytes:
    """Return Mermaid, out of the one package in a folder.

    :raises Unexpected: it is not the one that was looked at.
    """
    (package,) = packages.glob("*.whl")
    with zipfile.ZipFile(package) as archive:
        script = archive.read(MERMAID)
    if (digest := hashlib.sha256(script).hexdigest()) != SHA256:
        raise Unexpected(f"{package.name}: {MERMAID} has the SHA-256 {digest}, and not {SHA256}")
    return script


def main() -> int:
    """Change the built site."""
    try:
        (SITE / PLACE).write_bytes(mermaid(PACKAGES))
        for path in (SITE / "assets" / "javascripts").glob("bundle.*.js"):
            path.write_text(carried(path.read_text(encoding="utf-8")), encoding="utf-8")
    except Unexpected as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
