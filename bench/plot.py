"""Line plots as SVG, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

_WIDTH, _HEIGHT = 640.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 130.0, 34.0, 48.0
_COLOURS = ("#d1495b", "#3a86c8", "#5a9e4b", "#b07d2b")
_STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #444 } .title { font-weight: 600 }
.grid { stroke: #888; stroke-opacity: .3; stroke-width: 1 }
@media (prefers-color-scheme: dark) { text { fill: #ccc } }"""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a plot.

    :param label: with the unit.
    :param is_log: in powers of ten; every value must be above 0.
    """

    label: str
    is_log: bool = False

    def ends(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the two ends of the axis, as logarithms on a logarithmic one."""
        if self.is_log:
            return math.log10(min(values)), math.log10(max(values))
        return 0.0, max(values) * 1.08

    def position(self, value: float) -> float:
        """Return a value's position, its logarithm on a logarithmic axis."""
        return math.log10(value) if self.is_log else value

    def ticks(self, low: float, high: float) -> list[float]:
        """Return the values that are written at the axis."""
        if self.is_log:
            found = [
                step * 10.0**power
                for power in range(math.floor(low), math.ceil(high) + 1)
                for step in ((1, 2, 5) if high - low < 2.5 else (1,))
            ]
            return [value for value in found if low - 1e-9 <= math.log10(value) <= high + 1e-9]
        step = 10.0 ** math.floor(math.log10(high / 3)) if high else 1.0
        step *= next(factor for factor in (1, 2, 5, 10) if high / (step * factor) <= 6)
        return [step * number for number in range(int(high / step) + 1)]


def line_plot_svg(
    title: str, x: Axis, y: Axis, series: Mapping[str, Sequence[Point]], *, dots: bool = True
) -> str:
    """Return an SVG document with one line for each of ``series``, named at its end."""
    points = [point for line in series.values() for point in line]
    left, right = x.ends([point[0] for point in points])
    bottom, top = y.ends([point[1] for point in points])
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at_x(value: float) -> float:
        return _LEFT + (x.position(value) - left) / (right - left) * wide

    def at_y(value: float) -> float:
        return _TOP + high - (y.position(value) - bottom) / (top - bottom) * high

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="18">{escape(title)}</text>',
        _svg_text(_LEFT + wide / 2, _HEIGHT - 8, x.label, "middle"),
        _svg_text(0, 0, y.label, "middle", f' transform="translate(14 {_TOP + high / 2}) rotate(-90)"'),
    ]
    for value in x.ticks(left, right):
        place = at_x(value)
        out.append(f'<path class="grid" d="M{place:.1f} {_TOP}v{high}"/>')
        out.append(_svg_text(place, _TOP + high + 16, _format_number(value), "middle"))
    for value in y.ticks(bottom, top):
        place = at_y(value)
        out.append(f'<path class="grid" d="M{_LEFT} {place:.1f}h{wide}"/>')
        out.append(_svg_text(_LEFT - 6, place + 4, _format_number(value), "end"))
    taken: list[float] = []
    for (name, line), colour in zip(series.items(), _COLOURS, strict=False):
        placed = [(at_x(first), at_y(second)) for first, second in line]
        path = " ".join(f"{first:.1f},{second:.1f}" for first, second in placed)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if dots:
            out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in placed]
        height = placed[-1][1] + 4
        while any(abs(height - other) < 14 for other in taken):
            height += 2
        taken.append(height)
        out.append(
            f'<text x="{_WIDTH - _RIGHT + 8}" y="{height:.1f}" style="fill:{colour}">{escape(name)}</text>'
        )
    return "\n".join([*out, "</svg>", ""])


def _svg_text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _format_number(value: float) -> str:
    return f"{value:,.10g}"
