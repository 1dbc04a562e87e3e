"""The status page, made from the same document as ``/status.json`` by the template ``status.html``.

Names come from the cluster and from Eureka: Jinja2 escapes every text where it becomes HTML, and the page may
load nothing and run no script.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from eurekube_provider.operator.web.overview import Document

if TYPE_CHECKING:
    from jinja2 import Template

REFRESH_SECONDS = 10
MOST_SYNCERS = 200
"""As many rows are shown; the others are found with the filter."""

MOST_SYNCERS_WITH_DIFFERENCES = 20

_FOLDER = Path(__file__).parent / "templates"
_STYLE = (_FOLDER / "style.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
"""The page's ``Content-Security-Policy``: its own style, and nothing else."""


def _duration(seconds: float) -> str:
    """How long it is, in the largest unit of which there are two; 0 s for less than nothing."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


@cache
def _page() -> Template:
    """The template; Jinja2 is loaded, which takes 3 MiB, only where somebody looks at the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = _duration
    environment.globals |= {
        "style": _STYLE,
        "refresh_seconds": REFRESH_SECONDS,
        "most_syncers": MOST_SYNCERS,
        "most_differing_syncers": MOST_SYNCERS_WITH_DIFFERENCES,
    }
    return environment.get_template("status.html")


def without_data(sentence: str) -> str:
    """The page while there is nothing to show but one sentence."""
    return _page().render(sentence=sentence, operator=None, refreshes=True)


def html(data: Document, *, refreshes: bool = True) -> str:
    """The whole page.

    :param refreshes: whether the browser asks again by itself, every :data:`REFRESH_SECONDS`.
    """
    now = datetime.fromisoformat(data["now"])

    def ahead(stamp: str) -> float:
        """In how many seconds it is."""
        return (datetime.fromisoformat(stamp) - now).total_seconds()

    def url(path: str = "./", **more: str) -> str:
        """A link that keeps the filter."""
        query = {key: str(value) for key, value in data["filter"].items() if value} | more
        return f"{path}?{urlencode(query)}" if query else path

    return _page().render(**data, sentence="", refreshes=refreshes, ahead=ahead, url=url)
