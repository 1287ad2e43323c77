"""Text in, triples out: a tagger finds the entities, a relation model says how they are related.

The pairs are those that the relation model learnt from: the same generator, types and direction. A model that was
trained on marked sentences knows no types: it is asked about all pairs in the order in which they were marked, mostly
that of the text. What the entities are marked with is put in here as it was in training, so that a sentence whose
entities are all found right gives the answers that its marked form gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from alembert.errors import BadSetting
from alembert.hub import model_folder
from alembert.infer.task_model import BATCH_EXAMPLES, ModelTask, TaskModel
from alembert.tasks.example import Coverage
from alembert.tasks.files import read_task
from alembert.tasks.relate.data import example_from_entities
from alembert.tasks.relate.scores import RelatePrediction, find_related_pairs, format_triple, to_triple
from alembert.tasks.relate.task import RelateTask
from alembert.tasks.tag.data import PredictedEntity, TagPrediction

EntitySpan = tuple[int, int, str]
"""Start, end and type of an entity."""


@dataclass(frozen=True, kw_only=True)
class TripleFilter:
    """Which triples to keep; a model of marked sentences has an answer for entities of any types."""

    types: tuple[tuple[str, str], ...] = ()
    """Types of the two entities, whichever of them is the head; empty: all."""
    min_score: float = 0.0
    """How sure the relation model has to be, at least."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_score <= 1:
            raise BadSetting(f"The least score of a triple is {self.min_score:g}; expected a number from 0 to 1.")

    def check(self, known: Sequence[str]) -> None:
        """Refuse types that the tagger does not find."""
        names = {name.casefold() for name in known}
        for name in (name for pair in self.types for name in pair):
            if name.casefold() not in names:
                raise BadSetting(f"Triples of the type {name!r} were asked for; the tagger finds {', '.join(known)}.")

    def has_types(self, triple: Mapping[str, Any]) -> bool:
        """Return whether a triple is between entities of the types."""
        sides = sorted(str(triple[side].get("label", "")).casefold() for side in ("head", "tail"))
        return not self.types or sides in [sorted(map(str.casefold, pair)) for pair in self.types]

    def passes_min_score(self, triple: Mapping[str, Any]) -> bool:
        """Return whether the score of a triple is high enough."""
        return triple["score"] is None or bool(triple["score"] >= self.min_score)


@dataclass(frozen=True)
class TripleExtraction:
    """What was found in a text."""

    id: str
    text: str
    entities: tuple[PredictedEntity, ...]
    triples: tuple[dict[str, Any], ...]
    """Head, relation, tail and score of each: head and tail with offsets into the text."""
    tagged: Coverage
    related: Coverage
    unread: int
    """Pairs that no relation could be found for, because they do not fit into what the model reads at once."""
    withheld: int = 0
    """Entities and triples that were left out, because the models were less sure of them than the user asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "id": self.id,
            "text": self.text,
            "entities": [{**asdict(each), "text": self.text[each.start : each.end]} for each in self.entities],
            "triples": list(self.triples),
            "coverage": {
                "characters": self.tagged.characters,
                "tokens": self.tagged.tokens + self.related.tokens,
                "windows": self.tagged.windows,
                "pairs": self.related.windows + self.unread,
                "unread_pairs": self.unread,
                "cut_characters": self.related.cut_characters,
                **({"withheld": self.withheld} if self.withheld else {}),
            },
        }

    def lines(self) -> list[str]:
        """Return lines for people, one a triple."""
        return [format_triple(triple) for triple in self.triples]


def check_types(tagger: ModelTask, relater: ModelTask) -> None:
    """Refuse tasks of which one finds no entities of types that the other relates."""
    types, relations = tagger.task.annotation.entity_types, relater.task.annotation
    if not relations.can_relate(types):
        pairs = ", ".join(f"{head} to {tail}" for head, tail in relations.pair_types[:10])
        raise BadSetting(
            f"{tagger.saved.folder} finds entities of the types {', '.join(types)}, and {relater.saved.folder} relates "
            f"{pairs}: there is no pair of which both are found. Use models that were trained on the same types."
        )


@dataclass(frozen=True)
class TripleModel:
    """A tagger and a relation model that work together."""

    tagger: TaskModel
    relater: TaskModel
    filter: TripleFilter = field(default_factory=TripleFilter)

    def __post_init__(self) -> None:
        self.filter.check(self.tagger.task.annotation.entity_types)
        check_types(self.tagger.only, self.relater.only)

    @classmethod
    def open(
        cls, one: str | Path, other: str | Path, triple_filter: TripleFilter | None = None, *, device: str = "cpu"
    ) -> TripleModel:
        """Open the two folders, in any order."""
        saved = [read_task(model_folder(folder)) for folder in (one, other)]
        folders = {task.kind: task.folder for task in saved}
        if set(folders) != {"tag", "relate"}:
            tasks = ", ".join(f"{task.kind} ({task.folder})" for task in saved)
            raise BadSetting(
                f"Triples need a model for the task tag and one for the task relate; these are for {tasks}."
            )
        tagger, relater = (TaskModel.open(folders[task], device) for task in ("tag", "relate"))
        return cls(tagger, relater, triple_filter or TripleFilter())

    def with_threshold(self, min_score: float | None = None, min_precision: float | None = None) -> TripleModel:
        """Return the models that withhold entities and relations, as `TaskModel.with_threshold` does."""
        tagger, relater = (each.with_threshold(min_score, min_precision) for each in (self.tagger, self.relater))
        return replace(self, tagger=tagger, relater=relater)

    def extract(
        self, texts: Sequence[str], ids: Sequence[str] | None = None, *, are_sentences: bool = False
    ) -> Iterator[TripleExtraction]:
        """Find the entities and relations of texts, some at a time; texts are single sentences, or theirs are found."""
        examples = self.tagger.task.examples_from_texts(texts, ids)
        for start in range(0, len(examples), BATCH_EXAMPLES):
            part = examples[start : start + BATCH_EXAMPLES]
            tagged: list[TagPrediction] = self.tagger.predict(part)
            spans = [each.spans for each in tagged]
            parted = [each.text for each in part]
            found = predict_relations(self.relater, parted, spans, are_sentences=are_sentences)
            for example, entities, prediction in zip(part, tagged, found, strict=True):
                yield self._extraction(example.id, example.text, entities, prediction)

    def _extraction(
        self, name: str, text: str, tagged: TagPrediction, prediction: RelatePrediction
    ) -> TripleExtraction:
        example = example_from_entities(text, tagged.spans, id=name)
        negative = cast(RelateTask, self.relater.task).rules.negative
        triples = [to_triple(example, *each) for each in find_related_pairs(prediction, negative)]
        of_types = [triple for triple in triples if self.filter.has_types(triple)]
        sure = tuple(triple for triple in of_types if self.filter.passes_min_score(triple))
        return TripleExtraction(
            id=name,
            text=text,
            entities=tagged.entities,
            triples=sure,
            tagged=tagged.coverage,
            related=prediction.coverage,
            unread=len(prediction.pairs) - prediction.coverage.windows,
            withheld=tagged.coverage.withheld + prediction.coverage.withheld + len(of_types) - len(sure),
        )


def predict_relations(
    relater: TaskModel,
    texts: Sequence[str],
    entities: Sequence[Iterable[EntitySpan]],
    *,
    are_sentences: bool = False,
) -> list[RelatePrediction]:
    """Predict how the entities of each text are related, whoever found them.

    The texts are sentences, each to be read whole as the marked ones of training were, or theirs are to be found.
    """
    examples = [
        example_from_entities(text, found, is_sentence=are_sentences)
        for text, found in zip(texts, entities, strict=True)
    ]
    return relater.predict(examples)
