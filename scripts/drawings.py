"""The pictures of the documentation's concepts, docs/images/*.svg, written by `make reference`.

They consist of words and arrows only, so that a change of the design is a change of a line here. Each picture
has its own light background, and so is readable on light and on dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from bench.record import read_record

IMAGES_FOLDER = Path(__file__).parents[1] / "docs" / "images"

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2933; }
.title { font-weight: 600; } .small { font-size: 12px; fill: #52606d; }
.mono { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace; font-size: 12px; }
.ground { fill: #fbfcfe; stroke: #cbd2d9; } .group { fill: #f0f4f8; stroke: #bcccdc; }
.thing { fill: #ffffff; stroke: #829ab1; } .ours { fill: #e3f8ff; stroke: #2186eb; stroke-width: 1.5; }
.eureka { fill: #fff8e6; stroke: #cb6e17; stroke-width: 1.5; } .bad { fill: #ffeeee; stroke: #ba2525; }
.good { fill: #e3f9e5; stroke: #207227; }
.line { stroke: #52606d; stroke-width: 1.5; fill: none; marker-end: url(#head); }
.axis { stroke: #9aa5b1; stroke-dasharray: 3 3; }
""".strip()


@dataclass
class Picture:
    """A drawing of boxes, arrows and texts; coordinates in pixels from the upper left corner."""

    name: str
    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, kind: str, x: int, y: int, width: int, height: int, *lines: str) -> None:
        """Draw a box with its title and further lines, centred; a group has its title at the top."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        top = y + 20 if kind == "group" else y + height / 2 - 8 * (len(lines) - 1) + 4
        for number, line in enumerate(lines):
            style = "title" if number == 0 else "small"
            self.text(style, x + width / 2, top + 17 * number, line, "middle")

    def text(self, style: str, x: float, y: float, words: str, anchor: str = "start") -> None:
        """Draw a line of words; x is its start, middle or end."""
        self.parts.append(
            f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def arrow(self, x1: int, y1: int, x2: int, y2: int, label: str = "", above: int = 6) -> None:
        """Draw an arrow with a label over its middle, or beside a vertical arrow."""
        self.parts.append(f'<path class="line" d="M{x1} {y1} L{x2} {y2}"/>')
        if label and x1 == x2:
            self.text("small", x1 + 8, (y1 + y2) / 2 + 4, label)
        elif label:
            self.text("small", (x1 + x2) / 2, (y1 + y2) / 2 - above, label, "middle")

    def bar(self, kind: str, x: float, y: int, width: float, words: str) -> None:
        """Draw a bar of a time line."""
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y}" width="{width:g}" height="26" rx="3"/>')
        self.text("small", x + width / 2, y + 17, words, "middle")

    def svg(self) -> str:
        """Return the picture as an SVG file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-label="{escape(self.title)}">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#52606d"/></marker></defs>'
        )
        ground = (
            f'<rect class="ground" x="1" y="1" width="{self.width - 2}" height="{self.height - 2}" rx="8"/>'
        )
        return "\n".join(
            [
                head,
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                marker,
                ground,
                *self.parts,
                "</svg>\n",
            ]
        )


def draw_both_worlds() -> Picture:
    """Draw the callers on both sides, and the flow of registrations."""
    page = Picture("both-worlds", "Both worlds find each other by service name through Eureka", 820, 330)
    page.box("group", 20, 20, 230, 290, "Virtual machines")
    page.box("thing", 45, 60, 180, 60, "orders", "calls http://rating/")
    page.box("thing", 45, 220, 180, 60, "billing", "registers itself")
    page.box("eureka", 305, 130, 190, 110, "Eureka", "RATING   2 UP", "BILLING  1 UP", "ORDERS   1 UP")
    page.box("group", 550, 20, 250, 290, "Kubernetes")
    page.box("thing", 575, 55, 95, 60, "pod", "10.0.0.1")
    page.box("thing", 680, 55, 95, 60, "pod", "10.0.0.2")
    page.box("thing", 575, 145, 200, 45, "EndpointSlice of rating")
    page.box("ours", 575, 230, 200, 60, "Eurekube operator", "follows a EurekaSyncer")
    page.arrow(225, 78, 572, 78, "calls the pods, with nothing in between")
    page.arrow(170, 122, 312, 160, "")
    page.text("small", 190, 160, "who is rating?", "middle")
    page.arrow(227, 250, 303, 215)
    page.text("small", 303, 262, "register, renew", "middle")
    page.arrow(675, 117, 675, 143)
    page.arrow(675, 192, 675, 228, "watched")
    page.arrow(573, 260, 480, 242)
    page.text("small", 455, 290, "register, renew, deregister", "middle")
    return page


def draw_one_event() -> Picture:
    """Draw the way from a pod that becomes ready to a caller that knows it."""
    page = Picture("one-event", "The way of one event, from a pod that gets ready to its callers", 820, 250)
    steps = (
        ("thing", "Pod", "gets ready"),
        ("thing", "EndpointSlice", "changes"),
        ("ours", "Watch", "tells the queue"),
        ("ours", "Plan", "wanted - known"),
        ("eureka", "Eureka", "read, write, read"),
        ("thing", "Caller", "fetches the list"),
    )
    for number, (kind, *words) in enumerate(steps):
        page.box(kind, 20 + 133 * number, 50, 112, 62, *words)
        if number:
            page.arrow(20 + 133 * number - 20, 81, 20 + 133 * number - 2, 81)
    page.text("small", 76, 38, "kubelet, controllers", "middle")
    page.text("small", 415, 38, "Eurekube's part", "middle")
    page.text("small", 741, 38, "its caches", "middle")
    ours = read_record("P1")["ours"]
    measured = f"{ours['p50_ms']:.1f} ms in the median, {ours['p99_ms']:.1f} ms at the 99th percentile (P1)"
    page.arrow(157, 150, 662, 150)
    page.text("title", 410, 142, measured, "middle")
    page.arrow(555, 195, 797, 195)
    page.text("title", 676, 187, "up to 95 s with Spring's defaults", "middle")
    page.text(
        "small", 20, 228, "Equal keys are merged in the queue: many changes in a short time are one look."
    )
    return page


def draw_ownership() -> Picture:
    """Draw how the owner in an instance's metadata decides who may change it."""
    page = Picture("ownership", "Each instance has one owner, and nobody else changes it", 820, 290)
    page.box("group", 300, 20, 500, 250, "What Eureka holds, and eurekube.owner in its metadata")
    rows = (
        (65, "ours", "Operator", "of the cluster prod", "RATING", "cluster/prod/shop/rating"),
        (130, "ours", "Pulumi stack", "acme/shop/prod", "BILLING", "stack/acme/shop/prod/billing"),
        (195, "thing", "Spring application", "on its machine", "ORDERS", "none: it registers itself"),
    )
    for y, kind, name, said, application, owner in rows:
        page.box(kind, 20, y, 190, 52, name, said)
        page.box("eureka", 330, y, 440, 52)
        page.text("title", 350, y + 31, application)
        page.text("mono", 450, y + 31, owner)
        page.arrow(212, y + 26, 328, y + 26)
        page.text("small", 255, y + 20, "may change", "middle")
    return page


def draw_drain() -> Picture:
    """Draw why a pod must serve for two minutes after its deletion began."""
    page = Picture("drain", "A pod serves until its last caller has forgotten it", 820, 290)
    left, scale = 150.0, 4.2

    def at(second: float) -> float:
        return left + second * scale

    for second in (0, 30, 60, 95, 120, 150):
        page.parts.append(f'<path class="axis" d="M{at(second):g} 40 L{at(second):g} 255" fill="none"/>')
        page.text("small", at(second), 32, f"{second} s", "middle")
    page.text("title", 20, 67, "Eureka")
    page.bar("good", at(0), 50, at(1) - at(0) + 4, "")
    page.text("small", at(3), 67, "taken out at once")
    page.text("title", 20, 112, "Callers' caches")
    page.bar("eureka", at(0), 95, 30 * scale, "server's list, 30 s")
    page.bar("eureka", at(30), 95, 30 * scale, "client fetches, 30 s")
    page.bar("eureka", at(60), 95, 35 * scale, "load balancer, 35 s")
    page.bar("thing", at(95), 95, 25 * scale, "and 25 s")
    page.text("title", 20, 167, "With a drain")
    page.bar("good", at(0), 150, 120 * scale, "preStop sleeps 120 s: it answers every call")
    page.bar("thing", at(120), 150, 30 * scale, "ends gracefully")
    page.text("title", 20, 222, "Without")
    page.bar("good", at(0), 205, 4, "")
    page.bar("bad", at(2), 205, 93 * scale, "gone, and called on: calls fail")
    page.text(
        "small",
        20,
        275,
        "0 s: the pod's deletion begins. 25 s: a peer of Eureka 1, a fail-over of the operator 17, margin 7.",
    )
    return page


def draw_renewals() -> Picture:
    """Draw who renews each kind of registration."""
    page = Picture("renewals", "Who renews which registration", 820, 320)
    rows = (
        (50, "thing", "EurekaSyncer", "endpoints of a Service", "ours", "Operator", "every 25 s at least"),
        (115, "thing", "Stack, renewer eurekube", "the default", "ours", "Operator", "of that name"),
        (180, "thing", "Stack, renewer night", "no Kubernetes", "ours", "eurekube keepalive", "of that name"),
        (
            245,
            "thing",
            "Stack, renewer self",
            "or registered by itself",
            "thing",
            "The application",
            "every 30 s",
        ),
    )
    page.text("title", 125, 34, "who registered", "middle")
    page.text("title", 415, 34, "who renews", "middle")
    for y, kind, name, said, by, renewer, pace in rows:
        page.box(kind, 20, y, 210, 52, name, said)
        page.box(by, 320, y, 190, 52, renewer, pace)
        page.arrow(232, y + 26, 318, y + 26)
        page.arrow(512, y + 26, 608, y + 26)
    page.box(
        "eureka",
        610,
        50,
        190,
        247,
        "Eureka lease",
        "90 s by default;",
        "an instance that was",
        "renewed once is forgotten",
        "after twice that time",
    )
    return page


def draw_all() -> list[Picture]:
    """Return all pictures."""
    return [draw_both_worlds(), draw_one_event(), draw_ownership(), draw_drain(), draw_renewals()]
