"""Errors of the task `tag`: their kinds, and by what they gather.

Recall of a row is over the right entities that fall into it, precision over the guesses that do, so a row can have the
one without the other. A row is a description, not a cause: long entities are also rarer, and split into more pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from alembert.data.windows import Row
from alembert.html import EntityMark
from alembert.infer.evaluate import ConfusionMatrix
from alembert.inspect.errors import ErrorAnalysis, ErrorCase, ErrorQuestion
from alembert.inspect.errors.entity_matches import MATCH_KINDS, EntityMatch, match_entities
from alembert.inspect.tables import (
    SCORE_HEADER,
    SCORE_SHARES,
    Cell,
    Grouping,
    Table,
    range_name,
    range_names,
    score_cells,
)
from alembert.tasks.example import EncodedExample, surface_key
from alembert.tasks.files import NO_HASHES_REASON
from alembert.tasks.metrics import Tally
from alembert.tasks.metrics.spans import EntityTuple
from alembert.tasks.tag.data import TagExample, TagPrediction
from alembert.tasks.tag.tags import WordOffsets

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


# W words


@dataclass(frozen=True, slots=True)
class _Window:
    """Pieces that are read at once, and the words that are predicted from them."""

    start: int
    end: int
    own: tuple[int, int]


@dataclass(frozen=True, eq=False)
class WindowAlignment:
    """An encoded example of the task `tag`."""

    words: WordOffsets
    windows: tuple[_Window, ...]

    @classmethod
    def from_encoded(cls, encoded: EncodedExample) -> WindowAlignment:
        """Find words and windows; a window in which no word begins is of no use here."""
        layout = encoded.layout
        parts = zip(encoded.rows, layout.first_words, layout.owned_words, strict=True)
        windows = [_to_window(row, first, own, layout.words) for row, first, own in parts if len(row.positions)]
        return cls(layout.words, tuple(windows))

    def words_of(self, entity: EntityTuple) -> tuple[int, int]:
        """Return the words that an entity touches; at least one, if there is any."""
        first = int(np.searchsorted(self.words.ends_W, entity[0], side="right"))
        first = min(first, max(0, len(self.words) - 1))
        return first, max(first + 1, int(np.searchsorted(self.words.starts_W, entity[1], side="left")))

    def pieces_of(self, entity: EntityTuple) -> tuple[int, int]:
        """Return the pieces of those words."""
        first, end = self.words_of(entity)
        return self._piece(first), self._piece(end)

    def distance_to_border(self, entity: EntityTuple) -> int | None:
        """Count the pieces from an entity to where its window was cut; none: the text was read whole."""
        if len(self.windows) < 2:
            return None
        word, _ = self.words_of(entity)
        begin, end = self.pieces_of(entity)
        for number, window in enumerate(self.windows):
            if window.own[0] <= word < window.own[1]:
                before = [begin - window.start] if number else []
                after = [window.end - end] if number + 1 < len(self.windows) else []
                return max(0, min(before + after))
        return None

    def _piece(self, word: int) -> int:
        if word < len(self.words):
            return int(self.words.pieces_W[word])
        return self.windows[-1].end if self.windows else 0


def _to_window(row: Row, first: int, own: tuple[int, int], words: WordOffsets) -> _Window:
    # The first token of a row is [CLS], the last [SEP].
    start = int(words.pieces_W[first]) - int(row.positions[0]) + 1
    return _Window(start, start + row.length - 2, own)


_ERROR_KINDS: Final = tuple(kind for kind in MATCH_KINDS if kind != "right")
NO_TYPE: Final = "(none)"
"""Row and column of entities that were missed, and of guesses where there is none."""
ONE_WINDOW_NAME: Final = "read whole"
UNSEEN, SEEN = "unseen", "seen"
_WORDS = (1, 2, 3, 4, 5, 8)
_PIECES = (1, 2, 3, 4, 6, 10, 20)
_TIMES = (0, 1, 2, 5, 10, 50)
_LENGTHS = (0, 16, 32, 64, 128, 256, 512)
_DISTANCES = (0, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class EntityFeatures:
    """What an entity is sorted by."""

    label: str
    words: int
    pieces: int
    text_words: int
    to_border: int | None
    times: int | None
    """How often it was an entity of this type in training; None: the training data is not known."""


@dataclass(frozen=True, slots=True)
class _ComparedExample:
    """One example with its matches; an entity with a gap is missed, since no guess can match it."""

    example: TagExample
    matches: tuple[EntityMatch, ...]
    scores: Mapping[EntityTuple, float]
    alignment: WindowAlignment

    @property
    def tally(self) -> Tally:
        right = sum(match.kind == "right" for match in self.matches)
        gold = sum(match.gold is not None for match in self.matches)
        guess = sum(match.guess is not None for match in self.matches)
        return Tally(tp=right, fp=guess - right, fn=gold - right)

    @property
    def errors(self) -> int:
        return sum(match.kind != "right" for match in self.matches)


def analyse_errors(
    model: TaskModel, examples: Sequence[TagExample], predictions: Sequence[TagPrediction]
) -> ErrorAnalysis:
    """Sort the errors of a tagger."""
    encoded = model.task.encode(examples, model.engine.tokenizer, model.engine.max_tokens)
    compared = [
        _compare_example(example, prediction, WindowAlignment.from_encoded(rows))
        for example, prediction, rows in zip(examples, predictions, encoded, strict=True)
    ]
    surfaces = model.surfaces()
    facts = [fact for example in compared for fact in _iter_features(example, surfaces)]
    wrong = sorted((example for example in compared if example.errors), key=lambda case: (-case.errors, case.tally.f1))
    tables = (_kind_table(compared), _label_table(compared), *_breakdowns(facts), *_confusions(compared))
    notes = () if surfaces is not None else (f"Which entities were seen in training is not known: {NO_HASHES_REASON}.",)
    summary = f"{len(wrong):,} with errors, {sum(example.errors for example in wrong):,} in all"
    return ErrorAnalysis(
        summary=summary,
        tables=tables,
        cases=tuple(map(_case, wrong)),
        notes=notes,
        totals={
            "entities": sum(int(example.tally.support) for example in compared),
            "of them found": sum(int(example.tally.tp) for example in compared),
            "wrong predictions": sum(int(example.tally.fp) for example in compared),
        },
        confusion=_confusion_matrix(compared),
    )


def _compare_example(example: TagExample, prediction: TagPrediction, alignment: WindowAlignment) -> _ComparedExample:
    scores = {
        (entity.start, entity.end, entity.label): entity.score
        for entity in prediction.entities
        if example.annotates(entity.label)
    }
    gold = [span for span in example.entities or () if example.annotates(span[2])]
    gaps = [EntityMatch("missed", span, None) for span in example.discontinuous if example.annotates(span[2])]
    return _ComparedExample(example, (*match_entities(gold, scores), *gaps), scores, alignment)


# -- tables


def _kind_table(compared: Sequence[_ComparedExample]) -> Table:
    counts = Counter(match.kind for example in compared for match in example.matches)
    rows = tuple((kind, counts[kind], meaning) for kind, meaning in MATCH_KINDS.items())
    header = ("kind", "count", "what it is")
    return Table(
        name="kinds", title="Kinds of errors", header=header, rows=rows, stacked=("count",), undrawn=("right",)
    )


def _label_table(compared: Sequence[_ComparedExample]) -> Table:
    """Count the errors of each type, most first: of what is right if there is any, else of what was guessed."""
    counts: dict[str, Counter[str]] = {}
    for example in compared:
        for match in example.matches:
            entity = match.gold or match.guess
            if match.kind != "right" and entity is not None:
                counts.setdefault(entity[2], Counter())[match.kind] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    occurring = [kind for kind in _ERROR_KINDS if any(found[kind] for found in counts.values())]
    rows: list[tuple[Cell, ...]] = [
        (label, *(found[kind] for kind in occurring), found.total()) for label, found in ordered
    ]
    header = ("label", *occurring, "all")
    return Table(
        name="kinds_by_label",
        title="Kinds of errors, by type",
        header=header,
        rows=tuple(rows),
        stacked=tuple(occurring),
    )


def _confusion_matrix(compared: Sequence[_ComparedExample]) -> ConfusionMatrix | None:
    """Count entities by right type and guessed type, whatever their borders; a single type cannot be confused."""
    pairs = Counter(
        (match.gold[2] if match.gold else NO_TYPE, match.guess[2] if match.guess else NO_TYPE)
        for example in compared
        for match in example.matches
    )
    labels = (*sorted({label for pair in pairs for label in pair} - {NO_TYPE}), NO_TYPE)
    counts = tuple(tuple(pairs[gold, guess] for guess in labels) for gold in labels)
    return ConfusionMatrix(labels=labels, counts=counts) if len(labels) > 2 else None


def _iter_features(
    compared: _ComparedExample, surfaces: Mapping[str, int] | None
) -> Iterator[tuple[EntityFeatures, str]]:
    """Yield the features of each entity with what it counts as: `tp`, `fp` or `fn`."""
    for match in compared.matches:
        if match.kind == "right" and match.gold is not None:
            yield _entity_features(match.gold, compared, surfaces), "tp"
            continue
        if match.gold is not None:
            yield _entity_features(match.gold, compared, surfaces), "fn"
        if match.guess is not None:
            yield _entity_features(match.guess, compared, surfaces), "fp"


def _entity_features(
    entity: EntityTuple, compared: _ComparedExample, surfaces: Mapping[str, int] | None
) -> EntityFeatures:
    alignment = compared.alignment
    words, pieces = alignment.words_of(entity), alignment.pieces_of(entity)
    surface = compared.example.text[entity[0] : entity[1]]
    return EntityFeatures(
        label=entity[2],
        words=words[1] - words[0],
        pieces=pieces[1] - pieces[0],
        text_words=len(alignment.words),
        to_border=alignment.distance_to_border(entity),
        times=None if surfaces is None else surfaces.get(surface_key(surface, entity[2]), 0),
    )


def _breakdowns(facts: Sequence[tuple[EntityFeatures, str]]) -> Iterator[Table]:
    types = sorted({fact.label for fact, _ in facts})
    yield _breakdown(Grouping("by_type", "By type", "type", types, lambda fact: fact.label), facts)
    for grouping in _GROUPINGS:
        yield _breakdown(grouping, facts)
    if any(fact.times is not None for fact, _ in facts):
        for grouping in _TRAINING_GROUPINGS:
            yield _breakdown(grouping, facts)


def _breakdown(grouping: Grouping[EntityFeatures], facts: Sequence[tuple[EntityFeatures, str]]) -> Table:
    """Score each group of entities on its own; groups without any are left out."""
    counts = Counter((grouping.group(fact), outcome) for fact, outcome in facts)
    rows = []
    for group in grouping.groups:
        tally = Tally(**{outcome: counts[group, outcome] for outcome in ("tp", "fp", "fn")})
        if tally.occurs:
            rows.append((group, *score_cells(tally)))
    header = (grouping.unit, *SCORE_HEADER)
    return Table(name=grouping.name, title=grouping.title, header=header, rows=tuple(rows), shares=SCORE_SHARES)


def _seen(fact: EntityFeatures) -> str:
    return SEEN if fact.times else UNSEEN


def _distance(fact: EntityFeatures) -> str:
    return ONE_WINDOW_NAME if fact.to_border is None else range_name(fact.to_border, _DISTANCES)


_GROUPINGS: Final[tuple[Grouping[EntityFeatures], ...]] = (
    Grouping.by_range("by_words", "By length of the entity", "words", _WORDS, lambda fact: fact.words),
    Grouping.by_range("by_pieces", "By pieces of the entity", "pieces", _PIECES, lambda fact: fact.pieces),
    Grouping.by_range("by_text_length", "By length of the example", "words", _LENGTHS, lambda fact: fact.text_words),
    Grouping(
        "by_border",
        "By distance to where a window was cut",
        "pieces",
        [ONE_WINDOW_NAME, *range_names(_DISTANCES)],
        _distance,
    ),
)
_TRAINING_GROUPINGS: Final[tuple[Grouping[EntityFeatures], ...]] = (
    Grouping("by_seen", "Seen in training with this type", "surface", [SEEN, UNSEEN], _seen),
    Grouping.by_range("by_times", "By times seen in training", "times", _TIMES, lambda fact: fact.times or 0),
)


def _confusions(compared: Sequence[_ComparedExample]) -> Iterator[Table]:
    counts = Counter(
        (match.gold[2], match.guess[2])
        for example in compared
        for match in example.matches
        if match.kind in ("type", "both") and match.gold is not None and match.guess is not None
    )
    if counts:
        rows = tuple((gold, guess, count) for (gold, guess), count in counts.most_common())
        yield Table(name="confusions", title="Types taken for others", header=("gold", "guess", "count"), rows=rows)


# -- examples


def _case(compared: _ComparedExample) -> ErrorCase:
    tally = compared.tally
    problem = (
        f"{compared.errors} error{'s' * (compared.errors > 1)}; {tally.tp:.0f} of {tally.support:.0f} entities found"
    )
    problem += f", {tally.fp:.0f} of {tally.guessed:.0f} guesses wrong" if tally.guessed else ", nothing guessed"
    marks = [mark for match in compared.matches for mark in _marks(match, compared.scores)]
    example = compared.example
    return ErrorCase(
        id=example.id,
        where=example.where,
        problem=problem,
        texts=example.texts,
        marks=tuple(sorted(marks, key=_mark_order)),
        question=_question(compared),
    )


def _question(compared: _ComparedExample) -> ErrorQuestion:
    """Ask about the wrong guess that the model is surest of, or why it missed the longest entity."""
    wrong = [match for match in compared.matches if match.kind != "right"]
    guesses = [match.guess for match in wrong if match.guess is not None]
    missed = [match.gold for match in wrong if match.gold is not None]
    if guesses:
        start, end, label = max(guesses, key=compared.scores.__getitem__)
    else:
        start, end, label = max(missed, key=lambda entity: entity[1] - entity[0])
    return ErrorQuestion(example=compared.example, span=(start, end), label=label)


def _marks(match: EntityMatch, scores: Mapping[EntityTuple, float]) -> Iterator[EntityMark]:
    if match.gold is not None:
        yield EntityMark(*match.gold, "gold", match.kind)
    if match.guess is not None:
        yield EntityMark(*match.guess, "guess", match.kind, scores[match.guess])


def _mark_order(mark: EntityMark) -> tuple[int, int, str]:
    return mark.start, mark.end, mark.side
