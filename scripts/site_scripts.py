"""A copy of all scripts that the built site would load from other hosts: a part of `make site`.

The generator's script fetches Mermaid, which draws the diagrams, from another host when a page with a diagram
is opened. Here the site gets a copy, from a package of the package index that contains it. Every other
address from which that script would load something, for features that no page uses, is removed.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
PACKAGES_FOLDER = ROOT / "build" / "site-diagrams"
MERMAID_IN_PACKAGE = "mermaidx/assets/mermaid.js"
MERMAID_SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
"""SHA-256 of ``dist/mermaid.min.js`` of Mermaid 11.16.0 as its authors publish it: the package's copy is
the same.
"""

MERMAID_SITE_PATH = "assets/javascripts/mermaid.min.js"
MERMAID_URL_EXPRESSION = f'new URL("{MERMAID_SITE_PATH}",__md_scope).href'
"""JavaScript expression for the address of the site's own copy, valid on each of its pages."""

FOREIGN_ADDRESS_PATTERN = re.compile(r"""(["'`])https?://(?!www\.w3\.org/)[\w.-]+/[^"'`${\s]*\1""")
"""Pattern of another host's address in a script, except XML namespaces; an address with ``${`` is no whole
one.
"""


class UnexpectedContent(Exception):
    """The generator or the package differs from the known one; the message says how."""


def replace_foreign_addresses(script: str) -> str:
    """Return the generator's script, changed to load nothing from another host.

    :raises UnexpectedContent: it does not load Mermaid from exactly one address.
    """
    own, found = re.subn(
        r'"https://[\w.-]+/mermaid@[\w.-]+/dist/mermaid\.min\.js"', MERMAID_URL_EXPRESSION, script
    )
    if found != 1:
        raise UnexpectedContent(f"the generator's script names Mermaid's address {found} times, and not once")
    return FOREIGN_ADDRESS_PATTERN.sub('"data:,"', own)


def read_mermaid_script(packages: Path) -> bytes:
    """Return Mermaid's script from the only package in a folder.

    :raises UnexpectedContent: its checksum differs from the known one.
    """
    (package,) = packages.glob("*.whl")
    with zipfile.ZipFile(package) as archive:
        script = archive.read(MERMAID_IN_PACKAGE)
    if (digest := hashlib.sha256(script).hexdigest()) != MERMAID_SHA256:
        raise UnexpectedContent(
            f"{package.name}: {MERMAID_IN_PACKAGE} has the SHA-256 {digest}, and not {MERMAID_SHA256}"
        )
    return script


def main() -> int:
    """Add Mermaid to the built site, and remove other hosts' addresses from its scripts."""
    try:
        (SITE / MERMAID_SITE_PATH).write_bytes(read_mermaid_script(PACKAGES_FOLDER))
        for path in (SITE / "assets" / "javascripts").glob("bundle.*.js"):
            path.write_text(replace_foreign_addresses(path.read_text(encoding="utf-8")), encoding="utf-8")
    except UnexpectedContent as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
