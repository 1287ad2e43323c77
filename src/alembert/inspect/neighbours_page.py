"""The nearest neighbours of a word in a model, or in two models side by side, as tables, maps and a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from alembert.charts import WIDTH, Chart, CircleMark, LineMark, PlotMark, Point, TextMark, render_figure
from alembert.html import Html, render_columns, render_list, render_page, render_table
from alembert.infer.neighbours import MapPoint, Neighbour, Neighbourhood, align_points
from alembert.inspect.scatter import LINE_HEIGHT, Box, place_labels, text_width

KINDS: Final = {"tokens": "Nearest tokens", "terms": "Nearest terms", "sentences": "Nearest sentences"}
_HEIGHT: Final = 420
_MARGIN: Final = 24
_LABELS: Final = 12
"""Points of a map with a name; the others have it as a tooltip."""
_MAX_LETTERS: Final = 34

NeighbourRow = tuple[str, Neighbour, bool]
"""Rank, neighbour, and whether the other model has it not."""


def list_neighbours(kind: str, own: Neighbourhood, other: Neighbourhood | None) -> list[NeighbourRow]:
    """Return the neighbours of a kind in a model, with what the other one does not have among its own."""
    known = None if other is None else {each.text for each in getattr(other, kind)}
    return [
        (str(rank), each, known is not None and each.text not in known)
        for rank, each in enumerate(getattr(own, kind), 1)
    ]


# -- the map


def build_map_chart(found: Neighbourhood, reference: Neighbourhood | None = None) -> Chart:
    """Draw the word and its nearest terms in a plane, turned as the map of the reference is."""
    points = found.points if reference is None else align_points(found.points, reference.points)
    places = _to_canvas(points)
    marks: list[PlotMark] = []
    for point, place in list(zip(points, places, strict=True))[::-1]:  # the word last, on top
        is_word = point is points[0]
        radius, opacity = (6.0, 1.0) if is_word else (3.5, 0.75)
        marks.append(CircleMark(place, radius, "b" if is_word else "a", opacity, point.text))
    marks += _label_marks(points[:_LABELS], places[:_LABELS])
    return Chart(f"Map of {found.word} in {found.model}", tuple(marks), _HEIGHT)


def _to_canvas(points: Sequence[MapPoint]) -> list[Point]:
    """Place points on the canvas, both axes on the same scale."""
    xs, ys = [point.x for point in points], [point.y for point in points]
    room = WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN
    extents = max(xs) - min(xs), max(ys) - min(ys)
    scale = min((length / extent for length, extent in zip(room, extents, strict=True) if extent > 0), default=1.0)
    middle = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    return [
        (WIDTH / 2 + (x - middle[0]) * scale, _HEIGHT / 2 - (y - middle[1]) * scale)
        for x, y in zip(xs, ys, strict=True)
    ]


def _label_marks(points: Sequence[MapPoint], places: Sequence[Point]) -> Iterator[PlotMark]:
    names = [_shorten(point.text) for point in points]
    frame = Box(4, 4, WIDTH - 4, _HEIGHT - 4)
    boxes = place_labels(places, [5.0] * len(places), [text_width(name) for name in names], [], frame)
    for number, (name, place, box) in enumerate(zip(names, places, boxes, strict=True)):
        end = box.nearest(place)
        if math.dist(end, place) > 2 * LINE_HEIGHT:
            yield LineMark([place, end], "dim", 0.7)
        left = box.right < place[0]
        x, anchor = (box.right, "end") if left else (box.left, "start")
        yield TextMark((x, box.top + 1.4 * LINE_HEIGHT), name, anchor, "dim" if number else "ink")


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…"


# -- the page


def render_neighbours_page(found: Neighbourhood, before: Neighbourhood | None = None) -> str:
    """Return the page of a model, or of a model with another one before it."""
    title = f"Neighbours of {found.word}"
    return render_page(title, title, "\n".join(_body(found, before)))


def _body(found: Neighbourhood, before: Neighbourhood | None) -> Iterator[str]:
    models = [found] if before is None else [before, found]
    yield f"<p>{escape(_about(found, before))}</p>"
    notes = dict.fromkeys(
        f"{each.model}: {note}" if len(models) > 1 else note for each in models for note in each.notes
    )
    if notes:
        yield render_list(notes)
    if before is not None:
        yield "<p>Neighbours that the other model does not have among its own are in bold.</p>"
    for kind, heading in KINDS.items():
        if any(getattr(each, kind) for each in models):
            others = [None] if before is None else [found, before]
            yield f"<h2>{heading}</h2>"
            yield render_columns(
                _render_list(kind, own, other, f"{heading}, {own.model}{', before' if own is before else ''}")
                for own, other in zip(models, others, strict=True)
            )
    yield "<h2>Map</h2>"
    yield render_columns(
        render_figure(build_map_chart(each, None if each is models[0] else models[0]), _caption(each), whole=True)
        for each in models
    )


def _about(found: Neighbourhood, before: Neighbourhood | None) -> str:
    other = "" if before is None else f", beside {before.model}"
    return (
        f"Model {found.model}{other}. Tokens are compared by their input embeddings, terms and sentences by the vectors that the model "
        "makes of them; numbers are cosine similarities."
    )


def _caption(found: Neighbourhood) -> str:
    what = "terms" if found.terms else "tokens"
    return (
        f"{found.model}: {found.word} and the nearest {len(found.points) - 1} {what}, first two principal components "
        f"({found.variance:.0%} of the variance); the nearest have names"
    )


def _render_list(kind: str, own: Neighbourhood, other: Neighbourhood | None, label: str) -> str:
    rows = [
        (rank, Html(f"<strong>{escape(each.text)}</strong>") if is_new else each.text, f"{each.similarity:.3f}")
        for rank, each, is_new in list_neighbours(kind, own, other)
    ]
    name = own.model if len(own.model) <= _MAX_LETTERS else f"…{own.model[1 - _MAX_LETTERS :]}"
    return render_table(("", name, "cosine"), rows, {1}, label)
