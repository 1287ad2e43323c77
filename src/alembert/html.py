"""Small plots as SVG text, and the page that they stand in: one file that fetches and runs nothing.

In: names and numbers. Out: an `<svg>` element, or HTML. Colours are names of the page's style (`--a` to `--e`), which
follows the reader's light or dark setting; every mark has a `<title>`, which browsers show under the pointer and
readers speak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

COLOURS: Final = "abcde"
"""Names of the colours of the page's style: `--a`, `--b`, ..."""
STYLE: Final = """
:root { --ink: #1c2430; --dim: #5c6675; --line: #d9dee6; --paper: #fff; color-scheme: light dark;
  --a: #2f6fb4; --b: #d9822b; --c: #2c8a5b; --d: #8a55b8; --e: #b5465a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --dim: #9aa5b4; --line: #333c48; --paper: #14181e;
    --a: #6aa5e3; --b: #eda65a; --c: #63c393; --d: #bd93e6; --e: #e7818f }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } h3 { font-size: 1rem }
table { border-collapse: collapse; font-size: .92rem } .wide { overflow-x: auto }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right; font-variant-numeric: tabular-nums }
th:first-child, td:first-child, .prose td:last-child, .prose th:last-child { text-align: left }
table:not(.prose) td + td { white-space: nowrap } th { color: var(--dim); font-weight: 600 } p, .legend { color: var(--dim) } .legend { font-size: .92rem }
figure { margin: 1rem 0 } figcaption { color: var(--dim); font-size: .92rem } figure + .legend { margin-top: -.7rem }
.several { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem }
svg { width: 100%; max-width: 42rem; height: auto } svg text { font-size: 12px; fill: var(--dim) }
.several svg text { font-size: 17px } .grid { stroke: var(--line) }
.legend span { display: inline-block; margin-right: 1rem } .legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem }
"""
Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 34
_MAX_DOTS = 60


@dataclass(frozen=True)
class Curve:
    """A named line through points, from left to right."""

    name: str
    points: Points
    colour: int = 0
    """Number of its colour in `COLOURS`."""
    faint: bool = False
    """A noisy ground for another curve: thin, and its rare peaks may leave the plot."""

    @property
    def dotted(self) -> bool:
        """Few enough measurements to mark each."""
        return not self.faint and len(self.points) <= _MAX_DOTS


def draw_bar_chart(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Draw shares (0 to 1) as bars, the series side by side."""
    top = _round_up_nicely(max((value for values in series.values() for value in values), default=1.0))
    slot = (_WIDTH - _LEFT - _RIGHT) / max(1, len(names))
    width = slot * 0.8 / max(1, len(series))
    marks = list(_axis(top))
    for number, (label, values) in enumerate(series.items()):
        for place, value in enumerate(values):
            x = _LEFT + place * slot + slot * 0.1 + number * width
            told = f"{label}, {names[place]}: {value:.2%}"
            marks.append(_bar(x, width, value / top, f"var(--{'ab'[number % 2]})", told))
    for place, name in enumerate(names):
        marks.append(_text(_LEFT + (place + 0.5) * slot, _HEIGHT - 14, name, "middle"))
    return _svg(title, marks)


def draw_line_chart(title: str, points: Sequence[tuple[float, float]]) -> str:
    """Draw a curve of shares (0 to 1) through the origin."""
    furthest = max((x for x, _ in points), default=1.0)
    top = _round_up_nicely(max((y for _, y in points), default=1.0))
    places = [(_across(x / furthest), _up(y / top)) for x, y in [(0.0, 0.0), *points]]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [*_axis(top), f'<polyline points="{path}" fill="none" stroke="var(--a)" stroke-width="2.5"/>']
    for (x, y), (px, py) in zip(points, places[1:], strict=True):
        told = f"{x:,.0f} terms: {y:.2%}"
        marks.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="var(--a)"><title>{told}</title></circle>')
    marks += [_text(_across(share), _HEIGHT - 14, f"{share * furthest:,.0f}", "end") for share in (0.25, 0.5, 1)]
    return _svg(title, marks)


def draw_curve_chart(title: str, curves: Sequence[Curve], form: Callable[[float], str]) -> str:
    """Draw curves over a common x from 0, such as the step; `form` writes a value of the y axis."""
    start, end = _extent([0.0, *(x for curve in curves for x, _ in curve.points)])
    low, high = value_range(curves)
    marks = [mark for value in choose_ticks(low, high) for mark in _grid((value - low) / (high - low), form(value))]
    for x in choose_ticks(start, end, whole=True):
        share = (x - start) / (end - start)
        # A number in the middle of the last places would leave the picture.
        marks.append(_text(_across(share), _HEIGHT - 14, f"{x:,.0f}", "middle" if share < 0.95 else "end"))
    for curve in curves:
        places = [
            (_across((x - start) / (end - start)), _up(min(1.0, max(0.0, (y - low) / (high - low)))))
            for x, y in curve.points
        ]
        marks += _curve(curve, places, form)
    return _svg(title, marks)


def _curve(curve: Curve, places: Points, form: Callable[[float], str]) -> Iterator[str]:
    colour = f"var(--{COLOURS[curve.colour % len(COLOURS)]})"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    look = 'stroke-width="1" opacity="0.4"' if curve.faint else 'stroke-width="2"'
    yield (
        f'<polyline points="{path}" fill="none" stroke="{colour}" {look} stroke-linejoin="round">'
        f"<title>{escape(curve.name)}</title></polyline>"
    )
    if curve.dotted:
        for (x, y), (px, py) in zip(curve.points, places, strict=True):
            told = f"{escape(curve.name)}, {x:,.0f}: {escape(form(y))}"
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"><title>{told}</title></circle>'


def value_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the lowest and highest y to show; of a faint curve without its rarest peaks."""
    values = []
    for curve in curves:
        ordered = sorted(y for _, y in curve.points)
        rare = len(ordered) // 100 if curve.faint else 0
        values += ordered[rare : len(ordered) - rare]
    return _extent(values)


_LEAST: Final = 1e-300


def _extent(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and highest value, never so near that what lies between cannot be divided."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low > _LEAST:
        return low, high
    around = abs(low) / 2 if abs(low) > _LEAST else 1.0
    return low - around, high + around


def choose_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return a handful of round numbers from `low` to `high`.

    >>> choose_ticks(0.13, 1.04)
    [0.2, 0.4, 0.6, 0.8, 1.0]
    >>> choose_ticks(0, 3, whole=True)
    [0.0, 1.0, 2.0, 3.0]
    """
    scale = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(scale * n for n in (5, 2, 1) if n == 1 or (high - low) / (scale * n) >= 3)
    step = max(1.0, step) if whole else step
    # Counted, not added up: 0.1 + 0.2 is not 0.3.
    return [float(f"{n * step:.10g}") for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def thin_points(points: Points, most: int) -> list[tuple[float, float]]:
    """Keep about `most` points, so that the drawn line stays the same: both ends, and the extremes of each stretch.

    >>> thin_points([(0, 1.0), (1, 9.0), (2, 2.0), (3, 3.0), (4, 2.5), (5, 4.0)], 4)
    [(0, 1.0), (1, 9.0), (4, 2.5), (5, 4.0)]
    """
    if len(points) <= most:
        return list(points)
    size = -(-2 * len(points) // most)
    kept = {points[0], points[-1]}
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept |= {min(stretch, key=_height), max(stretch, key=_height)}
    return sorted(kept)


def _height(point: tuple[float, float]) -> float:
    return point[1]


def render_page(title: str, heading: str, body: str) -> str:
    """Put a body of HTML under a heading into a page of its own."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(heading)}</h1>\n{body}\n</body>\n</html>\n"
    )


def render_legend(names: Mapping[str, int]) -> str:
    """Name the colours of a plot, given by number; nothing for a single one."""
    keys = (
        f'<span><i style="background:var(--{COLOURS[colour % len(COLOURS)]})"></i>{escape(name)}</span>'
        for name, colour in names.items()
    )
    return f'<div class="legend">{"".join(keys)}</div>' if len(names) > 1 else ""


def render_figure(plot: str, caption: str) -> str:
    """Put a caption under a plot."""
    return f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>"


def _svg(title: str, marks: Sequence[str]) -> str:
    body = "\n".join(marks)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">\n{body}\n</svg>'


def _axis(top: float) -> Iterator[str]:
    for quarter in range(5):
        yield from _grid(quarter / 4, format_percent(top * quarter / 4))


def _grid(share: float, label: str) -> Iterator[str]:
    y = _up(share)
    yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
    yield _text(_LEFT - 6, y + 4, label, "end")


def format_percent(share: float) -> str:
    """Write a share for an axis or a table.

    >>> format_percent(0.1349), format_percent(0.8)
    ('13.5 %', '80 %')
    """
    return f"{100 * share:.3g} %"


def _bar(x: float, width: float, height: float, colour: str, told: str) -> str:
    y = _up(height)
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_up(0) - y:.1f}" fill="{colour}">'
        f"<title>{escape(told)}</title></rect>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _up(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _across(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _round_up_nicely(largest: float) -> float:
    """Round up to a number whose quarters are easy to read.

    >>> _round_up_nicely(0.73), _round_up_nicely(0.031)
    (0.8, 0.032)
    """
    scale = 1.0
    while largest > 0 and largest * scale < 1:
        scale *= 10
    steps = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
    return next(step for step in steps if step >= min(10, largest * scale)) / scale
