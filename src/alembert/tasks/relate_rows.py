"""Rows of the task `relate`: a text with pieces of our own around two entities, or in their place.

Whatever marked the entities in the file is taken out, so the model reads `[CLS] ... [E1] aspirin [/E1] ... [E2] COX-2
[/E2] ... [SEP]`, and the same row comes from a marked sentence and from the plain one with the offsets of its entities.
Of a text that is longer than the row, the tokens around the two entities are read, as many before as behind where there
are as many; what is left out is counted. A pair whose entities are farther apart than a row is long has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.data.windows import IntArray, Row
from alembert.tasks.relate_example import Mention, RelateExample
from alembert.tasks.relate_pairs import Candidate, context_of
from alembert.text.tokenizer import Encoding, Tokenizer

FIRST: Final = ("[E1]", "[/E1]")
SECOND: Final = ("[E2]", "[/E2]")
MARKERS: Final = {
    "[E1]": "first entity",
    "[/E1]": "end of first entity",
    "[E2]": "second entity",
    "[/E2]": "end of second entity",
}
"""Piece -> the words that its row of the embedding begins as: near each other, and not the same."""


class _Region(NamedTuple):
    """A stretch of the text, mostly an empty one, that a piece takes the place of."""

    start: int
    end: int
    piece: str


@dataclass(frozen=True)
class Draft:
    """A row before it is encoded: stretches of text, one more than the pieces that stand between them."""

    texts: tuple[str, ...]
    pieces: tuple[str, ...]
    heads: tuple[int, int]
    """Which of the pieces the head and the tail of the pair are read at."""


@dataclass(frozen=True, eq=False)
class Made:
    """A row, and how many characters of its text it has no room for."""

    row: Row
    lost: int = 0


def draft_of(example: RelateExample, pair: Candidate, stand_ins: Mapping[str, str]) -> Draft | None:
    """Put pieces around the two entities, or in their place; none: they cannot be replaced.

    Entities that overlap cannot, nor those of a type without a piece. `stand_ins` names the piece for each type (in lower case) if entities are replaced; empty: they are marked.
    """
    head, tail = example.mentions[pair.head], example.mentions[pair.tail]
    regions = _replaced(head, tail, stand_ins) if stand_ins else _wrapped(head, tail)
    if regions is None:
        return None
    at, end = context_of(example, pair)
    texts = []
    for region in regions:
        texts.append(example.text[at : region.start])
        at = max(at, region.end)
    pieces = tuple(region.piece for region in regions)
    places = (0, len(pieces) - 1) if head.start <= tail.start else (len(pieces) - 1, 0)
    heads = places if stand_ins else (pieces.index(FIRST[0]), pieces.index(SECOND[0]))
    return Draft((*texts, example.text[at:end]), pieces, heads)


def _wrapped(head: Mention, tail: Mention) -> list[_Region]:
    """Sort the four markers: at one place, what ends comes before what begins, and the longer entity is outside."""
    keyed = []
    for mention, (opening, closing) in ((head, FIRST), (tail, SECOND)):
        start, end = mention.whole
        keyed.append(((start, 1, -end), _Region(start, mention.start, opening)))
        keyed.append(((mention.end, 0, -start), _Region(mention.end, end, closing)))
    return [region for _, region in sorted(keyed)]


def _replaced(head: Mention, tail: Mention, stand_ins: Mapping[str, str]) -> list[_Region] | None:
    pieces = [stand_ins.get(each.type.casefold()) for each in (head, tail)]
    regions = sorted({_Region(*each.whole, piece or "") for each, piece in zip((head, tail), pieces, strict=True)})
    overlap = len(regions) == 2 and regions[1].start < regions[0].end
    return None if overlap or None in pieces else regions


def made_rows(
    drafts: Sequence[Draft], tokenizer: Tokenizer, limit: int, *, reads_markers: bool
) -> Iterator[Made | None]:
    """Encode drafts as rows of at most `limit` tokens; none for a pair that does not fit."""
    texts = list(dict.fromkeys(text for draft in drafts for text in draft.texts))
    encoded = dict(zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True))
    for draft in drafts:
        yield _made(draft, [encoded[text] for text in draft.texts], tokenizer, limit - 2, reads_markers)


def _made(draft: Draft, parts: Sequence[Encoding], tokenizer: Tokenizer, room: int, reads_markers: bool) -> Made | None:
    pieces = [tokenizer.id_of(piece) for piece in draft.pieces]
    ids, at = _joined(parts, pieces)
    start, end = 0, len(ids)
    if len(ids) > room:
        found = _window(at, _solid(parts, len(ids), at), room)
        if found is None:
            return None
        start, end = found
    places = at[list(draft.heads)] - start + 1 if reads_markers else np.zeros(1, np.int64)
    row = Row(ids=np.concatenate(([tokenizer.cls_id], ids[start:end], [tokenizer.sep_id])), places=places)
    return Made(row, _lost(parts, at, start, end) if len(ids) > room else 0)


def _joined(parts: Sequence[Encoding], pieces: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Put parts and pieces in turn; give the tokens, and where the pieces stand."""
    flat: list[int] = []
    at: list[int] = []
    for part, piece in zip(parts, pieces, strict=False):
        flat += part.ids
        at.append(len(flat))
        flat.append(piece)
    flat += parts[-1].ids
    return np.array(flat, np.int64), np.array(at, np.int64)


def _window(at: IntArray, solid: npt.NDArray[np.bool_], room: int) -> tuple[int, int] | None:
    """Choose the tokens that are read: all from the first piece to the last, and as many on either side as fit."""
    first, last, length = int(at[0]), int(at[-1]) + 1, len(solid)
    spare = room - (last - first)
    if spare < 0:
        return None
    before = min(first, max(spare // 2, spare - (length - last)))
    start, end = first - before, min(length, last + spare - before)
    while start < first and solid[start]:
        start += 1
    while end > last and end < length and solid[end]:
        end -= 1
    return start, end


def _solid(parts: Sequence[Encoding], length: int, at: IntArray) -> npt.NDArray[np.bool_]:
    """Mark the tokens that go on with the word before them: no border stands there."""
    solid = np.zeros(length, np.bool_)
    begin = 0
    for part, end in zip(parts, [*at.tolist(), length], strict=True):
        words = np.array([-1 if word is None else word for word in part.word_ids])
        solid[begin + 1 : end] = words[1:] == words[:-1]
        begin = end + 1
    return solid


def _lost(parts: Sequence[Encoding], at: IntArray, start: int, end: int) -> int:
    """Count the characters of the tokens outside the window."""
    lost = begin = 0
    for part, border in zip(parts, [*at.tolist(), -1], strict=True):
        outside = (o for n, o in enumerate(part.offsets, begin) if not start <= n < end)
        lost += sum(last - first for first, last in outside)
        begin = border + 1
    return lost
