"""Scores of the task `relate`: right relations against guesses, with and without the pairs that have none.

`micro_f1` and `macro_f1` are over the relations: a pair without one counts only where a relation was guessed for it.
With the negative class among the labels, and where there is no such class, every pair has one label, so that micro F1
over all labels is accuracy. A pair that the model was not asked about has no guess: it is missed, and nothing more. So
is a relation that could not be linked to two entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alembert.corpus.document import Document, Relation, generate_unused_ids
from alembert.data.windows import IntArray
from alembert.tasks.classify.scores import ClassifyAnswer, metric_by_example
from alembert.tasks.example import Coverage, SampleMetric, TaskPrediction, TaskScores, score_attributes
from alembert.tasks.metrics import Tally, classes, ratio
from alembert.tasks.relate.data import EntityMention, RelateExample
from alembert.tasks.relate.pairs import CandidatePair

# N answers, L labels


_NO_PREDICTION = ""
"""Stands for the guess where there is none."""


@dataclass(frozen=True)
class RelatePrediction(TaskPrediction[RelateExample]):
    """The pairs of a text, and what each of them is."""

    pairs: tuple[CandidatePair, ...]
    answers: tuple[ClassifyAnswer, ...]
    """One a pair; without a label where the pair had no row and no label means that there is no relation."""
    coverage: Coverage

    def to_record(self, example: RelateExample, negative: str | None = None) -> dict[str, Any]:
        """Return a JSON object: of a marked pair what it is, of a document the relations in it."""
        record: dict[str, Any] = {"id": example.id, "text": example.text}
        if example.form == "document" or not self.pairs:
            record["triples"] = [to_triple(example, *pair) for pair in find_related_pairs(self, negative)]
        else:
            record |= to_triple(example, self.pairs[0], self.answers[0])
            record["probabilities"] = dict(self.answers[0].probabilities)
        return record | {"coverage": self.coverage.brief("cut_characters")}

    def to_lines(self, example: RelateExample, negative: str | None = None) -> list[str]:
        """List the relations, how sure they are, and between what; of a marked pair also if it has none."""
        pairs = zip(self.pairs[:1], self.answers[:1], strict=True)
        shown = find_related_pairs(self, negative) if example.form == "document" else pairs
        return [format_triple(to_triple(example, pair, answer)) for pair, answer in shown]


@dataclass(frozen=True)
class RelationResults:
    """Right relations and guesses, one after the other."""

    labels: tuple[str, ...]
    negative: str | None
    golds: tuple[str, ...]
    guesses: tuple[str, ...]
    counts_N: IntArray
    """Pairs of each example."""

    @classmethod
    def of(
        cls,
        labels: tuple[str, ...],
        negative: str | None,
        predictions: Sequence[RelatePrediction],
        unlinked: Sequence[Sequence[str]],
    ) -> RelationResults:
        """Compare; `unlinked` are the labels of each example's relations that are no pair."""
        graded = [
            [
                (pair.label, answer.label or _NO_PREDICTION)
                for pair, answer in _pairs_with_answers(prediction)
                if pair.label is not None
            ]
            + [(label, negative or _NO_PREDICTION) for label in others]
            for prediction, others in zip(predictions, unlinked, strict=True)
        ]
        flat = [pair for pairs in graded for pair in pairs]
        return cls(
            labels,
            negative,
            tuple(gold for gold, _ in flat),
            tuple(guess for _, guess in flat),
            np.array([len(pairs) for pairs in graded], np.int64),
        )

    def always(self, label: str) -> RelationResults:
        """Return the guesses of a model that says this label to whatever it is asked."""
        return replace(self, guesses=tuple(guess and label for guess in self.guesses))

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels, and what stands for none."""
        return (*self.labels, _NO_PREDICTION)

    @property
    def relations(self) -> list[int]:
        """Numbers of the labels that are relations."""
        return [number for number, label in enumerate(self.labels) if label != self.negative]


def _pairs_with_answers(prediction: RelatePrediction) -> zip[tuple[CandidatePair, ClassifyAnswer]]:
    return zip(prediction.pairs, prediction.answers, strict=True)


def compute_scores(compared: RelationResults, main: str, coverage: Coverage) -> TaskScores:
    """Compute all measures, and those of each label; note if they are no better than one label for all."""
    measures, tallies = _measures(compared)
    return TaskScores(
        main=main,
        measures=measures,
        by_label={label: tally.to_dict() for label, tally in tallies.items()},
        coverage=coverage,
        notes=tuple(_note_near_chance(compared, main, measures[main])),
    )


def _measures(compared: RelationResults) -> tuple[dict[str, float], dict[str, Tally]]:
    scores = classes.class_scores(compared.golds, compared.guesses, compared.all_labels)
    tallies = {label: scores.by_label[label] for label in compared.labels}
    relations = [tallies[compared.labels[number]] for number in compared.relations]
    measures = {"micro_f1": Tally.total(relations).f1, "macro_f1": _macro(relations)}
    if compared.negative is not None:
        everything = list(tallies.values())
        measures["micro_f1_with_negative"] = Tally.total(everything).f1
        measures["macro_f1_with_negative"] = _macro(everything)
    return {**measures, "accuracy": scores.accuracy}, tallies


def _note_near_chance(compared: RelationResults, main: str, value: float) -> Iterator[str]:
    """Note that a model does no better than one that gives every pair the same label; nothing if it does."""
    if not compared.golds:
        return
    best, label = max((_measures(compared.always(label))[0][main], label) for label in compared.labels)
    if value <= best:
        yield (
            f"Near chance: always saying {label} gives {main} {best:.4f}, and this model has {value:.4f}, so the score "
            "does not show that it has learnt anything."
        )


def _macro(tallies: Sequence[Tally]) -> float:
    """Average the F1 of the labels that occur, as scikit-learn does."""
    return ratio(sum(tally.f1 for tally in tallies if tally.occurs), sum(tally.occurs for tally in tallies))


def build_sample_metric(compared: RelationResults, main: str) -> SampleMetric:
    """Prepare the main measure for samples of examples."""
    relations = compared.relations

    def f1(matrix: IntArray) -> float:
        hits, guessed, right = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
        tallies = [
            Tally(tp=tp, fp=guess - tp, fn=gold - tp)
            for tp, guess, gold in np.stack((hits, guessed, right), axis=1)[relations].tolist()
        ]
        return Tally.total(tallies).f1 if main == "micro_f1" else _macro(tallies)

    of = classes.accuracy if main == "accuracy" else f1
    measure = classes.confusion_measure(compared.golds, compared.guesses, compared.all_labels, of)
    return metric_by_example(measure, compared.counts_N)


def find_related_pairs(
    prediction: RelatePrediction, negative: str | None
) -> Iterator[tuple[CandidatePair, ClassifyAnswer]]:
    """Yield the pairs that have a relation, each once."""
    seen: set[tuple[int, int]] = set()
    for pair, answer in zip(prediction.pairs, prediction.answers, strict=True):
        ends = (pair.head, pair.tail)
        if answer.label not in (None, negative) and ends not in seen:
            seen.add(ends)
            yield pair, answer


def to_triple(example: RelateExample, pair: CandidatePair, answer: ClassifyAnswer) -> dict[str, Any]:
    """Return a relation with its two entities."""
    return {
        "head": _entity_record(example, example.mentions[pair.head]),
        "relation": answer.label,
        "tail": _entity_record(example, example.mentions[pair.tail]),
        "score": answer.score,
    }


def _entity_record(example: RelateExample, mention: EntityMention) -> dict[str, Any]:
    record: dict[str, Any] = {
        "start": mention.start,
        "end": mention.end,
        "text": example.text[mention.start : mention.end],
    }
    if mention.type:
        record["label"] = mention.type
    return record | ({"concepts": list(mention.concepts)} if mention.concepts else {})


def format_triple(triple: dict[str, Any]) -> str:
    """Return a relation as a line."""
    head, tail = (f"{side['text']} ({side['start']}-{side['end']})" for side in (triple["head"], triple["tail"]))
    score = "not read" if triple["score"] is None else f"{triple['score']:.2f}"
    return f"{triple['relation'] or '(none)'}  {score}  {head} -> {tail}"


def with_relations(
    document: Document, example: RelateExample, prediction: RelatePrediction, negative: str | None
) -> Document:
    """Add the relations that were found between entities of the document."""
    names = generate_unused_ids("R", document)
    fresh = [
        Relation(
            next(names),
            str(answer.label),
            (("Arg1", example.mentions[pair.head].id), ("Arg2", example.mentions[pair.tail].id)),
            score_attributes(answer.score),
        )
        for pair, answer in find_related_pairs(prediction, negative)
    ]
    return replace(document, relations=(*document.relations, *fresh))
