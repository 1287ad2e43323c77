"""Settings, examples and predictions of the task `tag`: documents with entities, read, compared, shown and rewritten.

When examples are rewritten, entities stay around their words, which may be replaced like all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, get_args

from alembert.corpus import readers
from alembert.corpus.document import Document
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadSetting
from alembert.tasks.example import (
    Coverage,
    Edits,
    EntitySpan,
    Example,
    Rewriter,
    TaskPrediction,
    apply_edits,
    build_sentence_records,
)
from alembert.tasks.metrics import spans
from alembert.tasks.settings import check_choices, check_windows
from alembert.tasks.tag.tags import LabelledSpan, SchemeName
from alembert.tasks.task import TaskScores
from alembert.text.replacement import EditedText, are_isolated, find_editable_spans
from alembert.text.sentences import Span, guess_language, split_sentences

TagHead = Literal["softmax", "crf", "span"]
TagContext = Literal["auto", "document", "sentence"]


@dataclass(frozen=True, kw_only=True)
class TagSettings:
    """Settings of tagging."""

    head: TagHead = "softmax"
    """softmax (each word on its own), crf (the best tag sequence) or span (nested and overlapping entities)."""
    scheme: SchemeName = "bio"
    """Tags of softmax and crf: bio (begin, inside, outside) or bioes (end and single as well)."""
    every_token: bool = False
    """Tag every token with the tag of the CoNLL file, as for part of speech."""
    context: TagContext = "auto"
    """What is read at once. document: as much of a document as fits into a window; sentence: a sentence; auto: a sentence if
    the training examples are single sentences."""
    max_length: int = 256
    """Maximum tokens of a window, special tokens included; longer documents are read in several windows."""
    overlap: int | None = None
    """Tokens that neighbouring windows share, so that every word has context on both sides; none: a quarter."""
    partial: Literal["auto", "off"] = "auto"
    """Partial annotation. auto: a type that is frequent in some training files and never occurs in another of 100 documents
    or more is treated as unannotated there; off: as absent. `types` under [read] has precedence."""
    case: bool = False
    """Read letter case and shape of words beside their pieces, for models with an uncased vocabulary too."""
    lexicons: tuple[str, ...] = ()
    """Files of terms, each as LABEL=FILE, whose matches the model reads; a label may have several files."""
    abbreviations: bool = True
    """A match of a term counts also for the abbreviation that the document defines for it, and the other way round."""
    lexicon_dropout: float = 0.1
    """Share of the matches that training drops, so that the model does not lean on them."""
    known_lexicon_dropout: float = 0.5
    """The same for matches that are entities somewhere in the training data, which the model learns by heart."""

    def __post_init__(self) -> None:
        choices = {"head": get_args(TagHead), "scheme": get_args(SchemeName), "context": get_args(TagContext)}
        check_choices(self, {**choices, "partial": ("auto", "off")})
        check_windows(self.max_length, self.shared)
        for name in ("lexicon_dropout", "known_lexicon_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; expected a share from 0 to 1.")

    @property
    def is_by_sentence(self) -> bool:
        """Whether each sentence is read by itself."""
        return self.context == "sentence"

    @property
    def shared(self) -> int:
        """Tokens that windows share."""
        return self.max_length // 4 if self.overlap is None else self.overlap


SINGLE_SENTENCE_SHARE: Final = 0.9
"""Share of the training examples that must be single sentences for a tagger to read sentences."""
ANNOTATED_TYPES_KEY: Final = "annotated_types"
"""Where a document says, among its `meta`, which types are annotated in it."""
UNKNOWN_KEY: Final = "unknown"
"""Where a document lists, among its `meta`, the stretches of which nothing is known: [[start, end], ...]."""


@dataclass(frozen=True, kw_only=True)
class TagExample(Example):
    """A document, and its entities if they are known."""

    entities: tuple[LabelledSpan, ...] | None = None
    discontinuous: tuple[LabelledSpan, ...] = ()
    """Entities with a gap inside, from their first to their last character: no head finds them, and they count."""
    types: frozenset[str] | None = None
    """Types that are annotated in it; none: all."""
    unknown: tuple[Span, ...] = ()
    """Stretches of which it is not known whether they are entities: no loss is computed there."""
    sentences: tuple[int, ...] = ()
    """Where sentences begin, if the file says so."""
    source: str = field(default="", compare=False)
    """The file, or the folder, that it was read from."""

    @property
    def text(self) -> str:
        return self.texts[0]

    @cached_property
    def sentence_starts(self) -> tuple[int, ...]:
        """Where sentences begin: as the file says, else as they are found in the text."""
        return self.sentences or tuple(start for start, _ in split_sentences(self.text))

    @property
    def labels(self) -> list[str]:
        """The types of all its entities."""
        return [label for _, _, label in (*(self.entities or ()), *self.discontinuous)]

    def annotates(self, label: str) -> bool:
        """Whether entities of a type are annotated in it, so that one that is not there is none."""
        return self.types is None or label in self.types


@dataclass(frozen=True, slots=True)
class PredictedEntity:
    """A stretch of the text, what it is, and how sure the model is of it."""

    start: int
    end: int
    label: str
    score: float


@dataclass(frozen=True)
class TagPrediction(TaskPrediction[TagExample]):
    """The entities of one document."""

    entities: tuple[PredictedEntity, ...]
    coverage: Coverage

    def with_min_score(self, score: float) -> TagPrediction:
        """Leave out the entities whose score is lower."""
        kept = tuple(entity for entity in self.entities if entity.score >= score)
        withheld = self.coverage.withheld + len(self.entities) - len(kept)
        return TagPrediction(kept, replace(self.coverage, withheld=withheld))

    @property
    def spans(self) -> list[LabelledSpan]:
        return [(entity.start, entity.end, entity.label) for entity in self.entities]

    def to_record(self, example: TagExample) -> dict[str, Any]:
        return {
            "id": example.id,
            "text": example.text,
            "entities": [
                {**asdict(entity), "text": example.text[entity.start : entity.end]} for entity in self.entities
            ],
            "coverage": self.coverage.brief(),
        }

    def to_lines(self, example: TagExample) -> list[str]:
        return [
            f"{entity.start}-{entity.end}  {entity.label}  {entity.score:.2f}  {example.text[entity.start : entity.end]}"
            for entity in self.entities
        ]


def read_file(path: Path, options: ReadOptions, min_score: float = 0.0) -> Iterator[TagExample | readers.Item]:
    """Read documents; entities that a model was less sure of than `min_score` become unknown stretches."""
    for item in readers.read(path, options):
        yield _example(item, path, min_score) if isinstance(item, Document) else item


def _example(document: Document, path: Path, min_score: float) -> TagExample:
    sure = [entity for entity in document.entities if entity.score is None or entity.score >= min_score]
    unsure = tuple((entity.start, entity.end) for entity in document.entities if entity not in sure)
    whole = [entity for entity in sure if len(entity.spans) == 1]
    parted = [entity for entity in sure if len(entity.spans) > 1]
    annotated = document.meta.get(ANNOTATED_TYPES_KEY)
    return TagExample(
        id=document.id,
        texts=(document.text,),
        where=f"{path}, document {document.id}",
        source=str(path),
        entities=tuple((entity.start, entity.end, entity.label) for entity in whole),
        discontinuous=tuple((entity.start, entity.end, entity.label) for entity in parted),
        types=frozenset(map(str, annotated)) if isinstance(annotated, list) else None,
        unknown=(*_unknown_spans(document, path), *unsure),
        sentences=sentence_starts(document),
    )


def _unknown_spans(document: Document, path: Path) -> Iterator[Span]:
    stated = document.meta.get(UNKNOWN_KEY, [])
    if not isinstance(stated, list):
        return
    for pair in stated:
        is_span = isinstance(pair, list) and len(pair) == 2 and all(type(place) is int for place in pair)
        if not is_span or not 0 <= pair[0] < pair[1] <= len(document.text):
            raise BadFile(
                f"{path}, document {document.id}: `{UNKNOWN_KEY}` in `meta` has a stretch that is not in the text; expected "
                "pairs [start, end] of its characters. Write the file again."
            )
        yield pair[0], pair[1]


def sentence_starts(document: Document) -> tuple[int, ...]:
    """Return where sentences begin, if the document says so; none goes on from a section, such as the title, to the next."""
    marked = tuple(part.start for part in document.sections if part.kind == "sentence")
    if marked or len(document.sections) < 2:
        return marked
    text, language = document.text, guess_language(document.text)
    borders = sorted({0, *(part.start for part in document.sections), len(text)})
    return tuple(
        begin + start for begin, end in pairwise(borders) for start, _ in split_sentences(text[begin:end], language)
    )


def choose_context(settings: TagSettings, examples: Sequence[TagExample]) -> TagSettings:
    """Have a tagger that learns from single sentences read sentences, since it knows no others around them."""
    if settings.context != "auto":
        return settings
    single = sum(len(split_sentences(example.text)) <= 1 for example in examples)
    is_by_sentence = single >= SINGLE_SENTENCE_SHARE * len(examples)
    return replace(settings, context="sentence" if is_by_sentence else "document")


def check_entity_types(examples: Sequence[TagExample], types: Sequence[str]) -> None:
    """Refuse examples with entities of other types."""
    strange: dict[str, str] = {}
    for example in examples:
        for label in example.labels:
            if label not in types:
                strange.setdefault(label, example.where)
    if strange:
        label, where = next(iter(strange.items()))
        raise BadFile(
            f"The data have entities of {len(strange)} type(s) that the task does not know, such as {label!r} "
            f"({where}); it knows {', '.join(types)}. Use data of the same types, or fine-tune on all of them."
        )


def collect_mentions(examples: Sequence[TagExample]) -> frozenset[str]:
    """Collect the entities of examples in lower case."""
    return frozenset(
        example.text[start:end].lower() for example in examples for start, end, _ in example.entities or ()
    )


def check_gold(examples: Sequence[TagExample]) -> None:
    """Refuse to score by examples that leave open whether some of their words are entities."""
    silver = [example for example in examples if example.unknown]
    if silver:
        raise BadFile(
            f"{len(silver):,} of {len(examples):,} examples have unknown stretches, as `corpus label` writes them (the first: "
            f"{silver[0].where}), and a score needs all right answers. Score by files that people have annotated (--dev)."
        )


def pair_gold_and_predicted(
    examples: Sequence[TagExample], predictions: Sequence[TagPrediction]
) -> tuple[list[list[LabelledSpan]], list[list[LabelledSpan]]]:
    """Pair gold with guesses; types that are not annotated in an example are left out on both sides.

    An entity with a gap stands where no guess can be, so that it is missed whatever is guessed.
    """
    gold = [[span for span in _gold_spans(example) if example.annotates(span[2])] for example in examples]
    guess = [
        [span for span in prediction.spans if example.annotates(span[2])]
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    return gold, guess


def _gold_spans(example: TagExample) -> list[LabelledSpan]:
    gaps = ((-2 - number, -1 - number, span[2]) for number, span in enumerate(example.discontinuous))
    return [*(example.entities or ()), *gaps]


def compute_scores(examples: Sequence[TagExample], predictions: Sequence[TagPrediction]) -> TaskScores:
    """Score strictly, and in more lenient ways beside it."""
    scores = spans.span_scores(*pair_gold_and_predicted(examples, predictions))
    return TaskScores(
        main="f1",
        measures={
            "precision": scores.strict.precision,
            "recall": scores.strict.recall,
            "f1": scores.strict.f1,
            "macro_f1": scores.macro_f1,
            "partial_f1": scores.partial.f1,
            "borders_f1": scores.borders.f1,
            "overlap_f1": scores.overlap.f1,
        },
        by_label={label: tally.to_dict("guessed") for label, tally in scores.by_type.items()},
        coverage=Coverage.total(prediction.coverage for prediction in predictions),
        notes=tuple(_notes(examples, scores)),
    )


def _notes(examples: Sequence[TagExample], scores: spans.SpanScores) -> Iterator[str]:
    if scores.strict.support and not scores.strict.guessed:
        yield (
            f"The tagger finds no entity at all, and {scores.strict.support:,} are annotated: it calls every word outside, as "
            "after too short a training. Train longer or at a higher rate (--epochs, --learning-rate), and look at the training "
            "files with `alembert finetune` without --out."
        )
    narrowed = [example.types for example in examples if example.types is not None]
    if narrowed:
        types = ", ".join(sorted(frozenset().union(*narrowed)))
        yield (
            f"In {len(narrowed):,} of {len(examples):,} examples only {types} counts: guesses of other types are not "
            "scored there."
        )
    strange = {label: tally.guessed for label, tally in scores.by_type.items() if not tally.support}
    if strange:
        counts = ", ".join(f"{label} ({guessed:,})" for label, guessed in strange.items())
        yield (
            f"Guesses of types that are nowhere annotated here count as wrong: {counts}. If the files do not annotate "
            "these types, say which they do (--set read.types)."
        )


class TagRewriter(Rewriter[TagExample]):
    """Keeps the borders of entities and sentences between edits."""

    def editable_spans(self, example: TagExample) -> list[list[Span]]:
        spans = [*((start, end) for start, end, _ in _all_entities(example)), *example.unknown]
        borders = {border for span in spans for border in span}
        return [find_editable_spans(len(example.text), borders=borders | {*example.sentences})]

    def entities(self, example: TagExample) -> list[list[EntitySpan]]:
        spans = [*((start, end) for start, end, _ in _all_entities(example)), *example.unknown]
        alone = zip(example.entities or (), are_isolated(spans), strict=False)
        crossed = [
            entity
            for entity, is_alone in alone
            if is_alone and not any(entity[0] < at < entity[1] for at in example.sentences)
        ]
        return [crossed]

    def rewrite(self, example: TagExample, edits: Edits, name: str) -> TagExample:
        (made,) = apply_edits(example, edits)
        return replace(
            example,
            id=name,
            texts=(made.text,),
            entities=None if example.entities is None else _move_entities(example.entities, made),
            discontinuous=_move_entities(example.discontinuous, made),
            unknown=tuple(map(made.map_span, example.unknown)),
            sentences=tuple(map(made.map_offset, example.sentences)),
        )

    def records(self, example: TagExample) -> list[dict[str, Any]]:
        """Write a document; of an entity with a gap it is not known where the gap is, only that there is one."""
        spans = [
            *((label, [[start, end]]) for start, end, label in example.entities or ()),
            *((label, [[start, start + 1], [start + 1, end]]) for start, end, label in example.discontinuous),
        ]
        record = {
            "id": example.id,
            "text": example.text,
            "sections": build_sentence_records(list(pairwise([*example.sentences, len(example.text)]))),
            "entities": [
                {"id": f"T{number}", "label": label, "spans": fragments}
                for number, (label, fragments) in enumerate(spans, start=1)
            ],
            "meta": {
                **({} if example.types is None else {ANNOTATED_TYPES_KEY: sorted(example.types)}),
                **({UNKNOWN_KEY: [list(span) for span in example.unknown]} if example.unknown else {}),
            },
        }
        return [{key: value for key, value in record.items() if value}]


def _all_entities(example: TagExample) -> list[LabelledSpan]:
    return [*(example.entities or ()), *example.discontinuous]


def _move_entities(entities: Sequence[LabelledSpan], made: EditedText) -> tuple[LabelledSpan, ...]:
    return tuple((*made.map_span((start, end)), label) for start, end, label in entities)
