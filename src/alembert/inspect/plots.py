"""Small plots as SVG text, to stand inside a page that needs nothing else.

In: names and numbers. Out: an `<svg>` element. Colours come from the page (`--a`, `--b`, `--ink`), so that it can follow
a dark theme; every mark has a `<title>`, which browsers show under the pointer and readers speak.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 14, 34


def bar_chart(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Draw shares (0 to 1) as bars, the series side by side."""
    top = _nice(max((value for values in series.values() for value in values), default=1.0))
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


def line_chart(title: str, points: Sequence[tuple[float, float]]) -> str:
    """Draw a curve of shares (0 to 1) through the origin."""
    furthest = max((x for x, _ in points), default=1.0)
    top = _nice(max((y for _, y in points), default=1.0))
    places = [(_across(x / furthest), _up(y / top)) for x, y in [(0.0, 0.0), *points]]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [*_axis(top), f'<polyline points="{path}" fill="none" stroke="var(--a)" stroke-width="2.5"/>']
    for (x, y), (px, py) in zip(points, places[1:], strict=True):
        told = f"{x:,.0f} terms: {y:.2%}"
        marks.append(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="var(--a)"><title>{told}</title></circle>'
        )
    marks += [
        _text(_across(share), _HEIGHT - 14, f"{share * furthest:,.0f}", "end") for share in (0.25, 0.5, 1)
    ]
    return _svg(title, marks)


def _svg(title: str, marks: Sequence[str]) -> str:
    body = "\n".join(marks)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">\n{body}\n</svg>'


def _axis(top: float) -> Iterator[str]:
    for quarter in range(5):
        y = _up(quarter / 4)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        yield _text(
            _LEFT - 6,
            y + 4,
            _percent(top * quarter / 4),
            "end",
        )


def _percent(share: float) -> str:
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


def _nice(largest: float) -> float:
    """Round up to a number whose quarters are easy to read.

    >>> _nice(0.73), _nice(0.031)
    (0.8, 0.032)
    """
    scale = 1.0
    while largest > 0 and largest * scale < 1:
        scale *= 10
    steps = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
    return next(step for step in steps if step >= min(10, largest * scale)) / scale
