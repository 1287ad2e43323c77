"""Rows of the task `relate`: a text with pieces of our own around two entities, or in their place.

Whatever marked the entities in the file is taken out, so the model reads `[CLS] ... [E1] aspirin [/E1] ... [E2] COX-2
[/E2] ... [SEP]`, and the same row comes from a marked sentence and from the plain one with the offsets of its entities.
Of a text that is longer than the row, the tokens around the two entities are read, as many before as behind where there
are as many; what is left out is counted. A pair whose entities are farther apart than a row is long has none.

Which label means that there is no relation is detected in the training data, and described in sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.data.windows import IntArray, Row
from alembert.errors import BadInput, BadSetting
from alembert.tasks.classify.rows import format_labels
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.metrics.classes import encode_labels
from alembert.tasks.relate.data import EntityMention, RelateExample, RelateForm, RelateSettings
from alembert.tasks.relate.pairs import CandidatePair, PairRules, get_context
from alembert.text.tokenizer import Encoding, Tokenizer

HEAD_MARKERS: Final = ("[E1]", "[/E1]")
TAIL_MARKERS: Final = ("[E2]", "[/E2]")
ENTITY_MARKERS: Final = {
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
class RowDraft:
    """A row before it is encoded: stretches of text, one more than the pieces that stand between them."""

    texts: tuple[str, ...]
    pieces: tuple[str, ...]
    marker_indices: tuple[int, int]
    """Which of the pieces the head and the tail of the pair are read at."""
    starts: tuple[int, ...] = ()
    """Where each stretch begins in the text of the example."""


@dataclass(frozen=True, eq=False)
class RelateRow:
    """A row, and how many characters of its text it has no room for."""

    row: Row
    cut_characters: int = 0


@dataclass(frozen=True, eq=False)
class PairLayout:
    """The pairs of an example, and which of them have a row."""

    pairs: tuple[CandidatePair, ...]
    is_read: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class RelateRowBuilder:
    """How pairs of entities become rows."""

    tokenizer: Tokenizer
    limit: int
    """Tokens of a row at most."""
    labels: tuple[str, ...]
    stand_ins: Mapping[str, str]
    reads_markers: bool

    def encode(
        self, examples: Sequence[RelateExample], listed_pairs: Sequence[Sequence[CandidatePair]]
    ) -> list[EncodedExample]:
        """Encode the pairs of each example; the texts of all of them go through the tokenizer at once."""
        drafts = [
            [draft_row(example, pair, self.stand_ins) if pair.is_reachable else None for pair in pairs]
            for example, pairs in zip(examples, listed_pairs, strict=True)
        ]
        flat = [draft for own in drafts for draft in own if draft is not None]
        made = encode_rows(flat, self.tokenizer, self.limit, reads_markers=self.reads_markers)
        return [
            self._encode(example, pairs, [None if draft is None else next(made) for draft in own])
            for example, pairs, own in zip(examples, listed_pairs, drafts, strict=True)
        ]

    def _encode(
        self, example: RelateExample, pairs: Sequence[CandidatePair], made: Sequence[RelateRow | None]
    ) -> EncodedExample:
        rows = [
            replace(read.row, labels=None if pair.label is None else encode_labels([pair.label], self.labels))
            for pair, read in zip(pairs, made, strict=True)
            if read is not None
        ]
        is_read = tuple(read is not None for read in made)
        labelled = [has_row for pair, has_row in zip(pairs, is_read, strict=True) if pair.label is not None]
        coverage = Coverage(
            examples=1,
            characters=len(example.text),
            tokens=sum(row.length for row in rows),
            windows=len(rows),
            unknown=sum(int(np.count_nonzero(row.ids == self.tokenizer.unk_id)) for row in rows),
            gold=len(labelled) + len(example.unlinked),
            unreachable=labelled.count(False) + len(example.unlinked),
            cut_characters=sum(read.cut_characters for read in made if read is not None),
        )
        return EncodedExample(tuple(rows), coverage, PairLayout(tuple(pairs), is_read))


def draft_row(example: RelateExample, pair: CandidatePair, stand_ins: Mapping[str, str]) -> RowDraft | None:
    """Put pieces around the two entities, or in their place; none: they cannot be replaced.

    Entities that overlap cannot, nor those of a type without a piece. `stand_ins` names the piece for each type (in
    lower case) if entities are replaced; empty: they are marked.
    """
    head, tail = example.mentions[pair.head], example.mentions[pair.tail]
    regions = _replacement_regions(head, tail, stand_ins) if stand_ins else _marker_regions(head, tail)
    if regions is None:
        return None
    at, end = get_context(example, pair)
    texts, starts = [], []
    for region in regions:
        texts.append(example.text[at : region.start])
        starts.append(at)
        at = max(at, region.end)
    pieces = tuple(region.piece for region in regions)
    ends = (0, len(pieces) - 1) if head.start <= tail.start else (len(pieces) - 1, 0)
    heads = ends if stand_ins else (pieces.index(HEAD_MARKERS[0]), pieces.index(TAIL_MARKERS[0]))
    return RowDraft((*texts, example.text[at:end]), pieces, heads, (*starts, at))


def _marker_regions(head: EntityMention, tail: EntityMention) -> list[_Region]:
    """Sort the four markers: at one place, what ends comes before what begins, and the longer entity is outside."""
    keyed = []
    for mention, (opening, closing) in ((head, HEAD_MARKERS), (tail, TAIL_MARKERS)):
        start, end = mention.whole
        keyed.append(((start, 1, -end), _Region(start, mention.start, opening)))
        keyed.append(((mention.end, 0, -start), _Region(mention.end, end, closing)))
    return [region for _, region in sorted(keyed)]


def _replacement_regions(
    head: EntityMention, tail: EntityMention, stand_ins: Mapping[str, str]
) -> list[_Region] | None:
    mentions = (head, tail)
    pieces = [stand_ins.get(mention.type.casefold()) for mention in mentions]
    regions = sorted({_Region(*end.whole, piece or "") for end, piece in zip(mentions, pieces, strict=True)})
    overlap = len(regions) == 2 and regions[1].start < regions[0].end
    return None if overlap or None in pieces else regions


def encode_rows(
    drafts: Sequence[RowDraft], tokenizer: Tokenizer, limit: int, *, reads_markers: bool
) -> Iterator[RelateRow | None]:
    """Encode drafts as rows of at most `limit` tokens; none for a pair that does not fit."""
    texts = list(dict.fromkeys(text for draft in drafts for text in draft.texts))
    encoded = dict(zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True))
    for draft in drafts:
        yield _encode_row(draft, [encoded[text] for text in draft.texts], tokenizer, limit - 2, reads_markers)


def _encode_row(
    draft: RowDraft, parts: Sequence[Encoding], tokenizer: Tokenizer, room: int, reads_markers: bool
) -> RelateRow | None:
    pieces = [tokenizer.id_of(piece) for piece in draft.pieces]
    ids, at = _interleave(parts, pieces)
    start, end = 0, len(ids)
    if len(ids) > room:
        window = _choose_window(at, _mark_continuations(parts, len(ids), at), room)
        if window is None:
            return None
        start, end = window
    positions = at[list(draft.marker_indices)] - start + 1 if reads_markers else np.zeros(1, np.int64)
    row = Row(ids=np.concatenate(([tokenizer.cls_id], ids[start:end], [tokenizer.sep_id])), positions=positions)
    return RelateRow(row, _count_cut_characters(parts, at, start, end) if len(ids) > room else 0)


def _interleave(parts: Sequence[Encoding], pieces: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Put parts and pieces in turn; return the tokens, and where the pieces stand."""
    flat: list[int] = []
    at: list[int] = []
    for part, piece in zip(parts, pieces, strict=False):
        flat += part.ids
        at.append(len(flat))
        flat.append(piece)
    flat += parts[-1].ids
    return np.array(flat, np.int64), np.array(at, np.int64)


def _choose_window(at: IntArray, solid: npt.NDArray[np.bool_], room: int) -> tuple[int, int] | None:
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


def _mark_continuations(parts: Sequence[Encoding], length: int, at: IntArray) -> npt.NDArray[np.bool_]:
    """Mark the tokens that go on with the word before them: no border stands there."""
    solid = np.zeros(length, np.bool_)
    begin = 0
    for part, end in zip(parts, [*at.tolist(), length], strict=True):
        words = np.array([-1 if word is None else word for word in part.word_ids])
        solid[begin + 1 : end] = words[1:] == words[:-1]
        begin = end + 1
    return solid


def _count_cut_characters(parts: Sequence[Encoding], at: IntArray, start: int, end: int) -> int:
    """Count the characters of the tokens outside the window."""
    lost = begin = 0
    for part, border in zip(parts, [*at.tolist(), -1], strict=True):
        outside = (o for n, o in enumerate(part.offsets, begin) if not start <= n < end)
        lost += sum(last - first for first, last in outside)
        begin = border + 1
    return lost


_NEGATIVE_LABEL: Final = re.compile(r"0|none|no|norel(ation)?|na|nil|null|neg(ative)?|other|unrelated|.*false")
DOCUMENT_NEGATIVE: Final = "none"
"""What pairs of a document that have no relation are called, if nothing else is asked for."""


def detect_form(examples: Sequence[RelateExample]) -> RelateForm:
    """Detect how the entities are marked, the same way in all examples."""
    first = examples[0].form
    other = next((example for example in examples if example.form != first), None)
    if other is not None:
        raise BadInput(
            f"{other.where} is {describe_form(other.form)}, and {examples[0].where} is {describe_form(first)}. Learn from one kind "
            "at a time."
        )
    return first


def describe_form(form: RelateForm) -> str:
    return {
        "marked": "a sentence with two marked entities",
        "anonymised": "a sentence with words such as @GENE$ in the place of its entities",
        "document": "a document with entities",
        "plain": "a text without entities",
    }[form]


def detect_negative_label(examples: Sequence[RelateExample], settings: RelateSettings) -> str | None:
    """Detect which label means that there is no relation."""
    if settings.negative_label != "auto":
        return settings.negative_label.strip() or None
    if examples[0].form == "document":
        return DOCUMENT_NEGATIVE
    labels = {link.label for example in examples for link in example.links or ()}
    fit = [label for label in labels if _NEGATIVE_LABEL.fullmatch(re.sub(r"[\W_]", "", label).lower())]
    return fit[0] if len(fit) == 1 and len(labels) > 1 else None


def check_links(examples: Sequence[RelateExample]) -> None:
    """Refuse examples without any relation."""
    if any(example.links for example in examples):
        return
    if all(example.form == "document" and len(example.mentions) < 2 for example in examples):
        raise BadInput(
            "No document has two entities, so there is nothing to relate. Give documents with entities and relations; "
            "`alembert annotate TAGGER FILE` finds the entities."
        )
    raise BadInput("There are no relations to learn from. Check what was set aside, and why.")


def note_texts_without_pairs(examples: Sequence[RelateExample], rules: PairRules) -> Iterator[str]:
    """Note how many texts have no entities that could be related."""
    count = sum(example.form == "document" and not rules.has_related_types(example.mentions) for example in examples)
    if count:
        types = f" ({_describe_types(rules)})" if rules.is_typed else ""
        yield (
            f"{count:,} of {len(examples):,} texts have no two entities that this model relates{types}, so there is nothing "
            "to find in them. To have the entities found first, give a tagger before this model: alembert predict TAGGER "
            "MODEL TEXT, or alembert annotate TAGGER MODEL FILE."
        )


def check_negative(negative: str | None, labels: Sequence[str], settings: RelateSettings) -> None:
    """Refuse a label that was asked for and does not occur."""
    if settings.negative_label not in ("auto", "") and negative not in labels:
        raise BadSetting(
            f"`negative_label` of the task is {settings.negative_label!r}, and no training example has that label; they have "
            f"{format_labels(labels)}."
        )


def describe_decisions(
    rules: PairRules, labels: Sequence[str], form: RelateForm, layout: str, main: str
) -> Iterator[str]:
    """Describe what was detected in the data."""
    yield f"Each example is {describe_form(form)} ({layout})." if layout else f"Each example is {describe_form(form)}."
    if form == "document":
        yield from _describe_pairs(rules)
    elif rules.forward == rules.types == (("", ""),):
        yield "The first entity always comes first in the text, so the marks tell no direction."
    relations = [label for label in labels if label != rules.negative]
    many = "relation" if len(relations) == 1 else "relations"
    yield f"{len(relations)} {many}: {format_labels(relations)}."
    if rules.negative is None:
        yield "No label means that there is no relation, so micro_f1 is over all of them and equals accuracy."
    else:
        yield f"The label {rules.negative} means that there is no relation; micro_f1 and macro_f1 are over the others."
    yield f"Models are chosen by {main}."


def _describe_pairs(rules: PairRules) -> Iterator[str]:
    what = "concepts, each two at their nearest mentions" if rules.by_concept else "entities"
    far = {None: "as far apart as a row is long", 0: "in one sentence"}.get(
        rules.distance, f"up to {rules.distance} sentences apart"
    )
    yield f"Pairs of {what}, {far}, of the types that are related in training: {_describe_types(rules)}."
    if rules.forward:
        order = format_labels([f"{head} and {tail}" for head, tail in rules.forward])
        yield f"Their relations run in the order of the text, and so do the pairs: {order}."


def _describe_types(rules: PairRules) -> str:
    arrow = "to" if rules.directed else "and"
    return format_labels([f"{head} {arrow} {tail}" for head, tail in rules.types])
