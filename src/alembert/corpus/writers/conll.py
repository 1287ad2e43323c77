"""CoNLL: a token, a tab and an IOB2 tag a line, a blank line after each sentence, ``-DOCSTART- (id)`` before each document.

The format has tokens and no text, labels and nothing else. Tokens are words, single signs and single Chinese
characters, and are cut at the borders of every entity, so that each entity is whole tokens; a sentence is a line of the
text (or a section of kind "sentence"), joined to the next where an entity runs on. Of entities that overlap the longer
one is written. Everything else the format cannot hold is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from alembert.corpus.document import Document
from alembert.corpus.writers import (
    ConversionLosses,
    OutputTarget,
    count_unsupported_fields,
    get_covering_span,
    open_output,
    replace_forbidden,
)

_TOKEN = re.compile("[\u3400-\u9fff\uf900-\ufaff]|[^\\W\u3400-\u9fff\uf900-\ufaff]+|[^\\w\\s]")
_Mention = tuple[int, int, str]


def write(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as CoNLL with IOB2 tags; return what it cannot hold."""
    losses = ConversionLosses()
    with open_output(target) as file:
        for document in documents:
            file.write(("\n".join(_lines(document, losses)) + "\n").encode())
    return +losses


def _lines(document: Document, losses: ConversionLosses) -> Iterator[str]:
    count_unsupported_fields(document, losses, "sections")
    mentions = _select_non_overlapping(document, losses)
    yield f"-DOCSTART- ({replace_forbidden(document.id, chr(13), losses)})\n"
    rebuilt: list[str] = []
    for start, end in _sentences(document.text, mentions):
        inside = [mention for mention in mentions if start <= mention[0] < end]
        rows = list(_rows(document.text, start, end, inside))
        rebuilt.append(" ".join(token for token, _ in rows))
        yield "".join(f"{token}\t{tag}\n" for token, tag in rows)
    losses["texts whose spaces and line breaks are not kept"] += "\n".join(rebuilt) != document.text


def _select_non_overlapping(document: Document, losses: ConversionLosses) -> list[_Mention]:
    """Select the mentions in order, the longer one where they overlap."""
    selected: list[_Mention] = []
    for entity in sorted(document.entities, key=lambda entity: entity.start - entity.end):
        start, end = get_covering_span(entity, losses)
        losses["no place in the format for concept ids"] += len(entity.concepts)
        losses["no place in the format for attributes"] += len(entity.attributes)
        if not document.text[start:end].strip():
            losses["mentions of white space alone were lost"] += 1
        elif any(start < other_end and other_start < end for other_start, other_end, _ in selected):
            losses["mentions that overlap a longer one were lost"] += 1
        else:
            selected.append((start, end, replace_forbidden(entity.label, "\t\r", losses)))
    return sorted(selected)


def _sentences(text: str, mentions: list[_Mention]) -> Iterator[tuple[int, int]]:
    """Split at line breaks that are not inside a mention; blank lines are no sentences."""
    inside = {position for start, end, _ in mentions for position in range(start, end) if text[position] == "\n"}
    start = 0
    for end in [*(at for at, character in enumerate(text) if character == "\n" and at not in inside), len(text)]:
        if text[start:end].strip():
            yield start, end
        start = end + 1


def _rows(text: str, start: int, end: int, mentions: list[_Mention]) -> Iterator[tuple[str, str]]:
    at = start
    for first, last, label in mentions:
        yield from ((token, "O") for token in _TOKEN.findall(text[at:first]))
        for number, token in enumerate(_TOKEN.findall(text[first:last])):
            yield token, ("I-" if number else "B-") + label
        at = last
    yield from ((token, "O") for token in _TOKEN.findall(text[at:end]))
