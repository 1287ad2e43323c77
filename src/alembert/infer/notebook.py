"""Predictions as fragments of HTML for notebooks: styled in place, since a notebook has no style sheet of ours.

The label stands behind each entity and its score in the tooltip, so nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final
from zlib import crc32

from alembert.corpus.document import Document, Entity

_COLOURS: Final = ("#cfe3f7", "#f9dfc2", "#cdebdc", "#e6d8f3", "#f5d3d9", "#e9e6c4")
_TEXT: Final = "line-height:2;white-space:pre-wrap;overflow-wrap:anywhere"
_MARK: Final = "color:#1c2430;padding:.1em .25em;border-radius:.25em"
_LABEL: Final = "font-size:.7em;font-weight:600;margin-left:.35em"


def document_html(document: Document) -> str:
    """Mark the entities of a document in its text; overlapping ones share the characters they share."""
    colours = _colours_of(sorted({entity.label for entity in document.entities}))
    spans = [(start, end, entity) for entity in document.entities for start, end in entity.spans]
    borders = sorted({0, len(document.text), *(border for start, end, _ in spans for border in (start, end))})
    parts = []
    for low, high in pairwise(borders):
        inside = [each for each in spans if each[0] <= low and each[1] >= high]
        ending = [entity for _, end, entity in inside if end == high]
        parts.append(_part(document.text[low:high], [entity for *_, entity in inside], ending, colours))
    return f'<div style="{_TEXT}">{"".join(parts)}</div>'


def table_html(rows: Sequence[Sequence[str]]) -> str:
    """Write rows of cells as a table; nothing for no rows."""
    if not rows:
        return ""
    lines = ("".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _colours_of(labels: Sequence[str]) -> dict[str, str]:
    """Choose a colour for each label: the same in all documents, unless another label took it first."""
    colours: dict[str, str] = {}
    for label in labels:
        first = crc32(label.encode("utf8", "surrogatepass"))
        turns = [_COLOURS[(first + step) % len(_COLOURS)] for step in range(len(_COLOURS))]
        colours[label] = next((each for each in turns if each not in colours.values()), turns[0])
    return colours


def _part(text: str, inside: Sequence[Entity], ending: Sequence[Entity], colours: dict[str, str]) -> str:
    if not inside:
        return escape(text)
    title = escape("; ".join(_told(entity) for entity in inside))
    labels = "".join(f'<span style="{_LABEL}">{escape(entity.label)}</span>' for entity in ending)
    background = f"background:{colours[inside[-1].label]};{_MARK}"
    return f'<mark style="{background}" title="{title}">{escape(text)}{labels}</mark>'


def _told(entity: Entity) -> str:
    return entity.label if entity.score is None else f"{entity.label} {entity.score:.2f}"
