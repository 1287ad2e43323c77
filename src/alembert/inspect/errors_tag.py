"""Errors of the task `tag`: their kinds, and by what they gather.

Recall of a row is over the right entities that fall into it, precision over the guesses that do, so a row can have the
one without the other. A row is a description, not a cause: long entities are also rarer, and split into more pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from alembert.inspect.entity_ground import Ground
from alembert.inspect.errors import Case, Survey
from alembert.inspect.findings import Finding, Kind, compare
from alembert.inspect.marked_text import Mark
from alembert.inspect.ranges import Sorting, range_names, range_of
from alembert.inspect.tables import SCORE_HEADER, Table, score_cells
from alembert.tasks.example import surface_key
from alembert.tasks.files import NO_HASHES_REASON
from alembert.tasks.metrics.spans import EntityTuple
from alembert.tasks.metrics.tally import Tally
from alembert.tasks.tag.data import TagExample, TagPrediction

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

KINDS: Final[dict[Kind, str]] = {
    "right": "borders and type are right",
    "boundary": "the type is right, the borders are not",
    "type": "the borders are right, the type is not",
    "both": "it overlaps, borders and type are wrong",
    "missed": "there is no guess for it",
    "spurious": "a guess where there is no entity, or one that another guess is nearer to",
}
ONE_WINDOW: Final = "read whole"
UNSEEN, SEEN = "unseen", "seen"
_WORDS = (1, 2, 3, 4, 5, 8)
_PIECES = (1, 2, 3, 4, 6, 10, 20)
_TIMES = (0, 1, 2, 5, 10, 50)
_LENGTHS = (0, 16, 32, 64, 128, 256, 512)
_DISTANCES = (0, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Facts:
    """What an entity is sorted by."""

    label: str
    words: int
    pieces: int
    text_words: int
    to_border: int | None
    times: int | None
    """How often it was an entity of this type in training; none: not known."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """One example with its findings; an entity with a gap is a finding of its own, which nothing can match."""

    example: TagExample
    findings: tuple[Finding, ...]
    scores: Mapping[EntityTuple, float]
    ground: Ground

    @property
    def tally(self) -> Tally:
        right = sum(found.kind == "right" for found in self.findings)
        gold = sum(found.gold is not None for found in self.findings)
        guess = sum(found.guess is not None for found in self.findings)
        return Tally(tp=right, fp=guess - right, fn=gold - right)

    @property
    def errors(self) -> int:
        return sum(found.kind != "right" for found in self.findings)


def survey(model: TaskModel, examples: Sequence[TagExample], predictions: Sequence[TagPrediction]) -> Survey:
    """Sort the errors of a tagger."""
    encoded = model.task.encode(examples, model.engine.tokenizer, model.engine.longest)
    compared = [
        _compared(example, prediction, Ground.of(each))
        for example, prediction, each in zip(examples, predictions, encoded, strict=True)
    ]
    surfaces = model.surfaces()
    facts = [fact for each in compared for fact in _facts(each, surfaces)]
    wrong = sorted((each for each in compared if each.errors), key=lambda each: (-each.errors, each.tally.f1))
    tables = (_kinds(compared), *_breakdowns(facts), *_confusions(compared))
    notes = () if surfaces is not None else (f"Which entities were seen in training is not known: {NO_HASHES_REASON}.",)
    told = f"{len(wrong):,} with errors, {sum(each.errors for each in wrong):,} in all"
    return Survey(told=told, tables=tables, cases=tuple(map(_case, wrong)), notes=notes)


def _compared(example: TagExample, prediction: TagPrediction, ground: Ground) -> _Compared:
    scores = {
        (entity.start, entity.end, entity.label): entity.score
        for entity in prediction.entities
        if example.annotates(entity.label)
    }
    gold = [span for span in example.entities or () if example.annotates(span[2])]
    gaps = [Finding("missed", span, None) for span in example.in_parts if example.annotates(span[2])]
    return _Compared(example, (*compare(gold, scores), *gaps), scores, ground)


# -- tables


def _kinds(compared: Sequence[_Compared]) -> Table:
    counts = Counter(found.kind for each in compared for found in each.findings)
    rows = tuple((kind, counts[kind], told) for kind, told in KINDS.items())
    return Table(name="kinds", title="Kinds of errors", header=("kind", "count", "what it is"), rows=rows)


def _facts(compared: _Compared, surfaces: Mapping[str, int] | None) -> Iterator[tuple[Facts, str]]:
    """Give the facts of each entity with what it counts as: `tp`, `fp` or `fn`."""
    for found in compared.findings:
        if found.kind == "right" and found.gold is not None:
            yield _fact(found.gold, compared, surfaces), "tp"
            continue
        if found.gold is not None:
            yield _fact(found.gold, compared, surfaces), "fn"
        if found.guess is not None:
            yield _fact(found.guess, compared, surfaces), "fp"


def _fact(entity: EntityTuple, compared: _Compared, surfaces: Mapping[str, int] | None) -> Facts:
    ground = compared.ground
    words, pieces = ground.words_of(entity), ground.pieces_of(entity)
    surface = compared.example.text[entity[0] : entity[1]]
    return Facts(
        label=entity[2],
        words=words[1] - words[0],
        pieces=pieces[1] - pieces[0],
        text_words=len(ground.words),
        to_border=ground.to_border(entity),
        times=None if surfaces is None else surfaces.get(surface_key(surface, entity[2]), 0),
    )


def _breakdowns(facts: Sequence[tuple[Facts, str]]) -> Iterator[Table]:
    types = sorted({fact.label for fact, _ in facts})
    yield _breakdown(Sorting("by_type", "By type", "type", types, lambda fact: fact.label), facts)
    for sorting in _SORTINGS:
        yield _breakdown(sorting, facts)
    if any(fact.times is not None for fact, _ in facts):
        for sorting in _SORTINGS_BY_TRAINING:
            yield _breakdown(sorting, facts)


def _breakdown(sorting: Sorting[Facts], facts: Sequence[tuple[Facts, str]]) -> Table:
    """Score each group of entities on its own; groups without any are left out."""
    counts = Counter((sorting.group(fact), outcome) for fact, outcome in facts)
    rows = []
    for group in sorting.groups:
        tally = Tally(**{outcome: counts[group, outcome] for outcome in ("tp", "fp", "fn")})
        if tally.occurs:
            rows.append((group, *score_cells(tally)))
    return Table(name=sorting.name, title=sorting.title, header=(sorting.of, *SCORE_HEADER), rows=tuple(rows))


def _seen(fact: Facts) -> str:
    return SEEN if fact.times else UNSEEN


def _distance(fact: Facts) -> str:
    return ONE_WINDOW if fact.to_border is None else range_of(fact.to_border, _DISTANCES)


_SORTINGS: Final[tuple[Sorting[Facts], ...]] = (
    Sorting.by_range("by_words", "By length of the entity", "words", _WORDS, lambda fact: fact.words),
    Sorting.by_range("by_pieces", "By pieces of the entity", "pieces", _PIECES, lambda fact: fact.pieces),
    Sorting.by_range("by_text_length", "By length of the example", "words", _LENGTHS, lambda fact: fact.text_words),
    Sorting(
        "by_border",
        "By distance to where a window was cut",
        "pieces",
        [ONE_WINDOW, *range_names(_DISTANCES)],
        _distance,
    ),
)
_SORTINGS_BY_TRAINING: Final[tuple[Sorting[Facts], ...]] = (
    Sorting("by_seen", "Seen in training with this type", "surface", [SEEN, UNSEEN], _seen),
    Sorting.by_range("by_times", "By times seen in training", "times", _TIMES, lambda fact: fact.times or 0),
)


def _confusions(compared: Sequence[_Compared]) -> Iterator[Table]:
    counts = Counter(
        (found.gold[2], found.guess[2])
        for each in compared
        for found in each.findings
        if found.kind in ("type", "both") and found.gold is not None and found.guess is not None
    )
    if counts:
        rows = tuple((gold, guess, count) for (gold, guess), count in counts.most_common())
        yield Table(name="confusions", title="Types taken for others", header=("gold", "guess", "count"), rows=rows)


# -- examples


def _case(compared: _Compared) -> Case:
    tally = compared.tally
    told = f"{compared.errors} error{'s' * (compared.errors > 1)}; {tally.tp:.0f} of {tally.support:.0f} entities found"
    told += f", {tally.fp:.0f} of {tally.guessed:.0f} guesses wrong" if tally.guessed else ", nothing guessed"
    marks = [mark for found in compared.findings for mark in _marks(found, compared.scores)]
    example = compared.example
    return Case(
        id=example.id,
        where=example.where,
        told=told,
        texts=example.texts,
        marks=tuple(sorted(marks, key=_place)),
    )


def _marks(found: Finding, scores: Mapping[EntityTuple, float]) -> Iterator[Mark]:
    if found.gold is not None:
        yield Mark(*found.gold, "gold", found.kind)
    if found.guess is not None:
        yield Mark(*found.guess, "guess", found.kind, scores[found.guess])


def _place(mark: Mark) -> tuple[int, int, str]:
    return mark.start, mark.end, mark.side
