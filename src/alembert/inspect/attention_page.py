"""The attention of a text as a page, as charts, and as lines for a terminal.

In: `AttentionMaps`. Out: an overview of all heads as thumbnails; a head as a matrix; and a page with both, in which a token
that is chosen shades the tokens that it looks at. A matrix is one small picture, a `GridMark`. The page stores heads in
full, a byte a cell, until it is as large as a page may be: at 512 tokens about ten of them. Bytes hold square roots, so
that small probabilities, which are most of them, keep two digits.
"""

# T tokens
from __future__ import annotations

import json
import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from alembert.charts import WIDTH, Chart, PlotMark, Point, TextMark, render_figure
from alembert.html import render_details, render_page
from alembert.infer.attention import TARGETS, AttentionMaps, HeadSummary, WeightArray
from alembert.inspect.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SHADE: Final = (0x3F, 0x85, 0xCF)
"""Colour of the cells of a `GridMark`, which is read on light and on dark paper."""


@dataclass(frozen=True, eq=False)
class GridMark:
    """A rectangle of cells (rows, columns), each shaded by a number from 0 (the paper) to 255, as a small PNG."""

    at: Point
    width: float
    height: float
    cells: npt.NDArray[np.uint8]
    tooltip: str = ""
    levels: int = 256
    """Shades that are told apart: fewer make a smaller file."""

    def svg(self) -> str:
        x, y = self.at
        box = f'x="{x:.1f}" y="{y:.1f}" width="{self.width:.1f}" height="{self.height:.1f}"'
        look = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
        title = f"<title>{escape(self.tooltip)}</title>" if self.tooltip else ""
        return f'<image {box} {look} href="{encode_shades(self.cells, self.levels)}">{title}</image>'

    def draw(self, axes: Axes) -> None:
        rows = [[tuple(part / 255 for part in (*_SHADE, shade)) for shade in row] for row in self.cells.tolist()]
        (x, y), box = self.at, axes.axis()
        axes.imshow(rows, extent=(x, x + self.width, y + self.height, y), aspect="auto", interpolation="nearest")
        axes.axis(box)


def encode_shades(cells: npt.NDArray[np.uint8], levels: int = 256) -> str:
    """Return cells as the address of a PNG with one colour, whose opacity is the number of the cell."""
    rows, columns = cells.shape
    shades = (cells.astype(np.uint16) * (levels - 1) + 127) // 255
    lines = b"".join(b"\0" + row.tobytes() for row in shades.astype(np.uint8))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0),
        b"PLTE": bytes(_SHADE) * levels,
        b"tRNS": bytes(round(255 * level / (levels - 1)) for level in range(levels)),
        b"IDAT": zlib.compress(lines),
        b"IEND": b"",
    }
    parts = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


STORED_BYTES: Final = 1_300_000
"""Characters of heads in full on a page; with overview and tables it stays below two megabytes."""
_THUMBNAIL: Final = 32
"""Cells of a thumbnail, at most."""
_MAX_NAMED: Final = 48
"""Tokens of a matrix up to which each row has its name."""
_LEFT, _TOP, _GAP = 56, 24, 4
_NAMES_WIDTH: Final = 110
_TICK: Final = 64
"""Tokens between two numbers at a matrix without names."""
_NUMBER_WIDTH: Final = 24
_MARKS: Final = {"special": "[]", "itself": "=", "previous": "<", "next": ">", "other": "*"}
LEGEND: Final = (
    "Where most attention goes, in percent: [] special tokens, = itself, < previous token, > next token, * others"
)
_MEANING: Final = {
    "special": "special tokens",
    "itself": "the token itself",
    "previous": "the previous token",
    "next": "the next token",
    "other": "other tokens",
}

Shades = npt.NDArray[np.uint8]


def to_shades(weights_TT: WeightArray) -> Shades:
    """Round the square roots of probabilities to a byte each."""
    return np.round(np.sqrt(weights_TT) * 255).astype(np.uint8)


def pool_cells(weights_TT: WeightArray, most: int = _THUMBNAIL) -> WeightArray:
    """Shrink a matrix to at most so many rows and columns; a cell is the largest of those that it stands for."""
    step = -(-len(weights_TT) // most)
    starts = np.arange(0, len(weights_TT), step)
    pooled_TT: WeightArray = np.maximum.reduceat(np.maximum.reduceat(weights_TT, starts, axis=0), starts, axis=1)
    return pooled_TT


# -- charts


def build_overview_chart(maps: AttentionMaps) -> Chart:
    """Draw a thumbnail for each head, a layer a row."""
    size = (WIDTH - _LEFT - 8) / maps.heads
    marks: list[PlotMark] = [
        TextMark((_LEFT + (head + 0.5) * size, 14), f"{'head ' * (head == 0)}{head + 1}", "middle")
        for head in range(maps.heads)
    ]
    marks += [
        TextMark((_LEFT - 8, _TOP + (layer + 0.5) * size + 4), f"layer {layer + 1}", "end")
        for layer in range(maps.layers)
    ]
    for each in maps.summaries:
        at = _LEFT + (each.head - 1) * size, _TOP + (each.layer - 1) * size
        cells = to_shades(pool_cells(maps.weights(each.layer, each.head)))
        marks.append(GridMark(at, size - _GAP, size - _GAP, cells, _describe(each), levels=16))
    title = f"Attention of {maps.layers} layers with {maps.heads} heads each"
    return Chart(title, tuple(marks), _TOP + maps.layers * size + 4)


def build_head_chart(maps: AttentionMaps, layer: int, head: int) -> Chart:
    """Draw a head as a matrix: a row for each token that looks, a column for each that it looks at."""
    count = len(maps.tokens)
    left = _NAMES_WIDTH if count <= _MAX_NAMED else _LEFT
    size = WIDTH - left - 4
    marks: list[PlotMark] = [
        GridMark((left, _TOP), size, size, to_shades(maps.weights(layer, head)), f"layer {layer}, head {head}")
    ]
    named = count <= _MAX_NAMED
    cell, step = size / count, 1 if named else _TICK
    for number in range(0, count, step):
        name = f"{_shorten(maps.tokens[number])} {number + 1}" if named else f"{number + 1}"
        marks.append(TextMark((left - 6, _TOP + (number + 0.5) * cell + 4), name, "end"))
    columns = range(0, count, max(step, math.ceil(_NUMBER_WIDTH / cell)))
    marks += [TextMark((left + (number + 0.5) * cell, 16), f"{number + 1}", "middle") for number in columns]
    return Chart(f"Attention of layer {layer}, head {head}", tuple(marks), _TOP + size + 4)


def _describe(each: HeadSummary) -> str:
    share = each.shares[each.main_target]
    return f"layer {each.layer}, head {each.head}: {share:.0%} to {_MEANING[each.main_target]}"


def _shorten(token: str) -> str:
    return token if len(token) <= 12 else f"{token[:11]}…"


# -- tables


def build_overview_table(maps: AttentionMaps) -> Table:
    """Put what most of each head's attention goes to into a table, a layer a row (see `LEGEND`)."""
    names = [f"{_MARKS[each.main_target]}{100 * each.shares[each.main_target]:.0f}" for each in maps.summaries]
    rows = [(f"layer {n + 1}", *names[n * maps.heads : (n + 1) * maps.heads]) for n in range(maps.layers)]
    header = ("head", *(str(head + 1) for head in range(maps.heads)))
    return Table(name="overview", title="What heads look at", header=header, rows=tuple(rows))


def build_heads_table(maps: AttentionMaps, layer: int | None = None) -> Table:
    """Put the shares of each head into a table, with its strongest link between tokens that are not neighbours."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            f"{each.layer}.{each.head}",
            *(round(100 * each.shares[name]) for name in TARGETS),
            f"{each.spread:.1f}",
            _strongest(maps, each),
        )
        for each in maps.summaries
        if layer in (None, each.layer)
    )
    header = ("head", *(f"{name} %" for name in TARGETS), "spread", "strongest link")
    return Table(name="heads", title="Heads", header=header, rows=rows)


def build_tokens_table(maps: AttentionMaps, layer: int, head: int) -> Table:
    """Put the three tokens that each token looks at most into a table."""
    weights_TT = maps.weights(layer, head)
    order_TT = np.argsort(-weights_TT, axis=1, kind="stable")[:, :3]
    rows = tuple(
        (
            str(number + 1),
            token,
            ", ".join(f"{maps.tokens[to]} {weights_TT[number, to]:.2f}" for to in order_TT[number]),
        )
        for number, token in enumerate(maps.tokens)
    )
    title = f"Layer {layer}, head {head}"
    return Table(name="tokens", title=title, header=("", "token", "looks at"), rows=rows)


def _strongest(maps: AttentionMaps, each: HeadSummary) -> str:
    if not each.links:
        return "-"
    link = each.links[0]
    return f"{maps.tokens[link.source]} → {maps.tokens[link.target]} {link.weight:.2f}"


# -- the page


def render_attention_page(maps: AttentionMaps, model: str, layer: int | None = None, head: int | None = None) -> str:
    """Return the page; a layer, or a layer and a head, chooses which heads are stored in full."""
    chosen = _choose_heads(maps, layer, head)
    stored = _store_heads(maps, chosen)
    body = "\n".join(_body(maps, chosen[: len(stored)], is_chosen=layer is not None or head is not None))
    folder = Path(__file__).parent
    style, script = ((folder / f"attention.{kind}").read_text(encoding="utf8") for kind in ("css", "js"))
    data = {
        "first": f"{chosen[0].layer}.{chosen[0].head}",
        "heads": {f"{each.layer}.{each.head}": png for each, png in zip(chosen, stored, strict=False)},
        "perRow": maps.heads,
        "token": chosen[0].links[0].source if chosen[0].links else 0,
        "tokens": maps.tokens,
    }
    # A token may look like the end of the script.
    line = "const DATA = " + json.dumps(data).replace("<", "\\u003c") + ";\n"
    return render_page(f"Attention of {model}", f"Attention of {model}", body, style=style, script=line + script)


def _choose_heads(maps: AttentionMaps, layer: int | None, head: int | None) -> list[HeadSummary]:
    """Return the heads to store, those first whose attention reaches tokens that are not neighbours."""
    maps.check_numbers(layer, head)
    heads = [each for each in maps.summaries if layer in (None, each.layer) and head in (None, each.head)]
    return sorted(heads, key=lambda each: -each.links[0].weight if each.links else 0.0)


def _store_heads(maps: AttentionMaps, chosen: Sequence[HeadSummary]) -> list[str]:
    """Encode heads until there is no more room; the first is always there."""
    stored: list[str] = []
    room = STORED_BYTES
    for each in chosen:
        picture = encode_shades(to_shades(maps.weights(each.layer, each.head)))
        room -= len(picture)
        if stored and room < 0:
            break
        stored.append(picture)
    return stored


def _body(maps: AttentionMaps, shown: Sequence[HeadSummary], *, is_chosen: bool) -> Iterator[str]:
    part = f", window {maps.window} of {maps.windows}" if maps.windows > 1 else ""
    yield f"<p>{len(maps.tokens)} tokens{part}; {maps.layers} layers with {maps.heads} heads each. {_NOTE}</p>"
    yield "<h2>What a token looks at</h2>"
    total = maps.layers * maps.heads
    if len(shown) < total:
        which = "" if is_chosen else ", those with the strongest links between tokens that are not neighbours"
        yield (
            f"<p>{len(shown)} of {total} heads are stored on this page{which}. For others, name the layer and the head: "
            "<code>--layer N --head M</code>.</p>"
        )
    yield _render_controls(shown)
    yield f'<div class="tokens text" role="group" aria-label="tokens">{_render_tokens(maps)}</div>'
    first = shown[0]
    caption = "Rows are tokens that look, columns are tokens that they look at"
    yield f'<div id="matrix">{render_figure(build_head_chart(maps, first.layer, first.head), caption)}</div>'
    yield "<h2>All heads</h2>"
    caption = "A picture for each head; rows look, columns are looked at. Choose one to see it above"
    yield f'<div id="overview">{render_figure(build_overview_chart(maps), caption, whole=True)}</div>'
    table = build_heads_table(maps)
    yield f"<p>{escape(_COLUMNS)}</p>"
    yield render_details("What each head looks at", table.html())


_NOTE: Final = (
    "Each token mixes what it looks at into its own state; its shares sum to one. They are the model's own, computed for this "
    "text alone, and stored here to about two digits. Attention shows what a head reads, not why the model "
    "decided."
)
_COLUMNS: Final = (
    "Shares are averages over the tokens that look. Spread is the number of tokens over which attention is spread. The strongest "
    "link is between tokens that are not neighbours, special tokens left out."
)


def _render_controls(shown: Sequence[HeadSummary]) -> str:
    ordered = sorted(shown, key=lambda each: (each.layer, each.head))
    options = "".join(
        f'<option value="{each.layer}.{each.head}"{" selected" * (each is shown[0])}>{escape(_describe(each))}</option>'
        for each in ordered
    )
    directions = (
        '<label><input type="radio" name="direction" value="from" checked> looks at</label> '
        '<label><input type="radio" name="direction" value="to"> is looked at by</label>'
    )
    return (
        f'<p class="controls"><label>Head <select id="head">{options}</select></label> {directions}</p>'
        '<p id="answer" aria-live="polite">Choose a token. The arrow keys move to the next one.</p>'
    )


def _render_tokens(maps: AttentionMaps) -> str:
    """Write each token as a button; the pieces of a word touch, and a second text begins on a line of its own."""
    parts = []
    for number, (token, segment) in enumerate(zip(maps.tokens, maps.segments, strict=True)):
        begins = number > 0 and segment != maps.segments[number - 1]
        inner = token.startswith("##")
        parts.append("<br>" if begins else "" if inner or not number else " ")
        kind = ' class="piece"' if inner else ""
        parts.append(f'<button type="button"{kind} tabindex="-1">{escape(token.removeprefix("##"))}</button>')
    return "".join(parts)
