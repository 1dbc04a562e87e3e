"""What the status page is made of: elements, and the frame with its style, in one answer.

Works without scripts, and may run none. Names come from the cluster and from Eureka, so that every text is
escaped where it becomes HTML: by :func:`tag`, which takes as it is only what it made itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape

_STYLE = """
:root{color-scheme:light dark;--fg:#1c2430;--dim:#5b6675;--bg:#f6f7f9;--card:#fff;--line:#dde2e8;--ok:#17683a;
--okbg:#dff3e6;--bad:#9b1c1c;--badbg:#fbe3e3;--mid:#7a4d00;--midbg:#fdf0d3;--link:#0b57a4}
@media(prefers-color-scheme:dark){:root{--fg:#e4e8ee;--dim:#9aa6b4;--bg:#14181d;--card:#1c2229;--line:#313a44;
--ok:#8fe0ab;--okbg:#123822;--bad:#ffb1ab;--badbg:#4a1717;--mid:#ffd98a;--midbg:#42310b;--link:#8cc2ff}}
*{box-sizing:border-box}
body{margin:0;font:15px/1.45 system-ui,sans-serif;color:var(--fg);background:var(--bg)}
main{max-width:1180px;margin:0 auto;padding:1rem}
h1{font-size:1.35rem;margin:0 0 .2rem;display:flex;flex-wrap:wrap;gap:.5rem;align-items:center}
h2{font-size:1.05rem;margin:1.6rem 0 .5rem}h3{font-size:.95rem;margin:1rem 0 .4rem;overflow-wrap:anywhere}
p{margin:.2rem 0}.dim{color:var(--dim)}a{color:var(--link)}
.mark{display:inline-block;padding:0 .5em;border-radius:1em;font-size:.8rem;font-weight:600;line-height:1.7;
white-space:nowrap;background:var(--line)}
.ok{color:var(--ok);background:var(--okbg)}.bad{color:var(--bad);background:var(--badbg)}
.mid{color:var(--mid);background:var(--midbg)}
.note{border-left:4px solid var(--bad);background:var(--badbg);color:var(--bad);padding:.5rem .8rem;
margin:.6rem 0;border-radius:4px;overflow-wrap:anywhere}.note.mid{border-color:var(--mid);
background:var(--midbg);color:var(--mid)}
.sheet{background:var(--card);border:1px solid var(--line);border-radius:8px;overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.4rem .7rem;border-bottom:1px solid var(--line)}
tr:last-child td{border-bottom:0}th{font-size:.8rem;color:var(--dim);font-weight:600;white-space:nowrap}
td.n{white-space:nowrap}td.w{overflow-wrap:anywhere}
form{display:flex;flex-wrap:wrap;gap:.5rem;align-items:end;margin:.5rem 0}
label{font-size:.8rem;color:var(--dim);display:grid;gap:.15rem}
input,button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:6px;
padding:.3rem .6rem;max-width:100%}
@media(max-width:700px){thead{display:none}table,tbody,tr,td{display:block}
tr{padding:.5rem .2rem;border-bottom:1px solid var(--line)}tr:last-child{border-bottom:0}
td{border:0;padding:.15rem .6rem;display:grid;grid-template-columns:7.5rem 1fr;gap:.5rem}
td:has(div:empty){display:none}td.n,td.w{white-space:normal;overflow-wrap:anywhere}
td::before{content:attr(data-label);color:var(--dim);font-size:.8rem}}
"""

_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
"""The page's ``Content-Security-Policy``: its own style, and nothing else."""


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | bool) -> Html:
    """An element; every text in it that is not :class:`Html` is escaped.

    :param attributes: ``class_`` for class, ``data_label`` for data-label; True stands without a value, False
        and the empty text are left out.
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not False and value != ""
    )
    if name in ("input", "meta", "option"):
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Html:
    """One after the other, escaped where they are not HTML yet."""
    return Html("".join(one if isinstance(one, Html) else escape(one) for one in children))


def mark(text: str, kind: str) -> Html:
    """A word in a box.

    :param kind: ``ok``, ``mid``, ``bad``, or empty for neither.
    """
    return tag("span", text, class_=f"mark {kind}".strip())


def document(title: str, body: Html, refresh_seconds: int | None = None) -> str:
    """A whole page.

    :param refresh_seconds: after which the browser asks again by itself; None for never.
    """
    refresh = (
        Html() if refresh_seconds is None else tag("meta", http_equiv="refresh", content=str(refresh_seconds))
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width,initial-scale=1"),
        refresh,
        tag("title", title),
        tag("style", Html(_STYLE)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', body)), lang='en')}\n"
